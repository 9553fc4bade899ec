//! The forecast: a step of the program on each number of ranks, plain and coded in each way, and
//! what to make of that.

use crate::events::Events;
use crate::measure::Scheme;
use crate::run::Run;
use crate::simulate::coding::{Codec, Way};
use crate::simulate::network::Network;
use crate::simulate::play::{Placement, Played, play};
use crate::simulate::program::Program;
use crate::simulate::trace::Kept;

/// The most ranks that are played.
const MOST_RANKS: u32 = 1 << 16;
/// The most calls of all ranks that are played.
const MOST_CALLS: u64 = 1 << 22;
/// The factor by which a played step may differ from the recorded one before a reader is told.
const FAR: f64 = 1.5;
/// What is less than this part of a step is not worth the trouble.
const NOTICED: f64 = 0.005;

/// What all ranks of a run did, as far as it is kept.
#[derive(Clone, Debug)]
pub struct Recorded {
    kept: Vec<Option<Kept>>,
}

impl Recorded {
    /// Room for the events of a run.
    #[must_use]
    pub fn of(run: &Run) -> Recorded {
        Recorded { kept: vec![None; run.about.size as usize] }
    }

    /// Takes in what a rank did.
    pub fn take(&mut self, rank: u32, events: Events) {
        let ranks = self.kept.len();
        if let Some(place) = self.kept.get_mut(rank as usize) {
            *place = Some(Kept::of(events, ranks));
        }
    }
}

/// What is to be foretold.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    /// On how many ranks: multiples of those that were recorded.
    pub ranks: Vec<u32>,
    /// On which network.
    pub network: Network,
    /// Where the copies of the recorded ranks are.
    pub placement: Placement,
    /// Steps that are played at most.
    pub steps: u32,
    /// Codecs besides those that were measured.
    pub codecs: Vec<Codec>,
}

/// What a program would take.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    /// What was asked.
    pub asked: Asked,
    /// How many ranks were recorded.
    pub recorded: u32,
    /// Steps that were played; `None` when none was found to repeat: then all that is known of the
    /// program is taken as one.
    pub steps: Option<u32>,
    /// Seconds of a step when it was recorded.
    pub recorded_step: f64,
    /// By number of ranks.
    pub scales: Vec<Scale>,
    /// What a reader has to know besides.
    pub notes: Vec<String>,
}

/// The program on so many ranks.
#[derive(Clone, PartialEq, Debug)]
pub struct Scale {
    /// How many.
    pub ranks: u32,
    /// As it is.
    pub plain: Played,
    /// With its messages coded.
    pub ways: Vec<(Way, Played)>,
}

/// Reads how many ranks: `256`, `256,512`, or `256..4096`, which doubles.
///
/// # Errors
/// What would be right, in a sentence.
pub fn ranks(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || {
        format!(
            "`{text}` is not a number of ranks: write 256, or 256,512, or 256..4096, from 1 to \
             {MOST_RANKS}."
        )
    };
    let number = |word: &str| {
        word.parse::<u32>().ok().filter(|ranks| (1..=MOST_RANKS).contains(ranks)).ok_or_else(wrong)
    };
    if let Some((first, last)) = text.split_once("..") {
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        let doubled = std::iter::successors(Some(first), |ranks| ranks.checked_mul(2));
        return Ok(doubled.take_while(|ranks| *ranks <= last).collect());
    }
    text.split(',').map(number).collect()
}

/// Foretells what a recorded program would take.
///
/// # Errors
/// Why it cannot be told, in a sentence.
pub fn forecast(run: &Run, recorded: Recorded, asked: Asked) -> Result<Forecast, String> {
    let size = run.about.size;
    let kept: Option<Vec<Kept>> = recorded.kept.into_iter().collect();
    let kept = kept.filter(|kept| !kept.is_empty() && run.missing().is_empty());
    let kept = kept.ok_or(
        "ranks are missing in the run, and what the others did depends on them: record all ranks.",
    )?;
    for ranks in &asked.ranks {
        if ranks % size != 0 {
            let near = (ranks / size).max(1) * size;
            return Err(format!(
                "{ranks} ranks cannot be copies of the {size} that were recorded: ask for a \
                 multiple, such as {near}."
            ));
        }
        asked.network.check(*ranks)?;
    }
    let copies = asked.ranks.iter().max().ok_or("no number of ranks was asked for.")? / size;
    let most = MOST_CALLS / u64::from(copies);
    let program = Program::of(run, &kept, asked.steps.max(1), most)?;
    drop(kept);
    let scales: Result<Vec<Scale>, String> =
        asked.ranks.iter().map(|ranks| scale(run, &program, &asked, *ranks)).collect();
    let steps = f64::from(program.steps.unwrap_or(1));
    let recorded_step = program.recorded_ns as f64 * 1e-9 / steps;
    let played = plain(run, &program, &asked, size)?.seconds;
    let mut notes = program.notes.clone();
    notes.extend(far(recorded_step, played, size));
    Ok(Forecast {
        recorded: size,
        steps: program.steps,
        recorded_step,
        scales: scales?,
        notes,
        asked,
    })
}

