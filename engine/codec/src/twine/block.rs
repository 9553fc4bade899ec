//! Blocks of 32 numbers: their widths and their words (docs/reference/twine.md, "Blocks").

#![allow(clippy::needless_range_loop, reason = "several grids are walked together")]

use pulp::Arch;

use super::chunk::Chunk;
use super::grid::{Grid, boxed, differences, from_planes, map_grid, to_grid, to_planes};
use super::layout::{BLOCK, CHUNK};
use super::simd::vectorised;
use super::word::Word;

/// The bit of a descriptor that says that a block is sparse, or has a reference.
const MARK: u8 = 128;

/// The descriptors of a chunk's blocks, the words of all blocks, and the largest width.
pub(super) struct Measured {
    pub descriptors: [u8; BLOCK],
    pub words: usize,
    pub width: u32,
}

/// The widths of a chunk's blocks.
pub(super) struct Widths([u8; BLOCK]);

impl Widths {
    /// The widths of residuals before they are in zig-zag form.
    #[inline(always)]
    fn of<W: Word>(d: &Grid<W>) -> Widths {
        let mut any = [W::ZERO; BLOCK];
        for row in d {
            for b in 0..BLOCK {
                any[b] = any[b].or(row[b].zigzag());
            }
        }
        Widths(any.map(|any| any.width() as u8))
    }

    /// Words of all blocks if none is sparse.
    pub fn sum(&self) -> usize {
        self.0.iter().map(|&width| usize::from(width)).sum()
    }
}

/// Residuals of a chunk without prediction, after L, and after L twice.
pub(super) struct Candidates<W> {
    pub none: Box<Grid<W>>,
    pub once: Box<Grid<W>>,
    pub twice: Box<Grid<W>>,
}

impl<W> Candidates<W> {
    /// The residuals of a kind: 0, 1 or 2.
    pub fn of(&self, kind: u32) -> &Grid<W> {
        match kind {
            0 => &self.none,
            1 => &self.once,
            _ => &self.twice,
        }
    }
}

vectorised! {
    /// Makes the candidates; gives their widths.
    fn predict<'a, W: Word>(
        q: &'a [W; CHUNK],
        chunk: &'a Chunk,
        profile: u32,
        to: &'a mut Candidates<W>,
    ) -> [Widths; 3] {
        to_grid(q, &mut to.none);
        differences(profile, &to.none, &mut to.once);
        clear_outside(chunk, &mut to.once);
        differences(profile, &to.once, &mut to.twice);
        clear_outside(chunk, &mut to.twice);
        [Widths::of(&to.none), Widths::of(&to.once), Widths::of(&to.twice)]
    }

    /// Measures residuals, not yet in zig-zag form, whose widths are known.
    fn measure<'a, W: Word>(d: &'a Grid<W>, widths: &'a Widths) -> Measured {
        let mut count = [W::ZERO; BLOCK];
        for row in d {
            for b in 0..BLOCK {
                count[b] = count[b].add(row[b].some());
            }
        }
        let mut measured = Measured { descriptors: [0; BLOCK], words: 0, width: 0 };
        for b in 0..BLOCK {
            let (width, filled) = (u32::from(widths.0[b]), count[b].low());
            let sparse = 1 + (filled * width).div_ceil(32);
            measured.descriptors[b] = widths.0[b] | if sparse < width { MARK } else { 0 };
            measured.words += sparse.min(width) as usize;
            measured.width = measured.width.max(width);
        }
        measured
    }

    /// For every block, which of its residuals are not 0.
    fn masks<'a, W: Word>(d: &'a Grid<W>) -> [u32; BLOCK] {
        let mut masks = [0; BLOCK];
        for (i, row) in d.iter().enumerate() {
            for b in 0..BLOCK {
                masks[b] |= row[b].some().low() << i;
            }
        }
        masks
    }

    /// Planes of residuals of up to `width` bits, which are put into zig-zag form on the way.
    fn residual_planes<'a, W: Word>(
        d: &'a Grid<W>,
        width: u32,
        planes: &'a mut Planes,
    ) -> () {
        planes.fill(d, width, Word::zigzag);
    }

    /// Planes of numbers of up to `width` bits.
    fn number_planes<'a, W: Word>(d: &'a Grid<W>, width: u32, planes: &'a mut Planes) -> () {
        planes.fill(d, width, |number| number);
    }

    /// Numbers of up to `width` bits from their planes.
    fn join_planes<'a, W: Word>(planes: &'a mut Planes, width: u32, z: &'a mut Grid<W>) -> () {
        from_planes(width, &mut planes.low);
        if width <= 32 {
            return map_grid(&planes.low, z, |low| W::from_words(low, 0));
        }
        from_planes(width - 32, &mut planes.high);
        for i in 0..BLOCK {
            for b in 0..BLOCK {
                z[i][b] = W::from_words(planes.low[i][b], planes.high[i][b]);
            }
        }
    }

    /// Subtracts the smallest number inside of every block from its numbers; those outside
    /// become 0.
    fn refer<'a, W: Word>(
        u: &'a [W; CHUNK],
        inside: &'a [u8; BLOCK],
        r: &'a mut Grid<W>,
    ) -> References<W> {
        to_grid(u, r);
        let (mut smallest, mut any) = (r[0], [W::ZERO; BLOCK]);
        for (i, row) in r.iter().enumerate() {
            for b in 0..BLOCK {
                let is_inside = i < usize::from(inside[b]);
                smallest[b] = if is_inside { smallest[b].min(row[b]) } else { smallest[b] };
                any[b] = if is_inside { any[b].or(row[b]) } else { any[b] };
            }
        }
        let mut widest = [W::ZERO; BLOCK];
        for (i, row) in r.iter_mut().enumerate() {
            for b in 0..BLOCK {
                let is_inside = i < usize::from(inside[b]);
                row[b] = if is_inside { row[b].sub(smallest[b]) } else { W::ZERO };
                widest[b] = widest[b].or(row[b]);
            }
        }
        References::new(smallest, &any, &widest)
    }
}

