//! What a recorded program would take on another network and more ranks, with its messages coded
//! and without.
//!
//! The events of all ranks are kept within bounds ([`Recorded`]), their sends and receives become
//! messages, and the steps that repeat become a program that is played in LogGOPS on a network
//! whose links are shared fairly ([`forecast`]). More ranks are copies of those that were recorded.
//!
//! Everything here decides and nothing does: no clock is read, and the same recording gives the
//! same forecast. What is played is limited, and so is the memory for it.

mod coding;
mod fair;
mod forecast;
mod links;
mod network;
mod pairing;
mod period;
mod play;
mod program;
mod together;
mod trace;
mod wires;

pub use coding::{Codec, Way};
pub use forecast::{Asked, Forecast, Recorded, Scale, forecast, ranks};
pub use network::{Network, Topology, time};
pub use play::{Placement, Played, Spent};
