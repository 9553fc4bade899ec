//! What is chosen, by tables, against the model, and over whole runs.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const GB: f64 = 1e9;
const BYTES: u64 = 100_000_000;

/// A codec as it is in truth.
#[derive(Clone, Copy, Debug)]
struct Truth {
    ratio: f64,
    /// Seconds of a call, and bytes per second; decoding is twice as fast.
    fixed: f64,
    rate: f64,
}

impl Truth {
    fn seconds(&self, bytes: u64) -> f64 {
        self.fixed + bytes as f64 / self.rate
    }
}

fn codec(ratio: f64, rate: f64) -> Truth {
    Truth { ratio, fixed: 0.0, rate: rate * GB }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// A checkpoint of 100 MB on a link of so many GB/s, `lead` milliseconds after the last.
fn at(link: f64, lead: f64) -> Situation {
    Situation { bytes: BYTES, regions: 1, link: Some(link * GB), lead: nanos(lead * 1e-3) }
}

/// A checkpoint was encoded and decoded, and all that is known.
fn tell(chooser: &mut Chooser, index: usize, truth: &Truth, bytes: u64) {
    let time = truth.seconds(bytes);
    chooser.saved(index, bytes, ((bytes as f64 / truth.ratio) as u64).max(1));
    chooser.encoded(index, bytes, nanos(time));
    chooser.decoded(index, bytes, nanos(time / 2.0));
}

/// What is chosen when all is known of these codecs and none is looked at.
fn settled(truths: &[Truth], situation: &Situation) -> Option<usize> {
    let mut chooser = Chooser::of(truths.len());
    for (index, truth) in truths.iter().enumerate() {
        (0..3).for_each(|_| tell(&mut chooser, index, truth, situation.bytes));
        chooser.candidates[index].last = Some(0);
    }
    let decision = chooser.decide(situation, |_| true);
    assert_ne!(decision.reason, Reason::Trial);
    decision.pick
}

#[test]
fn the_cheapest_way_is_taken() {
    let (fast, slow, dense) = (codec(4.0, 500.0), codec(4.0, 0.5), codec(8.0, 100.0));
    // A call of a tenth of a millisecond, and no more to it.
    let called = Truth { ratio: 8.0, fixed: 1e-4, rate: 1000.0 * GB };
    let table: [(f64, f64, &[Truth], Option<usize>); 13] = [
        // A link that keeps up needs no codec.
        (50.0, 10.0, &[fast, dense], None),
        // One that does not is spared by a codec that is fast enough, and not by a slow one.
        (1.0, 10.0, &[fast], Some(0)),
        (1.0, 10.0, &[slow], None),
        (0.1, 10.0, &[slow], Some(0)),
        // What cannot be made smaller is left as it is.
        (1.0, 10.0, &[codec(1.0, 500.0)], None),
        (1.0, 10.0, &[codec(1.01, 500.0)], None),
        // The better ratio wins where the link counts, the speed where it does not.
        (1.0, 1.0, &[fast, dense], Some(1)),
        (1.0, 30.0, &[fast, dense], Some(0)),
        (1.0, 1.0, &[dense, fast], Some(0)),
        // Among equals the first one is taken, also when another is a hair better.
        (1.0, 1.0, &[fast, fast, fast], Some(0)),
        (1.0, 1.0, &[fast, codec(4.05, 500.0)], Some(0)),
        // A fixed time counts as any other.
        (1.0, 1.0, &[fast, called], Some(1)),
        (1.0, 30.0, &[codec(4.0, 2000.0), called], Some(0)),
    ];
    for (row, (link, lead, truths, expected)) in table.into_iter().enumerate() {
        assert_eq!(settled(truths, &at(link, lead)), expected, "row {row}");
    }
}

#[test]
fn a_codec_with_a_fixed_time_wins_with_large_checkpoints_only() {
    let quick = Truth { ratio: 2.0, fixed: 1e-5, rate: 500.0 * GB };
    let called = Truth { ratio: 3.0, fixed: 2e-3, rate: 500.0 * GB };
    let mut chooser = Chooser::of(2);
    for bytes in [1_000_000, 4_000_000, 2_000_000, 8_000_000] {
        tell(&mut chooser, 0, &quick, bytes);
        tell(&mut chooser, 1, &called, bytes);
    }
    chooser.candidates.iter_mut().for_each(|candidate| candidate.last = Some(0));
    let mut pick = |bytes| {
        let situation = Situation { bytes, lead: Nanos(0), ..at(10.0, 0.0) };
        chooser.decide(&situation, |_| true).pick
    };
    assert_eq!((pick(1_000_000), pick(8_000_000)), (Some(0), Some(0)));
    assert_eq!(pick(500_000_000), Some(1));
}

#[test]
fn nothing_is_encoded_while_the_history_stays_where_it_is_saved() {
    let situation = Situation { link: None, ..at(1.0, 0.0) };
    let decision = Chooser::of(2).decide(&situation, |_| true);
    assert_eq!(decision, Decision { pick: None, reason: Reason::Stays, is_warm: false });
    let kept_up = Chooser::of(2).decide(&at(50.0, 10.0), |_| true);
    assert_eq!((kept_up.pick, kept_up.reason), (None, Reason::KeepsUp));
}

/// A run of `count` checkpoints whose codecs are as `truth` says for each: the decisions.
fn run(
    chooser: &mut Chooser,
    count: u64,
    situation: &Situation,
    truth: impl Fn(usize) -> Truth,
) -> Vec<Decision> {
    let one = |_| {
        let decision = chooser.decide(situation, |_| true);
        if let Some(index) = decision.pick {
            let bytes = situation.bytes;
            let truth = truth(index);
            chooser.saved(index, bytes, (bytes as f64 / truth.ratio) as u64);
            if decision.is_warm {
                chooser.encoded(index, bytes, nanos(truth.seconds(bytes)));
                chooser.decoded(index, bytes, nanos(truth.seconds(bytes) / 2.0));
            }
        }
        decision
    };
    (0..count).map(one).collect()
}

fn trials(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|decision| decision.reason == Reason::Trial).count()
}

