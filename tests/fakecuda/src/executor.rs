//! Execution of operations: one thread for each device. Piece by piece, the next operation is drawn
//! from the seed among those that are ready, so that copies overlap and every order that the
//! streams and events allow may happen.

use std::time::{Duration, Instant};

use crate::call::Held;
use crate::codes::{Code, Outcome};
use crate::faults::EXECUTE;
use crate::memory::Owner;
use crate::stream::{Bytes, Operation, Rows, Side, Work};
use crate::world::World;

/// A copy of at most this size is executed in one piece.
const SMALL: u64 = 4096;
/// The largest piece.
const LARGEST: u64 = 1 << 20;

/// Multiples of the latency, one of which is drawn for each operation: some begin at once, some
/// late.
const LATENESS: [u32; 8] = [0, 0, 1, 1, 1, 1, 1, 3];

/// Starts the thread of a device, once.
pub(crate) fn start(world: &mut World, device: u32) -> Outcome {
    if std::mem::replace(&mut world.devices[device as usize].runs, true) {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name(format!("fakecuda-{device}"));
    let started = thread.spawn(move || {
        loop {
            let mut world = Held::by_device();
            match step(&mut world, device) {
                Step::Worked => world.changed(),
                Step::Wait(limit) => world.wait(limit),
            }
        }
    });
    started.map(drop).map_err(|_| Code::OUT_OF_MEMORY)
}

/// The result of a search for ready streams.
enum Step {
    /// A piece of an operation was executed.
    Worked,
    /// No operation is ready before this time, or before a change.
    Wait(Option<Duration>),
}

fn step(world: &mut World, device: u32) -> Step {
    if world.held {
        return Step::Wait(None);
    }
    let now = Instant::now();
    let (ready, next) = ready_streams(world, device, now);
    if ready.is_empty() {
        return Step::Wait(next.map(|next| next.saturating_duration_since(now)));
    }
    let stream = ready[world.rng.below(ready.len() as u64) as usize];
    if let Err(code) = work_on(world, stream) {
        world.break_context(device, code);
    }
    Step::Worked
}

/// The streams whose first operation is ready, and when the next one will be.
fn ready_streams(world: &mut World, device: u32, now: Instant) -> (Vec<u64>, Option<Instant>) {
    let (mut ready, mut next) = (Vec::new(), None::<Instant>);
    for stream in free_streams(world, device) {
        let at = ready_at(world, stream, now);
        if at <= now {
            ready.push(stream);
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    (ready, next)
}

/// The streams whose first operation waits for no other.
fn free_streams(world: &World, device: u32) -> Vec<u64> {
    let own = world.streams.iter().filter(|(_, s)| s.device == device && !s.held);
    let free = own.filter(|(_, stream)| {
        stream.queue.front().is_some_and(|first| {
            let waits = matches!(&first.work, Work::Wait(recording) if !recording.is_over());
            !waits && first.after.iter().all(|&place| world.is_over(place))
        })
    });
    free.map(|(&handle, _)| handle).collect()
}

/// The time from which the first operation of a stream is ready.
fn ready_at(world: &mut World, stream: u64, now: Instant) -> Instant {
    let lateness = LATENESS[world.rng.below(LATENESS.len() as u64) as usize];
    let latency = world.settings.latency * lateness;
    let first = world.streams.get_mut(&stream).and_then(|stream| stream.queue.front_mut());
    first.map_or(now, |first| {
        let late = if first.work.is_late() { latency } else { Duration::ZERO };
        *first.ready.get_or_insert(now + late)
    })
}

/// Executes a piece of the first operation of a stream.
fn work_on(world: &mut World, handle: u64) -> Outcome {
    let Some(stream) = world.streams.get_mut(&handle) else {
        return Ok(());
    };
    let device = stream.device;
    let Some(mut first) = stream.queue.pop_front() else {
        return Ok(());
    };
    let outcome = do_piece(world, device, &mut first);
    let is_done = outcome.is_err() || first.done >= first.work.len();
    let Some(stream) = world.streams.get_mut(&handle) else {
        return outcome;
    };
    stream.queue.push_front(first);
    if is_done {
        stream.finish_first();
        world.executed += 1;
    }
    if world.streams[&handle].destroyed && world.streams[&handle].queue.is_empty() {
        world.streams.remove(&handle);
    }
    outcome
}

fn do_piece(world: &mut World, device: u32, operation: &mut Operation) -> Outcome {
    if operation.done == 0 {
        world.faults.count(EXECUTE)?;
    }
    let len = operation.work.len();
    let piece = piece_of(world, len, len - operation.done);
    let begin = operation.done;
    match &operation.work {
        Work::Copy(rows) => copy_piece(world, device, rows, begin, piece)?,
        Work::Fill { to, pattern, len } => {
            world.memory.check_of(device, *to, *len)?;
            fill_piece(*to, pattern, begin, piece);
        }
        Work::Record(recording) => recording.complete(),
        Work::Wait(_) => {}
        Work::Kernel(launch) => launch.run(&world.memory, device)?,
    }
    operation.done += piece;
    operation.ready =
        Some(Instant::now() + world.settings.time_of(piece, operation.work.crosses_the_link()));
    Ok(())
}

/// Size of the next piece.
fn piece_of(world: &mut World, len: u64, left: u64) -> u64 {
    if len <= SMALL {
        return left;
    }
    let share = 1 + world.rng.below(4);
    (len * share / 8).clamp(SMALL, LARGEST).min(left)
}

/// Checks that a side of a copy may still be used, as far as that is known.
fn check(world: &World, device: u32, side: &Side, extent: u64) -> Outcome {
    match side.bytes {
        Bytes::Device(address) => world.memory.check_of(device, address, extent),
        Bytes::Pinned(address) => match world.memory.owner(address, extent.max(1)) {
            Ok(Owner::Pinned) => Ok(()),
            _ => Err(Code::ILLEGAL_ADDRESS),
        },
        Bytes::Pageable(_) | Bytes::Staged(_) => Ok(()),
    }
}

fn copy_piece(world: &mut World, device: u32, rows: &Rows, begin: u64, piece: u64) -> Outcome {
    for side in [&rows.to, &rows.from] {
        check(world, device, side, rows.extent(side.pitch))?;
    }
    let end = begin + piece;
    let mut at = begin;
    while at < end {
        let (row, column) = (at / rows.width, at % rows.width);
        let len = (rows.width - column).min(end - at);
        let (to, from) = (address(&rows.to, row, column), address(&rows.from, row, column));
        // SAFETY: both were checked just now, under the lock that prevents freeing; for pageable
        // memory the caller of the copy guarantees it, and waits.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
        at += len;
    }
    count(world, rows, piece);
    Ok(())
}

fn address(side: &Side, row: u64, column: u64) -> u64 {
    let begin = match &side.bytes {
        Bytes::Device(begin) | Bytes::Pinned(begin) | Bytes::Pageable(begin) => *begin,
        Bytes::Staged(bytes) => bytes.as_ptr() as u64,
    };
    begin + row * side.pitch + column
}

fn count(world: &mut World, rows: &Rows, bytes: u64) {
    let moved = &mut world.moved;
    match (&rows.to.bytes, &rows.from.bytes) {
        (Bytes::Device(_), Bytes::Device(_)) => moved.within += bytes,
        (Bytes::Device(_), _) => moved.to_device += bytes,
        _ => moved.to_host += bytes,
    }
}

fn fill_piece(to: u64, pattern: &[u8], begin: u64, piece: u64) {
    for at in begin..begin + piece {
        let byte = pattern[at as usize % pattern.len()];
        // SAFETY: checked by the caller, under the lock that prevents freeing.
        unsafe { ((to + at) as *mut u8).write(byte) };
    }
}
