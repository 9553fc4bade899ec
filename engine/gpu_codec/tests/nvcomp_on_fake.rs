//! nvCOMP over a fake driver with a fake nvCOMP: which libraries are accepted, and how containers
//! are made, placed, read and found damaged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use unspool_codec::{Dtype, NvComp};
use unspool_cuda::{
    Context, DeviceError, DeviceErrorKind, DeviceMemory, DeviceSpan, Driver, Stream, copy,
};
use unspool_fakecuda::Fake;
use unspool_gpu_codec::{
    DecodeJob, DecodeStatus, EncodeErrorKind, EncodeJob, GpuCodec, NvCompCoder, NvCompLayout,
    NvCompLibrary, Pending, Slots, Start, StoredCheckpoint,
};

const LIMIT: Duration = Duration::from_secs(20);
const ROOM: u64 = 1 << 21;
const HEAD: u64 = 64;

type Outcome<T = ()> = Result<T, DeviceError>;

/// A folder like `site-packages` in which the fake stands for nvCOMP.
struct Packages(PathBuf);

impl Packages {
    fn new(name: &str) -> Packages {
        let root = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        let folder = root.join("nvidia/libnvcomp/lib64");
        std::fs::create_dir_all(&folder).expect("a folder");
        let fake = std::env::var_os("UNSPOOL_CUDA_DRIVER").expect("the fake is the driver");
        let fake = std::fs::canonicalize(Path::new(&fake)).expect("the fake is there");
        std::os::unix::fs::symlink(fake, folder.join("libnvcomp.so.6")).expect("a link");
        Packages(root)
    }

    fn folders(&self) -> Vec<PathBuf> {
        vec![self.0.clone()]
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Bench {
    context: Context,
    stream: Stream,
    coder: NvCompCoder,
    room: DeviceMemory,
    _packages: Packages,
}

impl Bench {
    fn new(name: &str) -> Outcome<Bench> {
        let context = Context::new(&Driver::load()?, 0)?;
        let packages = Packages::new(name);
        let (stream, room) = (Stream::new(&context)?, DeviceMemory::new(&context, ROOM)?);
        let slots = Slots::new(&context);
        let coder = NvCompCoder::looking_in(&context, &slots, packages.folders());
        Ok(Bench { coder, context, stream, room, _packages: packages })
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<DeviceMemory> {
        let memory = DeviceMemory::new(&self.context, bytes.len() as u64)?;
        copy::host_to_device(&self.stream, &memory.span(), bytes, LIMIT)?;
        Ok(memory)
    }

    fn download(&self, span: &DeviceSpan) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; span.len() as usize];
        copy::device_to_host(&self.stream, &mut bytes, span, LIMIT)?;
        Ok(bytes)
    }

    fn begin(&self) -> u64 {
        self.room.span().address()
    }

    fn encode(
        &self,
        source: u64,
        layout: &NvCompLayout,
        start: Start<'_>,
        limit: u64,
    ) -> Outcome<Pending> {
        let jobs = [EncodeJob { steps: None, source, layout: layout.clone().into() }];
        let asked = [StoredCheckpoint { jobs: &jobs, start, limit }];
        // SAFETY: sources and the room live until the end of the test, which waits.
        let all = unsafe { self.coder.encode(&self.stream, &asked) };
        Ok(all?.pop().expect("one checkpoint gives one result"))
    }

    /// Encodes the array `count` times with one call, and waits for the results.
    fn encode_batch(&self, source: u64, layout: &NvCompLayout, count: usize) -> Outcome {
        let jobs = [EncodeJob { steps: None, source, layout: layout.clone().into() }];
        let limit = self.begin() + ROOM;
        let start = |index| Start::At(self.begin() + index as u64 * layout.most());
        let asked =
            (0..count).map(|index| StoredCheckpoint { jobs: &jobs, start: start(index), limit });
        let asked: Vec<_> = asked.collect();
        // SAFETY: as in `encode`.
        let all = unsafe { self.coder.encode(&self.stream, &asked) }?;
        all.iter().for_each(|pending| drop(pending.wait(LIMIT).expect("a container")));
        Ok(())
    }

    fn decode(
        &self,
        stream: u64,
        stored: u64,
        layout: &NvCompLayout,
        target: u64,
    ) -> Outcome<DecodeStatus> {
        let job = DecodeJob { stream, stored, steps: None, layout: layout.clone().into(), target };
        // SAFETY: as above.
        unsafe { self.coder.decode(&self.stream, &[job]) }
    }
}

/// Bytes whose chunks of 64 KiB are zeros and a pattern in turn.
fn mixed(len: usize) -> Vec<u8> {
    let byte = |i: usize| if i >> 16 & 1 == 1 { (i * 7 + i / 251) as u8 } else { 0 };
    (0..len).map(byte).collect()
}

fn layout(codec: NvComp, len: usize) -> NvCompLayout {
    NvCompLayout::of(&codec, &Dtype::Float32, &[len as u64 / 4]).expect("a layout")
}

#[test]
fn only_versions_five_and_six_are_taken() {
    let fake = Fake::start();
    let packages = Packages::new("nvcomp-gate");
    for (number, version) in [(5100, (5, 1, 0)), (5300, (5, 3, 0)), (6012, (6, 0, 12))] {
        fake.nvcomp(number);
        let library = NvCompLibrary::find_in(&packages.folders()).unwrap();
        assert_eq!(library.version(), version);
        assert!(library.path().starts_with(&packages.0));
    }
    for number in [0, 2300, 4200, 7000] {
        fake.nvcomp(number);
        let error = NvCompLibrary::find_in(&packages.folders()).unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Missing);
        assert!(error.to_string().contains("UNSPOOL_NVCOMP"), "{error}");
    }
}