#[test]
fn every_codec_is_looked_at_and_the_best_one_is_kept() {
    let truths = [codec(1.3, 500.0), codec(1.2, 300.0), codec(6.0, 100.0), codec(3.0, 5.0)];
    let mut chooser = Chooser::of(4);
    let decisions = run(&mut chooser, 1000, &at(1.0, 0.0), |index| truths[index]);
    let (early, late) = decisions.split_at(100);
    assert!(early.iter().any(|decision| decision.pick == Some(0)));
    assert!(early[..3].iter().all(|decision| decision.pick == Some(0)), "{:?}", &early[..3]);
    let best = late.iter().filter(|decision| decision.pick == Some(2)).count();
    assert!(best >= 860, "{best} of {}", late.len());
    let candidates = chooser.candidates();
    assert!(candidates[2].chosen() >= 850 && candidates.iter().all(|one| one.tried() >= 1));
    assert_eq!(chooser.latest(), Some(Reason::Cheapest));
}

#[test]
fn a_bad_codec_is_tried_on_two_of_sixteen_checkpoints_at_the_most_and_ever_less() {
    let noise = [1.0; 7].map(|ratio| codec(ratio, 20.0));
    let decisions = run(&mut Chooser::of(7), 4000, &at(1.0, 0.0), |index| noise[index]);
    for window in decisions[2..].windows(APART as usize) {
        assert!(trials(window) <= 2, "{window:?}");
    }
    let (early, late) = (trials(&decisions[..1000]), trials(&decisions[3000..]));
    assert!(early <= 40 && late <= 10 && late > 0, "{early} and {late} trials");
    assert!(
        decisions
            .iter()
            .all(|decision| decision.reason != Reason::Cheapest || decision.pick.is_none())
    );
}

#[test]
fn what_cannot_win_whatever_its_ratio_is_not_tried_again() {
    let truths = [codec(4.0, 500.0), codec(9.0, 0.1)];
    let mut chooser = Chooser::of(2);
    let decisions = run(&mut chooser, 3000, &at(1.0, 0.0), |index| truths[index]);
    assert!(decisions[1000..].iter().all(|decision| decision.pick == Some(0)));
    assert!(chooser.candidates()[1].tried() <= 6, "{:?}", chooser.candidates()[1]);
}

