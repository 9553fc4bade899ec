//! Tests of the play: small programs whose times are computed by hand, in nanoseconds.

use proptest::prelude::*;

use super::{Placement, Played, play};
use crate::calls::Gives;
use crate::simulate::coding::{Codec, Coded, Way};
use crate::simulate::network::Network;
use crate::simulate::program::{Message, Op, Program, Together};
use crate::simulate::trace::{Half, Mode};

/// What a rank of a test does.
#[derive(Clone, Debug)]
enum Do {
    Compute(u64),
    Send(u32),
    Isend(u32),
    Recv(u32),
    Irecv(u32),
    Waitall(Vec<Half>),
    Barrier,
}

fn program(ranks: &[Vec<Do>], messages: &[(u32, u32, u64)]) -> Program {
    let mut program = Program::default();
    let barriers = |rank: &Vec<Do>| rank.iter().filter(|one| matches!(one, Do::Barrier)).count();
    for rank in ranks {
        let (mut ops, mut waits, mut barrier) = (Vec::new(), Vec::new(), 0);
        for one in rank {
            let mut wait = |ops: &mut Vec<Op>, halves: &[Half]| {
                let from = waits.len() as u32;
                waits.extend(halves);
                ops.push(Op::Wait(from, waits.len() as u32));
            };
            match one {
                Do::Compute(ns) => ops.push(Op::Compute(ns * 1000)),
                Do::Isend(message) => ops.push(Op::Send(*message)),
                Do::Irecv(message) => ops.push(Op::Post(*message)),
                Do::Send(message) => {
                    ops.push(Op::Send(*message));
                    wait(&mut ops, &[Half::Sent(*message)]);
                }
                Do::Recv(message) => {
                    ops.push(Op::Post(*message));
                    wait(&mut ops, &[Half::Received(*message)]);
                }
                Do::Waitall(halves) => wait(&mut ops, halves),
                Do::Barrier => {
                    ops.push(Op::Enter(barrier));
                    wait(&mut ops, &[Half::Together(barrier)]);
                    barrier += 1;
                }
            }
        }
        program.ops.push(ops);
        program.waits.push(waits);
    }
    program.messages = messages
        .iter()
        .map(|(from, to, bytes)| Message {
            from: *from,
            to: *to,
            bytes: *bytes,
            mode: Mode::Usual,
            flow: None,
        })
        .collect();
    let call =
        Together { ranks: ranks.len() as u32, bytes: 0, gives: Gives::Nothing, reduces: false };
    program.together = vec![call; ranks.iter().map(barriers).max().unwrap_or(0)];
    program
}

/// Latency 100, overhead 10, gap 5, 2 a byte.
fn network(topology: &str) -> Network {
    Network::parse(&format!("100,10,5,2,{topology}")).unwrap()
}

fn played(program: &Program, network: &Network, way: &Way, copies: u32) -> Result<Played, String> {
    let coded = way.code(&program.messages, &[], network).unwrap();
    play(program, network, &coded, copies, Placement::Packed)
}

/// Nanoseconds that it takes.
fn takes(program: &Program, network: &Network) -> f64 {
    let played = played(program, network, &Way::Plain, 1).unwrap();
    (played.seconds * 1e12).round() / 1e3
}

#[test]
fn a_ping_pong_takes_two_overheads_the_latency_and_its_bytes_each_way() {
    let ranks = [vec![Do::Send(0), Do::Recv(1)], vec![Do::Recv(0), Do::Send(1)]];
    let both = program(&ranks, &[(0, 1, 50), (1, 0, 50)]);
    // 10 + 50 x 2 + 100 + 10 each way.
    assert_eq!(takes(&both, &network("crossbar")), 440.0);
    let mut slower = network("crossbar");
    slower.overhead_per_byte = 1000.0;
    assert_eq!(takes(&both, &slower), 440.0 + 4.0 * 50.0);
}

