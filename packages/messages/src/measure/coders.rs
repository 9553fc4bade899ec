//! The coders of the ways of coding, with the memory that they use again.

use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::time::{ClockId, clock_gettime};
use unspool_codec::{Bound, Dtype, Spec};
use zstd::zstd_safe::{CCtx, CParameter, DCtx};

use super::{Scheme, WINDOW, integers};
use crate::values::Values;

/// The level of Zstandard.
const LEVEL: i32 = 3;
/// The largest window of Zstandard that is asked for, in bits.
const WINDOW_BITS: u32 = 27;

/// Tries of a message, of which the quickest counts.
const TRIES: usize = 3;

/// Bytes from which on Twine takes other threads.
const SHARED: usize = 256 << 10;

/// Coders of one thread.
pub struct Coders {
    packer: CCtx<'static>,
    unpacker: DCtx<'static>,
    /// What the codecs share their work among: one thread, so that speeds are those of a core.
    alone: Option<ThreadPool>,
}

impl std::fmt::Debug for Coders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Coders")
    }
}

impl Default for Coders {
    fn default() -> Coders {
        Coders {
            packer: CCtx::create(),
            unpacker: DCtx::create(),
            alone: ThreadPoolBuilder::new().num_threads(1).build().ok(),
        }
    }
}

/// The processor time of this thread since the timer began: what else runs on the machine does not
/// count.
pub(super) struct Timer(Duration);

impl Timer {
    pub(super) fn begin() -> Timer {
        Timer(processor_time())
    }

    pub(super) fn elapsed(&self) -> Duration {
        processor_time().saturating_sub(self.0)
    }
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// What became of a message.
pub(super) struct Coded {
    pub(super) bytes: usize,
    pub(super) encode: Duration,
    pub(super) decode: Duration,
}

impl Coders {
    /// Does `work` on the one thread that codecs share their work among, so that the processor time
    /// of that thread is all that it takes.
    pub(super) fn on_one_thread(&mut self, work: impl FnOnce(&mut Coders) + Send) {
        match self.alone.take() {
            Some(alone) => {
                alone.install(|| work(self));
                self.alone = Some(alone);
            }
            None => work(self),
        }
    }

    /// What [`Coders::code`] gives, with the least time of several tries: more is another program's
    /// use of caches.
    pub(super) fn quickest(
        &mut self,
        scheme: Scheme,
        values: Values,
        run: &[&[u8]],
        index: usize,
    ) -> Option<Coded> {
        let mut best = self.code(scheme, values, run, index)?;
        for _ in 1..TRIES {
            let again = self.code(scheme, values, run, index)?;
            best.encode = best.encode.min(again.encode);
            best.decode = best.decode.min(again.decode);
        }
        Some(best)
    }

    /// Codes the message at `index` of a run and decodes it again; `None` when the way does not
    /// take it, or does not give it back.
    fn code(
        &mut self,
        scheme: Scheme,
        values: Values,
        run: &[&[u8]],
        index: usize,
    ) -> Option<Coded> {
        let message = run[index];
        let before: Vec<&[u8]> = run[index - scheme.needs()..index].iter().rev().copied().collect();
        match scheme {
            Scheme::Bound6 | Scheme::Bound4 => {
                self.timed(spec_of(scheme), &values.dtype(), message)
            }
            Scheme::TwoLevels => self.two_levels(run, index),
            Scheme::Bound6Before | Scheme::Bound4Before => {
                let step = 2.0 * scheme.bound()? * integers::range(values, run[0]);
                self.steps(values, message, before[0], step)
            }
            _ => self.there_and_back(scheme, values, message, &before),
        }
    }

    /// What a way by which messages are sent makes of one for somebody who has those before it, the
    /// last one first; `None` when it does not take it.
    pub(crate) fn pack(
        &mut self,
        scheme: Scheme,
        values: Values,
        message: &[u8],
        before: &[&[u8]],
    ) -> Option<Vec<u8>> {
        if scheme != Scheme::Patch && before.iter().any(|one| one.len() != message.len()) {
            return None;
        }
        match scheme {
            Scheme::Lz4 => Some(lz4_flex::block::compress(message)),
            Scheme::Zstd => self.zstd(message, &[]),
            Scheme::Twine => self.twine(Spec::Lossless, &values.dtype(), message),
            Scheme::Bound6 | Scheme::Bound4 if scheme.takes(values) => {
                self.twine(spec_of(scheme), &values.dtype(), message)
            }
            Scheme::XorLz4 => Some(lz4_flex::block::compress(&xor(message, before.first()?))),
            Scheme::Patch => self.zstd(message, before.first()?),
            Scheme::Order1 | Scheme::Order2 | Scheme::Order3 => {
                let mut rest = Vec::new();
                integers::subtract(values, message, before, &mut rest);
                self.twine(Spec::Lossless, &values.integers(), &rest)
            }
            _ => None,
        }
    }

