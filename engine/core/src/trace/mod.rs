//! A run as text: every event and every command, one on a line, and its replay.
//!
//! The spool writes a trace when it records, the simulator writes one when a run fails.
//! [`replay`] feeds the events of a trace to a fresh core and compares the commands: because the
//! core is deterministic, a trace is a test, a bug report and the input of a policy study.
//!
//! # Grammar
//!
//! Text is UTF-8. A line ends with a line feed; a last line without one was cut off while it was
//! written and does not count. Words are separated by one space. Empty lines and lines that begin
//! with `#` are for people and are skipped.
//!
//! ```text
//! trace     = "unspool-trace 1" settings { tier } { link } { step } [ "end" ]
//! settings  = "settings policy=" name " discard_after_restore=" boolean
//!             " max_retries=" number " retry_delay=" nanoseconds [ " durable=true" ]
//! tier      = "tier kind=" kind " capacity=" bytes " alignment=" bytes
//! link      = "link flush_rate=" float " prefetch_rate=" float " latency=" nanoseconds
//!             " max_in_flight_bytes=" bytes " max_in_flight=" number
//! step      = event { command }
//! event     = "@" nanoseconds " " name { " " key "=" value }
//! command   = "> " name { " " key "=" value }
//! ```
//!
//! - Names are those of the variants of `Event`, `Command` and `Refusal`, in
//!   lower case with hyphens (`transfer-done`), except that `SaveInFlight` is `save-handed`; keys
//!   are the names of their fields. Every field is there, in the order of declaration, except the
//!   last ones of two events: `save` has `size` only as `size=at-most`, and `saved` has `kept`
//!   (`offset:bytes`) only where that was reported.
//! - Numbers are decimal; a place is `tier:offset`; an absent failure is `none`; a refusal is its
//!   name followed by its fields (`refusal=full tier=host capacity=4096 used=4096 failure=none`).
//! - Time never goes back from one event to the next.
//! - The commands that follow an event are those of its step, in order.
//! - A trace that does not finish with `end` is one whose writer died: the commands of its last
//!   step may be incomplete.
//! - Anything else is an error: a reader never guesses. Another form gets another version number.

mod field;
mod read;
mod record;
mod replay;
mod write;

#[cfg(test)]
mod tests;

pub use read::{Line, ParseError, Reader};
pub use replay::{Difference, ReplayError, ReplayReport, replay};
pub use write::{write_command, write_end, write_event, write_header, write_step};

/// The first line of every trace of this form.
pub const FIRST_LINE: &str = "unspool-trace 1";