#[test]
fn a_token_goes_round_a_ring_in_as_many_messages_as_ranks() {
    let mut ranks = vec![vec![Do::Send(0), Do::Recv(3)]];
    ranks.extend((1..4).map(|rank| vec![Do::Recv(rank - 1), Do::Send(rank)]));
    let messages = [(0, 1, 50), (1, 2, 50), (2, 3, 50), (3, 0, 50)];
    assert_eq!(takes(&program(&ranks, &messages), &network("crossbar")), 4.0 * 220.0);
    // All at the same time: one message, on links of their own.
    let at_once = (0..4).map(|rank| {
        let before = (rank + 3) % 4;
        vec![
            Do::Irecv(before),
            Do::Isend(rank),
            Do::Waitall(vec![Half::Received(before), Half::Sent(rank)]),
        ]
    });
    let at_once: Vec<Vec<Do>> = at_once.collect();
    assert_eq!(takes(&program(&at_once, &messages), &network("crossbar")), 220.0);
    assert_eq!(takes(&program(&at_once, &messages), &network("torus:4x1x1")), 220.0);
}

#[test]
fn a_large_message_waits_for_its_receiver() {
    let late = [vec![Do::Send(0)], vec![Do::Compute(500), Do::Recv(0)]];
    // Ready at 500, known to the sender at 600; 80000 of bytes, 100 of latency, 10 of overhead.
    assert_eq!(takes(&program(&late, &[(0, 1, 40_000)]), &network("crossbar")), 80_710.0);
    // A receiver that waits is asked first: 10 + 100 + 100.
    let early = [vec![Do::Send(0)], vec![Do::Recv(0)]];
    assert_eq!(takes(&program(&early, &[(0, 1, 40_000)]), &network("crossbar")), 80_320.0);
    // The sender is through when its last byte has left, and computes on.
    let on = [vec![Do::Send(0), Do::Compute(1000)], vec![Do::Recv(0)]];
    assert_eq!(takes(&program(&on, &[(0, 1, 40_000)]), &network("crossbar")), 81_210.0);
    let mut eager = network("crossbar");
    eager.rendezvous = 40_000;
    assert_eq!(takes(&program(&late, &[(0, 1, 40_000)]), &eager), 80_120.0);
}

#[test]
fn messages_of_a_rank_leave_a_gap_apart() {
    let halves: Vec<Half> = (0..3).map(Half::Received).collect();
    let ranks = [
        vec![Do::Isend(0), Do::Isend(1), Do::Isend(2)],
        vec![Do::Irecv(0), Do::Irecv(1), Do::Irecv(2), Do::Waitall(halves)],
    ];
    let three = program(&ranks, &[(0, 1, 1), (0, 1, 1), (0, 1, 1)]);
    let mut slow = network("crossbar");
    slow.gap = 50_000;
    // They leave from 10, 60 and 110 on, and are there 102 later.
    assert_eq!(takes(&three, &slow), 222.0);
    // A gap of 5 is over before the next is given away.
    assert_eq!(takes(&three, &network("crossbar")), 30.0 + 2.0 + 100.0 + 10.0);
}