#[test]
fn data_that_change_are_noticed() {
    let mut chooser = Chooser::of(2);
    let before = [codec(1.0, 500.0), codec(1.0, 100.0)];
    let after = [codec(1.5, 500.0), codec(8.0, 100.0)];
    let first = run(&mut chooser, 2000, &at(1.0, 0.0), |index| before[index]);
    assert_eq!(first[1990].pick, None);
    let second = run(&mut chooser, 3000, &at(1.0, 0.0), |index| after[index]);
    assert_eq!(second[2990].pick, Some(1));
    // The last trials were far apart; from the first that shows the change on, they are not.
    let noticed = second.iter().position(|decision| decision.pick == Some(0)).unwrap();
    let settled = second.iter().rposition(|decision| decision.pick.is_none()).unwrap_or(0);
    assert!(settled <= noticed + 100, "noticed at {noticed}, settled at {settled}");
    let third = run(&mut chooser, 300, &at(1.0, 0.0), |index| before[index]);
    assert!(third[20..].iter().filter(|decision| decision.pick.is_some()).count() <= 40);
}

#[test]
fn a_codec_that_fails_or_cannot_take_a_checkpoint_is_not_chosen() {
    let truths = [codec(2.0, 500.0), codec(8.0, 500.0)];
    let mut chooser = Chooser::of(2);
    let situation = at(1.0, 0.0);
    run(&mut chooser, 200, &situation, |index| truths[index]);
    assert_eq!(chooser.decide(&situation, |_| true).pick, Some(1));
    assert_eq!(chooser.decide(&situation, |index| index == 0).pick, Some(0));
    assert_eq!(chooser.decide(&situation, |_| false).pick, None);
    chooser.failed(1);
    let later = run(&mut chooser, 5000, &situation, |index| truths[index]);
    assert!(later.iter().all(|decision| decision.pick == Some(0)));
    assert!(chooser.candidates()[1].is_out());
}

#[test]
fn results_that_come_late_lead_to_no_more_trials() {
    let mut chooser = Chooser::of(3);
    let decisions: Vec<_> = (0..64).map(|_| chooser.decide(&at(1.0, 0.0), |_| true)).collect();
    assert_eq!(trials(&decisions), 8, "{decisions:?}");
    assert_eq!(chooser.kept().cheapest, 56);
}

#[test]
fn a_trial_that_was_cut_off_is_taken_up_again() {
    let mut chooser = Chooser::of(1);
    let truth = codec(4.0, 500.0);
    assert_eq!(run(&mut chooser, 1, &at(1.0, 0.0), |_| truth)[0].reason, Reason::Trial);
    // For a while the link keeps up.
    assert_eq!(trials(&run(&mut chooser, 10, &at(1.0, 1e4), |_| truth)), 0);
    let later = run(&mut chooser, 40, &at(1.0, 0.0), |_| truth);
    assert!(later[39].pick == Some(0) && later[39].reason == Reason::Cheapest, "{later:?}");
}

#[test]
fn figures_that_make_no_sense_do_no_harm() {
    let odd = Truth { ratio: 1e-300, fixed: 0.0, rate: 1e300 };
    assert_eq!(settled(&[odd], &at(1.0, 0.0)), None);
    let mut chooser = Chooser::of(1);
    chooser.saved(0, 0, 0);
    chooser.encoded(0, 0, Nanos(0));
    let none = Situation { bytes: 0, regions: 0, ..at(1.0, 0.0) };
    assert_eq!(chooser.decide(&none, |_| true).reason, Reason::KeepsUp);
    assert_eq!(chooser.decide(&at(0.0, 0.0), |_| true).reason, Reason::Stays);
    assert_eq!(chooser.decide(&at(f64::NAN, 0.0), |_| true).reason, Reason::Stays);
}

#[test]
fn a_line_finds_the_fixed_part_where_sizes_differ() {
    let mut line = Line::default();
    assert_eq!(line.seconds(1e9), 0.0);
    for bytes in [1_000_000, 8_000_000, 2_000_000, 16_000_000, 4_000_000] {
        line.saw(bytes, nanos(1e-3 + bytes as f64 / 1e10));
    }
    assert!((line.seconds(1e9) / (1e-3 + 0.1) - 1.0).abs() < 1e-3, "{line:?}");
    let mut same = Line::default();
    (0..5).for_each(|_| same.saw(1_000_000, nanos(1e-3)));
    assert!((same.seconds(2e6) - 2e-3).abs() < 1e-9 && (same.seconds(1e6) - 1e-3).abs() < 1e-9);
}

