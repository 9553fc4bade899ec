//! Bandwidth through chunk borders beside one plain pinned copy, and copies within the device
//! beside `cuMemcpyDtoD`.

use std::time::Duration;

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceError, DeviceSpan, Event, PinnedArena,
    PinnedMemory, PinnedOptions, Stream, Unregistered, copy,
};

use crate::util::{GIB, LONG, MIB, finish, median, rate, wait_for_releases};

const BYTES: u64 = GIB;
const ROUNDS: usize = 7;

struct Bench {
    down: Stream,
    up: Stream,
    arena: PinnedArena,
    plain: PinnedMemory,
    device: DeviceArena,
}

pub fn run(context: &Context) {
    let options = PinnedOptions::default();
    let bench = Bench {
        down: Stream::new(context).unwrap(),
        up: Stream::new(context).unwrap(),
        arena: PinnedArena::new(context, 4 * GIB, &options).unwrap(),
        plain: PinnedMemory::new(context, 2 * BYTES).unwrap(),
        device: DeviceArena::new(context, 2 * BYTES, &DeviceArenaOptions::default()).unwrap(),
    };
    bench.arena.wait_registered(4 * GIB, LONG).unwrap();
    bench.device.wait_mapped(2 * BYTES, LONG).unwrap();
    bench.warm_up();
    bench.host_links();
    bench.within();
    drop(bench);
    wait_for_releases();
}

impl Bench {
    fn span(&self, half: u64) -> DeviceSpan {
        self.device.span(half * BYTES, BYTES).unwrap()
    }

    fn down(&self, through_arena: bool) {
        if through_arena {
            // Begins in the small chunks and is not aligned to any border.
            let at = 20 * MIB + 4096;
            self.arena.copy_in(&self.down, at, &self.span(0), Unregistered::Pageable).unwrap();
        } else {
            copy::device_to_pinned(&self.down, &self.plain, 0, &self.span(0)).unwrap();
        }
    }

    fn up(&self, through_arena: bool) {
        if through_arena {
            let at = 2 * GIB + 4096;
            self.arena.copy_out(&self.up, &self.span(1), at, Unregistered::Pageable).unwrap();
        } else {
            copy::pinned_to_device(&self.up, &self.span(1), &self.plain, BYTES).unwrap();
        }
    }

    fn warm_up(&self) {
        for through_arena in [false, true] {
            self.down(through_arena);
            self.up(through_arena);
        }
        finish(&self.down);
        finish(&self.up);
    }

    fn host_links(&self) {
        for through_arena in [false, true, false, true] {
            let down = median(ROUNDS, || {
                self.down(through_arena);
                self.down.record()?.wait(LONG)
            });
            let up = median(ROUNDS, || {
                self.up(through_arena);
                self.up.record()?.wait(LONG)
            });
            let both = median(ROUNDS, || {
                self.down(through_arena);
                self.up(through_arena);
                self.down.record()?.wait(LONG)?;
                self.up.record()?.wait(LONG)
            });
            let what =
                if through_arena { "through chunk borders" } else { "one plain pinned copy" };
            println!(
                "1 GiB {what}: d2h {:.1}, h2d {:.1}, both {:.1} GB/s each",
                rate(BYTES, down),
                rate(BYTES, up),
                rate(BYTES, both)
            );
        }
    }

    fn within(&self) {
        for mib in [1, 128] {
            let bytes = mib * MIB;
            let (from, to) = (self.span(0), self.span(1));
            let (from, to) = (from.slice(0, bytes).unwrap(), to.slice(0, bytes).unwrap());
            let legacy = Stream::legacy_default(self.down.context());
            let raw_copy = || copy::device_to_device_blocking(&self.down, &to, &from);
            let our_copy = || copy::device_to_device(&self.down, &to, &from);
            let call = median(101, raw_copy);
            finish(&legacy);
            let raw = median(101, || {
                raw_copy()?;
                legacy.record()?.wait(LONG)
            });
            let ours = median(101, || {
                our_copy()?;
                self.down.record()?.wait(LONG)
            });
            let mut events = Vec::with_capacity(101);
            let host = median(101, || {
                our_copy()?;
                events.push(self.down.record()?);
                Ok(())
            });
            finish(&self.down);
            let (raw_row, our_row) = (in_a_row(&legacy, raw_copy), in_a_row(&self.down, our_copy));
            println!(
                "d2d {mib} MiB: cuMemcpyDtoD {:.1} us ({:.0} GB/s; call {:.1} us, in a row {:.0} \
                 GB/s); ours {:.1} us ({:.0} GB/s; host time with event {:.1} us, in a row {:.0} \
                 GB/s)",
                micros(raw),
                rate(bytes, raw),
                micros(call),
                rate(bytes, raw_row),
                micros(ours),
                rate(bytes, ours),
                micros(host),
                rate(bytes, our_row)
            );
        }
    }
}

/// The time of one copy of 50 in a row, by the device's clock.
fn in_a_row(stream: &Stream, copy: impl Fn() -> Result<(), DeviceError>) -> Duration {
    let (start, end) = (Event::timed(stream.context()), Event::timed(stream.context()));
    let (start, end) = (start.unwrap(), end.unwrap());
    start.record(stream).unwrap();
    (0..50).try_for_each(|_| copy()).unwrap();
    end.record(stream).unwrap();
    end.wait(LONG).unwrap();
    end.since(&start).unwrap() / 50
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
