//! Kernels of `engine/gpu_codec/kernels/nvcomp.cu`, and the two of the fake's own nvCOMP: a chunk
//! of equal bytes is encoded as six bytes, one that repeats its first 256 bytes as those bytes
//! after a head of five, and any other as itself after a zero byte.

use super::touch::{Parameters, Touch};
use super::{Kernel, Launch, Native};
use crate::codes::Outcome;
use crate::memory::Memory;

const HEAD: u64 = 64;
const DONE: u64 = 0;
const OVERFLOW: u64 = 1;
const REFUSED: u64 = 2;

/// Words of `Control`.
const STATUS: u64 = 16;
const RAW: u64 = 24;
const SUM: u64 = 32;
const DAMAGED: u64 = 40;

/// Period of a repeating chunk in bytes.
const PERIOD: usize = 256;

const PLACE: usize = 5;
const HEAD_WORDS: usize = 4;
const PARTS: usize = 4;
const SPARE: usize = 3;

pub(super) const ARRAYS: &[usize] = &[PARTS, 1, 1, 1, 1, 1, 1];
pub(super) const TABLE: &[usize] = &[PLACE, HEAD_WORDS, PARTS, 1, 1, 1, 1];
pub(super) const PACK: &[usize] = &[PARTS, 1, 1, 1, 1];
pub(super) const FINISH: &[usize] = &[PLACE, 1, 1, 1, 1, 1, 1, 1];
pub(super) const SUMMED: &[usize] = &[1, 1, 1];
pub(super) const UNPACK: &[usize] = &[1, 1, HEAD_WORDS, PARTS, SPARE, 1, 1, 1, 1, 1, 1];
pub(super) const DECODED: &[usize] = &[1; 7];
pub(super) const COPIED: &[usize] = &[1, 1, HEAD_WORDS, 1, 1];

/// An array in chunks.
struct Parts {
    array: u64,
    bytes: u64,
    chunk: u64,
    count: u64,
}

impl Parts {
    fn take(parameters: &mut Parameters<'_>) -> Outcome<Parts> {
        let words = parameters.take(PARTS)?;
        Ok(Parts { array: words[0], bytes: words[1], chunk: words[2], count: words[3] })
    }

    fn size(&self, index: u64) -> u64 {
        if index + 1 < self.count { self.chunk } else { self.bytes - index * self.chunk }
    }

    fn table_end(&self) -> u64 {
        HEAD + (8 * self.count).next_multiple_of(16)
    }
}

