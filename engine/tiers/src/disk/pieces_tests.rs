//! Parts of every shape are cut into pieces that fit the grid and hold every byte once.

use super::*;

const GRID: DirectGrid = DirectGrid { block: 64, memory: 16, longest: 1024, staged: 256 };

/// A buffer whose byte 0 is at a multiple of 64.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes: Vec<u8> = (0..len + 64).map(|i| i as u8).collect();
        let start = bytes.as_ptr().align_offset(64);
        Aligned(bytes, start)
    }

    fn from(&self, from: usize, len: usize) -> &[u8] {
        &self.0[self.1 + from..self.1 + from + len]
    }
}

/// (file offset, length, bytes before, bytes of each span; none before and one span: in place)
fn shape(pieces: &[FilePiece<&[u8]>]) -> Vec<(u64, usize, Option<usize>, Vec<usize>)> {
    let shape = |piece: &FilePiece<&[u8]>| match &piece.memory {
        PieceMemory::InPlace(span) => (piece.at, piece.len, None, vec![span.len()]),
        PieceMemory::Staged { before, spans } => {
            let lens = spans.iter().map(|span| span.len()).collect();
            (piece.at, piece.len, Some(*before), lens)
        }
    };
    pieces.iter().map(shape).collect()
}

#[test]
fn bytes_that_fit_the_grid_go_in_place_in_pieces_of_the_longest_length() {
    let buffer = Aligned::new(2048);
    let pieces = cut(GRID, 0, [buffer.from(0, 2048)].into_iter());
    assert_eq!(shape(&pieces), [(0, 1024, None, vec![1024]), (1024, 1024, None, vec![1024])]);
}

#[test]
fn the_end_of_a_part_is_staged_and_the_rest_is_not() {
    let buffer = Aligned::new(200);
    let pieces = cut(GRID, 0, [buffer.from(0, 200)].into_iter());
    assert_eq!(shape(&pieces), [(0, 192, None, vec![192]), (192, 64, Some(0), vec![8])]);
}

#[test]
fn parts_that_share_a_block_are_staged_together_up_to_where_the_grid_fits() {
    let buffer = Aligned::new(512);
    // The second part is at 16 modulo 64 in memory and at 48 in the file: it fits after 16 bytes.
    let parts = [buffer.from(0, 48), buffer.from(112, 272)];
    let pieces = cut(GRID, 0, parts.into_iter());
    assert_eq!(shape(&pieces), [(0, 64, Some(0), vec![48, 16]), (64, 256, None, vec![256])]);
}

#[test]
fn a_part_at_an_odd_address_is_staged_in_as_few_spans_as_possible() {
    let buffer = Aligned::new(1024);
    let pieces = cut(GRID, 0, [buffer.from(3, 600)].into_iter());
    assert_eq!(
        shape(&pieces),
        [
            (0, 256, Some(0), vec![256]),
            (256, 256, Some(0), vec![256]),
            (512, 128, Some(0), vec![88])
        ]
    );
}

#[test]
fn a_read_that_begins_inside_a_block_stages_that_block() {
    let buffer = Aligned::new(1024);
    let pieces = cut(GRID, 100, [buffer.from(36, 156)].into_iter());
    assert_eq!(shape(&pieces), [(64, 64, Some(36), vec![28]), (128, 128, None, vec![128])]);
}

#[test]
fn without_a_grid_everything_goes_in_place() {
    let free = DirectGrid { block: 1, memory: 1, longest: 100, staged: 1 };
    let buffer = Aligned::new(300);
    let parts = [buffer.from(1, 120), buffer.from(3, 0), buffer.from(7, 9)];
    let pieces = cut(free, 5, parts.into_iter());
    assert_eq!(
        shape(&pieces),
        [(5, 100, None, vec![100]), (105, 20, None, vec![20]), (125, 9, None, vec![9])]
    );
}

#[test]
fn parts_without_bytes_make_no_pieces() {
    assert!(cut(GRID, 0, [&[][..], &[][..]].into_iter()).is_empty());
}

/// All properties that the moving code relies on, over many shapes of parts.
#[test]
fn pieces_are_contiguous_fit_the_grid_and_hold_every_byte_once() {
    let buffer = Aligned::new(8192);
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..5000 {
        let count = random(5);
        let parts: Vec<&[u8]> = (0..count)
            .map(|_| {
                let from = random(200) as usize * [1, 16][random(2) as usize];
                let len = [random(10), random(300), 64 * random(40)][random(3) as usize];
                buffer.from(from, len as usize)
            })
            .collect();
        let skip = random(200) * [0, 1, 64][random(3) as usize];
        check(skip, &parts);
    }
}

fn check(skip: u64, parts: &[&[u8]]) {
    let pieces = cut(GRID, skip, parts.iter().copied());
    let mut bytes = Vec::new();
    let mut at = skip - skip % 64;
    for (i, piece) in pieces.iter().enumerate() {
        assert_eq!(piece.at, at);
        assert!(piece.len.is_multiple_of(64) && piece.len <= 1024);
        match &piece.memory {
            PieceMemory::InPlace(span) => {
                assert_eq!(span.as_ptr().addr() % 16, 0);
                assert_eq!(span.len(), piece.len);
                bytes.extend_from_slice(span);
            }
            PieceMemory::Staged { before, spans } => {
                assert!(piece.len <= 256);
                assert_eq!(*before as u64, if i == 0 { skip % 64 } else { 0 });
                let len = before + spans.iter().map(|span| span.len()).sum::<usize>();
                assert!(len <= piece.len && len + 64 > piece.len);
                assert!(i + 1 == pieces.len() || len == piece.len);
                spans.iter().for_each(|span| bytes.extend_from_slice(span));
            }
        }
        at += piece.len as u64;
    }
    assert!(bytes == parts.concat(), "skip {skip}");
}
