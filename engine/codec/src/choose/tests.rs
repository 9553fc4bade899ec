//! The choice, by tables, against the model, and over whole runs.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const GB: f64 = 1e9;
const BYTES: u64 = 100_000_000;

/// The true ratio and times of a codec.
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

/// Reports the encoding and decoding of a checkpoint.
fn report(chooser: &mut Chooser, truth: &Truth, bytes: u64) {
    let time = truth.seconds(bytes);
    chooser.saved(bytes, ((bytes as f64 / truth.ratio) as u64).max(1));
    chooser.encoded(bytes, nanos(time));
    chooser.decoded(bytes, nanos(time / 2.0));
}

/// Whether checkpoints are encoded when all is known of the codec.
fn encodes_when_measured(truth: &Truth, situation: &Situation) -> bool {
    let mut chooser = Chooser::default();
    (0..3).for_each(|_| report(&mut chooser, truth, situation.bytes));
    chooser.last = Some(0);
    let decision = chooser.decide(situation);
    assert_ne!(decision.reason, Reason::Trial);
    decision.encodes
}

#[test]
fn the_cheapest_way_is_taken() {
    let (fast, slow) = (codec(4.0, 500.0), codec(4.0, 0.5));
    // A call of a tenth of a second, whatever it carries.
    let called = Truth { ratio: 8.0, fixed: 0.1, rate: 1000.0 * GB };
    let table: [(f64, f64, Truth, bool); 9] = [
        // A link that keeps up needs no codec.
        (50.0, 10.0, fast, false),
        // A link that does not is worth a codec that is fast enough, and not a slow one.
        (1.0, 10.0, fast, true),
        (1.0, 10.0, slow, false),
        (0.1, 10.0, slow, true),
        // Data that cannot be made smaller are left as they are.
        (1.0, 10.0, codec(1.0, 500.0), false),
        (1.0, 10.0, codec(1.01, 500.0), false),
        (1.0, 10.0, codec(1.1, 500.0), true),
        // A fixed time counts as any other.
        (1.0, 1.0, called, true),
        (1.0, 30.0, called, false),
    ];
    for (row, (link, lead, truth, expected)) in table.into_iter().enumerate() {
        assert_eq!(encodes_when_measured(&truth, &at(link, lead)), expected, "row {row}");
    }
}

#[test]
fn a_codec_with_a_fixed_time_wins_with_large_checkpoints_only() {
    let called = Truth { ratio: 3.0, fixed: 2e-3, rate: 500.0 * GB };
    let mut chooser = Chooser::default();
    for bytes in [1_000_000, 4_000_000, 2_000_000, 8_000_000] {
        report(&mut chooser, &called, bytes);
    }
    chooser.last = Some(0);
    let mut encodes = |bytes| {
        let situation = Situation { bytes, lead: Nanos(0), ..at(10.0, 0.0) };
        chooser.decide(&situation).encodes
    };
    assert!(!encodes(1_000_000) && !encodes(8_000_000) && encodes(500_000_000));
}

#[test]
fn nothing_is_encoded_while_the_history_stays_where_it_is_saved() {
    let situation = Situation { link: None, ..at(1.0, 0.0) };
    let decision = Chooser::default().decide(&situation);
    assert_eq!(decision, Decision { encodes: false, reason: Reason::Stays, is_warm: false });
    let kept_up = Chooser::default().decide(&at(50.0, 10.0));
    assert_eq!((kept_up.encodes, kept_up.reason), (false, Reason::KeepsUp));
}

/// The decisions of a run of `count` checkpoints with this codec.
fn run(chooser: &mut Chooser, count: u64, situation: &Situation, truth: Truth) -> Vec<Decision> {
    let one = |_| {
        let (decision, bytes) = (chooser.decide(situation), situation.bytes);
        if decision.encodes {
            chooser.saved(bytes, (bytes as f64 / truth.ratio) as u64);
        }
        if decision.is_warm {
            chooser.encoded(bytes, nanos(truth.seconds(bytes)));
            chooser.decoded(bytes, nanos(truth.seconds(bytes) / 2.0));
        }
        decision
    };
    (0..count).map(one).collect()
}

