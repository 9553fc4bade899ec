//! A forecast as text and as JSON.

use std::fmt::Write;

use crate::run::Run;
use crate::show::json::{list, number, quoted};
use crate::show::{bytes, percent};
use crate::simulate::{Forecast, Placement, Played, Scale, Way};

/// Writes a line; writing to a text does not fail.
macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($what:tt)*) => { let _always = writeln!($out, $($what)*); };
}

/// The forecast for a terminal.
#[must_use]
pub fn forecast_text(run: &Run, forecast: &Forecast) -> String {
    let mut out = String::new();
    line!(out, "{}", run.about.command.join(" "));
    let network = &forecast.asked.network;
    line!(
        out,
        "{} ranks recorded, {} a step; {} played on {} of {}, ranks a node: {}",
        forecast.recorded,
        seconds(forecast.recorded_step),
        forecast.steps.map_or("all of it".to_owned(), |steps| format!("{steps} of them")),
        network.topology,
        crate::show::rate(network.speed()),
        network.ranks_per_node
    );
    line!(out);
    for scale in &forecast.scales {
        line!(out, "{}", scale.verdict());
    }
    line!(out);
    for text in forecast.assumptions() {
        line!(out, "assumed: {text}");
    }
    for note in &forecast.notes {
        line!(out, "note: {note}");
    }
    for scale in &forecast.scales {
        line!(out);
        table(&mut out, scale);
    }
    out
}

fn table(out: &mut String, scale: &Scale) {
    line!(
        out,
        "{:<36} {:>11} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}  busiest link",
        format!("{} ranks", scale.ranks),
        "a step",
        "change",
        "computes",
        "codes",
        "sends",
        "network",
        "others",
        "bytes"
    );
    row(out, &Way::Plain.name(), &scale.plain, "");
    for (way, played) in &scale.ways {
        let change = format!("{:+.1} %", scale.change(played) * 100.0);
        row(out, &way.name(), played, &change);
    }
}

fn row(out: &mut String, name: &str, played: &Played, change: &str) {
    let spent = &played.spent;
    let busiest = played.busiest.as_ref();
    line!(
        out,
        "{:<36} {:>11} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}  {}",
        name,
        seconds(played.seconds),
        change,
        percent(spent.computing),
        percent(spent.coding),
        percent(spent.overhead),
        percent(spent.network),
        percent(spent.others),
        bytes(played.bytes),
        busiest.map_or("-".to_owned(), |(link, part)| format!("{} {link}", percent(*part)))
    );
}

/// A time, as people read it.
fn seconds(time: f64) -> String {
    match time {
        time if time >= 1.0 => format!("{time:.3} s"),
        time if time >= 1e-3 => format!("{:.3} ms", time * 1e3),
        time => format!("{:.3} us", time * 1e6),
    }
}

/// The forecast for programs: times are seconds of a step, shares parts of one.
#[must_use]
pub fn forecast_json(run: &Run, forecast: &Forecast) -> String {
    let asked = &forecast.asked;
    let network = &asked.network;
    let placement = match asked.placement {
        Placement::Packed => "packed",
        Placement::Spread => "spread",
    };
    let ns = |picoseconds: u64| number(picoseconds as f64 / 1000.0);
    format!(
        "{{\"command\":{},\"recorded\":{},\"recorded_step_s\":{},\"steps\":{},\
         \"network\":{{\"L\":{},\"o\":{},\"g\":{},\"G\":{},\"O\":{},\"S\":{},\"topology\":{},\
         \"ranks_per_node\":{}}},\"placement\":{},\"scales\":{},\"assumptions\":{},\
         \"notes\":{}}}\n",
        list(run.about.command.iter().map(|word| quoted(word))),
        forecast.recorded,
        number(forecast.recorded_step),
        forecast.steps.map_or("null".to_owned(), |steps| steps.to_string()),
        ns(network.latency),
        ns(network.overhead),
        ns(network.gap),
        number(network.per_byte / 1000.0),
        number(network.overhead_per_byte / 1000.0),
        network.rendezvous,
        quoted(&network.topology.to_string()),
        network.ranks_per_node,
        quoted(placement),
        list(forecast.scales.iter().map(scale)),
        list(forecast.assumptions().iter().map(|text| quoted(text))),
        list(forecast.notes.iter().map(|text| quoted(text))),
    )
}

fn scale(scale: &Scale) -> String {
    let ways = scale.ways.iter().map(|(way, played)| {
        format!(
            "{{\"way\":{},\"lossless\":{},\"change\":{},\"played\":{}}}",
            quoted(&way.name()),
            way.is_lossless(),
            number(scale.change(played)),
            one(played)
        )
    });
    format!(
        "{{\"ranks\":{},\"verdict\":{},\"plain\":{},\"ways\":{}}}",
        scale.ranks,
        quoted(&scale.verdict()),
        one(&scale.plain),
        list(ways)
    )
}

fn one(played: &Played) -> String {
    let spent = &played.spent;
    let busiest = played.busiest.as_ref().map_or("null".to_owned(), |(link, part)| {
        format!("{{\"link\":{},\"busy\":{}}}", quoted(link), number(*part))
    });
    format!(
        "{{\"step_s\":{},\"bytes\":{},\"computing\":{},\"coding\":{},\"overhead\":{},\
         \"network\":{},\"others\":{},\"busiest\":{busiest}}}",
        number(played.seconds),
        number(played.bytes),
        number(spent.computing),
        number(spent.coding),
        number(spent.overhead),
        number(spent.network),
        number(spent.others),
    )
}