#[test]
fn arrays_come_back_from_their_containers() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-round").unwrap();
    for (seed, len) in [4, 1000, 65_536, 65_540, 300_000, 524_288].into_iter().enumerate() {
        fake.seed(seed as u64);
        for codec in [NvComp::Lz4, NvComp::Bitcomp] {
            let (bytes, layout) = (mixed(len), layout(codec, len));
            let source = bench.upload(&bytes).unwrap();
            let target = bench.upload(&vec![0x5a; len]).unwrap();
            let start = Start::At(bench.begin());
            let pending = bench
                .encode(source.span().address(), &layout, start, bench.begin() + ROOM)
                .unwrap();
            let result = pending.wait(LIMIT).unwrap();
            assert!(result.bytes <= layout.most(), "{len}");
            assert_eq!(result.jobs[0].stored, result.bytes);
            assert_eq!(result.jobs[0].achieved.values, len as u64 / 4);
            let to = target.span();
            let status = bench.decode(result.start, result.bytes, &layout, to.address()).unwrap();
            status.wait(LIMIT).unwrap();
            assert_eq!(bench.download(&to).unwrap(), bytes, "{len} {codec:?}");
        }
    }
}

#[test]
fn what_does_not_get_smaller_is_kept_as_it_is() {
    let fake = Fake::start();
    fake.nvcomp(5300);
    let bench = Bench::new("nvcomp-raw").unwrap();
    let bytes: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
    let layout = layout(NvComp::Lz4, bytes.len());
    let (source, target) = (bench.upload(&bytes).unwrap(), bench.upload(&bytes).unwrap());
    let start = Start::At(bench.begin());
    let pending =
        bench.encode(source.span().address(), &layout, start, bench.begin() + ROOM).unwrap();
    let result = pending.wait(LIMIT).unwrap();
    assert_eq!(result.bytes, HEAD + bytes.len() as u64);
    let kept = bench.room.span().slice(HEAD, bytes.len() as u64).unwrap();
    assert_eq!(bench.download(&kept).unwrap(), bytes);
    copy::fill(&bench.stream, &target.span(), 0).unwrap();
    let status =
        bench.decode(result.start, result.bytes, &layout, target.span().address()).unwrap();
    status.wait(LIMIT).unwrap();
    assert_eq!(bench.download(&target.span()).unwrap(), bytes);
}

#[test]
fn a_container_begins_after_one_whose_size_is_not_known_yet() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-chain").unwrap();
    let bytes = mixed(400_000);
    let layout = layout(NvComp::Lz4, bytes.len());
    let source = bench.upload(&bytes).unwrap();
    let limit = bench.begin() + ROOM;
    fake.hold();
    let first =
        bench.encode(source.span().address(), &layout, Start::At(bench.begin()), limit).unwrap();
    let after = Start::After { pending: &first, align: 256 };
    let second = bench.encode(source.span().address(), &layout, after, limit).unwrap();
    assert!(first.try_result().is_none());
    fake.release();
    let (first, second) = (first.wait(LIMIT).unwrap(), second.wait(LIMIT).unwrap());
    assert_eq!(second.start, (first.start + first.bytes).next_multiple_of(256));
    assert_eq!(second.bytes, first.bytes);
    let one = bench.room.span().slice(0, first.bytes).unwrap();
    let other = bench.room.span().slice(second.start - first.start, second.bytes).unwrap();
    assert_eq!(bench.download(&one).unwrap(), bench.download(&other).unwrap());
}

#[test]
fn the_room_of_a_batch_serves_smaller_ones_and_is_freed_where_memory_is_short() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-rooms").unwrap();
    let bytes = mixed(100_000);
    let (large, small) = (layout(NvComp::Lz4, 100_000), layout(NvComp::Lz4, 70_000));
    let source = bench.upload(&bytes).unwrap();
    let from = source.span().address();
    bench.encode_batch(from, &large, 8).unwrap();
    let allocated = fake.calls("cuMemAlloc_v2");
    for count in [8, 5, 3, 2, 8] {
        bench.encode_batch(from, &large, count).unwrap();
    }
    assert_eq!(fake.calls("cuMemAlloc_v2"), allocated);
    bench.encode_batch(from, &large, 1).unwrap();
    let blocks = fake.count("blocks");
    fake.fail("cuMemAlloc_v2", 1, 2);
    bench.encode_batch(from, &small, 4).unwrap();
    assert_eq!(fake.count("blocks"), blocks - 1, "two were freed for it");
}