    /// The message of so many bytes that [`Coders::pack`] was given, or what a bound made of it;
    /// `None` when these bytes are of no such message.
    pub(crate) fn unpack(
        &mut self,
        scheme: Scheme,
        values: Values,
        packed: &[u8],
        before: &[&[u8]],
        length: usize,
    ) -> Option<Vec<u8>> {
        if scheme != Scheme::Patch && before.iter().any(|one| one.len() != length) {
            return None;
        }
        let back = match scheme {
            Scheme::Lz4 => lz4_flex::block::decompress(packed, length).ok()?,
            Scheme::Zstd => self.unzstd(packed, &[], length)?,
            Scheme::Twine | Scheme::Bound6 | Scheme::Bound4 => {
                self.untwine(spec_of(scheme), &values.dtype(), packed, length)?
            }
            Scheme::XorLz4 => {
                xor(&lz4_flex::block::decompress(packed, length).ok()?, before.first()?)
            }
            Scheme::Patch => self.unzstd(packed, before.first()?, length)?,
            Scheme::Order1 | Scheme::Order2 | Scheme::Order3 => {
                let rest = self.untwine(Spec::Lossless, &values.integers(), packed, length)?;
                let mut back = Vec::new();
                integers::add(values, &rest, before, &mut back);
                back
            }
            _ => return None,
        };
        (back.len() == length).then_some(back)
    }

    fn there_and_back(
        &mut self,
        scheme: Scheme,
        values: Values,
        message: &[u8],
        before: &[&[u8]],
    ) -> Option<Coded> {
        let begun = Timer::begin();
        let packed = self.pack(scheme, values, message, before)?;
        let encode = begun.elapsed();
        let begun = Timer::begin();
        let back = self.unpack(scheme, values, &packed, before, message.len())?;
        let decode = begun.elapsed();
        (back == message).then_some(Coded { bytes: packed.len(), encode, decode })
    }

    /// What Zstandard makes of a message for somebody who has `before`, with the time of both ways.
    fn patch(&mut self, message: &[u8], before: &[u8]) -> Option<Coded> {
        match before {
            [] => self.there_and_back(Scheme::Zstd, Values::Bytes, message, &[]),
            _ => self.there_and_back(Scheme::Patch, Values::Bytes, message, &[before]),
        }
    }

    fn zstd(&mut self, message: &[u8], before: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(zstd::zstd_safe::compress_bound(message.len()));
        let reach = (message.len() + before.len()).next_power_of_two().trailing_zeros();
        if before.is_empty() {
            prepare(&mut self.packer, reach)?;
            self.packer.compress2(&mut out, message).ok()?;
        } else {
            let mut packer = CCtx::create();
            prepare(&mut packer, reach)?;
            packer.ref_prefix(before).ok()?;
            packer.compress2(&mut out, message).ok()?;
        }
        Some(out)
    }

    fn unzstd(&mut self, packed: &[u8], before: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(length);
        if before.is_empty() {
            self.unpacker.decompress(&mut out, packed).ok()?;
        } else {
            let mut unpacker = DCtx::create();
            unpacker.ref_prefix(before).ok()?;
            unpacker.decompress(&mut out, packed).ok()?;
        }
        Some(out)
    }

    /// What Twine makes of the whole values of a message; bytes after the last of them follow as
    /// they are.
    fn twine(&self, spec: Spec, dtype: &Dtype, message: &[u8]) -> Option<Vec<u8>> {
        self.by_one_thread(message.len(), || {
            let items = message.len() as u64 / dtype.itemsize();
            let (whole, rest) = message.split_at((items * dtype.itemsize()) as usize);
            let codec = spec.codec().ok()?;
            let mut room = vec![0; codec.max_bytes(&spec, dtype, &[items]).ok()? as usize];
            let coded = codec.encode(&spec, dtype, &[items], whole, &mut room).ok()?;
            room.truncate(coded.bytes as usize);
            room.extend_from_slice(rest);
            Some(room)
        })
    }

