//! Blocks of 32 numbers: how wide they are, and their words (docs/twine.md, "Blocks").

#![allow(clippy::needless_range_loop, reason = "several grids are walked together")]

use super::grid::{Grid, transpose_bits};
use super::layout::BLOCK;
use super::word::Word;

/// The bit of a descriptor that says that a block is sparse, or has a reference.
const MARK: u8 = 128;

/// The descriptors of a chunk's blocks, and the words of all blocks.
pub(super) struct Measured {
    pub descriptors: [u8; BLOCK],
    pub words: usize,
}

/// Measures residuals in zig-zag form.
#[inline(always)]
pub(super) fn measure<W: Word>(z: &Grid<W>) -> Measured {
    let (mut any, mut count) = ([W::ZERO; BLOCK], [W::ZERO; BLOCK]);
    for row in z {
        for b in 0..BLOCK {
            any[b] = any[b].or(row[b]);
            count[b] = count[b].add(row[b].some());
        }
    }
    let mut measured = Measured { descriptors: [0; BLOCK], words: 0 };
    for b in 0..BLOCK {
        let (width, filled) = (any[b].width(), count[b].low());
        let sparse = 1 + (filled * width).div_ceil(32);
        measured.descriptors[b] = width as u8 | if sparse < width { MARK } else { 0 };
        measured.words += sparse.min(width) as usize;
    }
    measured
}

/// The planes of the numbers: word p of block b is `planes.0[p][b]`, `planes.1[p - 32][b]`.
#[inline(always)]
fn planes<W: Word>(z: &Grid<W>) -> (Grid<u32>, Grid<u32>) {
    let (mut low, mut high) = ([[0; BLOCK]; BLOCK], [[0; BLOCK]; BLOCK]);
    for i in 0..BLOCK {
        for b in 0..BLOCK {
            (low[i][b], high[i][b]) = (z[i][b].low(), z[i][b].high());
        }
    }
    transpose_bits(&mut low);
    if W::WORDS == 2 {
        transpose_bits(&mut high);
    }
    (low, high)
}

/// Appends the blocks of residuals in zig-zag form.
#[inline(always)]
pub(super) fn put_blocks<W: Word>(z: &Grid<W>, descriptors: &[u8; BLOCK], out: &mut Vec<u32>) {
    let planes = planes(z);
    for (b, &descriptor) in descriptors.iter().enumerate() {
        let width = usize::from(descriptor & !MARK);
        if descriptor & MARK == 0 {
            put_planes(&planes, b, width, out);
        } else {
            put_sparse(z, b, width as u32, out);
        }
    }
}

#[inline(always)]
fn put_planes(planes: &(Grid<u32>, Grid<u32>), b: usize, width: usize, out: &mut Vec<u32>) {
    out.extend(planes.0[..width.min(BLOCK)].iter().map(|plane| plane[b]));
    out.extend(planes.1[..width.saturating_sub(BLOCK)].iter().map(|plane| plane[b]));
}

#[inline(always)]
fn put_sparse<W: Word>(z: &Grid<W>, b: usize, width: u32, out: &mut Vec<u32>) {
    let filled = |row: &[W; BLOCK]| u32::from(row[b] != W::ZERO);
    let mask = z.iter().enumerate().fold(0, |mask, (i, row)| mask | filled(row) << i);
    out.push(mask);
    let (mut pending, mut bits) = (0_u128, 0);
    for residual in z.iter().map(|row| row[b]).filter(|&residual| residual != W::ZERO) {
        let residual = u64::from(residual.low()) | u64::from(residual.high()) << 32;
        pending |= u128::from(residual) << bits;
        bits += width;
        while bits >= 32 {
            out.push(pending as u32);
            (pending, bits) = (pending >> 32, bits - 32);
        }
    }
    if bits > 0 {
        out.push(pending as u32);
    }
}

/// The references and widths of kind 5. `u` has the smallest one inside where it is outside.
pub(super) struct References<W> {
    pub smallest: [W; BLOCK],
    pub measured: Measured,
}

/// Subtracts the smallest number of every block from its numbers, those outside become 0.
#[inline(always)]
pub(super) fn refer<W: Word>(u: &mut Grid<W>, inside: &[u8; BLOCK]) -> References<W> {
    let mut smallest = u[0];
    let mut any = [W::ZERO; BLOCK];
    for (i, row) in u.iter().enumerate() {
        for b in (0..BLOCK).filter(|&b| i < usize::from(inside[b])) {
            smallest[b] = smallest[b].min(row[b]);
            any[b] = any[b].or(row[b]);
        }
    }
    let mut widest = [W::ZERO; BLOCK];
    for (i, row) in u.iter_mut().enumerate() {
        for b in 0..BLOCK {
            let is_inside = i < usize::from(inside[b]);
            row[b] = if is_inside { row[b].sub(smallest[b]) } else { W::ZERO };
            widest[b] = widest[b].or(row[b]);
        }
    }
    let mut measured = Measured { descriptors: [0; BLOCK], words: 0 };
    for b in (0..BLOCK).filter(|&b| any[b] != W::ZERO) {
        let width = widest[b].width();
        measured.descriptors[b] = width as u8 | MARK;
        measured.words += width as usize + W::WORDS;
    }
    References { smallest, measured }
}

/// Appends the blocks of kind 5: `r` as [`refer`] left it.
#[inline(always)]
pub(super) fn put_referred<W: Word>(r: &Grid<W>, from: &References<W>, out: &mut Vec<u32>) {
    let planes = planes(r);
    for (b, &descriptor) in from.measured.descriptors.iter().enumerate() {
        if descriptor & MARK != 0 {
            put_number(from.smallest[b], out);
            put_planes(&planes, b, usize::from(descriptor & !MARK), out);
        }
    }
}

