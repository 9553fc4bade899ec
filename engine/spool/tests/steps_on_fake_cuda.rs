//! Arrays that are not dense, encoded and decoded where they are on a fake GPU.

mod application;

use application::{Application, LIMIT, Outcome, download, open, upload, wait};
use unspool::gpu::{DeviceArray, DeviceMemory, StridedLayout};
use unspool::{Codecs, Dtype, RegionSpec, Spec};
use unspool_fakecuda::Fake;

/// Of an array with a margin of 2 or more on all sides.
const SHAPE: [u64; 3] = [9, 20, 40];
const WHOLE: [u64; 3] = [14, 26, 44];

fn values(_: i64) -> Vec<u8> {
    let count = WHOLE.iter().product::<u64>();
    (0..count).flat_map(|i| ((i as f32) * 0.01).sin().to_le_bytes()).collect()
}

/// An array in memory of `WHOLE`: its layout, and the byte of its first value.
struct Case {
    name: &'static str,
    layout: StridedLayout,
    first: u64,
    /// Kernels of a save, and of a restore.
    launches: [u64; 2],
}

fn case(name: &'static str, strides: [i64; 3], first: u64, launches: [u64; 2]) -> Case {
    let layout = StridedLayout { shape: SHAPE.to_vec(), strides: strides.to_vec(), itemsize: 4 };
    Case { name, layout, first, launches }
}

fn cases() -> [Case; 5] {
    let (row, plane) = (4 * 44, 4 * 44 * 26);
    [
        case("interior", [plane, row, 4], (2 * plane + 2 * row + 8).cast_unsigned(), [1, 1]),
        case("Fortran", [4, 4 * 9, 4 * 9 * 20], 0, [1, 1]),
        case("planes of columns", [plane, 4, 4 * 20], 4, [1, 1]),
        case("every second", [4 * 1600, 4 * 80, 8], 0, [1, 2]),
        case("reversed", [-plane, row, 4], 8 * plane.cast_unsigned(), [2, 2]),
    ]
}

fn array_in(memory: &DeviceMemory, case: &Case) -> DeviceArray {
    let first = memory.span().address() + case.first;
    // SAFETY: the memory lives longer than its copies.
    unsafe { DeviceArray::strided(0, first, case.layout.clone()) }
}

fn launches(fake: &Fake) -> u64 {
    fake.calls("cuLaunchKernel")
}

/// Saves the array of `case` and restores it into memory of zeros.
fn there_and_back(fake: &Fake, application: &Application, check: bool, case: &Case) -> Outcome {
    let spool = open(Codecs::all(Spec::Lossless), |settings| settings.check_codec = check)?;
    let stream = &application.stream;
    let from = upload(&application.context, stream, &values(0))?;
    let to = upload(&application.context, stream, &vec![0; values(0).len()])?;
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape: SHAPE.to_vec() };
    // The first save loads the kernels.
    for version in 0..2 {
        let before = launches(fake);
        let mut ticket = spool.save(version, vec![spec.clone()], &wait())?;
        ticket.put(0, &array_in(&from, case), stream)?;
        ticket.commit()?;
        assert!(check || launches(fake) - before == case.launches[0], "{}", case.name);
    }
    let before = launches(fake);
    let mut ticket = spool.restore(1, &wait())?;
    ticket.get(0, &array_in(&to, case), stream)?;
    ticket.finish()?;
    assert_eq!(launches(fake) - before, case.launches[1], "{}", case.name);
    let (all, found) = (values(0), download(stream, &to)?);
    let mut inside = vec![false; all.len()];
    for at in offsets(case) {
        inside[at..at + 4].fill(true);
    }
    for (at, &is_inside) in inside.iter().enumerate() {
        assert_eq!(found[at], if is_inside { all[at] } else { 0 }, "{} byte {at}", case.name);
    }
    spool.restore(1, &wait())?.read(0, |bytes| {
        let expected: Vec<u8> = offsets(case).flat_map(|at| all[at..at + 4].to_vec()).collect();
        assert!(bytes == expected, "{}", case.name);
    })?;
    Ok(spool.close()?)
}

/// Where the values are in memory, in C order.
fn offsets(case: &Case) -> impl Iterator<Item = usize> + '_ {
    let [nz, ny, nx] = SHAPE;
    let all = (0..nz).flat_map(move |z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [z, y, x])));
    all.map(|at| {
        let steps = at.iter().zip(&case.layout.strides).map(|(&i, &step)| i.cast_signed() * step);
        (case.first.cast_signed() + steps.sum::<i64>()) as usize
    })
}

#[test]
fn slices_and_transposed_arrays_are_encoded_and_decoded_where_they_are() {
    let fake = Fake::start();
    let application = Application::with(values).unwrap();
    for case in &cases() {
        there_and_back(&fake, &application, false, case).unwrap();
    }
}

#[test]
fn values_that_are_compared_are_read_back_dense() {
    let fake = Fake::start();
    let application = Application::with(values).unwrap();
    for case in &cases() {
        there_and_back(&fake, &application, true, case).unwrap();
    }
}

#[test]
fn items_that_share_memory_are_not_restored_into() {
    let _fake = Fake::start();
    let application = Application::with(values).unwrap();
    let spool = open(Codecs::all(Spec::Lossless), |_| ()).unwrap();
    let stream = &application.stream;
    let memory = upload(&application.context, stream, &values(0)).unwrap();
    // Rows that begin inside of the ones before.
    let window = case("window", [4 * 800, 4 * 20, 4], 0, [1, 1]);
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape: SHAPE.to_vec() };
    let mut ticket = spool.save(0, vec![spec], &wait()).unwrap();
    ticket.put(0, &array_in(&memory, &window), stream).unwrap();
    ticket.commit().unwrap();
    let mut ticket = spool.restore(0, &wait()).unwrap();
    let refused = ticket.get(0, &array_in(&memory, &window), stream).unwrap_err();
    assert!(refused.to_string().contains("share memory"), "{refused}");
    drop(ticket);
    assert_eq!(download(stream, &memory).unwrap(), values(0));
    spool.close().unwrap();
    stream.sync(LIMIT).unwrap();
}