    fn untwine(&self, spec: Spec, dtype: &Dtype, packed: &[u8], length: usize) -> Option<Vec<u8>> {
        self.by_one_thread(length, || {
            let items = length as u64 / dtype.itemsize();
            let whole = (items * dtype.itemsize()) as usize;
            let stored = packed.len().checked_sub(length - whole)?;
            let (stored, rest) = packed.split_at(stored);
            let mut back = vec![0; whole];
            spec.codec().ok()?.decode(dtype, &[items], stored, &mut back).ok()?;
            back.extend_from_slice(rest);
            Some(back)
        })
    }

    /// Twine on a message, with the time of both ways. What comes back is not compared: it is not
    /// the same where an error is allowed.
    fn timed(&self, spec: Spec, dtype: &Dtype, message: &[u8]) -> Option<Coded> {
        let begun = Timer::begin();
        let packed = self.twine(spec, dtype, message)?;
        let encode = begun.elapsed();
        let begun = Timer::begin();
        self.untwine(spec, dtype, &packed, message.len())?;
        Some(Coded { bytes: packed.len(), encode, decode: begun.elapsed() })
    }

    /// Does something with so many bytes on one thread: the caller's, where codecs take no others.
    fn by_one_thread<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        match &self.alone {
            Some(alone) if bytes >= SHARED => alone.install(work),
            _ => work(),
        }
    }

    /// The difference between this message's difference to the base and that of the one before.
    fn two_levels(&mut self, run: &[&[u8]], index: usize) -> Option<Coded> {
        let (message, base) = (run[index], run[index - index % WINDOW]);
        match index % WINDOW {
            0 => self.patch(message, &[]),
            1 => {
                let begun = Timer::begin();
                let level = xor(message, base);
                let more = begun.elapsed();
                self.patch(&level, &[]).map(|coded| coded.and(more))
            }
            _ => {
                let begun = Timer::begin();
                let level = xor(message, base);
                let more = begun.elapsed();
                let before = xor(run[index - 1], base);
                self.patch(&level, &before).map(|coded| coded.and(more))
            }
        }
    }

    /// Values as whole steps, less those of the message before, packed by Twine.
    fn steps(&self, values: Values, message: &[u8], before: &[u8], step: f64) -> Option<Coded> {
        if step <= 0.0 || !step.is_finite() {
            return None;
        }
        let known = integers::steps(values, before, step)?;
        let begun = Timer::begin();
        let own = integers::steps(values, message, step)?;
        let rest: Vec<i64> = own.iter().zip(&known).map(|(own, known)| own - known).collect();
        let narrow = rest.iter().all(|rest| i32::try_from(*rest).is_ok());
        let (bytes, dtype): (Vec<u8>, _) = if narrow {
            (rest.iter().flat_map(|rest| (*rest as i32).to_le_bytes()).collect(), Dtype::Int32)
        } else {
            (rest.iter().flat_map(|rest| rest.to_le_bytes()).collect(), Dtype::Int64)
        };
        let encode = begun.elapsed();
        let coded = self.timed(Spec::Lossless, &dtype, &bytes)?;
        // Decoding adds and multiplies where encoding divides and subtracts.
        Some(Coded {
            bytes: coded.bytes,
            encode: encode + coded.encode,
            decode: encode + coded.decode,
        })
    }
}

impl Coded {
    /// The same, where making and undoing a difference takes so long besides.
    fn and(self, more: Duration) -> Coded {
        Coded { bytes: self.bytes, encode: self.encode + more, decode: self.decode + more }
    }
}

/// What Twine is asked for by a way.
fn spec_of(scheme: Scheme) -> Spec {
    scheme.bound().map_or(Spec::Lossless, |bound| Spec::Bounded(Bound::Range(bound)))
}

/// Sets the level, and a window that reaches over so many bits of distance.
fn prepare(packer: &mut CCtx, reach: u32) -> Option<()> {
    packer.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
    packer.set_parameter(CParameter::WindowLog(reach.clamp(10, WINDOW_BITS))).ok().map(drop)
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}
