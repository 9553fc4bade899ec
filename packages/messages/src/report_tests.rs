//! Tests of the figures and sentences.

use std::time::Duration;

use super::{Report, break_even};
use crate::channel::{Channel, Key, Place, What};
use crate::measure::{Flow, Measure, Outcome, Scheme};
use crate::part::{Comm, Ending};
use crate::run::{About, CallTotal, Duplicates, RankRecord, Run};
use crate::show;
use crate::values::Values;

fn channel(peer: u32, bytes: u64) -> Channel {
    let key = Key {
        comm: 0,
        what: What::Messages,
        peer,
        tag: 3,
        class: 21,
        values: Values::Float64,
        place: Place::Host,
    };
    Channel {
        key,
        messages: bytes / 1_000_000,
        bytes,
        least: 1_000_000,
        most: 1_000_000,
        duplicates: 0,
        compared: 1,
        call_ns: 0,
        first_ns: 0,
        last_ns: 1_000_000_000,
        samples: 1,
    }
}

/// Two ranks that send each other 1 GB in a run of 10 s, 5 s of it in calls, and LZ4 that makes
/// half of it, coding and decoding with these speeds.
fn run(encode: f64, decode: f64) -> Run {
    let rank = |rank| RankRecord {
        rank,
        host: String::new(),
        ending: Ending::Finalized,
        wall_ns: 10_000_000_000,
        calls: vec![CallTotal { name: "MPI_Send".into(), calls: 1000, ns: 5_000_000_000 }],
        comms: vec![Comm { id: 1, size: 2, name: "<halo>".into(), plain: false }],
        channels: vec![channel(1 - rank, 1_000_000_000)],
        sent: Duplicates::default(),
        received: Duplicates::default(),
    };
    let mut outcome = Outcome::new(Scheme::Lz4);
    let time = |speed: f64| Duration::from_secs_f64(1e6 / speed);
    outcome.add(1_000_000, 500_000, time(encode), time(decode));
    let flow = Flow { comm: 1, tag: 3, class: 21, values: Values::Float64 };
    Run {
        about: About { size: 2, command: vec!["./a<b>".into()], ..About::default() },
        ranks: vec![rank(0), rank(1)],
        measures: vec![Measure { flow, outcomes: vec![outcome] }],
    }
}

#[test]
fn coding_pays_below_the_network_where_it_breaks_even() {
    let even = break_even(0.5, 1e9, 1e9);
    assert!((even - 0.25e9).abs() < 1.0, "{even}");
    let outcome = &run(1e9, 1e9).measures[0].outcomes[0];
    assert!(outcome.gain(even * 0.99) > 0.0 && outcome.gain(even * 1.01) < 0.0);
    assert_eq!(break_even(-0.1, 1e9, 1e9), 0.0);
}

#[test]
fn a_slow_codec_on_a_fast_network_is_advised_against_in_words() {
    // Coding 1 GB takes 0.1 s, decoding as long; 0.5 GB less at 10 GB/s saves 0.05 s: 0.15 of 10 s.
    let report = Report::of(&run(10e9, 10e9), Some(10e9));
    let (scheme, change) = report.networks[0].everything.unwrap();
    assert_eq!(scheme, Scheme::Lz4);
    assert!((change - 0.015).abs() < 1e-6, "{change}");
    assert_eq!(
        report.verdicts(),
        ["At 10 GB/s, compressing would cost 1.5 % here (with LZ4): do not. Lossless coding pays \
          up to 2.5 GB/s."]
    );
}

#[test]
fn a_slow_network_is_worth_coding_for_up_to_the_time_in_calls() {
    // 0.5 GB less at 0.5 GB/s saves 1 s, and coding takes 0.2 s: 8 %.
    let report = Report::of(&run(10e9, 10e9), Some(0.5e9));
    assert!((report.networks[0].chosen + 0.08).abs() < 1e-6, "{:?}", report.networks[0]);
    assert_eq!(report.networks[0].pays, [(0, Scheme::Lz4)]);
    assert!(report.verdicts()[0].contains("would save up to 8.0 %"), "{:?}", report.verdicts());
    // At 10 MB/s it would save 50 s, but only 5 s were spent in calls.
    let slow = Report::of(&run(10e9, 10e9), Some(10e6));
    assert!((slow.networks[0].chosen + 0.48).abs() < 1e-6, "{:?}", slow.networks[0]);
}

#[test]
fn volume_is_shown_by_pair() {
    let report = Report::of(&run(1e9, 1e9), None);
    assert_eq!(report.matrix.bytes, [[0, 1_000_000_000], [1_000_000_000, 0]]);
    assert_eq!((report.bytes, report.messages), (2_000_000_000, 2000));
    assert_eq!(report.networks.len(), 4);
    assert!((report.in_messages - 0.5).abs() < 1e-9);
    assert_eq!(report.schemes[0].saved, 1e9);
    let mut many = run(1e9, 1e9);
    many.about.size = 1000;
    let report = Report::of(&many, None);
    assert_eq!((report.matrix.ranks_a_row, report.matrix.bytes.len()), (16, 63));
    assert_eq!(report.matrix.bytes[0][0], 2_000_000_000);
}

#[test]
fn a_run_without_messages_says_so() {
    let mut run = run(1e9, 1e9);
    run.ranks.iter_mut().for_each(|rank| rank.channels.clear());
    let report = Report::of(&run, None);
    assert!(report.verdicts()[0].contains("sends no messages"));
    assert!(!show::text(&run, &report).is_empty() && !show::html(&run, &report).is_empty());
}

#[test]
fn the_three_forms_have_the_same_figures_and_nothing_unquoted() {
    let run = run(10e9, 10e9);
    let report = Report::of(&run, Some(10e9));
    let [text, page, json] =
        [show::text(&run, &report), show::html(&run, &report), show::json(&run, &report)];
    for form in [&text, &page, &json] {
        assert!(form.contains("compressing would cost 1.5 % here"), "{form}");
    }
    assert!(page.contains("&lt;halo&gt;") && !page.contains("<halo>") && !page.contains("http"));
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    assert!(json.contains("\"bytes\":[[0,1000000000],[1000000000,0]]"), "{json}");
    assert_eq!(json.matches('{').count(), json.matches('}').count());
}