/// A warning where the step that is played is not the one that was recorded.
fn far(recorded: f64, played: f64, ranks: u32) -> Option<String> {
    let factor = (played / recorded).max(recorded / played);
    (recorded > 0.0 && played > 0.0 && factor > FAR).then(|| {
        format!(
            "On the {ranks} ranks that were recorded a step of {:.3} ms is played as {:.3} ms, a \
             factor of {factor:.1}: the network differs from that of the recording, or the machine \
             was busy with other work. Take the changes with that in mind, or record again.",
            recorded * 1e3,
            played * 1e3
        )
    })
}

/// A step of the program as it is, on so many ranks.
fn plain(run: &Run, program: &Program, asked: &Asked, ranks: u32) -> Result<Played, String> {
    with(run, program, asked, ranks, &Way::Plain)?
        .ok_or_else(|| "a program that is not coded has nothing to play.".to_owned())
}

/// A step with its messages coded in a way, if it is known what that makes of them.
fn with(
    run: &Run,
    program: &Program,
    asked: &Asked,
    ranks: u32,
    way: &Way,
) -> Result<Option<Played>, String> {
    let copies = ranks / program.ops.len() as u32;
    let steps = f64::from(program.steps.unwrap_or(1));
    let Some(coded) = way.code(&program.messages, &run.measures, &asked.network) else {
        return Ok(None);
    };
    let mut played = play(program, &asked.network, &coded, copies, asked.placement)?;
    played.seconds /= steps;
    played.bytes /= steps;
    Ok(Some(played))
}

fn scale(run: &Run, program: &Program, asked: &Asked, ranks: u32) -> Result<Scale, String> {
    let plain = plain(run, program, asked, ranks)?;
    let measured = Scheme::ALL.into_iter().map(Way::All);
    let given = asked.codecs.iter().copied().map(Way::Given);
    let mut ways = Vec::new();
    for way in measured.chain([Way::WhatPays]).chain(given) {
        if let Some(played) = with(run, program, asked, ranks, &way)? {
            ways.push((way, played));
        }
    }
    Ok(Scale { ranks, plain, ways })
}

impl Scale {
    /// How a way changes the time of a step: 0.03 is 3 % longer.
    #[must_use]
    pub fn change(&self, way: &Played) -> f64 {
        if self.plain.seconds > 0.0 { way.seconds / self.plain.seconds - 1.0 } else { 0.0 }
    }

    /// What to do, in a sentence.
    #[must_use]
    pub fn verdict(&self) -> String {
        let ranks = self.ranks;
        let percent = |change: f64| format!("{:.1} %", change.abs() * 100.0);
        if self.plain.bytes <= 0.0 {
            return format!(
                "On {ranks} ranks no messages go from rank to rank: there is nothing to code."
            );
        }
        let changes = self.ways.iter().map(|(way, played)| (way, self.change(played)));
        let best = |lossless: bool| {
            let those = changes.clone().filter(|(way, _)| !lossless || way.is_lossless());
            those.min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let Some((way, change)) = best(true) else {
            return "No message could be sampled, so nothing is known of what coding would save."
                .to_owned();
        };
        let mut text = if change < -NOTICED {
            let name = match way {
                Way::WhatPays => "what pays alone".to_owned(),
                way => format!("all messages ({})", way.name()),
            };
            format!("On {ranks} ranks, coding {name} would save {} of a step: do.", percent(change))
        } else if change >= NOTICED / 10.0 {
            let name = way.name();
            format!(
                "On {ranks} ranks, coding would cost {} here ({name}): do not.",
                percent(change)
            )
        } else {
            format!(
                "On {ranks} ranks, coding would change a step by less than {}: it is not worth the \
                 trouble.",
                percent(NOTICED)
            )
        };
        if let Some((way, bounded)) = best(false)
            && bounded < change.min(0.0) - NOTICED
        {
            let (name, percent) = (way.name(), percent(bounded));
            text.push_str(&format!(" If errors are allowed ({name}), it would save {percent}."));
        }
        text
    }
}

impl Forecast {
    /// What the figures take for granted, in sentences.
    #[must_use]
    pub fn assumptions(&self) -> Vec<String> {
        let place = match self.asked.placement {
            Placement::Packed => "are side by side, the best case for links that are shared",
            Placement::Spread => {
                "are as far apart as there are copies, a bad case for links that are shared"
            }
        };
        vec![
            format!(
                "More ranks are copies of the {} that were recorded. Each rank computes and sends \
                 as much as it did (weak scaling), to ranks of its own copy, which {place}. Calls \
                 of all ranks are of all copies.",
                self.recorded
            ),
            "Computation takes as long as when it was recorded. Links share their speed fairly; \
             calls of all ranks have links of their own and are not coded."
                .to_owned(),
        ]
    }
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
