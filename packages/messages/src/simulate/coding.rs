//! What coding makes of each message: fewer bytes, for work on both sides.

use std::collections::HashMap;

use crate::measure::{Flow, Measure, Outcome, Scheme};
use crate::report::best;
use crate::simulate::network::{Network, time};
use crate::simulate::program::Message;

/// A way to code messages.
#[derive(Clone, PartialEq, Debug)]
pub enum Way {
    /// None.
    Plain,
    /// Every kind of message that was sampled in one way.
    All(Scheme),
    /// Every kind of message that pays alone on this network in the lossless way that pays most.
    WhatPays,
    /// Every message by a codec that was described.
    Given(Codec),
}

/// A codec that is described by two numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Codec {
    /// Nanoseconds of work for a byte, on either side.
    pub ns_per_byte: f64,
    /// The part of the bytes that is saved.
    pub factor: f64,
}

impl Codec {
    /// Reads `NS` or `NS,FACTOR`.
    ///
    /// # Errors
    /// What would be right, in a sentence.
    pub fn parse(text: &str) -> Result<Codec, String> {
        let (ns, factor) = text.split_once(',').unwrap_or((text, "0"));
        let factor = factor.trim().parse::<f64>().ok().filter(|one| (0.0..1.0).contains(one));
        let factor = factor.ok_or_else(|| {
            format!(
                "`{text}` is not a codec: write nanoseconds a byte and the part that is saved, \
                 from 0 to below 1, such as 4,0.3."
            )
        })?;
        Ok(Codec { ns_per_byte: time("The time of a codec", ns)?, factor })
    }
}

impl Way {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Way::Plain => "plain".to_owned(),
            Way::All(scheme) => scheme.name().to_owned(),
            Way::WhatPays => "what pays".to_owned(),
            Way::Given(codec) => {
                format!("{} ns a byte, saves {:.0} %", codec.ns_per_byte, codec.factor * 100.0)
            }
        }
    }

    /// Whether all values come back bit for bit.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        !matches!(self, Way::All(scheme) if !scheme.is_lossless())
    }

    /// What becomes of each message; `None` when nothing is coded.
    pub(crate) fn code(
        &self,
        messages: &[Message],
        measures: &[Measure],
        network: &Network,
    ) -> Option<Vec<Coded>> {
        let mut found: HashMap<Flow, Option<&Outcome>> = HashMap::new();
        for measure in measures {
            let sampled = measure.outcomes.iter().filter(|one| one.original > 0);
            let outcome = match self {
                Way::Plain | Way::Given(_) => None,
                Way::All(scheme) => sampled.clone().find(|one| one.scheme == *scheme),
                Way::WhatPays => {
                    let way = best(&measure.outcomes, network.speed(), Scheme::is_lossless);
                    sampled.clone().find(|one| Some(one.scheme) == way)
                }
            };
            found.insert(measure.flow, outcome);
        }
        let one = |message: &Message| match (self, message.flow) {
            (Way::Given(codec), _) => Some(Coded::by(message.bytes, codec)),
            (_, Some(flow)) => {
                let outcome = found.get(&flow).copied().flatten()?;
                Some(Coded::as_measured(message.bytes, outcome))
            }
            _ => None,
        };
        let coded: Vec<Option<Coded>> = messages.iter().map(one).collect();
        let any = coded.iter().any(Option::is_some) || *self == Way::Plain;
        let plain = coded.into_iter().zip(messages);
        any.then(|| plain.map(|(coded, one)| coded.unwrap_or(Coded::plain(one.bytes))).collect())
    }
}

/// A message as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Coded {
    pub(crate) bytes: u64,
    /// Picoseconds of work before it is sent.
    pub(crate) encode: u64,
    /// Picoseconds after it has come.
    pub(crate) decode: u64,
}

impl Coded {
    pub(crate) fn plain(bytes: u64) -> Coded {
        Coded { bytes, encode: 0, decode: 0 }
    }

    fn by(bytes: u64, codec: &Codec) -> Coded {
        let work = (bytes as f64 * codec.ns_per_byte * 1000.0).round() as u64;
        Coded { bytes: left(bytes, codec.factor), encode: work, decode: work }
    }

    fn as_measured(bytes: u64, outcome: &Outcome) -> Coded {
        let (encode, decode) = outcome.speeds();
        let time = |speed: f64| (bytes as f64 / speed * 1e12) as u64;
        // What does not become smaller is sent as it is.
        let smaller = outcome.factor() > 0.0;
        Coded {
            bytes: left(bytes, outcome.factor().max(0.0)),
            encode: time(encode),
            decode: if smaller { time(decode) } else { 0 },
        }
    }
}

fn left(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * (1.0 - factor)).ceil() as u64
}
