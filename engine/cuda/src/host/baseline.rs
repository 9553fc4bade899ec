//! The baseline that the arena is measured against: registering a whole buffer in one call, as the
//! strategies of the paper do.

use std::time::{Duration, Instant};

use crate::context::Context;
use crate::driver::result;
use crate::error::DeviceError;
use crate::host::mapping::Mapping;

/// Durations of the parts of registering a buffer at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registered {
    /// Making its pages present on one thread; zero when that was left to the driver.
    pub touching: Duration,
    /// The registration itself.
    pub registering: Duration,
    /// The unregistration.
    pub unregistering: Duration,
}

/// Registers `bytes` bytes of the host in one call and unregisters them, with or without huge
/// pages, touched first or not. For measurements only: it blocks, and stalls other copies.
///
/// # Errors
/// When the memory is missing or may not be pinned.
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