fn trials(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|decision| decision.reason == Reason::Trial).count()
}

#[test]
fn a_codec_that_is_worth_its_time_is_found_and_kept() {
    let mut chooser = Chooser::default();
    let decisions = run(&mut chooser, 1000, &at(1.0, 0.0), codec(6.0, 100.0));
    assert!(decisions[..2].iter().all(|decision| decision.reason == Reason::Trial));
    assert!(decisions[40..].iter().all(|decision| decision.encodes));
    let counts = chooser.counts();
    assert!(counts.chosen >= 950 && counts.tried >= 2, "{counts:?}");
    assert_eq!(counts.chosen + counts.tried + counts.not_worth_it, 1000);
    assert_eq!(chooser.latest(), Some(Reason::Cheapest));
}

#[test]
fn a_bad_codec_is_tried_on_two_of_sixteen_checkpoints_at_the_most_and_ever_less() {
    let decisions = run(&mut Chooser::default(), 4000, &at(1.0, 0.0), codec(1.0, 20.0));
    for window in decisions[2..].windows(APART as usize) {
        assert!(trials(window) <= 2, "{window:?}");
    }
    let (early, late) = (trials(&decisions[..1000]), trials(&decisions[3000..]));
    assert!(early <= 10 && late <= 2 && late > 0, "{early} and {late} trials");
    let in_use = |one: &&Decision| one.reason == Reason::Cheapest && one.encodes;
    assert_eq!(decisions.iter().filter(in_use).count(), 0);
}

#[test]
fn what_cannot_win_whatever_its_ratio_is_not_tried_again() {
    let mut chooser = Chooser::default();
    let decisions = run(&mut chooser, 3000, &at(1.0, 0.0), codec(9.0, 0.1));
    assert!(decisions[1000..].iter().all(|decision| !decision.encodes));
    assert!(chooser.counts().tried <= 6, "{:?}", chooser.counts());
}

#[test]
fn data_that_change_are_noticed() {
    let mut chooser = Chooser::default();
    let first = run(&mut chooser, 2000, &at(1.0, 0.0), codec(1.0, 500.0));
    assert!(!first[1990].encodes);
    let second = run(&mut chooser, 3000, &at(1.0, 0.0), codec(8.0, 100.0));
    // The last trials were far apart; the codec is in use from the first that shows the change on.
    let noticed = second.iter().position(|decision| decision.encodes).unwrap();
    let last_raw = second.iter().rposition(|decision| !decision.encodes).unwrap_or(0);
    assert!(last_raw <= noticed + 100, "noticed at {noticed}, raw until {last_raw}");
    let third = run(&mut chooser, 300, &at(1.0, 0.0), codec(1.0, 500.0));
    assert!(third[20..].iter().filter(|decision| decision.encodes).count() <= 40);
}

#[test]
fn results_that_come_late_lead_to_no_more_trials() {
    let mut chooser = Chooser::default();
    let decisions: Vec<_> = (0..64).map(|_| chooser.decide(&at(1.0, 0.0))).collect();
    assert_eq!(trials(&decisions), 8, "{decisions:?}");
    assert_eq!(chooser.counts().not_worth_it, 56);
}

#[test]
fn a_trial_that_was_cut_off_is_taken_up_again() {
    let mut chooser = Chooser::default();
    let truth = codec(4.0, 500.0);
    assert_eq!(run(&mut chooser, 1, &at(1.0, 0.0), truth)[0].reason, Reason::Trial);
    // For a while the link keeps up.
    assert_eq!(trials(&run(&mut chooser, 10, &at(1.0, 1e4), truth)), 0);
    let later = run(&mut chooser, 40, &at(1.0, 0.0), truth);
    assert!(later[39].encodes && later[39].reason == Reason::Cheapest, "{later:?}");
}

