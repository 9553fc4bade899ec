//! Encoding is the save, decoding is the restore: which codec a region gets, its encoder on the
//! way into a tier, its decoder on the way out, and what is known of the error.

mod automatic;
mod check;
mod choice;
mod decoded;
mod encoded;
mod figures;
mod launch;
mod method;
mod on_gpu;
mod plan;
mod session;

pub(crate) use automatic::Experience;
pub use choice::{Choice, CodecChoice};
pub(crate) use choice::{check as check_choice, check_durable};
pub(crate) use decoded::{Decoded, Decoding};
pub(crate) use encoded::{Encoded, codings};
pub(crate) use figures::CodecTally;
pub use figures::{CodecStats, RegionCoding};
pub(crate) use launch::{Chain, not_encoded};
