//! Compiles every kernel for every supported architecture, and writes them into the pack that a
//! package embeds. Needs NVRTC and no GPU: `cargo run --example kernels -- FILE FOLDER [ARCH...]`.
//! With architectures, such as sm_90, the pack has only those, for one's own machine or for a test
//! of the texts: none of them asks which architecture it is compiled for.
//!
//! Images are kept in FOLDER, so that only changed texts are compiled again. The pack is checked:
//! each kernel is present for each architecture, and no architecture takes too many bytes.

#![allow(clippy::print_stdout)]

use std::borrow::Cow;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use unspool_cuda::kernels::{Arch, Cache, Fit, KernelText, Key, NewImage, Nvrtc, Pack, Target};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a pack has, and the maximum size of each in bytes: 16.9 MB together, as a wheel has 22 MiB
/// at most (`xtask/check_dist.py`). Machine code runs on devices of the same major number: code for
/// 8.0 runs on 8.6 and 8.9. PTX is for all later devices.
const TARGETS: [(Target, usize); 5] = [
    (Target::Code(Arch::new(8, 0)), 2_980_000),
    (Target::Code(Arch::new(9, 0)), 3_150_000),
    (Target::Code(Arch::new(10, 0)), 3_860_000),
    (Target::Code(Arch::new(12, 0)), 3_650_000),
    (Target::Ptx(Arch::new(10, 0)), 3_260_000),
];
/// Maximum size in bytes of the machine code for 9.0 of an encoder for arrays of one form, of up to
/// 32 bits and of 64. A way for rare chunks in it, beside that of the others, held grids of 400^3
/// at 16 GB/s: what warps run at once did not fit the memory for instructions.
const MOST_CODE: [usize; 2] = [340_000, 450_000];
/// Compute capabilities that need compiled kernels.
const SUPPORTED: [(u32, u32); 9] =
    [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)];
/// The highest level of zstd that decodes with little memory.
const LEVEL: i32 = 19;
/// Bytes of images that are compressed together.
const GROUP: usize = 2_000_000;

/// A text and a target to compile it for.
struct Task {
    source: KernelText,
    target: Target,
}

fn main() -> Outcome {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [path, folder, archs @ ..] = &words[..] else {
        return Err("usage: kernels FILE FOLDER [ARCH...]".into());
    };
    let (path, began, cache) = (Path::new(path), Instant::now(), Cache::at(folder));
    let nvrtc = Nvrtc::find_in(&[])?;
    let targets = targets(archs)?;
    let tasks = tasks(&targets);
    let images = all(&tasks, |task| made(task, &nvrtc, &cache))?;
    let groups = grouped(&tasks, images);
    let bytes = Pack::write(nvrtc.version(), &groups, LEVEL)?;
    check(&bytes, &tasks, &targets, archs.is_empty())?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, &bytes)?;
    println!(
        "{}: {} images of {} texts by {nvrtc:?}, {} bytes, {:.0?}",
        path.display(),
        tasks.len(),
        tasks.len() / targets.len(),
        bytes.len(),
        began.elapsed()
    );
    Ok(())
}

/// The named architectures, or all of them with the PTX.
fn targets(names: &[OsString]) -> Outcome<Vec<Target>> {
    let all = TARGETS.map(|(target, _)| target);
    let of_name = |name: &OsString| {
        let found = all.into_iter().find(|target| name.to_str() == Some(&target.to_string()));
        found.ok_or_else(|| format!("{} is none of {all:?}", name.display()).into())
    };
    if names.is_empty() { Ok(all.to_vec()) } else { names.iter().map(of_name).collect() }
}

/// Every text for every target, ordered by target.
fn tasks(targets: &[Target]) -> Vec<Task> {
    let sources = unspool_gpu_codec::sources();
    let task = |target| sources.iter().map(move |source| Task { source: source.clone(), target });
    targets.iter().copied().flat_map(task).collect()
}

/// The results of `make` for all tasks, on all processors.
fn all<T: Send>(tasks: &[Task], make: impl Fn(&Task) -> Outcome<T> + Sync) -> Outcome<Vec<T>> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Outcome {
        while let Some((index, task)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            tasks.get(index).map(|task| (index, task))
        } {
            let one = make(task)?;
            made.lock().map_err(|_| "another thread has failed")?.push((index, one));
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a panic".into())))
    })?;
    let mut made = made.into_inner().map_err(|_| "another thread has failed")?;
    made.sort_by_key(|(index, _)| *index);
    Ok(made.into_iter().map(|(_, one)| one).collect())
}

fn made(task: &Task, nvrtc: &Nvrtc, cache: &Cache) -> Outcome<NewImage> {
    let (Task { source: KernelText { name, text, .. }, target }, began) = (task, Instant::now());
    let image = nvrtc.compile(name, text, *target, Some(cache))?;
    println!("{:6.1?}  {image:?} for {target}: {name}", began.elapsed());
    Ok(NewImage { key: Key::of(text), target: *target, image })
}

/// Images that are compressed together: those of one target, as many as can be unpacked in a
/// millisecond or two. Neighbours are similar.
fn grouped(tasks: &[Task], images: Vec<NewImage>) -> Vec<Vec<NewImage>> {
    let mut groups: Vec<Vec<NewImage>> = Vec::new();
    let (mut bytes, mut last) = (0, None);
    for (task, made) in tasks.iter().zip(images) {
        let (target, len) = (task.target, made.image.bytes().len());
        if last != Some(target) || bytes + len > GROUP {
            groups.push(Vec::new());
            bytes = 0;
        }
        (bytes, last) = (bytes + len, Some(target));
        if let Some(group) = groups.last_mut() {
            group.push(made);
        }
    }
    groups
}

/// Checks that each kernel is present for each architecture, and that the pack is not too large.
fn check(bytes: &[u8], tasks: &[Task], targets: &[Target], is_whole: bool) -> Outcome {
    let of = TARGETS.iter().filter(|(target, _)| targets.contains(target));
    let most: usize = of.map(|(_, bytes)| bytes).sum();
    if bytes.len() > most {
        return Err(format!("{} bytes are more than {most}", bytes.len()).into());
    }
    let pack = Pack::open(Cow::Owned(bytes.to_vec())).ok_or("the pack is damaged")?;
    all(tasks, |task| {
        let (KernelText { name, kernels, text }, target) = (&task.source, task.target);
        let image = pack.exact(Key::of(text), target);
        let image = image.ok_or_else(|| format!("{name} is not there for {target}"))?;
        if image.is_ptx() != matches!(target, Target::Ptx(_)) {
            return Err(format!("{name} for {target} is of another kind: {image:?}").into());
        }
        let most = MOST_CODE[usize::from(name.contains("wide"))];
        let is_special = name.contains("encode") && name.contains("for the form");
        let is_sized = is_special && target == Target::Code(Arch::new(9, 0));
        if is_sized && image.bytes().len() > most {
            return Err(format!("{name} for {target}: {image:?} is more than {most} bytes").into());
        }
        match kernels.iter().find(|kernel| !image.has_kernel(kernel)) {
            Some(kernel) => Err(format!("{name} for {target} lacks {kernel}").into()),
            None => Ok(()),
        }
    })?;
    let lacks = |&(major, minor): &(u32, u32)| pack.fit(Arch::new(major, minor)) != Fit::Binary;
    match SUPPORTED.iter().find(|numbers| is_whole && lacks(numbers)) {
        Some(arch) => Err(format!("there is no machine code for {arch:?}").into()),
        None => Ok(()),
    }
}
