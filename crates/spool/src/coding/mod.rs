//! Encoding is the save, decoding is the restore: which codec a region gets, its encoder on the
//! way into a tier, its decoder on the way out, and what is known of the error.

mod check;
mod choice;
mod decoded;
mod encoded;
mod figures;
mod method;
mod plan;
mod session;

pub(crate) use choice::check as check_choice;
pub use choice::{Choice, CodecChoice};
pub(crate) use decoded::Decoded;
pub(crate) use encoded::{Encoded, codings};
pub(crate) use figures::CodecTally;
pub use figures::{CodecStats, RegionCoding};
