//! The only CUDA of Unspool. Builds and runs on machines without CUDA: the driver is found at run
//! time, and [`Driver::load`] says what is missing.
//!
//! Three floors (as in cudarc): `raw`, the driver's functions; `result`, one function for each
//! with values and errors; and the safe types here, above which nobody sees a raw handle.
//!
//! - [`Driver`], [`Context`]: what there is. The primary context is used, so arrays and streams of
//!   other libraries work as they are, and every call leaves the caller's current context alone.
//! - [`Stream`], [`Event`], [`copy`]: the stream is in the signature of every copy and free; a copy
//!   is done when an event recorded behind it is done. Polls have three answers, waits a limit.
//! - [`DeviceArena`], [`PinnedArena`]: memory that can be used while it is still being prepared.
//! - [`kernels`]: those that were shipped, and as text for where none of them fits.
//! - [`probe`]: what the links of this machine do, as plain data.
//!
//! Nothing is freed while an unfinished operation may use it: freeing waits for events, and where
//! that cannot be waited for (a hang, the end of the process) memory is leaked and
//! [counted](leaked).

mod arena;
mod chunks;
mod context;
pub mod copy;
mod driver;
mod error;
mod event;
mod host;
pub mod kernels;
mod life;
mod limits;
mod mark;
mod memory;
mod pace;
mod pageable;
pub mod probe;
mod raw;
mod release;
mod result;
mod span;
mod stream;
mod strided;
mod turn;
mod watch;

pub use arena::{DeviceArena, DeviceArenaOptions, Shrunk};
pub use context::{Context, current_context, current_ordinal, device_of};
pub use driver::{DeviceInfo, Driver};
pub use error::{Bytes, CudaError, DeviceError, DeviceErrorKind};
pub use event::{Event, Poll, Punctual, wait_for};
pub use host::{LinkBusy, PinnedArena, PinnedOptions, RegisterStats, StagingRing, Unregistered};
pub use kernels::{Arch, Module, Nvrtc};
pub use life::{leaked, releasing};
pub use limits::{HostLimits, MemoryLeft, Promise, memory_left};
pub use mark::{Mark, Marks, Unrecorded};
pub use memory::{DeviceMemory, PinnedMemory};
pub use pace::Pace;
pub use span::DeviceSpan;
pub use stream::Stream;
pub use strided::{StridedCopies, StridedLayout};
pub use turn::turn_lock;
pub use watch::{Place, Watch};