#[test]
fn links_that_are_shared_take_longer() {
    let into_one = [
        vec![Do::Isend(0)],
        vec![Do::Isend(1)],
        vec![Do::Irecv(0), Do::Irecv(1), Do::Waitall(vec![Half::Received(0), Half::Received(1)])],
    ];
    let messages = [(0, 2, 1000), (1, 2, 1000)];
    let both = program(&into_one, &messages);
    let found = played(&both, &network("crossbar"), &Way::Plain, 1).unwrap();
    // Both have half of the link to node 2 until 10 + 4000.
    assert_eq!((found.seconds * 1e9).round(), 4130.0);
    let (link, busy) = found.busiest.unwrap();
    assert!(link == "to node 2" && (busy - 4000.0 / 4130.0).abs() < 1e-9, "{link} {busy}");
    // From two nodes of a switch to two of another one.
    let across = [vec![Do::Isend(0)], vec![Do::Isend(1)], vec![Do::Recv(0)], vec![Do::Recv(1)]];
    let across = program(&across, &[(0, 2, 1000), (1, 3, 1000)]);
    assert_eq!(takes(&across, &network("crossbar")), 2120.0);
    assert_eq!(takes(&across, &network("fattree:2:1")), 2120.0);
    assert_eq!(takes(&across, &network("fattree:2:2")), 4120.0);
    // Two ranks of a node share its link; within a node there is none.
    let mut shared = network("crossbar");
    shared.ranks_per_node = 2;
    assert_eq!(takes(&across, &shared), 4120.0);
    shared.ranks_per_node = 4;
    assert_eq!(takes(&across, &shared), 2120.0);
}

#[test]
fn a_flow_speeds_up_when_another_one_ends() {
    // Both share until 10 + 2000; then the longer one has 1500 bytes left, alone.
    let ranks = [
        vec![Do::Isend(0)],
        vec![Do::Isend(1)],
        vec![Do::Irecv(0), Do::Irecv(1), Do::Waitall(vec![Half::Received(0), Half::Received(1)])],
    ];
    let uneven = program(&ranks, &[(0, 2, 500), (1, 2, 2000)]);
    assert_eq!(takes(&uneven, &network("crossbar")), 10.0 + 2000.0 + 3000.0 + 100.0 + 10.0);
}

#[test]
fn coding_costs_work_on_both_sides_and_saves_bytes() {
    let ranks = [vec![Do::Send(0)], vec![Do::Recv(0)]];
    let one = program(&ranks, &[(0, 1, 1000)]);
    let half = Way::Given(Codec { ns_per_byte: 1.0, factor: 0.5 });
    let coded = played(&one, &network("crossbar"), &half, 1).unwrap();
    // 1000 + 10, then 500 x 2, then 100, then 10 + 1000.
    assert_eq!((coded.seconds * 1e9).round(), 3120.0);
    assert_eq!(coded.bytes, 500.0);
    // Of 2 x 3120: 2000 of coding, 20 of overhead; the receiver waits 1010 for the sender and 1100
    // for the network, and the sender has 2110 left.
    let parts = coded.spent;
    let near = |part: f64, ns: f64| (part - ns / 6240.0).abs() < 1e-9;
    assert!(near(parts.coding, 2000.0) && near(parts.overhead, 20.0), "{parts:?}");
    assert!(near(parts.network, 1100.0) && near(parts.others, 1010.0 + 2110.0), "{parts:?}");
    // What becomes smaller than the limit needs nobody's consent.
    let large = program(&ranks, &[(0, 1, 40_000)]);
    let free = Way::Given(Codec { ns_per_byte: 0.0, factor: 0.5 });
    let coded = played(&large, &network("crossbar"), &free, 1).unwrap();
    assert_eq!((coded.seconds * 1e9).round(), 10.0 + 40_000.0 + 100.0 + 10.0);
}

#[test]
fn all_ranks_of_all_copies_meet_in_a_barrier() {
    let ranks = [vec![Do::Compute(100), Do::Barrier], vec![Do::Compute(300), Do::Barrier]];
    let found = played(&program(&ranks, &[]), &network("crossbar"), &Way::Plain, 2).unwrap();
    // Four ranks meet in two rounds of 120.
    assert_eq!((found.seconds * 1e9).round(), 540.0);
    assert!((found.spent.others - 2.0 * 200.0 / (4.0 * 540.0)).abs() < 1e-9);
    assert!((found.spent.network - 4.0 * 240.0 / (4.0 * 540.0)).abs() < 1e-9);
    assert!(found.busiest.is_none());
}

