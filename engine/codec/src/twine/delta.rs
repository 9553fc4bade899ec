//! A stream as its difference to another one of the same array, by the coefficients of both
//! (docs/reference/twine.md, "Differences"). What is put together is the stream, byte for byte.

use rayon::prelude::*;

use super::block::clear_outside_of;
use super::chunk::Chunk;
use super::decode::Decoder;
use super::encode::Encoder;
use super::grid::boxed;
use super::header::{HEADER_BYTES, Header, damaged};
use super::layout::{CHUNK, Layout};
use super::stream::{GROUP, StreamParts, WithCoding, with_coding, with_threads};
use super::values::{Coding, forward, inverse};
use super::word::Word;
use crate::error::{CodecError, CodecErrorKind};
use crate::workers::WorkFor;

/// The forms of a chunk: its words are those of the other stream, its own, or those of a coded
/// chunk whose coefficients are differences.
const SAME: u16 = 0;
const PLAIN: u16 = 1;
const DELTA: u16 = 2;

/// Bits of an entry that say the form; the others are the number of words.
const FORM_BITS: u32 = 2;

/// The most words of a chunk: one that is raw, of the widest values.
const MOST_WORDS: usize = 1 + 2 * CHUNK;

/// The difference of a stream to `parent`, another stream of such an array; `None` when their
/// coefficients mean different values, as after another bound.
///
/// # Errors
/// [`CodecErrorKind::Damaged`] or [`CodecErrorKind::Newer`] when one of them is not a stream of
/// such an array.
pub fn difference(
    layout: &Layout,
    stream: &[u8],
    parent: &[u8],
) -> Result<Option<Vec<u8>>, CodecError> {
    let (header, old) = (Header::read(stream)?, Header::read(parent)?);
    let (mode, of_parent) = (header.mode_for(layout)?, old.mode_for(layout)?);
    if mode != of_parent {
        return Ok(None);
    }
    let parts = (StreamParts::of(&header, stream)?, StreamParts::of(&old, parent)?);
    let pieces = with_threads(layout, WorkFor::Background, |parallel| {
        with_coding(layout, &mode, Subtract { layout, parts, parallel })
    })?;
    let mut out = stream[..HEADER_BYTES].to_vec();
    let entries = pieces.iter().flat_map(|piece| &piece.entries);
    out.extend(entries.flat_map(|entry| entry.to_le_bytes()));
    out.resize(HEADER_BYTES + table_bytes(layout), 0);
    let words = pieces.iter().flat_map(|piece| &piece.words);
    out.extend(words.flat_map(|word| word.to_le_bytes()));
    Ok(Some(out))
}

/// The stream of which this is the [`difference`] to `parent`. Any bytes are safe.
///
/// # Errors
/// [`CodecErrorKind::Damaged`] or [`CodecErrorKind::Newer`] when they are not the difference of a
/// stream of such an array to one with coefficients of the same meaning.
pub fn add(layout: &Layout, difference: &[u8], parent: &[u8]) -> Result<Vec<u8>, CodecError> {
    let (header, old) = (Header::read(difference)?, Header::read(parent)?);
    let mode = header.mode_for(layout)?;
    if mode != old.mode_for(layout)? {
        return Err(broken("it builds on a stream of another bound"));
    }
    let parent = StreamParts::of(&old, parent)?;
    let difference = Pieces::of(layout, &difference[HEADER_BYTES..])?;
    let pieces = with_threads(layout, WorkFor::Urgent, |parallel| {
        with_coding(layout, &mode, Add { layout, difference, parent, parallel })
    })?;
    joined(&header, &pieces)
}

