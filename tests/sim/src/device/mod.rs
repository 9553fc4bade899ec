//! The machine: streams, memory and stores.

pub mod arena;
pub mod marks;
pub mod store;
pub mod streams;
