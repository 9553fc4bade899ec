//! The spans of a run, kept for people, and their form as a Chrome trace.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU> describes
//! that form; <https://ui.perfetto.dev> opens it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unspool_core::{Nanos, TierId};
use unspool_transfer::sync::lock;
use unspool_transfer::{Frame, Span};

use crate::runtime::counters::Call;
use crate::runtime::shared::Shared;

/// The most spans that are kept of a run; later ones are counted.
pub(crate) const MOST_SPANS: usize = 1 << 20;

/// The first spans of a run, up to a limit.
#[derive(Debug)]
pub(crate) struct Timeline {
    spans: Vec<Span>,
    limit: usize,
    dropped: u64,
}

impl Timeline {
    pub(crate) fn new(limit: usize) -> Timeline {
        Timeline { spans: Vec::new(), limit, dropped: 0 }
    }

    pub(crate) fn push(&mut self, span: Span) {
        // Without memory a span is counted only: a trace is not worth the end of the process.
        if self.spans.len() < self.limit && self.spans.try_reserve(1).is_ok() {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A copy to be written without a lock held; `None` without memory for it.
    pub(crate) fn spans(&self) -> Option<Vec<Span>> {
        let mut spans = Vec::new();
        spans.try_reserve_exact(self.spans.len()).ok()?;
        spans.extend_from_slice(&self.spans);
        Some(spans)
    }
}

impl Shared {
    /// When a call began; only looked at for the timeline.
    pub(crate) fn time_of_call(&self) -> Nanos {
        if self.timeline.is_some() { self.clock.now() } else { Nanos(0) }
    }

    /// Puts a call of the application on the timeline, if there is one. It says in which tier
    /// the bytes were and when it began.
    pub(crate) fn span_of_call(
        &self,
        call: Call,
        frame: &Frame,
        (tier, began): (TierId, Nanos),
        outcome: &'static str,
    ) {
        self.push_span(call.name(), frame, tier, (began, self.clock.now()), outcome);
    }

    /// Puts the time for which a call has just waited on the timeline, within the call's own span.
    pub(crate) fn span_of_stall(&self, frame: &Frame, tier: TierId, waited: Nanos) {
        if waited > Nanos(0) && self.timeline.is_some() {
            let end = self.clock.now();
            self.push_span("stall", frame, tier, (Nanos(end.since(waited).0), end), "done");
        }
    }

    fn push_span(
        &self,
        label: &'static str,
        frame: &Frame,
        tier: TierId,
        (start, end): (Nanos, Nanos),
        outcome: &'static str,
    ) {
        let Some(timeline) = &self.timeline else { return };
        let head = frame.head();
        lock(timeline).push(Span {
            lane: Arc::clone(&self.application),
            worker: thread_number(),
            label,
            outcome,
            tier: self.kind(tier),
            version: Some(head.version),
            bytes: head.payload_bytes,
            queued: start,
            start,
            end,
        });
    }
}

/// A small number for the calling thread: its row on the timeline.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// A lane and a worker: one row of the timeline.
type TimelineRow = (Arc<str>, u32);

/// Writes `spans` as a Chrome trace. Times are microseconds since the spool was opened.
pub(crate) fn write_chrome(out: &mut dyn Write, spans: &[Span], dropped: u64) -> io::Result<()> {
    let rows = rows(spans);
    writeln!(out, "{{\"displayTimeUnit\":\"ms\",")?;
    writeln!(out, "\"otherData\":{{\"dropped_spans\":{dropped}}},")?;
    writeln!(out, "\"traceEvents\":[")?;
    let args = "\"args\":{\"name\":\"unspool\"}";
    write!(out, "{{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",{args}}}")?;
    for ((lane, worker), tid) in &rows {
        write_row(out, lane, *worker, *tid)?;
    }
    for span in spans {
        let tid = rows.get(&(Arc::clone(&span.lane), span.worker)).copied().unwrap_or(0);
        write_span(out, span, tid)?;
    }
    writeln!(out, "\n]}}")
}

/// Every row with its number, the application's first.
fn rows(spans: &[Span]) -> BTreeMap<TimelineRow, usize> {
    let key = |span: &Span| (Arc::clone(&span.lane), span.worker);
    let mut rows: BTreeMap<TimelineRow, usize> = spans.iter().map(|span| (key(span), 0)).collect();
    rows.values_mut().zip(1..).for_each(|(tid, number)| *tid = number);
    rows
}

fn write_row(out: &mut dyn Write, lane: &str, worker: u32, tid: usize) -> io::Result<()> {
    let lane = escaped(lane);
    let args = format!("\"args\":{{\"name\":\"{lane} {worker}\"}}");
    write!(out, ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_name\",{args}}}")?;
    let args = format!("\"args\":{{\"sort_index\":{tid}}}");
    write!(out, ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_sort_index\",{args}}}")
}

fn write_span(out: &mut dyn Write, span: &Span, tid: usize) -> io::Result<()> {
    let micros = |time: Nanos| time.0 as f64 / 1e3;
    write!(
        out,
        ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"name\":\"{}\",\"cat\":\"{}\",\"ts\":{:.3},\
         \"dur\":{:.3},\"args\":{{",
        escaped(span.label),
        escaped(&span.lane),
        micros(span.start),
        micros(span.end.since(span.start)),
    )?;
    if let Some(version) = span.version {
        write!(out, "\"version\":{version},")?;
    }
    write!(
        out,
        "\"bytes\":{},\"tier\":\"{}\",\"queued_us\":{:.3},\"outcome\":\"{}\"}}}}",
        span.bytes,
        span.tier,
        micros(span.start.since(span.queued)),
        escaped(span.outcome),
    )
}

/// `text` within a JSON string.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_core::TierKind;

    fn span(lane: &str, start: u64, end: u64) -> Span {
        Span {
            lane: lane.into(),
            worker: 0,
            label: "flush",
            outcome: "done",
            tier: TierKind::Disk,
            version: Some(-7),
            bytes: 64,
            queued: Nanos(500),
            start: Nanos(start),
            end: Nanos(end),
        }
    }

    #[test]
    fn spans_beyond_the_limit_are_counted_and_dropped() {
        let mut timeline = Timeline::new(2);
        (0..5).for_each(|i| timeline.push(span("a", i, i + 1)));
        assert_eq!((timeline.spans().map(|spans| spans.len()), timeline.dropped()), (Some(2), 3));
    }

    #[test]
    fn a_trace_has_a_row_for_each_lane_and_an_event_for_each_span() {
        let mut out = Vec::new();
        let spans = [span("application", 1000, 3000), span("host-disk", 1500, 2000)];
        write_chrome(&mut out, &spans, 4).unwrap();
        let text = String::from_utf8(out).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["otherData"]["dropped_spans"], 4);
        let events = json["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 1 + 2 * 2 + 2);
        let flush = &events[6];
        assert_eq!((&flush["ph"], &flush["tid"]), (&"X".into(), &2.into()));
        assert_eq!((flush["ts"].as_f64(), flush["dur"].as_f64()), (Some(1.5), Some(0.5)));
        assert_eq!(
            (&flush["args"]["version"], &flush["args"]["tier"]),
            (&(-7).into(), &"disk".into())
        );
        assert_eq!(flush["args"]["queued_us"], 1.0);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\u000a");
    }
}
