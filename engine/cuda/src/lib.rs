//! The CUDA layer of Unspool: no other crate calls CUDA. It builds and runs on machines without
//! CUDA: the driver is found at run time, and [`Driver::load`] says what is missing.
//!
//! Three layers (as in cudarc): `raw`, the driver's functions; `result`, one function for each with
//! values and errors; and the safe types here. Code above them never sees a raw handle.
//!
//! - [`Driver`], [`Context`]: the devices. The primary context is used, so arrays and streams of
//!   other libraries work as they are, and every call restores the caller's current context.
//! - [`Stream`], [`Event`], [`copy`]: the stream is in the signature of every copy and free; a copy
//!   is done when an event recorded after it is done. Polls have three answers, waits a limit.
//! - [`DeviceArena`], [`PinnedArena`]: memory that can be used while it is still being prepared.
//! - [`kernels`]: shipped compiled kernels, and their text for devices without one.
//! - [`probe`]: measured speeds of the links of this machine, as plain data.
//!
//! Memory is freed only after the operations that use it: freeing waits for events, and where that
//! wait cannot end (a hang, the end of the process) memory is leaked and [counted](leaked).

mod access;
mod arena;
mod bytes;
mod chunks;
mod context;
pub mod copy;
mod driver;
mod ends;
mod error;
mod event;
mod fence;
mod host;
pub mod kernels;
mod life;
mod limits;
mod memory;
mod pace;
mod pageable;
pub mod probe;
mod release;
mod span;
mod stream;
mod strided;
mod turn;
pub mod user_cache;
mod waiting;
mod watch;

pub use access::AccessedBytes;
pub use arena::{DeviceArena, DeviceArenaOptions, Shrunk};
pub use bytes::Bytes;
pub use context::{Context, current_context, current_ordinal, device_of};
pub use driver::{DeviceInfo, Driver};
pub use error::{CudaError, DeviceError, DeviceErrorKind};
pub use event::Event;
pub use fence::{Fence, FencePool, Unrecorded};
pub use host::mapping::populate;
pub use host::pool::trim;
pub use host::{LinkBusy, PinnedArena, PinnedOptions, RegisterStats, StagingRing, Unregistered};
pub use kernels::{Arch, Module, Nvrtc};
pub use life::{leaked, releasing};
pub use limits::{Growth, HostLimits, MemoryLeft, Pages, check_size, memory_left};
pub use memory::{DeviceMemory, PinnedMemory};
pub use pace::Pace;
pub use release::settle;
pub use span::DeviceSpan;
pub use stream::Stream;
pub use strided::{DenseCopy, StridedCopies, StridedLayout};
pub use turn::turn_locks;
pub use waiting::{Poll, Punctual, wait_for};
pub use watch::Watch;

/// The texts of the kernels of this crate.
#[must_use]
pub fn kernel_sources() -> Vec<kernels::KernelText> {
    let text = kernels::KernelText::of;
    vec![
        text("strided.cu", strided::KERNELS, strided::SOURCE),
        text("pattern.cu", kernels::pattern::KERNELS, kernels::pattern::SOURCE),
    ]
}