#[test]
fn what_never_comes_is_an_error_that_says_so() {
    let ranks = [vec![Do::Send(0), Do::Recv(1)], vec![Do::Send(1), Do::Recv(0)]];
    let large = program(&ranks, &[(0, 1, 40_000), (1, 0, 40_000)]);
    let why = played(&large, &network("crossbar"), &Way::Plain, 1).expect_err("both wait");
    assert!(why.contains("rank 0 waits for what never comes"), "{why}");
}

#[test]
fn copies_that_are_spread_share_what_copies_that_are_packed_do_not() {
    let ranks = [vec![Do::Send(0)], vec![Do::Recv(0)]];
    let one = program(&ranks, &[(0, 1, 1000)]);
    let tree = network("fattree:8:8");
    let coded = vec![Coded::plain(1000)];
    let of = |placement| play(&one, &tree, &coded, 8, placement).unwrap().seconds * 1e9;
    assert_eq!(of(Placement::Packed).round(), 2120.0);
    // Eight messages share the way up, which is as fast as the link of one node.
    assert_eq!(of(Placement::Spread).round(), 8.0 * 2000.0 + 120.0);
}

prop_compose! {
    /// Ranks that send each other messages and wait for all of them.
    fn exchanges()(
        ranks in 2_u32..12,
        messages in proptest::collection::vec((any::<u32>(), any::<u32>(), 1_u64..50_000), 1..40),
        works in proptest::collection::vec(0_u64..5000, 12),
    ) -> Program {
        let within = |(from, to, bytes)| (from % ranks, to % ranks, bytes);
        let messages: Vec<(u32, u32, u64)> = messages.into_iter().map(within).collect();
        let those = |rank: u32| {
            let numbered = (0..).zip(messages.iter());
            let mut all = vec![Do::Compute(works[rank as usize])];
            let mut halves = Vec::new();
            for (number, (from, to, _)) in numbered {
                if *to == rank {
                    all.push(Do::Irecv(number));
                    halves.push(Half::Received(number));
                }
                if *from == rank {
                    all.push(Do::Isend(number));
                    halves.push(Half::Sent(number));
                }
            }
            all.push(Do::Waitall(halves));
            all
        };
        program(&(0..ranks).map(those).collect::<Vec<_>>(), &messages)
    }
}

fn topologies() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("crossbar"), Just("fattree:3:4"), Just("torus"), Just("torus:3x4x2")]
}

proptest! {
    #[test]
    fn coding_that_costs_and_saves_nothing_is_plain(
        program in exchanges(), topology in topologies(), copies in 1_u32..3,
    ) {
        let nothing = Way::Given(Codec { ns_per_byte: 0.0, factor: 0.0 });
        let network = network(topology);
        let plain = played(&program, &network, &Way::Plain, copies).unwrap();
        prop_assert_eq!(&plain, &played(&program, &network, &nothing, copies).unwrap());
        let spent = plain.spent;
        let all = spent.computing + spent.coding + spent.overhead + spent.network + spent.others;
        prop_assert!((all - 1.0).abs() < 1e-9, "{:?}", spent);
        prop_assert!(plain.busiest.is_none_or(|(_, busy)| busy <= 1.0 + 1e-9));
    }

    #[test]
    fn a_phase_is_never_slower_on_faster_links(
        program in exchanges(), topology in topologies(), faster in 1.0..20.0,
    ) {
        let mut program = program;
        let is_work = |op: &Op| matches!(op, Op::Compute(_));
        program.ops.iter_mut().for_each(|ops| ops.retain(|op| !is_work(op)));
        let mut network = network(topology);
        (network.latency, network.overhead, network.gap) = (0, 0, 0);
        let before = played(&program, &network, &Way::Plain, 1).unwrap().seconds;
        network.per_byte /= faster;
        let after = played(&program, &network, &Way::Plain, 1).unwrap().seconds;
        prop_assert!(after <= before * (1.0 + 1e-6), "{} after {}", after, before);
    }
}
