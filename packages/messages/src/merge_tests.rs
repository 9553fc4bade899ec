//! Tests of putting parts together.

use std::time::Duration;

use super::{Merger, choose};
use crate::channel::{Key, Place, What};
use crate::hash::hash;
use crate::part::{Comm, Ending, Identity, Limits, Message, Part};
use crate::run::{Duplicates, Run};
use crate::sample::{self, Sample};
use crate::values::Values;

const LIMITS: Limits = Limits { comms: 4, channels: 8, payloads: 64, events: 8 };

fn who(rank: u32, started_unix_ns: u64) -> Identity {
    Identity { rank, size: 3, started_unix_ns, ..Identity::default() }
}

/// The part of a rank that sends twelve messages to rank 2, equal but for their first byte.
fn part_of(rank: u32) -> Vec<u8> {
    let mut words = vec![0; LIMITS.words()];
    let mut part = Part::begin(&mut words, LIMITS, &who(rank, 10));
    let comm = part.comm(&Comm { id: 5, size: 3, name: "MPI_COMM_WORLD".into(), plain: false });
    let key = Key {
        comm,
        what: What::Messages,
        peer: 2,
        tag: 1,
        class: 10,
        values: Values::Bytes,
        place: Place::Host,
    };
    let mut samples = Vec::new();
    for number in 0..12 {
        let mut payload = [7; 1000];
        payload[0] = number as u8 / 2;
        let message =
            Message { key, bytes: 1000, payload: Some(hash(&payload)), start_ns: 0, call_ns: 1 };
        let (row, number) = part.peek(message.key);
        part.message_in(row, &message);
        let row = row as u32;
        sample::write(&Sample { row, number, bytes: 1000, payload: &payload }, &mut samples);
    }
    part.finish(Ending::Finalized, 100);
    let tables: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    [tables, samples].concat()
}

#[test]
fn parts_of_several_ranks_become_one_run() {
    let mut merger = Merger::begin(vec!["a".into()], 3, vec![], Duration::from_secs(20));
    for rank in [1, 0] {
        merger.add(&part_of(rank), 2 - rank).unwrap();
    }
    merger.missing("Rank 2 is gone.".into());
    let bytes = merger.write(Vec::new(), |_| None).unwrap();
    let run = Run::read(&bytes[..]).unwrap();
    assert_eq!((run.missing(), run.about.notes), (vec![2], vec!["Rank 2 is gone.".to_owned()]));
    assert_eq!(run.ranks[0].sent, Duplicates { compared: 12, same: 6 });
    assert_eq!(run.ranks[0].channels[0].duplicates, 6);
    assert_eq!(run.measures.len(), 1);
    assert_eq!(run.measures[0].flow.comm, 5);
    // Twelve messages of two ranks, of which the first of each has none before it.
    let counts: Vec<u64> = run.measures[0].outcomes.iter().map(|one| one.messages).collect();
    assert_eq!(counts, [24, 24, 24, 22, 22, 24, 22, 20, 18]);
}

#[test]
fn a_receiver_knows_what_it_got_from_others() {
    let mut merger = Merger::begin(vec![], 3, vec![], Duration::ZERO);
    for rank in 0..3 {
        merger.add(&part_of(rank), 3 - rank).unwrap();
    }
    let bytes = merger.write(Vec::new(), |_| None).unwrap();
    let run = Run::read(&bytes[..]).unwrap();
    assert_eq!(run.ranks[2].received, Duplicates { compared: 36, same: 30 });
    assert_eq!(run.ranks[0].received, Duplicates::default());
    assert!(run.measures.iter().all(|one| one.outcomes.is_empty()), "there was no time");
}

#[test]
fn a_torn_sample_of_a_rank_that_ended_well_is_told() {
    let mut merger = Merger::begin(vec![], 3, vec![], Duration::ZERO);
    let part = part_of(0);
    merger.add(&part[..part.len() - 8], 1).unwrap();
    assert_eq!(merger.notes.len(), 1);
    assert!(merger.add(&part[..100], 1).is_err());
}

#[test]
fn the_program_that_began_last_is_chosen() {
    let earlier = [(who(0, 10), "a"), (who(1, 11), "b")];
    let later = [(who(1, 20), "d"), (who(0, 21), "c")];
    let alone = Identity { size: 1, ..who(0, 5) };
    let all = earlier.into_iter().chain([(alone, "e")]).chain(later).collect();
    let chosen = choose(all).unwrap();
    assert_eq!((chosen.size, chosen.parts), (3, vec![(0, "c"), (1, "d")]));
    assert!(chosen.notes[0].contains("3 parts"), "{:?}", chosen.notes);
    assert_eq!(choose::<()>(vec![]).unwrap_err(), "No rank has left anything.");
}
