//! The machine: streams, memory and stores.

pub mod arena;
pub mod fences;
pub mod store;
pub mod streams;
