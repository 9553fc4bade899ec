//! A report as one page, which needs nothing but itself: styles and pictures are in it.

use std::fmt::Write;

use crate::measure::BINS;
use crate::report::{FlowReport, Matrix, Report, SchemeReport, tag_name, total};
use crate::run::Run;
use crate::show::text::{best, notes_of, sizes};
use crate::show::{bytes, percent, rate, share};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;\
padding:0 1em;color:#222}h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}\
table{border-collapse:collapse;font-size:13px}td,th{padding:2px 10px;text-align:right;\
border-bottom:1px solid #ddd}td:first-child,th:first-child,td.l{text-align:left}\
.say{background:#eef4fb;border-left:4px solid #2f6db3;padding:.6em 1em;margin:1em 0}\
.bins{display:flex;flex-wrap:wrap;gap:18px}.bins div{font-size:12px}svg text{font:10px sans-serif}\
code{background:#f4f4f4;padding:1px 4px}.note{color:#8a4b00}";

/// Rows of a table at most.
const ROWS: usize = 100;

/// The report as a page of HTML.
#[must_use]
pub fn html(run: &Run, report: &Report) -> String {
    let command = escaped(&run.about.command.join(" "));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Messages of {command}</title><style>{STYLE}</style></head><body>\n\
         <h1>Messages of <code>{command}</code></h1>\n"
    );
    head(&mut out, run, report);
    for verdict in report.verdicts() {
        add(&mut out, format_args!("<p class=\"say\">{}</p>\n", escaped(&verdict)));
    }
    out.push_str("<h2>Who talks to whom</h2>\n");
    matrix(&mut out, &report.matrix);
    out.push_str("<h2>What each way of coding would save</h2>\n");
    schemes(&mut out, report);
    out.push_str("<h2>Messages by communicator, tag, size and type</h2>\n");
    flows(&mut out, &report.flows);
    out.push_str("<h2>Calls of all ranks</h2>\n");
    together(&mut out, report);
    for note in notes_of(run) {
        add(&mut out, format_args!("<p class=\"note\">{}</p>\n", escaped(&note)));
    }
    out.push_str("</body></html>\n");
    out
}

fn add(out: &mut String, what: std::fmt::Arguments) {
    let _always = out.write_fmt(what);
}

fn head(out: &mut String, run: &Run, report: &Report) {
    add(
        out,
        format_args!(
            "<p>{} ranks, {:.3} s, {}. {} messages of {} from rank to rank; {} of the time of the \
             ranks in their calls, {} in calls of all ranks. Payloads that the same rank had sent \
             before: {}; that the same rank had got before: {}.</p>\n",
            run.about.size,
            report.wall_s,
            escaped(&run.about.mpi),
            report.messages,
            bytes(report.bytes as f64),
            percent(report.in_messages),
            percent(report.in_together),
            share(report.sent.same, report.sent.compared),
            share(report.received.same, report.received.compared),
        ),
    );
}

fn matrix(out: &mut String, matrix: &Matrix) {
    let rows = matrix.bytes.len();
    let most = matrix.bytes.iter().flatten().copied().max().unwrap_or(0);
    let side = (480 / rows.max(1)).clamp(7, 40);
    let whole = rows * side + 40;
    add(
        out,
        format_args!(
            "<svg width=\"{whole}\" height=\"{whole}\" role=\"img\"><text x=\"40\" y=\"10\">to \
             rank</text><text x=\"0\" y=\"34\">from</text>"
        ),
    );
    for (from, row) in matrix.bytes.iter().enumerate() {
        for (to, cell) in row.iter().enumerate() {
            cell_of(out, (from, to), side, *cell, most, matrix.ranks_a_row);
        }
        if from % rows.div_ceil(16).max(1) == 0 {
            let rank = from * matrix.ranks_a_row as usize;
            let middle = from * side + side / 2;
            add(
                out,
                format_args!(
                    "<text x=\"{}\" y=\"22\" text-anchor=\"middle\">{rank}</text>\
                     <text x=\"34\" y=\"{}\" text-anchor=\"end\">{rank}</text>",
                    middle + 40,
                    middle + 33,
                ),
            );
        }
    }
    add(out, format_args!("</svg><p>The darkest: {}.", bytes(most as f64)));
    if matrix.ranks_a_row > 1 {
        add(out, format_args!(" Each row and column stands for {} ranks.", matrix.ranks_a_row));
    }
    out.push_str("</p>\n");
}

fn cell_of(
    out: &mut String,
    (from, to): (usize, usize),
    side: usize,
    cell: u64,
    most: u64,
    ranks: u32,
) {
    // The root, so that small volumes are seen beside large ones.
    let shade = if cell == 0 { 0.0 } else { 0.1 + 0.9 * (cell as f64 / most as f64).sqrt() };
    add(
        out,
        format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{side}\" height=\"{side}\" fill=\"#1f5fa8\" \
             fill-opacity=\"{shade:.3}\" stroke=\"#eee\"><title>{} to {}: {}</title></rect>",
            to * side + 40,
            from * side + 28,
            from * ranks as usize,
            to * ranks as usize,
            bytes(cell as f64),
        ),
    );
}

fn schemes(out: &mut String, report: &Report) {
    add(
        out,
        format_args!(
            "<p>On samples of the kinds of messages that make {} of the bytes. A factor of 90 % \
             means a tenth of the bytes. Speeds are those of one core. A way pays on networks up \
             to the one where it breaks even; on faster ones, sending the bytes as they are is \
             quicker.</p>\n\
             <table><tr><th>way</th><th>factor</th><th>would save</th><th>coding</th>\
             <th>decoding</th><th>pays up to</th></tr>\n",
            percent(report.sampled())
        ),
    );
    for one in &report.schemes {
        let (encode, decode) = one.outcome.speeds();
        let pays = if one.break_even > 0.0 { rate(one.break_even) } else { "never".to_owned() };
        add(
            out,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{pays}</td></tr>\n",
                one.scheme.name(),
                percent(one.saved / one.covered.max(1) as f64),
                bytes(one.saved),
                rate(encode),
                rate(decode),
            ),
        );
    }
    out.push_str("</table>\n<p>How many messages have which factor:</p>\n<div class=\"bins\">");
    report.schemes.iter().for_each(|one| histogram(out, one));
    out.push_str("</div>\n");
}

