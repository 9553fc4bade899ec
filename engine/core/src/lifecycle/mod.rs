//! What is known about checkpoints: their states, their copies, their names.

pub(crate) mod ranges;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod trend;
pub(crate) mod turn;
