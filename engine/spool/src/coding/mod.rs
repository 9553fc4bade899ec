//! Encoding is the save, decoding is the restore: which codec a region gets, its encoder on the
//! way into a tier, its decoder on the way out, and what is known of the error.

mod automatic;
mod check;
mod codecs;
mod decoding;
mod encoded;
mod encoding;
mod figures;
mod plan;
mod recent;
#[cfg(test)]
mod recent_tests;
mod room;
mod session;
mod sources;
mod through;
mod timing;

pub use automatic::AutoStats;
pub(crate) use automatic::{Experience, LEARNED, Picked};
pub(crate) use check::check;
pub use codecs::Codecs;
pub(crate) use decoding::{Decoding, Decodings, kind_of};
pub(crate) use encoded::{Encoded, Sealed, codings};
pub(crate) use encoding::{Encoding, Member, Placed};
pub(crate) use figures::CodecCounters;
pub use figures::{CodecStats, LaunchStats, RegionCoding};
pub(crate) use plan::{EncodingPlan, Planned};
pub(crate) use recent::RecentSizes;
pub(crate) use room::Room;
pub(crate) use sources::{
    Given, Launched, Predecessor, Source, Sources, check_formats, gather, not_encoded,
};
pub(crate) use through::through;
pub(crate) use timing::{Reading, Watched};
