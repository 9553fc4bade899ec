//! Encoding of arrays to whole streams, and decoding.

use std::ops::Range;

use rayon::prelude::*;

use super::decode::Decoder;
use super::encode::{Encoder, Totals};
use super::header::{HEADER_BYTES, Header, Mode, damaged};
use super::layout::{CHUNK, Layout, ValueKind};
use super::real::{Bf16, F16, F32, F64};
use super::reduce::{Summary, Values, summarise};
use super::rule::{Array, BoundRule, Step};
use super::values::{Coding, Cut, Exact, Order, Stepped};
use super::word::Word;
use crate::codec::{Achieved, EncodedStream};
use crate::error::{CodecError, CodecErrorKind};
use crate::workers::{WorkFor, pool};

/// Arrays of fewer bytes are encoded and decoded by the calling thread alone.
const PARALLEL_BYTES: u64 = 256 << 10;

/// Chunks that a thread takes at once.
pub(super) const GROUP: u32 = 32;

/// The length of the longest stream that an array can have, in bytes.
#[must_use]
pub fn max_bytes(layout: &Layout) -> u64 {
    layout.max_bytes()
}

/// Reads the first 64 bytes of a stream, and checks that they begin one of this version.
///
/// # Errors
/// [`CodecErrorKind::Damaged`], [`CodecErrorKind::Newer`].
pub fn header(stream: &[u8]) -> Result<Header, CodecError> {
    Header::read(stream)
}

/// Calls `work` where rayon's threads help: in the pool that the caller is in, else in that of the
/// codecs for who waits; the argument says whether there is one.
pub(super) fn with_threads<R: Send>(
    layout: &Layout,
    who: WorkFor,
    work: impl FnOnce(bool) -> R + Send,
) -> R {
    if layout.bytes() < PARALLEL_BYTES {
        return work(false);
    }
    if rayon::current_thread_index().is_some() {
        return work(true);
    }
    match pool(who) {
        Some(pool) => pool.install(|| work(true)),
        None => work(false),
    }
}

/// Encodes `source`, the little-endian items of the array in row-major order, at any address, to
/// the beginning of `out`, which has at least [`max_bytes`]. Other threads help with large arrays:
/// those of the rayon pool that the caller is in, else the codecs' own. The stream does not depend
/// on them.
///
/// # Errors
/// [`CodecErrorKind::Invalid`] when the bound does not fit the values or a buffer has another
/// length.
pub fn encode(array: &Array, source: &[u8], out: &mut [u8]) -> Result<EncodedStream, CodecError> {
    let layout = &array.layout;
    let rule = array.rule()?;
    if source.len() as u64 != layout.bytes() || (out.len() as u64) < layout.max_bytes() {
        return Err(CodecError::new(
            CodecErrorKind::Invalid,
            format!(
                "an array of {} bytes and room for {} bytes were given to be encoded, where {} \
                 and at least {} are needed.",
                source.len(),
                out.len(),
                layout.bytes(),
                layout.max_bytes()
            ),
        ));
    }
    Ok(with_threads(layout, WorkFor::Urgent, |parallel| {
        let summary = |squares| summarise(Values { layout, source, parallel, squares });
        let mode = mode_of(rule, summary, layout.kind);
        with_coding(layout, &mode, Encode { layout, mode: &mode, source, out, parallel })
    }))
}

/// The mode that a rule means for values with this summary, with or without their squares.
fn mode_of(rule: BoundRule, summary: impl FnOnce(bool) -> Summary, kind: ValueKind) -> Mode {
    match rule {
        BoundRule::Exact => Mode::Exact,
        BoundRule::Step(step) => Mode::Step(step),
        BoundRule::Range(factor) => Mode::Step(Step::of_range(kind, factor, &summary(false))),
        BoundRule::Rms(factor) => Mode::Step(Step::of_rms(kind, factor, &summary(true))),
        BoundRule::Relative(relative) => Mode::Relative(relative),
    }
}

