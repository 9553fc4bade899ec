//! Writing a trace, line by line, while the run goes on.

use core::fmt;

use crate::command::Command;
use crate::config::{Config, LinkConfig, TierConfig};
use crate::event::Event;
use crate::trace::field::Field;
use crate::trace::{FIRST_LINE, record};
use crate::types::Nanos;

/// Writes the lines that every trace begins with: the version of the form and the settings.
///
/// # Errors
/// Only those of `out`.
pub fn write_header(out: &mut dyn fmt::Write, config: &Config) -> fmt::Result {
    writeln!(out, "{FIRST_LINE}")?;
    write_settings(out, config)?;
    config.tiers.iter().try_for_each(|tier| write_tier(out, tier))?;
    config.links.iter().try_for_each(|link| write_link(out, link))
}

fn write_settings(out: &mut dyn fmt::Write, config: &Config) -> fmt::Result {
    out.write_str("settings")?;
    config.policy.put("policy", out)?;
    config.discard_after_restore.put("discard_after_restore", out)?;
    config.max_retries.put("max_retries", out)?;
    config.retry_delay.put("retry_delay", out)?;
    if config.durable {
        config.durable.put("durable", out)?;
    }
    out.write_char('\n')
}

fn write_tier(out: &mut dyn fmt::Write, tier: &TierConfig) -> fmt::Result {
    out.write_str("tier")?;
    tier.kind.put("kind", out)?;
    tier.capacity.put("capacity", out)?;
    tier.alignment.put("alignment", out)?;
    out.write_char('\n')
}

fn write_link(out: &mut dyn fmt::Write, link: &LinkConfig) -> fmt::Result {
    out.write_str("link")?;
    link.flush_rate.put("flush_rate", out)?;
    link.prefetch_rate.put("prefetch_rate", out)?;
    link.latency.put("latency", out)?;
    link.max_in_flight_bytes.put("max_in_flight_bytes", out)?;
    link.max_in_flight.put("max_in_flight", out)?;
    out.write_char('\n')
}

/// Writes the line of an event.
///
/// # Errors
/// Only those of `out`.
pub fn write_event(out: &mut dyn fmt::Write, now: Nanos, event: &Event) -> fmt::Result {
    write!(out, "@{} ", now.0)?;
    record::write_event(out, event)?;
    out.write_char('\n')
}

/// Writes the line of a command.
///
/// # Errors
/// Only those of `out`.
pub fn write_command(out: &mut dyn fmt::Write, command: &Command) -> fmt::Result {
    out.write_str("> ")?;
    record::write_command(out, command)?;
    out.write_char('\n')
}

/// Writes an event and the commands that came out of its step.
///
/// # Errors
/// Only those of `out`.
pub fn write_step(
    out: &mut dyn fmt::Write,
    now: Nanos,
    event: &Event,
    commands: &[Command],
) -> fmt::Result {
    write_event(out, now, event)?;
    commands.iter().try_for_each(|command| write_command(out, command))
}

/// Writes the last line of a complete trace.
///
/// # Errors
/// Only those of `out`.
pub fn write_end(out: &mut dyn fmt::Write) -> fmt::Result {
    out.write_str("end\n")
}
