//! Encoding is the save, decoding is the restore: which codec a region gets, its encoder on the
//! way into a tier, its decoder on the way out, and what is known of the error.

mod automatic;
mod check;
mod codecs;
mod decoded;
mod decoding;
mod encoded;
mod encoding;
mod figures;
mod launch;
mod on_gpu;
mod plan;
mod session;
mod timing;

pub use automatic::AutoStats;
pub(crate) use automatic::Experience;
pub use codecs::Codecs;
pub(crate) use decoded::Decoded;
pub(crate) use decoding::Decoding;
pub(crate) use encoded::{Encoded, codings};
pub(crate) use encoding::{Encoding, Member, Placed};
pub(crate) use figures::CodecTally;
pub use figures::{CodecStats, LaunchStats, RegionCoding};
pub(crate) use launch::{Chain, Launched, Sources, not_encoded, values};
pub(crate) use plan::Plan;
