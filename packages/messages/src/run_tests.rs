//! Tests of the file of a run.

use proptest::prelude::*;

use super::{About, CallTotal, Duplicates, RankRecord, Run, RunError, Writer};
use crate::channel::{Channel, Key, Place, What};
use crate::events::{Event, Events};
use crate::measure::{Flow, Measure, Outcome, Scheme};
use crate::part::{Comm, Ending};
use crate::values::Values;

fn channel(peer: u32, messages: u64) -> Channel {
    Channel {
        key: Key {
            comm: 0,
            what: What::Messages,
            peer,
            tag: -4,
            class: 10,
            values: Values::Float64,
            place: Place::Host,
        },
        messages,
        bytes: messages * 1000,
        least: 1000,
        most: 1000,
        duplicates: 1,
        compared: messages,
        call_ns: 7,
        first_ns: 1,
        last_ns: 2_000_000_000,
        samples: 3,
    }
}

fn rank(rank: u32) -> RankRecord {
    RankRecord {
        rank,
        host: format!("node{rank}"),
        ending: Ending::Finalized,
        wall_ns: 3_000_000_000,
        calls: vec![CallTotal { name: "MPI_Send".into(), calls: 9, ns: 400 }],
        comms: vec![Comm { id: u64::MAX, size: 4, name: "MPI_COMM_WORLD".into(), plain: false }],
        channels: vec![channel(1 - rank, 9)],
        sent: Duplicates { compared: 9, same: 1 },
        received: Duplicates::default(),
    }
}

fn flow() -> Flow {
    Flow { comm: u64::MAX, tag: -4, class: 10, values: Values::Float64 }
}

/// The bytes of a run of two of four ranks.
fn written() -> Vec<u8> {
    let about =
        About { command: vec!["mpirun".into(), "./a \"b\"".into()], size: 4, ..About::default() };
    let mut writer = Writer::begin(Vec::new(), &about).unwrap();
    for number in 0..2 {
        writer.rank(&rank(number)).unwrap();
        let first = vec![Event { start_ns: 5, ..Event::default() }];
        writer.events(number, &Events { total: 9, first, last: vec![] }).unwrap();
    }
    let outcomes = vec![Outcome::new(Scheme::Lz4)];
    writer.end(&vec![Measure { flow: flow(), outcomes }]).unwrap()
}

#[test]
fn a_run_comes_back_with_its_events() {
    let bytes = written();
    let mut seen = Vec::new();
    let run = Run::read_with(&bytes[..], |rank, events| seen.push((rank, events.total))).unwrap();
    assert_eq!(run.ranks, [rank(0), rank(1)]);
    assert_eq!((run.missing(), seen), (vec![2, 3], vec![(0, 9), (1, 9)]));
    assert_eq!(run.measures[0].flow, flow());
}

#[test]
fn what_is_no_whole_run_is_an_error_that_says_so() {
    let whole = written();
    for length in 0..whole.len() {
        let error = Run::read(&whole[..length]).expect_err("cut");
        let foreign = matches!(error, RunError::Foreign);
        assert!(
            foreign == (length < 8) && (foreign || matches!(error, RunError::Truncated)),
            "{length}"
        );
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let error = Run::read(&bytes[..]).expect_err("damaged");
        assert_eq!(at < 8, matches!(error, RunError::Foreign), "{at}: {error}");
        assert_eq!((8..12).contains(&at), matches!(error, RunError::Version(_)), "{at}: {error}");
    }
    let longer = [&whole[..], b"x"].concat();
    assert!(matches!(Run::read(&longer[..]), Err(RunError::Damaged("something follows its end"))));
    let told = RunError::Truncated.to_string();
    assert_eq!(told, "its end is missing: it was not written or not copied as a whole.");
}

#[test]
fn ranks_in_a_wrong_order_are_refused() {
    let about = About { size: 4, ..About::default() };
    for ranks in [[1, 0], [1, 1], [0, 4]] {
        let mut writer = Writer::begin(Vec::new(), &about).unwrap();
        for number in ranks {
            writer.rank(&RankRecord { rank: number, ..rank(0) }).unwrap();
        }
        let bytes = writer.end(&vec![]).unwrap();
        assert!(matches!(Run::read(&bytes[..]), Err(RunError::Damaged(_))), "{ranks:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(bytes: Vec<u8>) {
        prop_assert!(Run::read(&bytes[..]).is_err());
        let begun = [&super::MAGIC[..], &[1, 0, 0, 0], &bytes].concat();
        prop_assert!(Run::read(&begun[..]).is_err());
    }
}
