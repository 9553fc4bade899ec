//! The core's refusals and the ends of waits, as sentences: what, why, what to do.

use std::fmt::Write;
use std::time::Duration;

use unspool_core::{CoreStats, Failure, Refusal, Size, TierKind, Version};
use unspool_cuda::Bytes;
use unspool_transfer::TransferError;

use crate::error::{Error, ErrorKind};
use crate::runtime::frame_index::Unrecovered;
use crate::runtime::state::State;
use crate::runtime::waiting::Asked;

/// The error for a call that the core refused.
pub(crate) fn refused(state: &State, asked: Asked, refusal: Refusal) -> Error {
    let name = name(asked);
    if let (Asked::Restore { version }, Refusal::Unknown | Refusal::Discarded) = (asked, refusal)
        && let Some(why) = state.frames.unrecovered(version.0)
    {
        return unrecovered(&name, why);
    }
    match refusal {
        Refusal::Duplicate => duplicate(state, &name, asked),
        Refusal::Unknown => Error::new(
            ErrorKind::Unknown,
            format!(
                "{name} was never saved in this spool{}. `versions()` lists what is there.",
                unless_nameless(state)
            ),
        ),
        Refusal::Discarded => Error::new(
            ErrorKind::Discarded,
            format!(
                "{name} was discarded: by `discard()`, or after its last restore where that was \
                 announced to be read back once. Announce every restore that is to come, or save \
                 it again."
            ),
        ),
        Refusal::NotYetSaved => Error::new(
            ErrorKind::NotYetSaved,
            format!("{name} is being saved by a call that has not returned. Wait for that call."),
        ),
        Refusal::TooLarge { largest } => too_large(state, &name, asked, largest),
        Refusal::Full { tier, capacity, used, failure } => {
            let reason = full(state, &name, (tier, capacity, used), failure);
            Error::new(ErrorKind::Full, format!("{reason}{}", room_for(asked)))
        }
        Refusal::Lost { failure } => lost(state, &name, asked, failure),
        Refusal::FlushFailed { version, tier, failure } => {
            flush_failed(state, version, tier, failure)
        }
    }
}

/// The error for a version of an earlier run that did not come back.
fn unrecovered(name: &str, why: &Unrecovered) -> Error {
    let reason = &why.reason;
    let advice = "Bring the file back from a copy and open the history again, save the version \
                  again, or discard it.";
    Error::new(why.kind, format!("{name} cannot be restored: {reason} {advice}"))
}

/// What cannot be ruled out of a version that is unknown.
fn unless_nameless(state: &State) -> String {
    state.frames.nameless().map_or_else(String::new, |file| {
        format!(", unless it is what {file} held, whose head is damaged (see `stats().notes`)")
    })
}

/// Whom a call is about.
fn name(asked: Asked) -> String {
    match asked {
        Asked::Save { version, .. } | Asked::Restore { version } => {
            format!("Version {}", version.0)
        }
        Asked::Flush => "The history".to_owned(),
    }
}

fn duplicate(state: &State, name: &str, asked: Asked) -> Error {
    let saved = match asked {
        Asked::Save { version, .. } => state.driver.core().contains(version),
        _ => true,
    };
    let (kind, message) = if saved {
        let remedy = "Checkpoints never change: discard it first, or choose another version.";
        (ErrorKind::Duplicate, format!("{name} is already saved. {remedy}"))
    } else {
        let remedy = "Give every save a version of its own.";
        (ErrorKind::NotYetSaved, format!("{name} is being saved by another call. {remedy}"))
    };
    Error::new(kind, message)
}