/// The words of a stream after its header.
fn joined(header: &Header, pieces: &[Piece]) -> Result<Vec<u8>, CodecError> {
    let words: usize = pieces.iter().map(|piece| piece.words.len()).sum();
    if words != header.payload_words as usize {
        return Err(broken("it has other chunks than its header says"));
    }
    let mut out = Vec::new();
    let room = usize::try_from(header.stream_bytes()).ok();
    room.filter(|room| out.try_reserve_exact(*room).is_ok()).ok_or_else(|| {
        CodecError::new(CodecErrorKind::NoMemory, "there is no memory for a Twine stream.")
    })?;
    let mut head = [0; HEADER_BYTES];
    header.write(&mut head);
    out.extend_from_slice(&head);
    let mut end = 0_u32;
    out.extend_from_slice(&end.to_le_bytes());
    for entry in pieces.iter().flat_map(|piece| &piece.entries) {
        end += u32::from(*entry);
        out.extend_from_slice(&end.to_le_bytes());
    }
    out.extend(pieces.iter().flat_map(|piece| &piece.words).flat_map(|word| word.to_le_bytes()));
    Ok(out)
}

fn broken(what: &str) -> CodecError {
    damaged(format!("a difference to another one cannot be added: {what}"))
}

/// Bytes of the entries of all chunks, with those up to the next word.
fn table_bytes(layout: &Layout) -> usize {
    (2 * layout.n_chunks as usize).next_multiple_of(4)
}

/// The words of some chunks, made by one thread, and a number for each chunk: its entry in a
/// difference, or how many words it has.
#[derive(Default)]
struct Piece {
    entries: Vec<u16>,
    words: Vec<u32>,
}

/// Makes the pieces of all chunks.
fn pieces<K: Coding>(
    (coding, layout, parallel): (&K, &Layout, bool),
    make: impl Fn(&mut Coder<'_, K>, u32, &mut Piece) -> Result<(), CodecError> + Sync,
) -> Result<Vec<Piece>, CodecError> {
    let group = |coder: &mut Coder<'_, K>, at: u32| {
        let mut piece = Piece::default();
        let chunks = at * GROUP..(at + 1).saturating_mul(GROUP).min(layout.n_chunks);
        for c in chunks {
            make(coder, c, &mut piece)?;
        }
        Ok(piece)
    };
    let groups = 0..layout.n_chunks.div_ceil(GROUP);
    if parallel {
        return groups
            .into_par_iter()
            .map_init(|| Coder::new(coding, layout), |coder, at| group(coder, at))
            .collect();
    }
    let mut coder = Coder::new(coding, layout);
    groups.map(|at| group(&mut coder, at)).collect()
}

struct Subtract<'a> {
    layout: &'a Layout,
    parts: (StreamParts<'a>, StreamParts<'a>),
    parallel: bool,
}

impl<'a> WithCoding for Subtract<'a> {
    type Output = Result<Vec<Piece>, CodecError>;

    fn run<K: Coding>(self, coding: &K) -> Self::Output {
        let Subtract { layout, parts: (own, parent), parallel } = self;
        pieces((coding, layout, parallel), |coder, c, piece| {
            let chunk = |parts: &StreamParts<'a>| {
                let chunk = parts.chunk(c).filter(|words| words.len() <= MOST_WORDS);
                chunk.ok_or_else(|| damaged(format!("its chunk {c} breaks the format")))
            };
            let begin = piece.words.len();
            let (own, parent) = (chunk(&own)?, chunk(&parent)?);
            let form = coder.subtract(&layout.chunk(c), own, parent, &mut piece.words);
            let words = (piece.words.len() - begin) as u16;
            piece.entries.push(words << FORM_BITS | form);
            Ok(())
        })
    }
}

/// The chunks of a difference: the end of each in the words, and its form.
struct Pieces<'a> {
    chunks: Vec<(usize, u16)>,
    words: &'a [[u8; 4]],
}

