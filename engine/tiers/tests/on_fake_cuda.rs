//! Who has to wait for whom in an arena whose bytes are used by work that is not done yet, on a
//! driver in plain memory that can be made to stand still.

use std::sync::Arc;
use std::time::Duration;

use unspool_core::CheckpointId;
use unspool_cuda::{
    DeviceArenaOptions, DeviceMemory, DeviceSpan, Fence, PinnedOptions, Stream, Unregistered, copy,
};
use unspool_fakecuda::Fake;
use unspool_tiers::{Arena, GivenArray, Gpu, Tier};

const LEN: u64 = 1 << 16;
const A: CheckpointId = CheckpointId(1);
const B: CheckpointId = CheckpointId(2);
/// Longer than anything takes here.
const LIMIT: Duration = Duration::from_secs(30);

fn gpu(limit: Duration) -> Arc<Gpu> {
    Gpu::open(0, limit).unwrap_or_else(|error| panic!("{error}"))
}

fn on_device(gpu: &Arc<Gpu>) -> Arena {
    Arena::on_device(gpu, 2 << 20, &DeviceArenaOptions::default()).expect("the fake has room")
}

/// Device memory that is full of `byte`.
fn filled(gpu: &Gpu, byte: u8) -> DeviceMemory {
    let memory = DeviceMemory::new(gpu.context(), LEN).expect("the fake has room");
    copy::fill(gpu.stream(), &memory.span(), byte).expect("the fake takes it");
    gpu.fence(gpu.stream()).expect("a fence").wait(LIMIT).expect("done");
    memory
}

/// Enqueues a save of `from` as `id`, as the application does.
fn save(gpu: &Gpu, arena: &Arena, id: CheckpointId, from: &DeviceSpan, stream: &Stream) -> Fence {
    let mut guard = arena.create(id, 0, LEN).expect("room");
    guard.order(stream).expect("ordered");
    copy::device_to_device(stream, guard.device().expect("on the device"), from).expect("copied");
    let fence = gpu.fence(stream).expect("a fence");
    guard.leave_fence(fence.clone());
    guard.commit();
    fence
}

/// The bytes of `id`, by way of the tier's own stream.
fn content(arena: &Arena, id: CheckpointId) -> Vec<u8> {
    let mut bytes = vec![0xA5; LEN as usize];
    arena.get(id, 0, &mut [&mut bytes]).unwrap_or_else(|error| panic!("{error}"));
    bytes
}

#[test]
fn what_reads_an_entry_comes_after_the_work_that_writes_it() {
    let fake = Fake::start();
    let gpu = gpu(LIMIT);
    let (arena, ones) = (on_device(&gpu), filled(&gpu, 1));
    let stream = Stream::new(gpu.context()).unwrap();
    fake.hold();
    let saved = save(&gpu, &arena, A, &ones.span(), &stream);
    assert!(!saved.is_done(), "the device stands still, and nobody waited for it");
    fake.release();
    assert_eq!(content(&arena, A), vec![1; LEN as usize]);
}

#[test]
fn bytes_that_an_earlier_owner_still_reads_are_written_after_him() {
    let fake = Fake::start();
    for seed in 0..20 {
        fake.seed(seed);
        let gpu = gpu(LIMIT);
        let arena = on_device(&gpu);
        let (ones, twos, target) = (filled(&gpu, 1), filled(&gpu, 2), filled(&gpu, 0));
        let (reader, writer) =
            (Stream::new(gpu.context()).unwrap(), Stream::new(gpu.context()).unwrap());
        save(&gpu, &arena, A, &ones.span(), &reader);
        fake.hold();
        let mut guard = arena.read(A).unwrap();
        guard.order(&reader).unwrap();
        copy::device_to_device(&reader, &target.span(), guard.device().unwrap()).unwrap();
        guard.leave(&reader).unwrap();
        drop(guard);
        arena.forget(A).expect("nobody borrows it on the host");
        let saved = save(&gpu, &arena, B, &twos.span(), &writer);
        assert!(!saved.is_done());
        fake.release();
        assert_eq!(content(&arena, B), vec![2; LEN as usize], "seed {seed}");
        let mut bytes = vec![0; LEN as usize];
        copy::device_to_host(&reader, &mut bytes, &target.span(), LIMIT).unwrap();
        assert_eq!(bytes, vec![1; LEN as usize], "seed {seed}: read what was saved before");
    }
}