fn mixed(word: u64, index: u64) -> u64 {
    let x = word.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// The checksum of the words from number `first` on.
fn sum(words: &[u64], first: u64) -> u64 {
    (first..).zip(words).fold(0, |sum, (index, &word)| sum.wrapping_add(mixed(word, index)))
}

fn add_to_sum(touch: Touch<'_>, control: u64, x: u64) -> Outcome {
    let sum = touch.word(control + SUM)?;
    touch.write_words(control + SUM, &[sum.wrapping_add(x)])
}

pub(super) fn arrays(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let parts = Parts::take(&mut parameters)?;
    let (outputs, stride) = (parameters.next()?, parameters.next()?);
    let (from, lengths, to) = (parameters.next()?, parameters.next()?, parameters.next()?);
    touch.write(parameters.next()?, &vec![0; 4 * parts.count as usize])?;
    for i in 0..parts.count {
        touch.write_words(from + 8 * i, &[parts.array + i * parts.chunk])?;
        touch.write_words(lengths + 8 * i, &[parts.size(i)])?;
        touch.write_words(to + 8 * i, &[outputs + i * stride])?;
    }
    Ok(())
}

fn statuses(touch: Touch<'_>, address: u64, count: u64) -> Outcome<Vec<u8>> {
    touch.bytes(address, 4 * count)
}

pub(super) fn table(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (place, head) = (parameters.take(PLACE)?, parameters.take(HEAD_WORDS)?);
    let parts = Parts::take(&mut parameters)?;
    let (stride, lengths) = (parameters.next()?, parameters.next()?);
    let (failures, control) = (parameters.next()?, parameters.next()?);
    let lengths = touch.words(lengths, parts.count)?;
    let failed = statuses(touch, failures, parts.count)?.iter().any(|&byte| byte != 0)
        || lengths.iter().any(|&length| length == 0 || length > stride);
    let packed: u64 = lengths.iter().map(|length| length.next_multiple_of(16)).sum();
    let raw = failed || parts.table_end() + packed >= HEAD + parts.bytes;
    let total = if raw { HEAD + parts.bytes } else { parts.table_end() + packed };
    let begin = touch.begin_of(place)?;
    let fits = begin <= place[3] && total <= place[3] - begin;
    let status = if fits { DONE } else { OVERFLOW };
    touch.write_words(control, &[begin, total, status, u64::from(raw)])?;
    if !fits {
        return Ok(());
    }
    touch.write_words(begin, head)?;
    touch.write_words(begin + 32, &[total, 0, u64::from(raw), 0])?;
    if raw {
        return Ok(());
    }
    let mut at = parts.table_end() / 16;
    let mut entries = Vec::new();
    for length in lengths {
        entries.push(at | length << 32);
        at += length.div_ceil(16);
    }
    entries.resize(entries.len().next_multiple_of(2), 0);
    touch.write_words(begin + HEAD, &entries)?;
    add_to_sum(touch, control, sum(&entries, 0))
}

pub(super) fn pack(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let parts = Parts::take(&mut parameters)?;
    let (outputs, stride, lengths) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let control = parameters.next()?;
    if touch.word(control + STATUS)? != DONE {
        return Ok(());
    }
    let begin = touch.word(control)?;
    if touch.word(control + RAW)? != 0 {
        return touch.write(begin + HEAD, &touch.bytes(parts.array, parts.bytes)?);
    }
    for i in 0..parts.count {
        let at = 16 * (touch.word(begin + HEAD + 8 * i)? & 0xffff_ffff);
        let mut chunk = touch.bytes(outputs + i * stride, touch.word(lengths + 8 * i)?)?;
        chunk.resize(chunk.len().next_multiple_of(16), 0);
        touch.write(begin + at, &chunk)?;
        let chunk = touch.words(begin + at, chunk.len() as u64 / 8)?;
        add_to_sum(touch, control, sum(&chunk, (at - HEAD) / 8))?;
    }
    Ok(())
}

pub(super) fn finish(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (place, control) = (parameters.take(PLACE)?, parameters.next()?);
    let (values, largest, squares) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let (slot, sequence, record) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let words = touch.words(control, 5)?;
    let &[begin, total, status, raw, sum] = words.as_slice() else { return Ok(()) };
    if status == DONE {
        touch.write_words(begin + 40, &[sum])?;
    }
    let end = if status == DONE { begin + total } else { place[3] };
    touch.write_words(record, &[end, begin, status, 0])?;
    let lossy = if raw == 0 { [largest, squares] } else { [0, 0] };
    let job = [0, total, lossy[0], lossy[1], values, 0];
    touch.write_words(slot + 32, &job)?;
    touch.write_words(slot + 8, &[status, begin, total])?;
    touch.write_words(control + SUM, &[0])?;
    touch.write_words(slot, &[sequence])
}

pub(super) fn add_up(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (container, stored) = (parameters.next()?, parameters.next()?);
    let control = parameters.next()?;
    let payload = touch.words(container + HEAD, (stored - HEAD) / 8)?;
    add_to_sum(touch, control, sum(&payload, 0))
}

fn is_whole(found: &[u64], head: &[u64], stored: u64, raw: u64, sum: u64) -> bool {
    found[..HEAD_WORDS] == *head && found[HEAD_WORDS..8] == [stored, sum, raw, 0]
}

pub(super) fn unpack(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (container, stored) = (parameters.next()?, parameters.next()?);
    let head = parameters.take(HEAD_WORDS)?;
    let parts = Parts::take(&mut parameters)?;
    let spare = parameters.take(SPARE)?;
    let (from, lengths, rooms) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let (to, failures, control) = (parameters.next()?, parameters.next()?, parameters.next()?);
    touch.write(failures, &vec![0; 4 * parts.count as usize])?;
    let sum = touch.word(control + SUM)?;
    let known = is_whole(&touch.words(container, 8)?, head, stored, 0, sum);
    for i in 0..parts.count {
        let entry = touch.word(container + HEAD + 8 * i)?;
        let (at, length) = (16 * (entry & 0xffff_ffff), entry >> 32);
        let inside = at >= parts.table_end() && at + length <= stored;
        let whole = known && inside && length > 0 && length <= spare[1];
        let last = u64::from(i + 1 == parts.count);
        let chunk = match whole {
            true => [container + at, length],
            false => [spare[0] + last * spare[1], touch.word(spare[2] + 8 * last)?],
        };
        touch.write_words(from + 8 * i, &chunk[..1])?;
        touch.write_words(lengths + 8 * i, &chunk[1..])?;
        touch.write_words(rooms + 8 * i, &[parts.size(i)])?;
        touch.write_words(to + 8 * i, &[parts.array + i * parts.chunk])?;
        if !whole {
            touch.write_words(control + DAMAGED, &[1])?;
        }
    }
    Ok(())
}

pub(super) fn decoded(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (count, failures) = (parameters.next()?, parameters.next()?);
    let (found, rooms, control) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let (slot, sequence) = (parameters.next()?, parameters.next()?);
    let wrong = statuses(touch, failures, count)?.iter().any(|&byte| byte != 0)
        || touch.words(found, count)? != touch.words(rooms, count)?
        || touch.word(control + DAMAGED)? != 0;
    touch.write_words(slot + 8, &[if wrong { REFUSED } else { DONE }, 0, 0])?;
    touch.write_words(control + SUM, &[0, 0])?;
    touch.write_words(slot, &[sequence])
}

pub(super) fn copied(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (container, stored) = (parameters.next()?, parameters.next()?);
    let head = parameters.take(HEAD_WORDS)?;
    let (slot, sequence) = (parameters.next()?, parameters.next()?);
    let whole = is_whole(&touch.words(container, 8)?, head, stored, 1, 0);
    touch.write_words(slot + 8, &[if whole { DONE } else { REFUSED }, 0, 0])?;
    touch.write_words(slot, &[sequence])
}

/// A launch of the fake's nvCOMP that compresses: addresses of the chunks and of their lengths,
/// number of chunks, and addresses of the outputs, of their lengths and of the statuses.
pub(crate) fn compress(parameters: [u64; 6]) -> Launch {
    launch(c"fake_compress", run_compress, parameters.to_vec())
}

/// A launch that decompresses: chunks, lengths, space, resulting lengths, number of chunks,
/// outputs, statuses.
pub(crate) fn decompress(parameters: [u64; 7]) -> Launch {
    launch(c"fake_decompress", run_decompress, parameters.to_vec())
}

fn launch(name: &'static std::ffi::CStr, run: Native, parameters: Vec<u64>) -> Launch {
    Launch { kernel: Kernel { name, parameters: &[], run }, parameters }
}

fn run_compress(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let touch = Touch::new(memory, device);
    let &[from, lengths, count, to, found, failures] = words else { return Ok(()) };
    for i in 0..count {
        let chunk = touch.bytes(touch.word(from + 8 * i)?, touch.word(lengths + 8 * i)?)?;
        let coded = match chunk.first() {
            Some(&first) if chunk.iter().all(|&byte| byte == first) => {
                [&[1, first][..], &(chunk.len() as u32).to_le_bytes()].concat()
            }
            _ if chunk.len() > 2 * PERIOD && chunk[PERIOD..] == chunk[..chunk.len() - PERIOD] => {
                [&[2][..], &(chunk.len() as u32).to_le_bytes(), &chunk[..PERIOD]].concat()
            }
            _ => [&[0], chunk.as_slice()].concat(),
        };
        touch.write(touch.word(to + 8 * i)?, &coded)?;
        touch.write_words(found + 8 * i, &[coded.len() as u64])?;
        touch.write(failures + 4 * i, &[0; 4])?;
    }
    Ok(())
}

fn run_decompress(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let touch = Touch::new(memory, device);
    let &[from, lengths, rooms, found, count, to, failures] = words else { return Ok(()) };
    for i in 0..count {
        let coded = touch.bytes(touch.word(from + 8 * i)?, touch.word(lengths + 8 * i)?)?;
        let chunk = match coded.as_slice() {
            [1, byte, len @ ..] => {
                let len = len.iter().rev().fold(0, |x, &byte| x << 8 | usize::from(byte));
                vec![*byte; len]
            }
            [2, len @ ..] if len.len() == 4 + PERIOD => {
                let (len, period) = len.split_at(4);
                let len = len.iter().rev().fold(0, |x, &byte| x << 8 | usize::from(byte));
                period.iter().copied().cycle().take(len).collect()
            }
            // The behaviour of the real one is undefined.
            [0, chunk @ ..] => chunk.to_vec(),
            _ => return Err(crate::codes::Code::ILLEGAL_ADDRESS),
        };
        let fits = chunk.len() as u64 <= touch.word(rooms + 8 * i)?;
        let code: u32 = if fits { 0 } else { 12 };
        if fits {
            touch.write(touch.word(to + 8 * i)?, &chunk)?;
        }
        touch.write_words(found + 8 * i, &[chunk.len() as u64])?;
        touch.write(failures + 4 * i, &code.to_le_bytes())?;
    }
    Ok(())
}
