//! What the messages of an MPI program are, and what coding them would save: everything about it
//! that needs no MPI.
//!
//! A rank counts its messages in a [`Part`], words of memory that a file lies under, and hands
//! samples of them to whoever writes them ([`sample`]). Afterwards the parts of all ranks become
//! one [`Run`] ([`merge`]), whose samples are coded in every way that is compared ([`measure`]),
//! and a run becomes figures and sentences ([`report`]), as text, as a page or as JSON ([`show`]).
//! What its ranks did is played on another network, with coding and without ([`simulate`]).
//!
//! Of a run and a network a [`Plan`] is made: which messages of the next run are coded, and how.
//! [`coded`] is how they lie on the wire, and what both of their ends remember.
//!
//! What holds throughout:
//! - Bytes of a file are checked before they are used: any bytes can be given to [`part::read`],
//!   [`sample::read`] and [`Run::read`].
//! - Everything has a limit: channels, communicators, payloads that are remembered, events,
//!   samples. What is beyond one is counted as such.
//! - There is no MPI here, no file is opened, and there is no unsafe code.
//!
//! The measures are those of chapter 4 of D. Ibtesham, *Improving Large Scale Application
//! Performance via Data Movement Reduction* (2017), with a predictor in time and bounds besides.

#![forbid(unsafe_code)]

pub mod calls;
mod channel;
pub mod coded;
mod events;
pub mod hash;
pub mod measure;
pub mod merge;
pub mod part;
pub mod plan;
pub mod report;
pub mod run;
pub mod sample;
pub mod show;
pub mod simulate;
mod values;
mod wire;

pub use channel::{Channel, Key, Place, What, class_of, class_range};
pub use events::{Event, Events};
pub use part::{Comm, Part};
pub use plan::Plan;
pub use run::{Run, RunError};
pub use values::Values;