/// Sets the numbers at positions outside to 0.
pub(super) fn clear_outside_of<W: Word>(chunk: &Chunk, numbers: &mut [W; CHUNK]) {
    if chunk.is_full() {
        return;
    }
    for (block, inside) in numbers.as_chunks_mut::<BLOCK>().0.iter_mut().zip(chunk.inside()) {
        block[usize::from(inside)..].fill(W::ZERO);
    }
}

/// Sets the residuals at positions outside to 0.
#[inline(always)]
fn clear_outside<W: Word>(chunk: &Chunk, grid: &mut Grid<W>) {
    if chunk.is_full() {
        return;
    }
    for (b, inside) in chunk.inside().into_iter().enumerate() {
        for row in &mut grid[usize::from(inside)..] {
            row[b] = W::ZERO;
        }
    }
}

/// Word p of block b is `low[p][b]` for p < 32, else `high[p - 32][b]`.
pub(super) struct Planes {
    low: Box<Grid<u32>>,
    high: Box<Grid<u32>>,
}

impl Planes {
    pub fn new() -> Planes {
        Planes { low: boxed([0; BLOCK]), high: boxed([0; BLOCK]) }
    }

    #[inline(always)]
    fn fill<W: Word>(&mut self, d: &Grid<W>, width: u32, form: impl Fn(W) -> W) {
        map_grid(d, &mut self.low, |number| form(number).low());
        to_planes(width, &mut self.low);
        if width > 32 {
            map_grid(d, &mut self.high, |number| form(number).high());
            to_planes(width - 32, &mut self.high);
        }
    }

    fn put(&self, b: usize, width: usize, out: &mut Vec<u32>) {
        out.extend(self.low[..width.min(BLOCK)].iter().map(|plane| plane[b]));
        out.extend(self.high[..width.saturating_sub(BLOCK)].iter().map(|plane| plane[b]));
    }

    /// Takes the words of a dense block.
    fn take(&mut self, b: usize, width: usize, from: &mut Reader<'_>) -> Option<()> {
        let words = from.take(width)?;
        for (plane, word) in self.low.iter_mut().chain(self.high.iter_mut()).zip(words) {
            plane[b] = u32::from_le_bytes(*word);
        }
        Some(())
    }

    /// Clears the planes of numbers of up to `width` bits.
    fn clear(&mut self, width: u32) {
        let rows = match width {
            ..=8 => 8,
            9..=16 => 16,
            _ => BLOCK,
        };
        self.low[..rows].fill([0; BLOCK]);
        if width > 32 {
            self.high.fill([0; BLOCK]);
        }
    }
}

/// Appends the blocks of residuals, not yet in zig-zag form.
pub(super) fn put_blocks<W: Word>(
    arch: Arch,
    d: &Grid<W>,
    measured: &Measured,
    planes: &mut Planes,
    out: &mut Vec<u32>,
) {
    if measured.descriptors.iter().any(|descriptor| (1..MARK).contains(descriptor)) {
        residual_planes(arch, d, measured.width, planes);
    }
    let sparse = measured.descriptors.iter().any(|descriptor| descriptor & MARK != 0);
    let masks = if sparse { masks(arch, d) } else { [0; BLOCK] };
    for (b, &descriptor) in measured.descriptors.iter().enumerate() {
        if descriptor & MARK == 0 {
            planes.put(b, usize::from(descriptor), out);
        } else {
            put_sparse(d, b, masks[b], u32::from(descriptor & !MARK), out);
        }
    }
}