fn too_large(state: &State, name: &str, asked: Asked, largest: u64) -> Error {
    let bytes = match asked {
        Asked::Save { bytes, .. } => bytes,
        _ => 0,
    };
    let (bytes, largest) = (Bytes(bytes), Bytes(largest));
    let what = match most_of(asked) {
        Some(_) => format!(
            "{name} may take up to {bytes:#} when it is encoded, and the largest tier holds \
             {largest:#}. How much it takes is known only afterwards, so there has to be room for \
             the most, however small it becomes. Make `host_memory` as large as that"
        ),
        None => format!(
            "{name} has {bytes:#}, and the largest tier holds {largest:#}. Make `host_memory` \
             larger"
        ),
    };
    let shortage = shortage(state);
    let message =
        format!("{what} or add a `disk`, or save its arrays under several versions.{shortage}");
    Error::new(ErrorKind::TooLarge, message)
}

/// Why arenas are smaller than they may be, as sentences that come last.
fn shortage(state: &State) -> String {
    state.short.iter().fold(String::new(), |text, shortage| format!("{text} {}", shortage.why))
}

/// The most bytes that a codec may make of a save.
fn most_of(asked: Asked) -> Option<u64> {
    match asked {
        Asked::Save { bytes, size: Size::AtMost, .. } => Some(bytes),
        _ => None,
    }
}

/// Why an encoded checkpoint asks for more room than it may take in the end.
fn room_for(asked: Asked) -> String {
    most_of(asked).map_or_else(String::new, |most| {
        format!(
            " Until it is encoded, it has to have room for {:#}, more than it will probably keep.",
            Bytes(most)
        )
    })
}

fn full(
    state: &State,
    name: &str,
    (tier, capacity, used): (TierKind, u64, u64),
    failure: Option<Failure>,
) -> String {
    let mut text = format!(
        "There is no room for {}: the {tier} tier uses {:#} of {}, and nothing in it may be given \
         up.",
        name.to_lowercase(),
        Bytes(used),
        capacity_text(capacity),
    );
    match (failure, last_failure(state, tier)) {
        (Some(_), Some(cause)) => {
            let _ = write!(text, " The last movement into it failed: {cause}");
        }
        (Some(failure), None) => {
            let _ = write!(text, " The last movement into it failed ({failure:?}).");
        }
        _ => {}
    }
    let below = if has_tier(state, TierKind::Disk) { "" } else { ", add a `disk`" };
    let _ = write!(
        text,
        " Discard checkpoints, announce what is read back once (`expect` with `once`), raise \
         `{}`{below}, or free space where it lies.{}",
        tier.option(),
        shortage(state)
    );
    text
}

fn lost(state: &State, name: &str, asked: Asked, failure: Failure) -> Error {
    let id = match asked {
        Asked::Restore { version } => state.driver.core().checkpoint(version),
        _ => None,
    };
    let cause = id.and_then(|id| state.frames.loss(id));
    let why = cause.map_or_else(|| format!("{failure:?}."), TransferError::to_string);
    let message = format!(
        "{name} is lost, its last copy could not be read: {why} Recompute it and save it again \
         after `discard()`."
    );
    caused_by(Error::new(ErrorKind::Lost, message), cause)
}

fn flush_failed(state: &State, version: Version, tier: TierKind, failure: Failure) -> Error {
    let kind = if failure == Failure::NoSpace { ErrorKind::Full } else { ErrorKind::Io };
    let cause = last_failure(state, tier);
    let why = cause.map_or_else(|| usage(state, tier), TransferError::to_string);
    let message = format!("Version {} cannot be flushed to the {tier} tier: {why}", version.0);
    caused_by(Error::new(kind, message), cause)
}

fn caused_by(error: Error, cause: Option<&TransferError>) -> Error {
    match cause {
        Some(cause) => error.caused_by(cause.clone()),
        None => error,
    }
}

/// How full a tier is, as a sentence.
fn usage(state: &State, tier: TierKind) -> String {
    let stats = state.driver.core().stats();
    let used = stats.tiers.iter().find(|counted| counted.kind == tier);
    used.map_or_else(String::new, |counted| {
        format!("it uses {:#} of {}.", Bytes(counted.used), capacity_text(counted.capacity))
    })
}