#[test]
fn work_of_a_writer_that_gave_up_is_waited_for() {
    let fake = Fake::start();
    let gpu = gpu(LIMIT);
    let arena = on_device(&gpu);
    let (ones, twos) = (filled(&gpu, 1), filled(&gpu, 2));
    let (one, two) = (Stream::new(gpu.context()).unwrap(), Stream::new(gpu.context()).unwrap());
    assert!(fake.hold_stream(one.handle()), "the other stream goes on");
    let mut guard = arena.create(A, 0, LEN).unwrap();
    copy::device_to_device(&one, guard.device().unwrap(), &ones.span()).unwrap();
    guard.leave(&one).unwrap();
    drop(guard);
    let saved = save(&gpu, &arena, B, &twos.span(), &two);
    assert!(saved.wait(Duration::from_millis(50)).is_err(), "it comes after what was given up");
    fake.release();
    assert_eq!(content(&arena, B), vec![2; LEN as usize]);
}

#[test]
fn main_memory_is_borrowed_when_the_device_no_longer_uses_it_and_the_wait_is_bounded() {
    let fake = Fake::start();
    let gpu = gpu(Duration::from_millis(50));
    let arena = Arena::pinned(&gpu, 4 << 20, &PinnedOptions::default()).unwrap();
    let ones = filled(&gpu, 1);
    let stream = Stream::new(gpu.context()).unwrap();
    let (mut guard, way) = (arena.create(A, 0, LEN).unwrap(), Unregistered::Pageable);
    let (pinned, offset) = guard.pinned().unwrap();
    pinned.wait_registered(LEN, LIMIT).unwrap();
    fake.hold();
    pinned.copy_in(&stream, offset, &ones.span(), way).unwrap();
    guard.leave(&stream).unwrap();
    guard.commit();
    let error = arena.read(A).expect_err("the bytes have not arrived");
    assert!(error.to_string().contains("was not done after 0.050 s"), "{error}");
    fake.release();
    assert_eq!(content(&arena, A), vec![1; LEN as usize]);
    arena.forget(A).expect("the read that failed left no borrow");
}

#[test]
fn bytes_that_a_smaller_entry_left_are_borrowed_after_the_work_that_may_still_use_them() {
    let fake = Fake::start();
    let gpu = gpu(LIMIT);
    let (arena, ones) = (on_device(&gpu), filled(&gpu, 1));
    let stream = Stream::new(gpu.context()).unwrap();
    let mut guard = arena.create(A, 0, LEN).unwrap();
    fake.hold();
    let span = guard.device().expect("on the device");
    copy::device_to_device(&stream, span, &ones.span()).unwrap();
    guard.leave(&stream).unwrap();
    guard.commit_at(0, 512).unwrap();
    let next = arena.create(B, 512, LEN - 512).unwrap();
    let error = next.wait(Duration::from_millis(1)).unwrap_err();
    assert!(error.to_string().contains("not done"), "{error}");
    fake.release();
    next.wait(LIMIT).unwrap();
}

#[test]
fn a_given_array_is_an_entry_like_any_other_and_leaves_when_it_is_gone() {
    let _fake = Fake::start();
    let gpu = gpu(LIMIT);
    let arena = on_device(&gpu);
    let (ones, owner) = (filled(&gpu, 1), Arc::new(()));
    let given = || {
        let stream = Stream::new(gpu.context()).expect("a stream");
        GivenArray::new(ones.span(), stream, true, owner.clone())
    };
    arena.adopt(A, LEN, given()).expect("room").commit();
    assert_eq!((arena.used(), content(&arena, A)), (LEN, vec![1; LEN as usize]));
    assert_eq!(arena.read(A).unwrap().device().unwrap().address(), ones.span().address());
    assert!(arena.create(B, LEN + 1, 8).is_err(), "the place is taken");
    assert!(arena.adopt(B, arena.capacity(), given()).is_err(), "there is no such place");
    assert!(arena.adopt(B, LEN, given()).is_err(), "the place is taken");
    arena.let_go();
    assert_eq!(Arc::strong_count(&owner), 2, "those that were refused have gone");
    arena.delete(A).unwrap();
    assert_eq!((arena.used(), Arc::strong_count(&owner)), (0, 2), "it waits to be let go of");
    arena.let_go();
    assert_eq!(Arc::strong_count(&owner), 1);
    drop(arena.adopt(B, 0, given()).expect("room"));
    arena.adopt(A, LEN, given()).expect("room").commit();
    arena.retire().unwrap();
    arena.let_go_within(LIMIT);
    assert_eq!(Arc::strong_count(&owner), 1);
    arena.adopt(A, 0, given()).expect_err("it has ended");
    drop(arena);
    assert_eq!(Arc::strong_count(&owner), 1);
}
