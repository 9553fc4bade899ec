//! Tests of what a run and a network make of a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Limits, Plan};
use crate::channel::{Channel, Key, Place, What};
use crate::measure::{Flow, Measure, Outcome, Scheme};
use crate::part::{Comm, Ending};
use crate::run::{About, CallTotal, Duplicates, RankRecord, Run};
use crate::values::Values;

const LIMITS: Limits =
    Limits { network: 1e9, threshold: 64 << 10, memory: 64 << 20, bounds: BTreeMap::new() };

fn channel(peer: u32, tag: i32, place: Place) -> Channel {
    let values = Values::Float64;
    let key = Key { comm: 0, what: What::Messages, peer, tag, class: 20, values, place };
    Channel {
        key,
        messages: 100,
        bytes: 100 << 19,
        least: 1 << 19,
        most: 1 << 19,
        duplicates: 0,
        compared: 100,
        call_ns: 0,
        first_ns: 0,
        last_ns: 1_000_000_000,
        samples: 10,
    }
}

/// What a way has made of samples: the part of the bytes that is left, and both speeds.
fn outcome(scheme: Scheme, left: f64, speed: f64) -> Outcome {
    let mut outcome = Outcome::new(scheme);
    let time = Duration::from_secs_f64(1e6 / speed);
    outcome.add(1_000_000, (left * 1e6) as usize, time, time);
    outcome
}

/// Three ranks that send each other messages with these tags.
fn run(tags: &[(i32, Place, Vec<Outcome>)]) -> Run {
    let call = |name: &str, calls| CallTotal { name: name.into(), calls, ns: 1_000_000_000 };
    let rank = |rank: u32| RankRecord {
        rank,
        host: String::new(),
        ending: Ending::Finalized,
        wall_ns: 10_000_000_000,
        calls: vec![call("MPI_Isend", 100), call("MPI_Irecv", 100), call("MPI_Probe", 0)],
        comms: vec![Comm { id: 9, size: 3, name: "MPI_COMM_WORLD".into(), plain: false }],
        channels: tags
            .iter()
            .flat_map(|(tag, place, _)| {
                (0..3).filter(move |peer| *peer != rank).map(|peer| channel(peer, *tag, *place))
            })
            .collect(),
        sent: Duplicates::default(),
        received: Duplicates::default(),
    };
    let flow = |tag| Flow { comm: 9, tag, class: 20, values: Values::Float64 };
    Run {
        about: About { size: 3, ..About::default() },
        ranks: (0..3).map(rank).collect(),
        measures: tags
            .iter()
            .map(|(tag, _, outcomes)| Measure { flow: flow(*tag), outcomes: outcomes.clone() })
            .collect(),
    }
}

#[test]
fn what_pays_most_is_chosen_and_comes_back_from_its_text() {
    let run = run(&[
        // A quarter is left at 4 GB/s each way, or a tenth at 1 GB/s; two levels are not sent.
        (
            1,
            Place::Host,
            vec![
                outcome(Scheme::Lz4, 0.25, 4e9),
                outcome(Scheme::Order1, 0.1, 1e9),
                outcome(Scheme::TwoLevels, 0.01, 9e9),
                outcome(Scheme::Bound4, 0.01, 9e9),
            ],
        ),
        (2, Place::Host, vec![outcome(Scheme::Zstd, 0.9, 4e9)]),
        (3, Place::Device, vec![outcome(Scheme::Lz4, 0.1, 9e9)]),
    ]);
    let plan = Plan::of(&run, &LIMITS).unwrap();
    assert_eq!(plan.channels.keys().collect::<Vec<_>>(), [&(9, 1)]);
    let choice = plan.choice(9, 1, 1 << 19).unwrap();
    assert_eq!((choice.scheme, (choice.least * 1000.0).round()), (Scheme::Lz4, 500.0));
    assert_eq!(plan.choice(9, 1, 1 << 18), None, "another class");
    assert_eq!(plan.choice(9, 2, 1 << 19), None);
    assert!(plan.has(9) && !plan.has(8));
    // Two others send to each rank.
    assert_eq!(plan.quota, 32 << 20);
    assert_eq!(Plan::read(&plan.text()), Ok(plan.clone()));
    assert_eq!(plan.summary(&run), ["MPI_COMM_WORLD, tag 1: LZ4"]);
    // On a slow network what saves most pays most.
    let slow = Plan::of(&run, &Limits { network: 1e8, ..LIMITS }).unwrap();
    assert_eq!(slow.choice(9, 1, 1 << 19).unwrap().scheme, Scheme::Order1);
}