#[test]
fn one_reading_that_is_far_off_does_no_harm() {
    let (mut line, quick, slow) = (Line::default(), nanos(1e-3), nanos(4e-2));
    line.saw(1_000_000, slow);
    line.saw(1_000_000, quick);
    assert!((line.seconds(1e6) - 1e-3).abs() < 1e-9, "{line:?}");
    (0..5).for_each(|_| line.saw(1_000_000, quick));
    line.saw(1_000_000, slow);
    assert!(line.seconds(1e6) < 2e-3, "{line:?}");
    // What stays slow is believed.
    (0..10).for_each(|_| line.saw(1_000_000, slow));
    assert!(line.seconds(1e6) > 3e-2, "{line:?}");
}

#[test]
fn a_codec_whose_first_time_was_bad_is_looked_at_again_soon() {
    let mut chooser = Chooser::of(1);
    let good = codec(4.0, 500.0);
    for _ in 0..2 {
        let decision = chooser.decide(&at(1.0, 0.0), |_| true);
        assert_eq!((decision.pick, decision.reason), (Some(0), Reason::Trial));
        chooser.saved(0, BYTES, BYTES / 4);
        if decision.is_warm {
            chooser.encoded(0, BYTES, nanos(10.0));
        }
    }
    let later = run(&mut chooser, 60, &at(1.0, 0.0), |_| good);
    assert!(later[..40].iter().any(|one| one.pick == Some(0)), "{later:?}");
    assert_eq!((later[59].pick, later[59].reason), (Some(0), Reason::Cheapest));
}

fn truth() -> impl Strategy<Value = Truth> {
    (0.9..50.0, 0.0..1e-2, 1e8..1e12).prop_map(|(ratio, fixed, rate)| Truth { ratio, fixed, rate })
}

/// What the model says that a codec costs, from the truth.
fn model(truth: &Truth, situation: &Situation) -> f64 {
    let (bytes, link) = (situation.bytes as f64, situation.link.unwrap_or(f64::INFINITY));
    let stall = 2.0 * (bytes / truth.ratio / link - situation.lead.0 as f64 * 1e-9).max(0.0);
    1.5 * truth.seconds(situation.bytes) + stall
}

proptest! {
    #[test]
    fn the_choice_is_the_best_under_the_model_and_never_worse_than_nothing(
        truths in prop::collection::vec(truth(), 0..7),
        bytes in 1_000_000_u64..1_000_000_000,
        link in 1e8..1e11,
        lead in 0.0..0.1,
    ) {
        let situation = Situation { bytes, regions: 1, link: Some(link), lead: nanos(lead) };
        let found = settled(&truths, &situation);
        let raw = model(&Truth { ratio: 1.0, fixed: 0.0, rate: f64::INFINITY }, &situation);
        let least = truths.iter().map(|one| model(one, &situation)).fold(raw, f64::min);
        let cost = found.map_or(raw, |index| model(&truths[index], &situation));
        prop_assert!(cost <= raw * (1.0 + 1e-6));
        // The first of those that are a hair apart is kept, which adds up over all of them.
        let slack = (1.0 - MARGIN).powi(truths.len() as i32 + 1);
        prop_assert!(cost * slack <= least + 1e-7, "{cost} and {least}");
    }

    #[test]
    fn a_line_is_never_negative_and_grows(
        readings in prop::collection::vec((0_u64..1 << 32, 0_u64..1 << 40), 1..20),
        sizes in prop::array::uniform2(0_u64..1 << 34),
    ) {
        let mut line = Line::default();
        readings.iter().for_each(|(bytes, time)| line.saw(*bytes, Nanos(*time)));
        let [less, more] = [sizes[0].min(sizes[1]), sizes[0].max(sizes[1])];
        let [less, more] = [less, more].map(|bytes| line.seconds(bytes as f64));
        prop_assert!(less >= -1e-9 && more >= less - 1e-9, "{less} and {more}: {line:?}");
    }

    #[test]
    fn any_run_tries_codecs_rarely_and_never_one_that_is_out(
        truths in prop::collection::vec(truth(), 1..6),
        steps in prop::collection::vec((0.0..3.0, 0_u32..40), 100..400),
    ) {
        let mut chooser = Chooser::of(truths.len());
        let mut decisions = Vec::new();
        for (lead, event) in steps {
            if event == 0 {
                chooser.failed(0);
            }
            let decision = run(&mut chooser, 1, &at(0.1, lead * 1e3), |index| truths[index])[0];
            prop_assert!(decision.pick != Some(0) || !chooser.candidates()[0].is_out());
            decisions.push(decision);
        }
        for window in decisions.windows(APART as usize) {
            prop_assert!(trials(window) <= 2);
        }
    }
}