/// The error for a store that could not be read or written in the caller's own thread.
pub(crate) fn direct_failed(doing: &str, version: i64, error: TransferError) -> Error {
    let kind = match error.kind() {
        Failure::NoSpace => ErrorKind::Full,
        Failure::Corrupt => ErrorKind::Corrupt,
        Failure::Missing => ErrorKind::Lost,
        Failure::Io | Failure::Permanent => ErrorKind::Io,
    };
    Error::new(kind, format!("Version {version} cannot be {doing}: {error}")).caused_by(error)
}

/// What a call waits for, in words that follow "waited for".
pub(crate) fn awaited(state: &State, asked: Asked) -> String {
    match asked {
        Asked::Save { version, bytes, .. } => {
            format!("room for version {} ({})", version.0, Bytes(bytes))
        }
        Asked::Restore { version } => {
            let from = fastest_copy(state, version).map_or_else(String::new, |tier| {
                format!(", which are on their way from the {tier} tier")
            });
            format!("the bytes of version {}{from}", version.0)
        }
        Asked::Flush => {
            let core = state.driver.core();
            let left = core.versions().iter().filter(|v| !core.is_flushed(**v)).count();
            format!("{left} checkpoints to reach the slowest tier")
        }
    }
}

pub(crate) fn timed_out(state: &State, what: &str, timeout: Duration) -> Error {
    let message = format!(
        "Waited {:.1} s for {what}, which is the limit. {} Raise `timeout`, or look at what holds \
         the slowest link up.",
        timeout.as_secs_f64(),
        situation(state)
    );
    Error::new(ErrorKind::Timeout, message)
}

pub(crate) fn interrupted(what: &str) -> Error {
    Error::new(ErrorKind::Interrupted, format!("Interrupted while waiting for {what}."))
}

/// The tiers and links in one line, for errors of waits.
fn situation(state: &State) -> String {
    let stats = state.driver.core().stats();
    let mut text = String::from("The tiers:");
    for tier in &stats.tiers {
        let (used, capacity) = (Bytes(tier.used), capacity_text(tier.capacity));
        let _ = write!(text, " {} uses {used:#} of {capacity};", tier.kind);
    }
    for (index, link) in stats.links.iter().enumerate() {
        let _ = write!(
            text,
            " {}: {} flushes and {} prefetches under way;",
            link_name(&stats, index),
            link.flush.in_flight,
            link.prefetch.in_flight
        );
        if let Some(failure) = state.counters.link(index).failure() {
            let _ = write!(text, " its last failure: {failure}");
        }
    }
    text.pop();
    text.push('.');
    text
}

pub(crate) fn link_name(stats: &CoreStats, index: usize) -> String {
    format!("{}-{}", stats.tiers[index].kind, stats.tiers[index + 1].kind)
}

/// The last failure on the link above `tier`.
fn last_failure(state: &State, tier: TierKind) -> Option<&TransferError> {
    let tiers = &state.driver.core().config().tiers;
    let index = tiers.iter().position(|config| config.kind == tier)?;
    // Movements that skip a tier are counted on a link above.
    (0..index).rev().find_map(|link| state.counters.link(link).failure())
}

fn has_tier(state: &State, kind: TierKind) -> bool {
    state.driver.core().config().tiers.iter().any(|tier| tier.kind == kind)
}

fn fastest_copy(state: &State, version: Version) -> Option<TierKind> {
    let core = state.driver.core();
    let copies = core.copies(version);
    let index = copies.iter().position(|copy| copy.is_some_and(|state| state.is_complete()))?;
    core.config().tiers.get(index).map(|tier| tier.kind)
}

fn capacity_text(capacity: u64) -> String {
    if capacity == u64::MAX {
        "what the medium holds".to_owned()
    } else {
        format!("{:#}", Bytes(capacity))
    }
}
