//! A report for a terminal.

use std::fmt::Write;

use crate::channel::class_range;
use crate::measure::Scheme;
use crate::part::Ending;
use crate::report::{FlowReport, Report, tag_name, total};
use crate::run::Run;
use crate::show::{bytes, percent, rate, share};

/// Rows of a table before the rest is summed up.
const ROWS: usize = 20;

/// The report as text.
#[must_use]
pub fn text(run: &Run, report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, run, report);
    verdicts(&mut out, report);
    flows(&mut out, report);
    schemes(&mut out, report);
    together(&mut out, report);
    notes(&mut out, run);
    out
}

/// Writes a line; writing to a text does not fail.
macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($what:tt)*) => { let _always = writeln!($out, $($what)*); };
}

fn head(out: &mut String, run: &Run, report: &Report) {
    line!(out, "{}", run.about.command.join(" "));
    line!(
        out,
        "{} ranks, {:.3} s; {} messages of {} from rank to rank; {} of the time in their calls, {} \
         in calls of all ranks",
        run.about.size,
        report.wall_s,
        report.messages,
        bytes(report.bytes as f64),
        percent(report.in_messages),
        percent(report.in_together)
    );
    line!(
        out,
        "sent before by the same rank: {}; got before by the same rank: {}",
        share(report.sent.same, report.sent.compared),
        share(report.received.same, report.received.compared)
    );
    if report.not_on_host > 0 {
        let there = bytes(report.not_on_host as f64);
        line!(
            out,
            "{there} of these were counted only: in the memory of GPUs, or in arrays with gaps"
        );
    }
    line!(out);
}

fn verdicts(out: &mut String, report: &Report) {
    for verdict in report.verdicts() {
        line!(out, "{verdict}");
    }
    line!(out);
}

/// The sizes of a class.
pub(super) fn sizes(flow: &FlowReport) -> String {
    let (least, most) = class_range(flow.flow.class);
    if least == most { bytes(least as f64) } else { format!("{least} to {most} B") }
}

fn flows(out: &mut String, report: &Report) {
    if report.flows.is_empty() {
        return;
    }
    line!(out, "messages by communicator, tag, size and type; factors are what is saved");
    line!(
        out,
        "{:<22} {:>6} {:>22} {:>10} {:>9} {:>10} {:>10} {:>8}  best without loss",
        "communicator",
        "tag",
        "size",
        "type",
        "messages",
        "bytes",
        "rate",
        "same"
    );
    for flow in report.flows.iter().take(ROWS) {
        line!(
            out,
            "{:<22} {:>6} {:>22} {:>10} {:>9} {:>10} {:>10} {:>8}  {}",
            flow.comm.chars().take(22).collect::<String>(),
            tag_name(flow.flow.tag),
            sizes(flow),
            flow.flow.values.dtype().name(),
            flow.messages,
            bytes(flow.bytes as f64),
            if flow.rate > 0.0 { rate(flow.rate) } else { "-".to_owned() },
            share(flow.duplicates.same, flow.duplicates.compared),
            best(flow)
        );
    }
    if report.flows.len() > ROWS {
        let rest = &report.flows[ROWS..];
        let more = total(rest.iter().map(|flow| flow.bytes));
        line!(out, "and {} more with {}", rest.len(), bytes(more as f64));
    }
    line!(out);
}

/// The way without loss that saves most, and how much.
pub(super) fn best(flow: &FlowReport) -> String {
    let lossless = flow.outcomes.iter().filter(|one| one.scheme.is_lossless());
    match lossless.max_by(|a, b| a.factor().total_cmp(&b.factor())) {
        Some(one) if one.factor() > 0.0 => {
            format!("{} {}", percent(one.factor()), one.scheme.name())
        }
        Some(_) => "none".to_owned(),
        None => "not sampled".to_owned(),
    }
}

fn schemes(out: &mut String, report: &Report) {
    if report.schemes.is_empty() {
        return;
    }
    line!(out, "what each way would save, on {} of the bytes", percent(report.sampled()));
    line!(
        out,
        "{:<36} {:>8} {:>12} {:>10} {:>10}  pays up to   factors from <0, 0 to 90 %, in percent",
        "",
        "factor",
        "saved",
        "coding",
        "decoding"
    );
    for one in &report.schemes {
        let (encode, decode) = one.outcome.speeds();
        let all = total(one.outcome.histogram.iter().copied()).max(1);
        let bins =
            one.outcome.histogram.iter().map(|n| format!("{:3.0}", *n as f64 * 100.0 / all as f64));
        let what = if one.scheme == Scheme::Lz4 || one.break_even > 0.0 {
            rate(one.break_even)
        } else {
            "never".to_owned()
        };
        line!(
            out,
            "{:<36} {:>8} {:>12} {:>10} {:>10}  {:<10} {}",
            one.scheme.name(),
            percent(one.saved / one.covered.max(1) as f64),
            bytes(one.saved),
            rate(encode),
            rate(decode),
            what,
            bins.collect::<String>()
        );
    }
    line!(out);
}

fn together(out: &mut String, report: &Report) {
    if report.together.is_empty() {
        return;
    }
    line!(out, "calls of all ranks: bytes that the ranks gave");
    for (name, calls, given) in report.together.iter().take(ROWS) {
        line!(out, "{name:<32} {calls:>10} {:>12}", bytes(*given as f64));
    }
    line!(out);
}

fn notes(out: &mut String, run: &Run) {
    for note in notes_of(run) {
        line!(out, "note: {note}");
    }
}

/// What a reader has to know of what is missing.
pub(super) fn notes_of(run: &Run) -> Vec<String> {
    let mut notes = run.about.notes.clone();
    let missing = run.missing();
    if !missing.is_empty() {
        notes.push(format!("Nothing is known of {}.", ranks(&missing)));
    }
    for (ending, what) in [
        (Ending::Cut, "did not reach MPI_Finalize: what they had sent until then is counted"),
        (Ending::Aborted, "called MPI_Abort"),
    ] {
        let those = run.ranks.iter().filter(|rank| rank.ending == ending).map(|rank| rank.rank);
        let those: Vec<u32> = those.collect();
        if !those.is_empty() {
            notes.push(format!("{} {what}.", ranks(&those)));
        }
    }
    notes
}

fn ranks(ranks: &[u32]) -> String {
    let some: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more =
        if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("Rank{} {}{more}", if ranks.len() > 1 { "s" } else { "" }, some.join(", "))
}