fn put_sparse<W: Word>(d: &Grid<W>, b: usize, mask: u32, width: u32, out: &mut Vec<u32>) {
    out.push(mask);
    let (mut left, mut pending, mut bits) = (mask, 0_u128, 0);
    while left != 0 {
        let residual = d[left.trailing_zeros() as usize][b].zigzag();
        left &= left - 1;
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

/// The smallest numbers of the blocks in kind 5, and what their words are.
pub(super) struct References<W> {
    smallest: [W; BLOCK],
    pub measured: Measured,
}

impl<W: Word> References<W> {
    #[inline(always)]
    fn new(smallest: [W; BLOCK], any: &[W; BLOCK], widest: &[W; BLOCK]) -> References<W> {
        let mut measured = Measured { descriptors: [0; BLOCK], words: 0, width: 0 };
        for b in 0..BLOCK {
            let width = widest[b].width();
            let filled = any[b] != W::ZERO;
            measured.descriptors[b] = if filled { width as u8 | MARK } else { 0 };
            measured.words += if filled { width as usize + W::WORDS } else { 0 };
            measured.width = measured.width.max(width);
        }
        References { smallest, measured }
    }

    /// Appends the blocks of kind 5: `r` as [`refer`] left it.
    pub fn put(&self, arch: Arch, r: &Grid<W>, planes: &mut Planes, out: &mut Vec<u32>) {
        number_planes(arch, r, self.measured.width, planes);
        for (b, &descriptor) in self.measured.descriptors.iter().enumerate() {
            if descriptor & MARK != 0 {
                put_number(self.smallest[b], out);
                planes.put(b, usize::from(descriptor & !MARK), out);
            }
        }
    }
}

/// Appends a number: one word, or two with the low one first.
pub(super) fn put_number<W: Word>(number: W, out: &mut Vec<u32>) {
    out.push(number.low());
    if W::WORDS == 2 {
        out.push(number.high());
    }
}

/// The words of a chunk that were not read yet.
#[derive(Clone, Copy)]
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
    pub fn take(&mut self, count: usize) -> Option<&'a [[u8; 4]]> {
        let (taken, left) = self.words.split_at_checked(count)?;
        self.words = left;
        Some(taken)
    }

    pub fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(1)?[0]))
    }

    pub fn number<W: Word>(&mut self) -> Option<W> {
        let low = self.word()?;
        let high = if W::WORDS == 2 { self.word()? } else { 0 };
        Some(W::from_words(low, high))
    }
}

/// The largest width of some descriptors; `None` when it is too large for the coefficients.
fn widest<W: Word>(descriptors: &[u8; BLOCK]) -> Option<u32> {
    let widest = descriptors.iter().map(|descriptor| u32::from(descriptor & !MARK)).max()?;
    (widest <= W::BITS).then_some(widest)
}

/// Reads the blocks of kinds 0, 1 and 2: residuals in zig-zag form. `None` if a descriptor or the
/// number of words is wrong.
pub(super) fn take_blocks<W: Word>(
    arch: Arch,
    descriptors: &[u8; BLOCK],
    from: &mut Reader<'_>,
    planes: &mut Planes,
    z: &mut Grid<W>,
) -> Option<()> {
    let width = widest::<W>(descriptors)?;
    planes.clear(width);
    let mut sparse = [Reader::new(&[]); BLOCK];
    let mut marks = 0_u32;
    for (b, &descriptor) in descriptors.iter().enumerate() {
        let width = usize::from(descriptor & !MARK);
        if descriptor & MARK == 0 {
            planes.take(b, width, from)?;
        } else {
            sparse[b] = Reader::new(from.take(sparse_words(width, from)?)?);
            marks |= 1 << b;
        }
    }
    join_planes(arch, planes, width, z);
    while marks != 0 {
        let b = marks.trailing_zeros() as usize;
        marks &= marks - 1;
        spread(sparse[b], u32::from(descriptors[b] & !MARK), b, z);
    }
    Some(())
}

/// The words of the sparse block that is next; `None` for a width of 0.
fn sparse_words(width: usize, from: &Reader<'_>) -> Option<usize> {
    let mask = u32::from_le_bytes(*from.words.first()?);
    (width > 0).then_some(1 + (mask.count_ones() as usize * width).div_ceil(32))
}

/// The residuals of a sparse block from its words.
fn spread<W: Word>(mut from: Reader<'_>, width: u32, b: usize, z: &mut Grid<W>) {
    let mut mask = from.word().unwrap_or(0);
    let (mut pending, mut bits) = (0_u128, 0);
    while mask != 0 {
        while bits < width {
            pending |= u128::from(from.word().unwrap_or(0)) << bits;
            bits += 32;
        }
        let residual = (pending & ((1 << width) - 1)) as u64;
        let place = &mut z[mask.trailing_zeros() as usize][b];
        *place = W::from_words(residual as u32, (residual >> 32) as u32);
        (pending, bits) = (pending >> width, bits - width);
        mask &= mask - 1;
    }
}

/// Reads the blocks of kind 5.
pub(super) fn take_referred<W: Word>(
    arch: Arch,
    descriptors: &[u8; BLOCK],
    from: &mut Reader<'_>,
    planes: &mut Planes,
    u: &mut Grid<W>,
) -> Option<()> {
    let width = widest::<W>(descriptors)?;
    planes.clear(width);
    let mut smallest = [W::ZERO; BLOCK];
    for (b, &descriptor) in descriptors.iter().enumerate() {
        if descriptor & MARK != 0 {
            smallest[b] = from.number()?;
            planes.take(b, usize::from(descriptor & !MARK), from)?;
        } else if descriptor > 0 {
            return None;
        }
    }
    join_planes(arch, planes, width, u);
    for row in u {
        for b in 0..BLOCK {
            row[b] = row[b].add(smallest[b]);
        }
    }
    Some(())
}