#[test]
fn an_error_is_made_where_it_is_allowed_and_no_larger() {
    let ways = || {
        let bounded = [Scheme::Bound6, Scheme::Bound6Before, Scheme::Bound4];
        let lossy = bounded.map(|scheme| outcome(scheme, 0.01, 9e9));
        [vec![outcome(Scheme::Lz4, 0.25, 4e9)], lossy.to_vec()].concat()
    };
    let run = run(&[(1, Place::Host, ways()), (2, Place::Host, ways())]);
    let scheme = |bound: f64, tag| {
        let limits = Limits { bounds: [(1, bound)].into(), ..LIMITS };
        let plan = Plan::of(&run, &limits).unwrap();
        assert_eq!(Plan::read(&plan.text()), Ok(plan.clone()));
        plan.choice(9, tag, 1 << 19).unwrap().scheme
    };
    assert_eq!(
        [1e-7, 1e-6, 1e-5].map(|bound| scheme(bound, 1)),
        [Scheme::Lz4, Scheme::Bound6, Scheme::Bound6]
    );
    assert!([Scheme::Bound6, Scheme::Bound4].contains(&scheme(1e-4, 1)));
    assert_eq!(scheme(1e-4, 2), Scheme::Lz4);
    let other = Limits { bounds: [(3, 1e-4)].into(), ..LIMITS };
    assert!(Plan::of(&run, &other).expect_err("refused").contains("tag 3"));
}

#[test]
fn programs_that_cannot_be_coded_are_told_why() {
    let one = || run(&[(1, Place::Host, vec![outcome(Scheme::Lz4, 0.25, 4e9)])]);
    let why = |run: &Run, limits: &Limits| Plan::of(run, limits).expect_err("refused");
    assert!(why(&one(), &Limits { network: 1e10, ..LIMITS }).contains("pays on this network"));
    assert!(why(&one(), &Limits { threshold: 4 << 20, ..LIMITS }).contains("pays"));
    // One rank is enough: the others cannot know.
    let mut plain = one();
    plain.ranks[1].comms[0].plain = true;
    assert!(why(&plain, &LIMITS).contains("mpi_assert_allow_overtaking"));
    let mut missing = one();
    missing.ranks.remove(1);
    assert!(why(&missing, &LIMITS).contains("rank 1 is not in it"));
    for name in [
        "MPI_Probe",
        "MPI_Improbe",
        "MPI_Mrecv",
        "MPI_Send_init",
        "MPI_Recv_init",
        "MPI_Bsend",
        "MPI_Ibsend",
        "MPI_Isendrecv",
        "MPI_Cancel",
        "MPI_Request_free",
        "MPI_Request_get_status_any",
    ] {
        let mut probes = one();
        probes.ranks[2].calls.push(CallTotal { name: name.into(), calls: 1, ns: 1 });
        assert!(why(&probes, &LIMITS).starts_with(&format!("rank 2 calls {name}, ")), "{name}");
    }
    for name in [
        "MPI_Sendrecv",
        "MPI_Testsome",
        "MPI_Allreduce",
        "MPI_Psend_init",
        "MPI_Issend",
        "MPI_Sendrecv_replace",
        "MPI_Request_get_status",
    ] {
        let mut fine = one();
        fine.ranks[2].calls.push(CallTotal { name: name.into(), calls: 1, ns: 1 });
        assert!(Plan::of(&fine, &LIMITS).is_ok(), "{name}");
    }
}

#[test]
fn texts_that_are_no_plan_are_refused() {
    let text = Plan::of(&run(&[(1, Place::Host, vec![outcome(Scheme::Lz4, 0.25, 4e9)])]), &LIMITS)
        .unwrap()
        .text();
    assert!(Plan::read("").is_err() && Plan::read("unspool-plan-2 1").is_err());
    for at in 0..text.len() {
        let mut bad = text.clone().into_bytes();
        bad[at] ^= 1;
        assert!(Plan::read(&String::from_utf8(bad).unwrap()).is_err(), "{at} of {text}");
        assert!(Plan::read(&text[..at]).is_err());
    }
}

#[test]
fn another_number_of_ranks_is_an_error_that_says_so() {
    let plan = Plan { ranks: 3, quota: 7, threshold: 1, channels: BTreeMap::new() };
    let read = Plan::read(&plan.text()).unwrap();
    assert_eq!((read.ranks, read.check_ranks(3)), (3, Ok(())));
    let why = read.check_ranks(4).unwrap_err();
    assert!(why.contains("a run on 3 ranks, and this program has 4"), "{why}");
}
