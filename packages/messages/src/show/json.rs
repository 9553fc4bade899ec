//! A report for programs.

use std::fmt::Write;

use crate::channel::class_range;
use crate::measure::Outcome;
use crate::report::{FlowReport, Prediction, Report, SchemeReport};
use crate::run::{Duplicates, Run};
use crate::show::text::notes_of;

/// The report as one JSON object. Speeds and rates are bytes a second, times seconds, factors parts
/// of one.
#[must_use]
pub fn json(run: &Run, report: &Report) -> String {
    let together = report.together.iter().map(|(name, calls, bytes)| {
        format!("{{\"name\":{},\"calls\":{calls},\"bytes\":{bytes}}}", quoted(name))
    });
    let rows = report.matrix.bytes.iter().map(|row| list(row.iter().map(u64::to_string)));
    format!(
        "{{\"command\":{},\"mpi\":{},\"ranks\":{},\"missing\":{},\"wall_s\":{},\
         \"messages\":{},\"bytes\":{},\"bytes_not_on_host\":{},\"in_messages\":{},\
         \"in_collectives\":{},\"sampled\":{},\"sent_before\":{},\"received_before\":{},\
         \"matrix\":{{\"ranks_a_row\":{},\"bytes\":{}}},\"collectives\":{},\"flows\":{},\
         \"schemes\":{},\"networks\":{},\"verdicts\":{},\"notes\":{}}}\n",
        list(run.about.command.iter().map(|word| quoted(word))),
        quoted(&run.about.mpi),
        run.about.size,
        list(run.missing().iter().map(u32::to_string)),
        number(report.wall_s),
        report.messages,
        report.bytes,
        report.not_on_host,
        number(report.in_messages),
        number(report.in_together),
        number(report.sampled()),
        duplicates(report.sent),
        duplicates(report.received),
        report.matrix.ranks_a_row,
        list(rows),
        list(together),
        list(report.flows.iter().map(flow)),
        list(report.schemes.iter().map(scheme)),
        list(report.networks.iter().map(prediction)),
        list(report.verdicts().iter().map(|text| quoted(text))),
        list(notes_of(run).iter().map(|text| quoted(text))),
    )
}

fn flow(flow: &FlowReport) -> String {
    let (least, most) = class_range(flow.flow.class);
    format!(
        "{{\"communicator\":{},\"communicator_id\":\"{:016x}\",\"tag\":{},\"least\":{least},\
         \"most\":{most},\"type\":{},\"messages\":{},\"bytes\":{},\"pairs\":{},\"rate\":{},\
         \"duplicates\":{},\"outcomes\":{}}}",
        quoted(&flow.comm),
        flow.flow.comm,
        flow.flow.tag,
        quoted(&flow.flow.values.dtype().name()),
        flow.messages,
        flow.bytes,
        flow.pairs,
        number(flow.rate),
        duplicates(flow.duplicates),
        list(flow.outcomes.iter().map(outcome)),
    )
}

fn outcome(one: &Outcome) -> String {
    let (encode, decode) = one.speeds();
    format!(
        "{{\"scheme\":{},\"messages\":{},\"original\":{},\"coded\":{},\"factor\":{},\
         \"encode\":{},\"decode\":{},\"failed\":{},\"histogram\":{}}}",
        quoted(one.scheme.name()),
        one.messages,
        one.original,
        one.coded,
        number(one.factor()),
        number(encode),
        number(decode),
        one.failed,
        list(one.histogram.iter().map(u64::to_string)),
    )
}

fn scheme(one: &SchemeReport) -> String {
    format!(
        "{{\"lossless\":{},\"covered\":{},\"saved\":{},\"break_even\":{},\"outcome\":{}}}",
        one.scheme.is_lossless(),
        one.covered,
        number(one.saved),
        number(one.break_even),
        outcome(&one.outcome),
    )
}

fn prediction(one: &Prediction) -> String {
    let everything = one.everything.map_or("null".to_owned(), |(scheme, change)| {
        format!("{{\"scheme\":{},\"change\":{}}}", quoted(scheme.name()), number(change))
    });
    let pays = one.pays.iter().map(|(place, scheme)| {
        format!("{{\"flow\":{place},\"scheme\":{}}}", quoted(scheme.name()))
    });
    format!(
        "{{\"network\":{},\"everything\":{everything},\"chosen\":{},\"bounded\":{},\"pays\":{}}}",
        number(one.network),
        number(one.chosen),
        number(one.bounded),
        list(pays),
    )
}

fn duplicates(one: Duplicates) -> String {
    format!("{{\"compared\":{},\"same\":{}}}", one.compared, one.same)
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A number; JSON has no infinities.
pub(super) fn number(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { "null".to_owned() }
}

pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _always = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