#[test]
fn nothing_is_written_beyond_the_limit() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-limit").unwrap();
    let bytes = mixed(400_000);
    let source = bench.upload(&bytes).unwrap();
    copy::fill(&bench.stream, &bench.room.span(), 0xa5).unwrap();
    let layout = layout(NvComp::Lz4, bytes.len());
    let start = Start::At(bench.begin());
    let limit = bench.begin() + 4096;
    let pending = bench.encode(source.span().address(), &layout, start, limit).unwrap();
    assert_eq!(pending.wait(LIMIT).unwrap_err().kind(), EncodeErrorKind::Overflow);
    let room = bench.download(&bench.room.span()).unwrap();
    assert!(room.iter().all(|&byte| byte == 0xa5));
}

#[test]
fn arrays_that_are_not_aligned_are_copied_first() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-crooked").unwrap();
    let bytes = mixed(200_004);
    let layout = layout(NvComp::Bitcomp, bytes.len() - 4);
    let source = bench.upload(&bytes).unwrap();
    let target = bench.upload(&vec![0; bytes.len()]).unwrap();
    let (from, to) = (source.span().address() + 4, target.span().address() + 4);
    let pending =
        bench.encode(from, &layout, Start::At(bench.begin()), bench.begin() + ROOM).unwrap();
    let result = pending.wait(LIMIT).unwrap();
    bench.decode(result.start, result.bytes, &layout, to).unwrap().wait(LIMIT).unwrap();
    let back = bench.download(&target.span()).unwrap();
    assert_eq!(back[..4], [0; 4]);
    assert_eq!(back[4..], bytes[4..]);
}

#[test]
fn no_damaged_container_reaches_the_decoder() {
    let fake = Fake::start();
    fake.nvcomp(6000);
    let bench = Bench::new("nvcomp-damage").unwrap();
    let bytes = mixed(300_000);
    let layout = layout(NvComp::Lz4, bytes.len());
    let source = bench.upload(&bytes).unwrap();
    let target = bench.upload(&bytes).unwrap();
    let start = Start::At(bench.begin());
    let pending =
        bench.encode(source.span().address(), &layout, start, bench.begin() + ROOM).unwrap();
    let result = pending.wait(LIMIT).unwrap();
    let whole = bench.room.span().slice(0, result.bytes).unwrap();
    let container = bench.download(&whole).unwrap();
    let places = [0, 5, 9, 20, 33, 41, 48, 60, 64, 68, 100, container.len() - 1];
    for at in places.into_iter().chain((64..container.len()).step_by(9001)) {
        let mut damaged = container.clone();
        damaged[at] ^= 0x10;
        copy::host_to_device(&bench.stream, &whole, &damaged, LIMIT).unwrap();
        let to = target.span().address();
        let status = bench.decode(result.start, result.bytes, &layout, to).unwrap();
        let error = status.wait(LIMIT).unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Damaged, "byte {at}: {error}");
    }
    copy::host_to_device(&bench.stream, &whole, &container, LIMIT).unwrap();
    let to = target.span();
    bench.decode(result.start, result.bytes, &layout, to.address()).unwrap().wait(LIMIT).unwrap();
    assert_eq!(bench.download(&to).unwrap(), bytes);
    let error = bench.decode(result.start, 100, &layout, to.address()).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Damaged);
}

#[test]
fn a_format_that_a_version_lacks_is_refused_with_what_to_install() {
    let fake = Fake::start();
    fake.nvcomp(5300);
    let bench = Bench::new("nvcomp-lacks").unwrap();
    let lossy = layout(NvComp::BitcompLossy(1e-3), 4096);
    let source = bench.upload(&mixed(4096)).unwrap();
    let start = Start::At(bench.begin());
    let error = bench
        .encode(source.span().address(), &lossy, start, bench.begin() + ROOM)
        .unwrap_err()
        .to_string();
    assert!(error.contains("5.3.0") && error.contains("needs version 6"), "{error}");
    let ans = layout(NvComp::Ans, 4096);
    let error = bench.encode(source.span().address(), &ans, start, bench.begin() + ROOM);
    assert_eq!(error.unwrap_err().kind(), DeviceErrorKind::Missing);
}

#[test]
fn what_is_not_a_library_is_refused_with_what_to_install() {
    let _fake = Fake::start();
    let root = tempfile::tempdir().unwrap().keep();
    let folder = root.join("nvidia/libnvcomp/lib64");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libnvcomp.so.6"), "not a library").unwrap();
    let error = NvCompLibrary::find_in(std::slice::from_ref(&root)).unwrap_err();
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(error.kind(), DeviceErrorKind::Missing);
    assert!(error.to_string().contains("pip install"));
}
