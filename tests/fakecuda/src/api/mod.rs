//! The driver's functions, by their own names.

#![allow(non_snake_case)]

mod context;
mod copy;
mod device;
mod event;
mod host;
mod memory;
mod module;
mod nvcomp;
mod nvrtc;
mod stream;
mod vmm;

pub use context::*;
pub use copy::*;
pub use device::*;
pub use event::*;
pub use host::*;
pub use memory::*;
pub use module::*;
pub use nvcomp::*;
pub use nvrtc::*;
pub use stream::*;
pub use vmm::*;
