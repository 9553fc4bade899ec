//! Encoding is the save, decoding is the restore: which codec a region gets, its encoder on the
//! way into a tier, its decoder on the way out, and what is known of the error.

mod automatic;
mod check;
mod choice;
mod decoded;
mod decoding;
mod encoded;
mod figures;
mod launch;
mod method;
mod offer;
mod on_gpu;
mod plan;
mod session;
mod timing;

pub(crate) use automatic::Experience;
pub use automatic::{AutoCodec, AutoStats};
pub use choice::{Choice, CodecChoice};
pub(crate) use choice::{check as check_choice, check_durable};
pub(crate) use decoded::Decoded;
pub(crate) use decoding::Decoding;
pub(crate) use encoded::{Encoded, codings};
pub(crate) use figures::CodecTally;
pub use figures::{CodecStats, LaunchStats, RegionCoding};
pub(crate) use launch::{Chain, Launched, Sources, not_encoded, values};
pub(crate) use method::Method;
pub(crate) use plan::Plan;