impl<'a> Pieces<'a> {
    /// Those of the bytes after the header.
    fn of(layout: &Layout, bytes: &'a [u8]) -> Result<Pieces<'a>, CodecError> {
        let cut_off = || broken("it is cut off");
        let (table, words) = bytes.split_at_checked(table_bytes(layout)).ok_or_else(cut_off)?;
        let (words, rest) = words.as_chunks::<4>();
        let (table, padding) = table.split_at(2 * layout.n_chunks as usize);
        let mut end = 0;
        let entry = |entry: &[u8; 2]| {
            let entry = u16::from_le_bytes(*entry);
            end += usize::from(entry >> FORM_BITS);
            (end, entry & ((1 << FORM_BITS) - 1))
        };
        let chunks: Vec<_> = table.as_chunks::<2>().0.iter().map(entry).collect();
        if end != words.len() || !rest.is_empty() || padding.iter().any(|&byte| byte != 0) {
            return Err(broken("its table does not cover its chunks"));
        }
        Ok(Pieces { chunks, words })
    }

    fn chunk(&self, c: u32) -> (u16, &'a [[u8; 4]]) {
        let c = c as usize;
        let begin = c.checked_sub(1).map_or(0, |before| self.chunks[before].0);
        let (end, form) = self.chunks[c];
        (form, &self.words[begin..end])
    }
}

struct Add<'a> {
    layout: &'a Layout,
    difference: Pieces<'a>,
    parent: StreamParts<'a>,
    parallel: bool,
}

impl WithCoding for Add<'_> {
    type Output = Result<Vec<Piece>, CodecError>;

    fn run<K: Coding>(self, coding: &K) -> Self::Output {
        let Add { layout, difference, parent, parallel } = self;
        pieces((coding, layout, parallel), |coder, c, piece| {
            let begin = piece.words.len();
            let (form, words) = difference.chunk(c);
            let breaks = || broken(&format!("its chunk {c} breaks the format"));
            let parent = parent.chunk(c).ok_or_else(breaks)?;
            match form {
                SAME if words.is_empty() => extend(&mut piece.words, parent),
                PLAIN => extend(&mut piece.words, words),
                DELTA => coder
                    .add(&layout.chunk(c), words, parent, &mut piece.words)
                    .ok_or_else(breaks)?,
                _ => return Err(breaks()),
            }
            let words = u16::try_from(piece.words.len() - begin);
            piece.entries.push(words.map_err(|_| breaks())?);
            Ok(())
        })
    }
}

fn extend(words: &mut Vec<u32>, chunk: &[[u8; 4]]) {
    words.extend(chunk.iter().map(|word| u32::from_le_bytes(*word)));
}

/// Makes chunks of differences, and of streams from differences.
struct Coder<'a, K: Coding> {
    coding: &'a K,
    decoder: Decoder<'a, K>,
    encoder: Encoder<'a, K>,
    /// Coefficients of a chunk of the parent, and of the stream.
    parent: Box<[K::Q; CHUNK]>,
    own: Box<[K::Q; CHUNK]>,
}