/// Summarises the values of an array, given as to [`encode`]. Values that are not floats
/// have an empty summary.
#[must_use]
pub fn reduce(layout: &Layout, source: &[u8]) -> Summary {
    with_threads(layout, WorkFor::Urgent, |parallel| {
        summarise(Values { layout, source, parallel, squares: true })
    })
}

/// Decodes a stream to the little-endian items of the array.
///
/// # Errors
/// [`CodecErrorKind::Invalid`] when `out` has not the length of the array;
/// [`CodecErrorKind::Damaged`] or [`CodecErrorKind::Newer`] when the stream is not one of such an
/// array; `out` has any content then.
pub fn decode(layout: &Layout, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    if out.len() as u64 != layout.bytes() {
        let what = format!(
            "room for {} bytes was given for an array of {} bytes.",
            out.len(),
            layout.bytes()
        );
        return Err(CodecError::new(CodecErrorKind::Invalid, what));
    }
    let header = Header::read(stream)?;
    let mode = header.mode_for(layout)?;
    let parts = StreamParts::of(&header, stream)?;
    with_threads(layout, WorkFor::Urgent, |parallel| {
        with_coding(layout, &mode, Decode { layout, parts, out, parallel })
    })
}

/// A task with the coding of a mode as a type.
pub(super) trait WithCoding {
    type Output;

    fn run<K: Coding>(self, coding: &K) -> Self::Output;
}

pub(super) fn with_coding<W: WithCoding>(layout: &Layout, mode: &Mode, work: W) -> W::Output {
    match (mode, layout.kind) {
        (Mode::Step(step), ValueKind::Float16) => work.run(&Stepped::<F16>::new(step)),
        (Mode::Step(step), ValueKind::BFloat16) => work.run(&Stepped::<Bf16>::new(step)),
        (Mode::Step(step), ValueKind::Float64) => work.run(&Stepped::<F64>::new(step)),
        (Mode::Step(step), _) => work.run(&Stepped::<F32>::new(step)),
        (Mode::Relative(relative), ValueKind::Float16) => work.run(&Cut::<F16>::new(relative)),
        (Mode::Relative(relative), ValueKind::BFloat16) => work.run(&Cut::<Bf16>::new(relative)),
        (Mode::Relative(relative), ValueKind::Float64) => work.run(&Cut::<F64>::new(relative)),
        (Mode::Relative(relative), _) => work.run(&Cut::<F32>::new(relative)),
        (Mode::Exact, kind) => with_exact(layout.bits, order_of(kind), work),
    }
}

fn order_of(kind: ValueKind) -> Order {
    match kind {
        ValueKind::Signed => Order::Signed,
        ValueKind::Unsigned => Order::Unsigned,
        _ => Order::Float,
    }
}

fn with_exact<W: WithCoding>(bits: u32, order: Order, work: W) -> W::Output {
    match bits {
        8 => work.run(&Exact::<u8>::new(order)),
        16 => work.run(&Exact::<u16>::new(order)),
        32 => work.run(&Exact::<u32>::new(order)),
        _ => work.run(&Exact::<u64>::new(order)),
    }
}

struct Encode<'a> {
    layout: &'a Layout,
    mode: &'a Mode,
    source: &'a [u8],
    out: &'a mut [u8],
    parallel: bool,
}

/// The words of some chunks, made by one thread.
struct ChunkGroup<'a, K: Coding> {
    encoder: Encoder<'a, K>,
    chunks: Range<u32>,
    words: Vec<u32>,
    /// Words up to the end of every chunk.
    ends: Vec<u32>,
}

impl<'a, K: Coding> ChunkGroup<'a, K> {
    fn new(coding: &'a K, layout: &'a Layout) -> ChunkGroup<'a, K> {
        let encoder = Encoder::new(coding, layout);
        ChunkGroup { encoder, chunks: 0..0, words: Vec::new(), ends: Vec::new() }
    }

    fn fill(&mut self, source: &[u8]) {
        self.words.clear();
        self.ends.clear();
        for c in self.chunks.clone() {
            self.encoder.chunk(c, source, &mut self.words);
            self.ends.push(self.words.len() as u32);
        }
    }
}