/// Appends a number: one word, or two with the low one first.
#[inline(always)]
pub(super) fn put_number<W: Word>(number: W, out: &mut Vec<u32>) {
    out.push(number.low());
    if W::WORDS == 2 {
        out.push(number.high());
    }
}

/// What is left of a chunk's words.
pub(super) struct Reader<'a> {
    words: &'a [[u8; 4]],
}

impl<'a> Reader<'a> {
    pub fn new(words: &'a [[u8; 4]]) -> Reader<'a> {
        Reader { words }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The next `count` words, if there are as many.
    #[inline(always)]
    pub fn take(&mut self, count: usize) -> Option<&'a [[u8; 4]]> {
        let (taken, left) = self.words.split_at_checked(count)?;
        self.words = left;
        Some(taken)
    }

    #[inline(always)]
    pub fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(1)?[0]))
    }

    #[inline(always)]
    pub fn number<W: Word>(&mut self) -> Option<W> {
        let low = self.word()?;
        let high = if W::WORDS == 2 { self.word()? } else { 0 };
        Some(W::from_words(low, high))
    }
}

/// Reads the blocks of kinds 0, 1 and 2: residuals in zig-zag form. `None` if a descriptor or the
/// number of words is wrong.
#[inline(always)]
pub(super) fn take_blocks<W: Word>(
    descriptors: &[u8; BLOCK],
    from: &mut Reader<'_>,
    z: &mut Grid<W>,
) -> Option<()> {
    let start = from.words;
    let mut planes = ([[0; BLOCK]; BLOCK], [[0; BLOCK]; BLOCK]);
    for (b, &descriptor) in descriptors.iter().enumerate() {
        let width = width_of::<W>(descriptor)?;
        if descriptor & MARK == 0 {
            take_planes(width, b, from, &mut planes)?;
        } else {
            from.take(sparse_words(width, from)?)?;
        }
    }
    join(&mut planes, z);
    let mut again = Reader::new(start);
    for (b, &descriptor) in descriptors.iter().enumerate() {
        let width = usize::from(descriptor & !MARK);
        if descriptor & MARK == 0 {
            again.take(width)?;
        } else {
            let words = again.take(sparse_words(width, &again)?)?;
            spread(words, width as u32, b, z);
        }
    }
    Some(())
}

fn width_of<W: Word>(descriptor: u8) -> Option<usize> {
    let width = descriptor & !MARK;
    (u32::from(width) <= W::BITS).then_some(usize::from(width))
}

/// The words of the sparse block that is next; `None` for a width of 0.
fn sparse_words(width: usize, from: &Reader<'_>) -> Option<usize> {
    let mask = u32::from_le_bytes(*from.words.first()?);
    (width > 0).then_some(1 + (mask.count_ones() as usize * width).div_ceil(32))
}

#[inline(always)]
fn take_planes(
    width: usize,
    b: usize,
    from: &mut Reader<'_>,
    planes: &mut (Grid<u32>, Grid<u32>),
) -> Option<()> {
    let words = from.take(width)?;
    for (plane, word) in planes.0.iter_mut().chain(&mut planes.1).zip(words) {
        plane[b] = u32::from_le_bytes(*word);
    }
    Some(())
}

/// Numbers from their planes.
#[inline(always)]
fn join<W: Word>(planes: &mut (Grid<u32>, Grid<u32>), z: &mut Grid<W>) {
    transpose_bits(&mut planes.0);
    if W::WORDS == 2 {
        transpose_bits(&mut planes.1);
    }
    for i in 0..BLOCK {
        for b in 0..BLOCK {
            z[i][b] = W::from_words(planes.0[i][b], planes.1[i][b]);
        }
    }
}

/// The residuals of a sparse block from its words.
#[inline(always)]
fn spread<W: Word>(words: &[[u8; 4]], width: u32, b: usize, z: &mut Grid<W>) {
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    let mut mask = words.next().unwrap_or(0);
    let (mut pending, mut bits) = (0_u128, 0);
    while mask != 0 {
        while bits < width {
            pending |= u128::from(words.next().unwrap_or(0)) << bits;
            bits += 32;
        }
        let residual = pending & ((1 << width) - 1);
        z[mask.trailing_zeros() as usize][b] =
            W::from_words(residual as u32, (residual >> 32) as u32);
        (pending, bits) = (pending >> width, bits - width);
        mask &= mask - 1;
    }
}

/// Reads the blocks of kind 5.
#[inline(always)]
pub(super) fn take_referred<W: Word>(
    descriptors: &[u8; BLOCK],
    from: &mut Reader<'_>,
    u: &mut Grid<W>,
) -> Option<()> {
    let mut planes = ([[0; BLOCK]; BLOCK], [[0; BLOCK]; BLOCK]);
    let mut smallest = [W::ZERO; BLOCK];
    for (b, &descriptor) in descriptors.iter().enumerate() {
        let width = width_of::<W>(descriptor)?;
        if descriptor & MARK != 0 {
            smallest[b] = from.number()?;
            take_planes(width, b, from, &mut planes)?;
        } else if width > 0 {
            return None;
        }
    }
    join(&mut planes, u);
    for row in u {
        for (to, smallest) in row.iter_mut().zip(smallest) {
            *to = to.add(smallest);
        }
    }
    Some(())
}
