//! Random calls, checked against a map with the expected content.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use unspool_core::{CheckpointId, Failure};

use super::{Fixture, done, refused};
use crate::pattern::{Pattern, first_difference};
use crate::random::Random;

/// The frames of the model: pattern and length by id.
type Frames = BTreeMap<u64, (Pattern, usize)>;

/// Number of ids of the model; each has its own place in an arena.
const IDS: u64 = 12;

pub(super) fn random_calls_agree_with_a_map(fixture: &Fixture) {
    let mut random = Random::new(20_260_101);
    let mut frames = Frames::new();
    for step in 0..600 {
        let id = random.below(IDS);
        match random.below(8) {
            0..3 => put(fixture, &mut frames, id, step, &mut random),
            3..6 => get(fixture, &frames, id, &mut random),
            6 => delete(fixture, &mut frames, id),
            _ if random.below(10) == 0 => done(fixture.tier().sync()),
            _ => list(fixture, &frames),
        }
    }
    for (&id, &(pattern, len)) in &frames {
        fixture.assert_bytes(id, 0, &pattern.bytes(0, len));
    }
}

fn put(fixture: &Fixture, frames: &mut Frames, id: u64, step: u64, random: &mut Random) {
    let len = *random.choose(&[0, 1, 100, 4096, 5000, 65_536, 100_003, 1 << 20]);
    let bytes = Pattern(step).bytes(0, len);
    let (head, tail) = bytes.split_at(random.below(len as u64 + 1) as usize);
    let answer = fixture.tier().put(CheckpointId(id), id << 20, &[head, tail]);
    match frames.entry(id) {
        Entry::Occupied(_) => assert_eq!(refused(answer).kind(), Failure::Permanent),
        Entry::Vacant(entry) => {
            done(answer);
            entry.insert((Pattern(step), len));
        }
    }
}

fn get(fixture: &Fixture, frames: &Frames, id: u64, random: &mut Random) {
    let Some(&(pattern, len)) = frames.get(&id) else {
        assert_eq!(refused(fixture.get(id, 0, 1)).kind(), Failure::Missing);
        return;
    };
    let skip = random.below(len as u64 + 1);
    let wanted = random.below(len as u64 - skip + 1) as usize;
    let bytes = done(fixture.get(id, skip, wanted));
    let place = first_difference(&bytes, &pattern.bytes(skip, wanted));
    assert_eq!(place, None, "frame {id}: {wanted} bytes from {skip}");
}

fn delete(fixture: &Fixture, frames: &mut Frames, id: u64) {
    match (fixture.delete(id), frames.remove(&id)) {
        (Err(error), None) => assert_eq!(error.kind(), Failure::Missing),
        (answer, _) => done(answer),
    }
}

fn list(fixture: &Fixture, frames: &Frames) {
    let expected: Vec<_> = frames.iter().map(|(&id, &(_, len))| (id, len as u64)).collect();
    assert_eq!(fixture.list(), expected);
}