/// The part of a stream that is still to be written.
struct Rest<'a> {
    ends: &'a mut [[u8; 4]],
    payload: &'a mut [u8],
    words: u32,
    totals: Totals,
}

impl Rest<'_> {
    fn append<K: Coding>(&mut self, group: &mut ChunkGroup<'_, K>) {
        let (own, ends) = std::mem::take(&mut self.ends).split_at_mut(group.ends.len());
        for (entry, end) in own.iter_mut().zip(&group.ends) {
            *entry = (self.words + end).to_le_bytes();
        }
        let bytes = 4 * group.words.len();
        let (place, payload) = std::mem::take(&mut self.payload).split_at_mut(bytes);
        Word::write(&group.words, place);
        (self.ends, self.payload) = (ends, payload);
        self.words += group.words.len() as u32;
        let totals = std::mem::take(&mut group.encoder.totals);
        self.totals.add(totals.errors, totals.outliers);
    }
}

impl WithCoding for Encode<'_> {
    type Output = EncodedStream;

    fn run<K: Coding>(self, coding: &K) -> EncodedStream {
        let Encode { layout, mode, source, out, parallel } = self;
        let (head, out) = out.split_at_mut(HEADER_BYTES);
        let (table, payload) = out.split_at_mut(4 * (layout.n_chunks as usize + 1));
        let (first, ends) = table.as_chunks_mut::<4>().0.split_at_mut(1);
        first[0] = [0; 4];
        let mut rest = Rest { ends, payload, words: 0, totals: Totals::default() };
        let wave = if parallel { 4 * rayon::current_num_threads() } else { 1 };
        let mut groups: Vec<_> = (0..wave).map(|_| ChunkGroup::new(coding, layout)).collect();
        let mut next = 0;
        while next < layout.n_chunks {
            for group in &mut groups {
                let end = next.saturating_add(GROUP).min(layout.n_chunks);
                (group.chunks, next) = (next..end, end);
            }
            if parallel {
                groups.par_iter_mut().with_max_len(1).for_each(|group| group.fill(source));
            } else {
                groups.iter_mut().for_each(|group| group.fill(source));
            }
            groups.iter_mut().for_each(|group| rest.append(group));
        }
        finish(head, layout, mode, rest.words, &rest.totals)
    }
}

/// Writes the header, after everything else.
fn finish(
    head: &mut [u8],
    layout: &Layout,
    mode: &Mode,
    payload_words: u32,
    totals: &Totals,
) -> EncodedStream {
    let tiny = if layout.kind == ValueKind::Float64 {
        f64::MIN_POSITIVE
    } else {
        f64::from(f32::MIN_POSITIVE)
    };
    let max_error = if totals.errors.max < tiny { 0.0 } else { totals.errors.max };
    let header = Header { payload_words, max_error, ..Header::new(layout, mode) };
    if let Some(head) = head.first_chunk_mut() {
        header.write(head);
    }
    let achieved = Achieved {
        max_error,
        sum_sq_error: totals.errors.sum_sq,
        values: layout.n,
        outliers: totals.outliers,
    };
    EncodedStream { bytes: header.stream_bytes(), achieved }
}

/// The parts of a stream after its header.
#[derive(Clone, Copy)]
pub(super) struct StreamParts<'a> {
    table: &'a [[u8; 4]],
    payload: &'a [[u8; 4]],
}

impl<'a> StreamParts<'a> {
    /// Checks the length and the first and last entry of the table.
    pub fn of(header: &Header, stream: &'a [u8]) -> Result<StreamParts<'a>, CodecError> {
        if stream.len() as u64 != header.stream_bytes() {
            return Err(damaged(format!(
                "it has {} bytes, and its header says {}",
                stream.len(),
                header.stream_bytes()
            )));
        }
        let words = stream[HEADER_BYTES..].as_chunks::<4>().0;
        let (table, payload) = words.split_at(header.n_chunks as usize + 1);
        let parts = StreamParts { table, payload };
        if parts.offset(0) != 0 || parts.offset(header.n_chunks) != payload.len() {
            return Err(damaged("its table does not cover the chunks".to_owned()));
        }
        Ok(parts)
    }

    fn offset(&self, c: u32) -> usize {
        u32::from_le_bytes(self.table[c as usize]) as usize
    }

    pub fn chunk(&self, c: u32) -> Option<&'a [[u8; 4]]> {
        self.payload.get(self.offset(c)..self.offset(c + 1))
    }
}

