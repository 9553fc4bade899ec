//! A `get` returns what was `put`.

use unspool_core::CheckpointId;

use super::{Fixture, done, split, split_mut};
use crate::pattern::{Pattern, first_difference};
use crate::random::Random;

pub(super) fn a_frame_of_several_parts_is_read_back_whole(fixture: &Fixture) {
    let bytes = Pattern(1).bytes(0, 4096 + 10_000 + 3);
    let parts = split(&bytes, &[4096, 14_096]);
    done(fixture.tier().put(CheckpointId(1), 0, &parts));
    fixture.assert_bytes(1, 0, &bytes);
    assert_eq!(fixture.list(), [(1, 14_099)]);
}

pub(super) fn a_frame_may_be_cut_anywhere_for_writing_and_for_reading(fixture: &Fixture) {
    let mut random = Random::new(1);
    let len = 20_000;
    for n in 0..40 {
        let bytes = Pattern(n).bytes(0, len);
        let (write, read) = (cuts(&mut random, len), cuts(&mut random, len));
        done(fixture.tier().put(CheckpointId(n), n << 20, &split(&bytes, &write)));
        let mut out = vec![0xA5; len];
        done(fixture.tier().get(CheckpointId(n), 0, &mut split_mut(&mut out, &read)));
        assert_eq!(first_difference(&bytes, &out), None, "cut at {write:?}, read at {read:?}");
    }
}

/// Up to six positions near boundaries, in ascending order.
fn cuts(random: &mut Random, len: usize) -> Vec<usize> {
    let count = random.below(7);
    let mut cuts: Vec<usize> = (0..count)
        .map(|_| {
            let near = *random.choose(&[0, 64, 512, 4096, 8192, 16_384, len - 1]);
            let odd = random.below(40) as usize;
            *random.choose(&[near, near + odd, random.clone().below(len as u64) as usize])
        })
        .map(|cut| cut.min(len))
        .collect();
    cuts.sort_unstable();
    cuts
}

pub(super) fn a_read_may_skip_the_beginning(fixture: &Fixture) {
    let len = 3 * 4096 + 77;
    let bytes = Pattern(1).bytes(0, len);
    done(fixture.put(1, &bytes));
    for skip in [0, 1, 63, 511, 512, 4095, 4096, 4097, 8192, 12_288, 12_300, len - 1, len] {
        fixture.assert_bytes(1, skip as u64, &bytes[skip..]);
        let few = (len - skip).min(10);
        fixture.assert_bytes(1, skip as u64, &bytes[skip..skip + few]);
    }
}

pub(super) fn a_frame_without_bytes_is_a_frame(fixture: &Fixture) {
    done(fixture.tier().put(CheckpointId(1), 0, &[]));
    done(fixture.tier().put(CheckpointId(2), 0, &[&[], &[]]));
    assert_eq!(fixture.list(), [(1, 0), (2, 0)]);
    fixture.assert_bytes(1, 0, &[]);
    done(fixture.tier().get(CheckpointId(2), 0, &mut []));
    assert!(fixture.get(1, 0, 1).is_err());
    assert!(fixture.put(1, &[]).is_err(), "a duplicate");
    done(fixture.delete(1));
    assert_eq!(fixture.list(), [(2, 0)]);
}

pub(super) fn parts_without_bytes_change_nothing(fixture: &Fixture) {
    done(fixture.tier().put(CheckpointId(1), 0, &[&[], b"abc", &[], &[], b"de", &[]]));
    let (mut left, mut right) = ([0; 2], [0; 3]);
    done(fixture.tier().get(CheckpointId(1), 0, &mut [&mut [], &mut left, &mut [], &mut right]));
    assert_eq!((&left, &right), (b"ab", b"cde"));
}

pub(super) fn buffers_may_lie_at_any_address(fixture: &Fixture) {
    let len = 2 * 4096 + 5;
    let mut memory = vec![0; len + 4096];
    for (n, at) in (0..).zip([0, 1, 2, 3, 4, 8, 15, 16, 64, 511, 512, 513, 2048, 4095]) {
        Pattern(n).fill(0, &mut memory[at..at + len]);
        done(fixture.put(n, &memory[at..at + len]));
        memory.fill(0xA5);
        // Read to another address than the bytes were written from.
        let to = 4096 - at;
        done(fixture.tier().get(CheckpointId(n), 0, &mut [&mut memory[to..to + len]]));
        let expected = Pattern(n).bytes(0, len);
        assert_eq!(first_difference(&memory[to..to + len], &expected), None, "from {at} to {to}");
        let around = memory[..to].iter().chain(&memory[to + len..]);
        assert!(around.copied().all(|byte| byte == 0xA5), "bytes beside the buffer were written");
    }
}

pub(super) fn a_frame_may_be_read_again_and_again(fixture: &Fixture) {
    done(fixture.put_pattern(1, 100_000));
    for _ in 0..3 {
        fixture.assert_holds(1, 100_000);
    }
}

pub(super) fn neighbours_do_not_touch_each_other(fixture: &Fixture) {
    let alignment = fixture.tier().describe().alignment;
    // In an arena these frames are adjacent without a gap.
    let len = 4 * alignment;
    let put = |n: u64| {
        let bytes = Pattern(n).bytes(0, len as usize);
        fixture.tier().put(CheckpointId(n), n * len, &[&bytes])
    };
    for n in [2, 0, 1] {
        done(put(n));
    }
    done(fixture.delete(1));
    fixture.assert_holds(0, len as usize);
    fixture.assert_holds(2, len as usize);
    done(put(1));
    (0..3).for_each(|n| fixture.assert_holds(n, len as usize));
}

pub(super) fn a_frame_of_more_than_64_mib_is_read_back(fixture: &Fixture) {
    let len = (64 << 20) + 1;
    done(fixture.put_pattern(0, len));
    fixture.assert_holds(0, len);
    let middle = (33 << 20) + 7;
    fixture.assert_bytes(0, middle, &Pattern(0).bytes(middle, 1 << 20));
}
