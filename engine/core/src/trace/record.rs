//! One table for both directions: what a line of each kind is called and which fields it has.

use core::fmt;

use crate::command::{Command, Refusal};
use crate::event::Event;
use crate::trace::field::{Expected, Field, LineWords};

/// Makes a writer and a reader of the variants of an enum. A variant or a field that is missing
/// here does not compile.
macro_rules! records {
    ($write:ident, $read:ident, $type:ident, $what:literal:
     $($name:literal => $variant:ident { $($field:ident),* })*) => {
        pub(super) fn $write(out: &mut dyn fmt::Write, record: &$type) -> fmt::Result {
            match record {
                $($type::$variant { $($field),* } => {
                    out.write_str($name)?;
                    $($field.put(stringify!($field), out)?;)*
                    Ok(())
                })*
            }
        }

        pub(super) fn $read(name: &str, words: &mut LineWords<'_>) -> Result<$type, Expected> {
            match name {
                $($name => Ok($type::$variant {
                    $($field: Field::take(stringify!($field), words)?),*
                }),)*
                _ => Err(Expected { key: "", value: $what }),
            }
        }
    };
}

records! { write_event, read_event, Event, "the name of an event":
    "save" => Save { request, version, bytes, size }
    "save-handed" => SaveInFlight { request }
    "saved" => Saved { request, kept }
    "save-aborted" => SaveAborted { request }
    "restore" => Restore { request, version }
    "restored" => Restored { request }
    "restore-aborted" => RestoreAborted { request }
    "withdraw" => Withdraw { request }
    "expect" => Expect { version }
    "expect-last" => ExpectLast { version }
    "expect-once" => ExpectOnce { version }
    "forget-hints" => ForgetHints {}
    "start-prefetch" => StartPrefetch {}
    "hold-prefetch" => HoldPrefetch {}
    "prefer" => Prefer { version, tier }
    "discard" => Discard { version }
    "flush" => Flush { request }
    "transfer-done" => TransferDone { transfer, took }
    "transfer-failed" => TransferFailed { transfer, failure }
    "transfer-cancelled" => TransferCancelled { transfer }
    "deleted" => Deleted { checkpoint, tier }
    "shrunk" => Shrunk { tier, capacity }
    "taken-by-need" => TakenByNeed { tier }
    "grown" => Grown { tier, capacity }
    "tier-failed" => TierFailed { tier }
    "adopt" => Recover { checkpoint, version, bytes, tier }
    "tick" => Tick {}
}

records! { write_command, read_command, Command, "the name of a command":
    "grant" => Grant { request, checkpoint, place }
    "serve" => Serve { request, checkpoint, place }
    "flush-done" => FlushDone { request }
    "refuse" => Refuse { request, refusal }
    "transfer" => Transfer { transfer, checkpoint, version, bytes, kind, from, to }
    "cancel" => Cancel { transfer }
    "delete" => Delete { checkpoint, tier }
    "evict" => Evict { checkpoint, place }
}

records! { write_refusal, read_refusal, Refusal, "the name of a refusal":
    "duplicate" => Duplicate {}
    "unknown" => Unknown {}
    "discarded" => Discarded {}
    "not-yet-saved" => NotYetSaved {}
    "too-large" => TooLarge { largest }
    "full" => Full { tier, capacity, used, failure }
    "lost" => Lost { failure }
    "flush-failed" => FlushFailed { version, tier, failure }
}
