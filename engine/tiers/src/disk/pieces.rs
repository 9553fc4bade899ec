//! Cuts the parts of a frame into pieces that a medium takes as they are and pieces that have to go
//! through staging memory. No I/O happens here.
//!
//! Past the page cache, file offsets and lengths must be multiples of a block and addresses
//! multiples of the medium's alignment. The parts of a `put` or `get` promise none of this: the
//! middle of a part usually fits, its ends usually share a block with a neighbour.

use std::collections::VecDeque;

/// What a medium asks for. Powers of two; `memory` divides `block`, `block` divides the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DirectGrid {
    /// File offsets and lengths are multiples of this.
    pub(super) block: usize,
    /// Addresses are multiples of this.
    pub(super) memory: usize,
    /// The most bytes of a piece.
    pub(super) longest: usize,
    /// The most bytes of a piece that goes through staging memory.
    pub(super) staged: usize,
}

/// Bytes in memory that can be cut: `&[u8]` for writing, `&mut [u8]` for reading.
pub(super) trait Span: Sized {
    fn bytes(&self) -> &[u8];
    fn cut(self, at: usize) -> (Self, Self);

    fn len(&self) -> usize {
        self.bytes().len()
    }
}

impl Span for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl Span for &mut [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

/// A range of the file. Each piece begins where the one before ends.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct FilePiece<S> {
    /// Its first byte in the file: a multiple of the block.
    pub(super) at: u64,
    /// Its length: a multiple of the block.
    pub(super) len: usize,
    pub(super) memory: PieceMemory<S>,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum PieceMemory<S> {
    /// The bytes fit the grid where they are.
    InPlace(S),
    /// The bytes of `spans`, one after the other, go through staging memory, from byte `before` of
    /// the piece on. What they leave free in the first and last block is nobody's.
    Staged { before: usize, spans: Vec<S> },
}

/// Cuts `parts`, which are the bytes from byte `skip` of a file on.
pub(super) fn cut<S: Span>(
    grid: DirectGrid,
    skip: u64,
    parts: impl Iterator<Item = S>,
) -> Vec<FilePiece<S>> {
    debug_assert!(grid.block.is_power_of_two() && grid.block.is_multiple_of(grid.memory));
    debug_assert!(grid.longest.is_multiple_of(grid.block) && grid.longest > 0);
    debug_assert!(grid.staged.is_multiple_of(grid.block) && grid.staged > 0);
    let parts = parts.filter(|part| part.len() > 0).collect();
    let mut cutter = Cutter { grid, at: skip, parts };
    let mut pieces = Vec::new();
    while !cutter.parts.is_empty() {
        let piece = cutter.in_place().unwrap_or_else(|| cutter.staged());
        debug_assert!(piece.at.is_multiple_of(grid.block as u64));
        debug_assert!(piece.len.is_multiple_of(grid.block) && piece.len > 0);
        pieces.push(piece);
    }
    pieces
}

struct Cutter<S> {
    grid: DirectGrid,
    at: u64,
    /// What is left; none is empty.
    parts: VecDeque<S>,
}

impl<S: Span> Cutter<S> {
    /// How far the next byte is beyond a multiple of the block.
    fn beyond_block(&self) -> usize {
        (self.at % self.grid.block as u64) as usize
    }

    /// How many bytes of the next part can go in place from here on.
    fn fitting(&self) -> usize {
        let Some(part) = self.parts.front() else { return 0 };
        let aligned = part.bytes().as_ptr().addr().is_multiple_of(self.grid.memory);
        if self.beyond_block() > 0 || !aligned {
            return 0;
        }
        let whole = part.len() - part.len() % self.grid.block;
        whole.min(self.grid.longest)
    }

    fn in_place(&mut self) -> Option<FilePiece<S>> {
        let len = self.fitting();
        let at = self.at;
        let span = if len > 0 { self.take(len)? } else { return None };
        Some(FilePiece { at, len, memory: PieceMemory::InPlace(span) })
    }

    /// Everything up to the next place from which bytes can go in place.
    fn staged(&mut self) -> FilePiece<S> {
        let before = self.beyond_block();
        let at = self.at - before as u64;
        let mut spans = Vec::new();
        let mut end = before;
        while end < self.grid.staged
            && (spans.is_empty() || self.fitting() == 0)
            && let Some(span) = self.step(self.grid.staged - end)
        {
            end += span.len();
            spans.push(span);
        }
        let len = end.next_multiple_of(self.grid.block);
        FilePiece { at, len, memory: PieceMemory::Staged { before, spans } }
    }

    /// At most `most` bytes of the next part: up to the next block when the part fits the grid
    /// there, else as many as there are.
    fn step(&mut self, most: usize) -> Option<S> {
        let part = self.parts.front()?;
        let to_block = self.grid.block - self.beyond_block();
        let there = part.bytes().as_ptr().addr().wrapping_add(to_block);
        let most = if there.is_multiple_of(self.grid.memory) { most.min(to_block) } else { most };
        self.take(most.min(part.len()))
    }

    fn take(&mut self, len: usize) -> Option<S> {
        let (head, tail) = self.parts.pop_front()?.cut(len);
        if tail.len() > 0 {
            self.parts.push_front(tail);
        }
        self.at += len as u64;
        Some(head)
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