struct Decode<'a> {
    layout: &'a Layout,
    parts: StreamParts<'a>,
    out: &'a mut [u8],
    parallel: bool,
}

impl WithCoding for Decode<'_> {
    type Output = Result<(), CodecError>;

    fn run<K: Coding>(self, coding: &K) -> Result<(), CodecError> {
        let Decode { layout, parts, out, parallel } = self;
        let new = || Decoder::new(coding, layout);
        let mut bands = bands(layout, out);
        if parallel {
            return bands
                .par_iter_mut()
                .try_for_each_init(new, |decoder, band| band.fill(decoder, layout, &parts));
        }
        let mut decoder = new();
        bands.iter_mut().try_for_each(|band| band.fill(&mut decoder, layout, &parts))
    }
}

/// Chunks that lie beside each other along x, and the rows of the array that they fill, by plane.
struct Band<'a> {
    chunks: Range<u32>,
    planes: Vec<&'a mut [u8]>,
}

impl Band<'_> {
    fn fill<K: Coding>(
        &mut self,
        decoder: &mut Decoder<'_, K>,
        layout: &Layout,
        parts: &StreamParts<'_>,
    ) -> Result<(), CodecError> {
        for c in self.chunks.clone() {
            let chunk = layout.chunk(c);
            parts
                .chunk(c)
                .and_then(|words| decoder.chunk(&chunk, words))
                .ok_or_else(|| damaged(format!("its chunk {c} breaks the format")))?;
            chunk.unite(&mut decoder.values);
            let x = (c - self.chunks.start) as usize * layout.extent()[0];
            for row in chunk.rows() {
                let (plane, y) = match layout.profile {
                    1 => (0, 0),
                    2 => (0, row.at / 32),
                    _ => (row.at / 256, row.at / 32 % 8),
                };
                let first = (y * layout.nx as usize + x) * K::V::BYTES;
                let place = &mut self.planes[plane][first..][..row.len * K::V::BYTES];
                Word::write(&decoder.values[row.at..row.at + row.len], place);
            }
        }
        Ok(())
    }
}

/// Cuts an array into bands.
fn bands<'a>(layout: &Layout, out: &'a mut [u8]) -> Vec<Band<'a>> {
    let (bytes, mut next) = (layout.value_bytes(), 0);
    let mut band = |planes, chunks| {
        let start = next;
        next += chunks;
        Band { chunks: start..next, planes }
    };
    if layout.profile == 1 {
        let groups = out.chunks_mut(GROUP as usize * CHUNK * bytes);
        let with_chunks = |group: &'a mut [u8]| {
            let chunks = group.len().div_ceil(CHUNK * bytes) as u32;
            band(vec![group], chunks)
        };
        return groups.map(with_chunks).collect();
    }
    let [nx, ny, nz] = layout.dimensions().map(|size| size as usize);
    let [w, h, d] = layout.extent();
    let across = nx.div_ceil(w) as u32;
    let mut all = Vec::new();
    for volume in out.chunks_mut(nx * ny * nz * bytes) {
        for slab in volume.chunks_mut(nx * ny * d * bytes) {
            let mut rows: Vec<Vec<&mut [u8]>> = Vec::new();
            rows.resize_with(ny.div_ceil(h), Vec::new);
            for plane in slab.chunks_mut(nx * ny * bytes) {
                for (rows, piece) in rows.iter_mut().zip(plane.chunks_mut(nx * h * bytes)) {
                    rows.push(piece);
                }
            }
            all.extend(rows.into_iter().map(|planes| band(planes, across)));
        }
    }
    all
}
