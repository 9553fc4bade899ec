//! Kernels of `engine/gpu_codec/kernels/zfp.cu`, computed by the codec of the processor. The sizes
//! and the head in the launch have to match those of that codec.

use unspool_codec::{Dtype, Zfp, zfp};

use super::touch::{Parameters, Touch};
use crate::codes::{Code, Outcome};
use crate::memory::Memory;

const DONE: u64 = 0;
const OVERFLOW: u64 = 1;
const REFUSED: u64 = 2;

const HEAD_BYTES: u64 = 64;

const SHAPE: usize = 11;
const PLACE: usize = 5;
const HEAD: usize = 8;
const JOB: usize = 4;

pub(super) const ENCODE: &[usize] = &[1, SHAPE, PLACE, HEAD, JOB];
pub(super) const DECODE: &[usize] = &[1, 1, SHAPE, HEAD, 1];
pub(super) const FINISH: &[usize] = &[PLACE, 1, 1, 1, 1, 1];
pub(super) const DECODED: &[usize] = &[1; 3];

/// An array as the kernels' names and parameters describe it.
struct Array {
    dtype: Dtype,
    /// The last one changes fastest.
    shape: Vec<u64>,
    rate: f64,
    /// Bytes of the stream with its head.
    stored: u64,
}

impl Array {
    fn new<const WIDE: bool, const DIMS: usize>(shape: &[u64], head: &[u64]) -> Array {
        Array {
            dtype: if WIDE { Dtype::Float64 } else { Dtype::Float32 },
            shape: shape[..DIMS].iter().rev().copied().collect(),
            rate: f64::from_bits(head[3]),
            stored: HEAD_BYTES + 8 * shape[9],
        }
    }

    fn values(&self) -> u64 {
        self.shape.iter().product()
    }

    fn bytes(&self) -> u64 {
        self.values() * self.dtype.itemsize()
    }

    fn encoded(&self, source: &[u8]) -> Option<(Vec<u8>, unspool_codec::Achieved)> {
        let (rate, most) = (Zfp::Rate(self.rate), self.stored as usize + 64);
        let mut stream = vec![0; most];
        let made = zfp::encode(&rate, &self.dtype, &self.shape, source, &mut stream).ok()?;
        stream.truncate(made.bytes as usize);
        Some((stream, made.achieved))
    }
}

/// Parameters: array, shape, place, head, and the addresses of stream and results.
pub(super) fn encode<const WIDE: bool, const DIMS: usize>(
    memory: &Memory,
    device: u32,
    words: &[u64],
) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (source, shape) = (parameters.next()?, parameters.take(SHAPE)?);
    let (place, head) = (parameters.take(PLACE)?, parameters.take(HEAD)?);
    let &[offset, gap, seen, result] = parameters.take(JOB)? else { return Ok(()) };
    let array = Array::new::<WIDE, DIMS>(shape, head);
    let begin = touch.begin_of(place)?;
    if !fits(place, begin) {
        return Ok(());
    }
    let job = [offset, array.stored, 0, 0, array.values(), 0];
    touch.write_words(result, &job)?;
    let state = touch.words(seen, 3)?;
    let Some((stream, achieved)) = array.encoded(&touch.bytes(source, array.bytes())?) else {
        return touch.write_words(seen + 16, &[state[2] + 1]);
    };
    touch.write(begin + offset, &stream)?;
    touch.write_words(begin + offset + array.stored, &vec![0; gap as usize])?;
    if stream.len() as u64 != array.stored || touch.words(begin + offset, 8)? != head {
        return Err(Code::LAUNCH_FAILED);
    }
    let largest = f64::from_bits(state[0]).max(achieved.max_error);
    let squares = f64::from_bits(state[1]) + achieved.sum_sq_error;
    touch.write_words(seen, &[largest.to_bits(), squares.to_bits()])
}

fn fits(place: &[u64], begin: u64) -> bool {
    begin <= place[3] && place[4] <= place[3] - begin
}

/// Parameters: place, sums, number of arrays, slot, sequence number, record.
pub(super) fn finish(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (place, seen, jobs) = (parameters.take(PLACE)?, parameters.next()?, parameters.next()?);
    let (slot, sequence, record) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let begin = touch.begin_of(place)?;
    let mut status = if fits(place, begin) { DONE } else { OVERFLOW };
    for job in 0..jobs {
        let state = touch.words(seen + 24 * job, 3)?;
        touch.write_words(slot + 8 * (4 + 6 * job + 2), &state[..2])?;
        touch.write_words(seen + 24 * job, &[0; 3])?;
        if status == DONE && state[2] > 0 {
            status = REFUSED;
        }
    }
    let end = if status == DONE { begin + place[4] } else { place[3] };
    touch.write_words(record, &[end, begin, status, 0])?;
    touch.write_words(slot + 8, &[status, begin, place[4]])?;
    touch.write_words(slot, &[sequence])
}

/// Parameters: stream, array, shape, head, and the address of the status.
pub(super) fn decode<const WIDE: bool, const DIMS: usize>(
    memory: &Memory,
    device: u32,
    words: &[u64],
) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (stream, to) = (parameters.next()?, parameters.next()?);
    let (shape, head) = (parameters.take(SHAPE)?, parameters.take(HEAD)?);
    let status = parameters.next()?;
    let array = Array::new::<WIDE, DIMS>(shape, head);
    if touch.words(stream, 8)? != head {
        return touch.write_words(status, &[1]);
    }
    let mut values = touch.bytes(to, array.bytes())?;
    let stream = touch.bytes(stream, array.stored)?;
    zfp::decode(&array.dtype, &array.shape, &stream, &mut values)
        .map_err(|_| Code::LAUNCH_FAILED)?;
    touch.write(to, &values)?;
    touch.write_words(status, &[0])
}

/// Parameters: number of arrays, slot, sequence number.
pub(super) fn decoded(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let &[jobs, slot, sequence] = words else { return Err(Code::LAUNCH_FAILED) };
    let touch = Touch::new(memory, device);
    let mut status = DONE;
    for job in 0..jobs {
        if touch.word(slot + 8 * (4 + 6 * job))? != 0 {
            status = REFUSED;
        }
    }
    touch.write_words(slot + 8, &[status, 0, 0])?;
    touch.write_words(slot, &[sequence])
}
