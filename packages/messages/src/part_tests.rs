//! Tests of the tables of a rank.

use proptest::prelude::*;

use super::{Comm, Ending, Found, Identity, Limits, Message, Part, read, read_identity};
use crate::channel::{Key, Place, What};
use crate::events::Event;
use crate::hash::hash;
use crate::values::Values;

const LIMITS: Limits = Limits { comms: 3, channels: 8, payloads: 64, events: 8 };

fn who() -> Identity {
    Identity {
        rank: 3,
        size: 5,
        process: 77,
        started_unix_ns: 1_000,
        host: "node-7".into(),
        mpi: "Open MPI".into(),
    }
}

fn key(peer: u32, tag: i32) -> Key {
    Key {
        comm: 0,
        what: What::Messages,
        peer,
        tag,
        class: 4,
        values: Values::Float64,
        place: Place::Host,
    }
}

fn message(peer: u32, tag: i32, payload: &[u8]) -> Message {
    let bytes = payload.len() as u64;
    Message { key: key(peer, tag), bytes, payload: Some(hash(payload)), start_ns: 5, call_ns: 2 }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What is read of a part in which `work` was done.
fn after(limits: Limits, work: impl FnOnce(&mut Part)) -> Found {
    let mut words = vec![0; limits.words()];
    let mut part = Part::begin(&mut words, limits, &who());
    part.comm(&Comm { id: 9, size: 5, name: "MPI_COMM_WORLD".into(), plain: false });
    work(&mut part);
    read(&bytes(&words)).unwrap()
}

#[test]
fn what_was_counted_is_read_also_when_the_rank_had_no_time_to_end() {
    let found = after(LIMITS, |part| {
        for payload in [b"a", b"b", b"a", b"a"] {
            part.message(&message(1, 7, payload));
        }
        part.message(&message(2, 7, b"a"));
        part.call(4, 100);
        part.call(4, 50);
        part.now(99);
    });
    assert_eq!((found.who, found.ending, found.last_ns), (who(), Ending::Cut, 99));
    let channels: Vec<_> = found.channels.iter().flatten().filter(|one| one.messages > 0).collect();
    let counts: Vec<_> = channels
        .iter()
        .map(|one| (one.key.peer, one.messages, one.duplicates, one.bytes))
        .collect();
    assert_eq!(counts, [(1, 4, 2, 4), (2, 1, 0, 1)]);
    assert_eq!((channels[0].compared, channels[0].call_ns), (4, 8));
    assert_eq!(found.calls, [(4, 2, 150)]);
    assert_eq!(found.comms[0].name, "MPI_COMM_WORLD");
    let mut counts: Vec<_> = found.payloads.iter().map(|one| (one.peer, one.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(1, 1), (1, 3), (2, 1)]);
}

#[test]
fn channels_without_a_row_are_counted_as_one() {
    let found = after(LIMITS, |part| {
        for tag in 0..100 {
            part.message(&message(1, tag, b"x"));
        }
        for peer in 2..100 {
            part.message(&message(peer, 0, b"y"));
        }
    });
    let all: u64 = found.channels.iter().flatten().map(|one| one.messages).sum();
    assert_eq!(all, 198);
    assert_eq!(found.channels.len(), LIMITS.channels);
    let folded = found
        .channels
        .iter()
        .flatten()
        .find(|one| one.key.tag == Key::ANY_TAG && one.key.peer == 1);
    assert_eq!(folded.map(|one| one.messages), Some(95));
    // Those to ranks 1 and 2, for which there was a row left.
    assert_eq!(found.folded, 2);
    let rest = found.channels[0].as_ref().map(|one| (one.key.what, one.messages));
    assert!(matches!(rest, Some((What::Rest, 90..))), "{rest:?}");
}

#[test]
fn long_names_are_cut_between_letters() {
    for (name, length) in [("plain".to_owned(), 5), ("é".repeat(40), 64)] {
        let found = after(LIMITS, |part| part.rename(0, &name));
        assert_eq!(found.comms[0].name, name[..length]);
    }
    let name = format!("a{}", "é".repeat(40));
    let found = after(LIMITS, |part| {
        part.comm(&Comm { id: 1, size: 2, name: name.clone(), plain: false });
    });
    assert_eq!(found.comms[1].name, name[..63]);
}

#[test]
fn communicators_without_a_row_share_the_last() {
    let found = after(LIMITS, |part| {
        let one = |id| Comm { id, size: 2, name: format!("comm {id}"), plain: false };
        let rows: Vec<u16> = (0..4).map(|id| part.comm(&one(id))).collect();
        assert_eq!(rows, [1, 2, 2, 2]);
        part.rename(1, "halo");
        part.rename(2, "halo");
        part.keep_plain(1);
    });
    assert_eq!([false, true, false], [0, 1, 2].map(|row| found.comms[row].plain));
    let names: Vec<&str> = found.comms.iter().map(|comm| comm.name.as_str()).collect();
    assert_eq!(names, ["MPI_COMM_WORLD", "halo", "all further ones"]);
}

#[test]
fn the_first_and_the_last_events_are_kept() {
    for total in [0, 3, 4, 5, 8, 9, 11, 1000] {
        let found = after(LIMITS, |part| {
            (0..total).for_each(|start_ns| part.event(&Event { start_ns, ..Event::default() }));
        });
        let times = |events: &[Event]| events.iter().map(|one| one.start_ns).collect::<Vec<_>>();
        assert_eq!(times(&found.events.first), (0..total.min(4)).collect::<Vec<_>>());
        let from = 4.max(total.saturating_sub(4));
        assert_eq!(times(&found.events.last), (from..total.max(from)).collect::<Vec<_>>());
        assert_eq!(found.events.total, total);
    }
}

#[test]
fn a_damaged_part_is_refused_or_its_damage_left_out() {
    let mut words = vec![0; LIMITS.words()];
    let mut part = Part::begin(&mut words, LIMITS, &who());
    part.message(&message(1, 7, b"a"));
    part.finish(Ending::Finalized, 9);
    let whole = bytes(&words);
    assert_eq!(read(&whole).unwrap().ending, Ending::Finalized);
    assert_eq!(read_identity(&whole[..512]), Ok(who()));
    let told = |bytes: &[u8]| read(bytes).expect_err("damaged");
    assert!(told(&whole[..100]).contains("shorter than a header"));
    assert!(told(&whole[..1000]).contains("1000 bytes of the"));
    assert!(told(b"#!/bin/sh\n".repeat(99).as_slice()).contains("does not begin"));
    for (at, what) in [(8, "version"), (16, "header is damaged"), (100, "header is damaged")] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        assert!(told(&bytes).contains(what), "{at}");
    }
    let row = LIMITS.channels_at() * 8 + super::CHANNEL * 8;
    let mut bytes = whole;
    bytes[row + 8] ^= 1;
    assert_eq!(read(&bytes).unwrap().channels[1], None);
}

proptest! {
    #[test]
    fn any_bytes_after_a_header_have_an_answer(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let mut words = vec![0; LIMITS.words()];
        let mut part = Part::begin(&mut words, LIMITS, &who());
        part.message(&message(1, 7, b"a"));
        let mut bytes = bytes(&words);
        let header = (super::FIXED + 1) * 8;
        for (index, value) in damage {
            let at = header + index.index(bytes.len() - header);
            bytes[at] = value;
        }
        let found = read(&bytes).expect("the header is whole");
        prop_assert!(found.channels.len() <= LIMITS.channels);
        prop_assert!(found.events.first.len() + found.events.last.len() <= LIMITS.events);
    }
}