#[test]
fn numbers_that_make_no_sense_do_no_harm() {
    let odd = Truth { ratio: 1e-300, fixed: 0.0, rate: 1e300 };
    assert!(!encodes_when_measured(&odd, &at(1.0, 0.0)));
    let mut chooser = Chooser::default();
    chooser.saved(0, 0);
    chooser.encoded(0, Nanos(0));
    let none = Situation { bytes: 0, regions: 0, ..at(1.0, 0.0) };
    assert_eq!(chooser.decide(&none).reason, Reason::KeepsUp);
    assert_eq!(chooser.decide(&at(0.0, 0.0)).reason, Reason::Stays);
    assert_eq!(chooser.decide(&at(f64::NAN, 0.0)).reason, Reason::Stays);
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
    // A time that stays slow is believed.
    (0..10).for_each(|_| line.saw(1_000_000, slow));
    assert!(line.seconds(1e6) > 3e-2, "{line:?}");
}

#[test]
fn a_reading_that_is_far_off_is_told_by_readings_of_about_its_size() {
    let after_one_of_40_ms = |bytes| {
        let mut line = Line::default();
        (0..5).for_each(|_| line.saw(1_000_000, nanos(1e-3)));
        line.saw(bytes, nanos(4e-2));
        line.seconds(1e6)
    };
    for bytes in [800_000, 1_000_000, 1_200_000] {
        assert!(after_one_of_40_ms(bytes) < 2.5e-3, "{bytes} bytes can be compared");
    }
    for bytes in [700_000, 1_300_000] {
        assert!(after_one_of_40_ms(bytes) > 5e-3, "{bytes} bytes cannot");
    }
}

#[test]
fn a_codec_whose_first_time_was_bad_is_looked_at_again_soon() {
    let mut chooser = Chooser::default();
    for _ in 0..2 {
        let decision = chooser.decide(&at(1.0, 0.0));
        assert_eq!((decision.encodes, decision.reason), (true, Reason::Trial));
        chooser.saved(BYTES, BYTES / 4);
        if decision.is_warm {
            chooser.encoded(BYTES, nanos(10.0));
        }
    }
    let later = run(&mut chooser, 60, &at(1.0, 0.0), codec(4.0, 500.0));
    assert!(later[..40].iter().any(|one| one.encodes), "{later:?}");
    assert_eq!((later[59].encodes, later[59].reason), (true, Reason::Cheapest));
}

fn truth() -> impl Strategy<Value = Truth> {
    (0.9..50.0, 0.0..1e-2, 1e8..1e12).prop_map(|(ratio, fixed, rate)| Truth { ratio, fixed, rate })
}

/// The cost of a codec by the model, from the truth.
fn model(truth: &Truth, situation: &Situation) -> f64 {
    let (bytes, link) = (situation.bytes as f64, situation.link.unwrap_or(f64::INFINITY));
    let stall = 2.0 * (bytes / truth.ratio / link - situation.lead.0 as f64 * 1e-9).max(0.0);
    1.5 * truth.seconds(situation.bytes) + stall
}

proptest! {
    #[test]
    fn the_choice_is_the_best_under_the_model(
        truth in truth(),
        bytes in 1_000_000_u64..1_000_000_000,
        link in 1e8..1e11,
        lead in 0.0..0.1,
    ) {
        let situation = Situation { bytes, regions: 1, link: Some(link), lead: nanos(lead) };
        let raw = model(&Truth { ratio: 1.0, fixed: 0.0, rate: f64::INFINITY }, &situation);
        let coded = model(&truth, &situation);
        let cost = if encodes_when_measured(&truth, &situation) { coded } else { raw };
        prop_assert!(cost <= raw * (1.0 + 1e-6));
        // The codec is not chosen where it is better by less than the margin.
        prop_assert!(cost * (1.0 - MARGIN) <= raw.min(coded) + 1e-7, "{cost}, {raw}, {coded}");
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
    fn any_run_tries_the_codec_rarely(
        truth in truth(),
        leads in prop::collection::vec(0.0..3.0, 100..400),
    ) {
        let mut chooser = Chooser::default();
        let one = |lead: f64| run(&mut chooser, 1, &at(0.1, lead * 1e3), truth)[0];
        let decisions: Vec<Decision> = leads.into_iter().map(one).collect();
        for window in decisions.windows(APART as usize) {
            prop_assert!(trials(window) <= 2);
        }
    }
}
