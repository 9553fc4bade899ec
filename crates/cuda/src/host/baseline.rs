//! What the arena is measured against: registering a whole buffer in one call, as the strategies of
//! the paper do.

use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::DeviceError;
use crate::host::mapping::Mapping;
use crate::result;

/// How long the parts of registering a buffer at once took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registered {
    /// Making its pages present, by one thread; zero when that was left to the driver.
    pub touching: Duration,
    /// The one call.
    pub registering: Duration,
    /// Undoing it.
    pub unregistering: Duration,
}

/// Registers `bytes` bytes of the host in one call and undoes it, with huge pages or without,
/// touched first or not. For measurements: it blocks, and other copies with it.
///
/// # Errors
/// When the memory is not there or may not be pinned.
pub fn register_at_once(
    context: &Context,
    bytes: u64,
    huge_pages: bool,
    touch_first: bool,
) -> Result<Registered, DeviceError> {
    let mapping = Mapping::new(bytes, huge_pages)?;
    let _scope = context.enter()?;
    let begin = Instant::now();
    if touch_first {
        let touched = mapping.touch(0, bytes);
        touched.map_err(|error| DeviceError::system("touching pages failed", &error))?;
    }
    let (place, touching, begin) = (mapping.at(0, bytes), begin.elapsed(), Instant::now());
    // SAFETY: mapped until the end of this function.
    unsafe { result::register(place, bytes as usize) }?;
    let (registering, begin) = (begin.elapsed(), Instant::now());
    // SAFETY: registered above; no copy was made.
    unsafe { result::unregister(place) }?;
    Ok(Registered { touching, registering, unregistering: begin.elapsed() })
}