impl<'a, K: Coding> Coder<'a, K> {
    fn new(coding: &'a K, layout: &'a Layout) -> Coder<'a, K> {
        let (decoder, encoder) = (Decoder::new(coding, layout), Encoder::new(coding, layout));
        let [parent, own] = [(); 2].map(|()| boxed(K::Q::ZERO));
        Coder { coding, decoder, encoder, parent, own }
    }

    /// Appends the words of a chunk in the shortest of its forms, which is returned.
    fn subtract(
        &mut self,
        chunk: &Chunk,
        own: &[[u8; 4]],
        parent: &[[u8; 4]],
        words: &mut Vec<u32>,
    ) -> u16 {
        if own == parent {
            return SAME;
        }
        let begin = words.len();
        if self.put_delta(chunk, own, parent, words).is_some() {
            let shorter = words.len() - begin < own.len();
            // A difference counts if it gives the stream back, whoever has made that.
            let mut again = Vec::with_capacity(own.len());
            let mut gives_back = |coder: &mut Self| {
                let as_words = |word: &[u8; 4]| u32::from_le_bytes(*word);
                coder.put(chunk, &mut again).is_some()
                    && again.iter().copied().eq(own.iter().map(as_words))
            };
            if shorter && gives_back(self) {
                return DELTA;
            }
        }
        words.truncate(begin);
        extend(words, own);
        PLAIN
    }

    /// Appends the words of a delta; `None` where a chunk has no coefficients, or theirs are too
    /// far from each other.
    fn put_delta(
        &mut self,
        chunk: &Chunk,
        own: &[[u8; 4]],
        parent: &[[u8; 4]],
        words: &mut Vec<u32>,
    ) -> Option<()> {
        self.take(chunk, parent)?;
        std::mem::swap(&mut self.parent, &mut self.decoder.q);
        let outliers = self.take(chunk, own)?;
        std::mem::swap(&mut self.own, &mut self.decoder.q);
        self.set_outliers(outliers);
        let pairs = self.own.iter().zip(&self.parent[..]);
        for (to, (own, parent)) in self.encoder.out.q.iter_mut().zip(pairs) {
            *to = own.sub(*parent);
        }
        self.encoder.put_coefficients(chunk, words).then_some(())
    }

    /// Takes the coefficients of a chunk to the decoder; gives the positions of its outliers,
    /// whose values are in the decoder. Those outside are 0.
    fn take<'w>(&mut self, chunk: &Chunk, words: &'w [[u8; 4]]) -> Option<&'w [[u8; 2]]> {
        if K::LOSSY {
            return self.decoder.residuals(chunk, words);
        }
        self.decoder.chunk(chunk, words)?;
        let arch = self.decoder.arch;
        forward(arch, self.coding, &self.decoder.values, &mut self.encoder.out);
        std::mem::swap(&mut self.encoder.out.q, &mut self.decoder.q);
        clear_outside_of(chunk, &mut self.decoder.q);
        Some(&[])
    }

    fn set_outliers(&mut self, positions: &[[u8; 2]]) {
        self.encoder.out.bad.fill(K::Q::ZERO);
        for position in positions {
            let position = usize::from(u16::from_le_bytes(*position));
            self.encoder.out.bad[position] = K::Q::from_words(1, 0);
            self.encoder.values[position] = self.decoder.values[position];
        }
    }

    /// Appends the words of the chunk of a stream that has these words as a delta to `parent`.
    fn add(
        &mut self,
        chunk: &Chunk,
        delta: &[[u8; 4]],
        parent: &[[u8; 4]],
        words: &mut Vec<u32>,
    ) -> Option<()> {
        self.take(chunk, parent)?;
        std::mem::swap(&mut self.parent, &mut self.decoder.q);
        let outliers = self.decoder.residuals(chunk, delta)?;
        self.set_outliers(outliers);
        let pairs = self.decoder.q.iter().zip(&self.parent[..]);
        for (to, (delta, parent)) in self.own.iter_mut().zip(pairs) {
            *to = parent.add(*delta);
        }
        clear_outside_of(chunk, &mut self.own);
        self.put(chunk, words)
    }

    /// Appends the words of the chunk that has the coefficients `own` and the outliers of the
    /// encoder; `None` when an encoder would keep its values as they are.
    fn put(&mut self, chunk: &Chunk, words: &mut Vec<u32>) -> Option<()> {
        if !K::LOSSY {
            inverse(self.decoder.arch, self.coding, &self.own, &mut self.encoder.values);
            clear_outside_of(chunk, &mut self.encoder.values);
            self.encoder.put(chunk, words);
            return Some(());
        }
        let zero = |q: &K::Q| *q == K::Q::ZERO;
        if self.own.iter().all(zero) && self.encoder.out.bad.iter().all(zero) {
            return Some(());
        }
        *self.encoder.out.q = *self.own;
        self.encoder.put_coefficients(chunk, words).then_some(())
    }
}