fn histogram(out: &mut String, one: &SchemeReport) {
    let all = total(one.outcome.histogram.iter().copied()).max(1) as f64;
    add(out, format_args!("<div>{}<br><svg width=\"230\" height=\"96\">", one.scheme.name()));
    for (bin, count) in one.outcome.histogram.iter().enumerate().take(BINS) {
        let part = *count as f64 / all;
        let height = part * 70.0;
        add(
            out,
            format_args!(
                "<rect x=\"{}\" y=\"{:.1}\" width=\"18\" height=\"{height:.1}\" fill=\"#2f6db3\">\
                 <title>{}</title></rect><text x=\"{}\" y=\"92\" text-anchor=\"middle\">{}</text>",
                bin * 20 + 4,
                78.0 - height,
                percent(part),
                bin * 20 + 13,
                if bin == 0 { "&lt;0".to_owned() } else { format!("{}", (bin - 1) * 10) },
            ),
        );
    }
    out.push_str("</svg></div>");
}

fn flows(out: &mut String, flows: &[FlowReport]) {
    out.push_str(
        "<table><tr><th>communicator</th><th>tag</th><th>size</th><th>type</th><th>messages</th>\
         <th>bytes</th><th>rate</th><th>sent before</th><th>saves most without loss</th></tr>\n",
    );
    for flow in flows.iter().take(ROWS) {
        add(
            out,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td class=\"l\">{}</td></tr>\n",
                escaped(&flow.comm),
                tag_name(flow.flow.tag),
                sizes(flow),
                flow.flow.values.dtype().name(),
                flow.messages,
                bytes(flow.bytes as f64),
                rate(flow.rate),
                share(flow.duplicates.same, flow.duplicates.compared),
                best(flow),
            ),
        );
    }
    out.push_str("</table>\n");
    if flows.len() > ROWS {
        add(out, format_args!("<p>And {} more, with fewer bytes.</p>\n", flows.len() - ROWS));
    }
}

fn together(out: &mut String, report: &Report) {
    out.push_str("<table><tr><th>call</th><th>calls</th><th>bytes that ranks gave</th></tr>\n");
    for (name, calls, given) in &report.together {
        add(
            out,
            format_args!(
                "<tr><td>{}</td><td>{calls}</td><td>{}</td></tr>\n",
                escaped(name),
                bytes(*given as f64)
            ),
        );
    }
    out.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
