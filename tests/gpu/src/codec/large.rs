//! Large arrays, alone and several in one checkpoint; each form has its own kernels.

use unspool_codec::twine as codec;
use unspool_codec::{Bound, Dtype};
use unspool_cuda::{Context, DeviceMemory, Stream, copy};
use unspool_gpu_codec::twine::Twine;
use unspool_gpu_codec::{DecodeJob, GpuCodec, Start, StoredCheckpoint};

use crate::bench::{LONG, download, upload};
use crate::check::{GUARD, job_of};
use crate::fields::{Dice, Region, array, label};

/// Checks arrays that are large enough for their own kernels, with one thread for each, so that the
/// kernels are compiled in parallel.
pub fn run(context: &Context) {
    let methods = [None, Some(Bound::Range(1e-4))];
    let shapes = [vec![300_000], vec![600, 530], vec![3, 20, 70, 90]];
    std::thread::scope(|scope| {
        for dtype in [Dtype::Float32, Dtype::Float64] {
            for (shape, method) in shapes.iter().flat_map(|s| methods.map(|m| (s, m))) {
                let region = array(&mut Dice(7), dtype.clone(), shape.clone(), method);
                scope.spawn(move || check_together(context, &[region]));
            }
        }
    });
    let (range, exact) = (Some(Bound::Range(1e-4)), None);
    let dice = &mut Dice(8);
    let mut make = |dtype, shape: &[u64], method| array(dice, dtype, shape.to_vec(), method);
    // More tiles than run at a time.
    let same: Vec<Region> = (0..24).map(|_| make(Dtype::Float32, &[500_000], range)).collect();
    check_together(context, &same);
    let mut mixed = vec![
        make(Dtype::Float32, &[3_000_000], range),
        make(Dtype::Float32, &[2000, 1600], range),
        make(Dtype::Int16, &[7, 300], exact),
        make(Dtype::Float64, &[1_200_000], exact),
        make(Dtype::UInt8, &[1003], exact),
        make(Dtype::Float32, &[600, 530], range),
        make(Dtype::Float32, &[2000, 1600], exact),
    ];
    mixed[4].spec = None;
    check_together(context, &mixed);
    println!("large arrays of each form: the bytes of the processor, and the values back");
}

/// One or several large arrays in one checkpoint.
fn check_together(context: &Context, regions: &[Region]) {
    let stream = Stream::new(context).unwrap();
    let coder = Twine::new(context, Vec::new()).with_launches_from(128);
    let memories: Vec<DeviceMemory> =
        regions.iter().map(|region| upload(context, &stream, region.bytes(), 0)).collect();
    let sources = memories.iter().map(|memory| memory.span().address());
    let jobs = Vec::from_iter(regions.iter().zip(sources).map(|(region, at)| job_of(region, at)));
    let what: Vec<String> = regions.iter().map(label).collect();
    let mut expected = Vec::new();
    for region in regions {
        expected.resize(expected.len().next_multiple_of(64), 0);
        expected.extend(region.expected().0);
    }
    let room = DeviceMemory::new(context, expected.len() as u64).unwrap();
    let begin = room.span().address();
    let (start, limit) = (Start::At(begin), begin + room.span().len());
    for _ in 0..3 {
        // SAFETY: everything lives until the results are there.
        let pending =
            unsafe { coder.encode(&stream, &[StoredCheckpoint { jobs: &jobs, start, limit }]) };
        let result = pending.unwrap()[0].wait(LONG).unwrap();
        assert_eq!(result.bytes, expected.len() as u64, "{what:?}");
        assert!(download(&stream, &room) == expected, "{what:?}");
        let streams = regions.iter().zip(&memories).zip(&result.jobs);
        let streams = streams.filter_map(|((region, memory), job)| {
            let layout = region.spec?.into();
            let (stream, target) = (begin + job.offset, memory.span().address());
            Some(DecodeJob { stream, stored: job.stored, layout, target, steps: None })
        });
        let streams: Vec<DecodeJob> = streams.collect();
        // SAFETY: as above.
        unsafe { coder.decode(&stream, &streams) }.unwrap().wait(LONG).unwrap();
        for (region, memory) in regions.iter().zip(&memories) {
            let Some(spec) = &region.spec else { continue };
            let mut values = vec![0; region.bytes];
            codec::decode(&spec.layout, &region.expected().0, &mut values).unwrap();
            assert!(download(&stream, memory) == values, "{} together", label(region));
            copy::host_to_device(&stream, &memory.span(), region.bytes(), LONG).unwrap();
        }
        copy::fill(&stream, &room.span(), GUARD).unwrap();
    }
}
