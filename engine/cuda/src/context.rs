//! A device's primary context: the one that every CUDA library of a process shares, so that arrays
//! and streams of CuPy, PyTorch and JAX can be used as they are.

use std::marker::PhantomData;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use unspool_verify::Op;

use crate::driver::raw::{CUcontext, CUdevice};
use crate::driver::{DeviceInfo, Driver};
use crate::driver::{raw, result};
use crate::error::{CudaError, DeviceError, DeviceErrorKind, INVALID_CONTEXT};
use crate::life;
use crate::watch::{Watch, Watched};

/// The existing contexts. Any of them can answer which device an address belongs to.
static MADE: Mutex<Vec<Weak<Retained>>> = Mutex::new(Vec::new());

/// The primary context of one device, retained. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Context(Arc<Retained>);

#[derive(Debug)]
struct Retained {
    handle: CUcontext,
    device: CUdevice,
    info: DeviceInfo,
    watched: Watched,
}

// SAFETY: a context may be used from any thread; scopes make it current on a thread.
unsafe impl Send for Retained {}
// SAFETY: as above; the fields never change, but for the watch, which has its own lock.
unsafe impl Sync for Retained {}

impl Context {
    /// Retains the primary context of device `ordinal` and starts it if necessary (a few hundred
    /// milliseconds).
    ///
    /// # Errors
    /// When there is no such device, or the driver cannot make a context on it.
    pub fn new(driver: &Driver, ordinal: u32) -> Result<Context, DeviceError> {
        let devices = driver.devices();
        let info = devices.iter().find(|info| info.ordinal == ordinal).ok_or_else(|| {
            let count = devices.len();
            let message = format!("there is no device {ordinal}; this process sees {count}");
            DeviceError::new(DeviceErrorKind::Missing, message)
                .with_advice("Devices are numbered from 0 in the order of CUDA_VISIBLE_DEVICES.")
        })?;
        let _apart = Apart::begin();
        let device = result::device(ordinal.cast_signed())?;
        let handle = result::primary_context(device)?;
        let (info, watched) = (info.clone(), Watched::default());
        let made = Arc::new(Retained { handle, device, info, watched });
        let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&made));
        Ok(Context(made))
    }

    /// What the driver says about its device.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The number of its device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.0.info.ordinal
    }

    /// A second handle to the same context, without the watch: for resources that outlive the owner
    /// of this one.
    pub(crate) fn without_watch(&self) -> Result<Context, DeviceError> {
        let (device, info, _apart) = (self.0.device, self.0.info.clone(), Apart::begin());
        let handle = result::primary_context(device)?;
        let watched = Watched::default();
        Ok(Context(Arc::new(Retained { handle, device, info, watched })))
    }

    /// Free and total bytes of the device's memory at this moment.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let _scope = self.enter()?;
        Ok(result::memory_info()?)
    }

    /// Waits for everything that was enqueued on any stream of the device by this process. It has
    /// no limit: for tests and for threads that nobody waits for.
    ///
    /// # Errors
    /// When something before it failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        let _scope = self.enter()?;
        result::synchronize_context()?;
        self.saw(|| Op::WaitAll);
        Ok(())
    }

    /// As [`synchronize`](Self::synchronize), waiting at most `limit`. The driver has no such wait,
    /// so a thread waits for it; after a time-out that thread stays until the work is done.
    ///
    /// # Errors
    /// When something before it failed, when the limit has passed, or no thread can be had.
    pub fn synchronize_within(&self, limit: Duration) -> Result<(), DeviceError> {
        let (context, (done, waiting)) = (self.clone(), channel());
        let wait = move || {
            // The receiver is gone if its wait has timed out.
            let _ = done.send(context.synchronize());
        };
        let builder = Builder::new().name("unspool-wait".to_owned());
        builder
            .spawn(wait)
            .map_err(|error| DeviceError::system("starting a thread was refused", &error))?;
        waiting.recv_timeout(limit).unwrap_or_else(|_| {
            let message = format!("work on the device was not done after {limit:?}");
            Err(DeviceError::new(DeviceErrorKind::TimedOut, message)
                .with_advice("A kernel may be running for long or hang."))
        })
    }

    /// Sets the watch: it sees every later record, wait and access through this value or a clone of
    /// it, and the addresses of arenas that are made later.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        self.0.watched.set(watch);
    }

    /// Reports to the watch, if there is one, an operation that has just been enqueued or done: for
    /// owners of memory who access it themselves.
    pub fn saw(&self, op: impl FnOnce() -> Op) {
        if self.0.watched.is() {
            self.0.watched.report(op());
        }
    }

    /// Makes the context current on this thread until the scope is dropped, which restores the
    /// previous one.
    pub fn enter(&self) -> Result<Scope, CudaError> {
        let apart = Apart::begin();
        result::push_context(self.0.handle)?;
        Ok(Scope { _apart: apart })
    }

    pub(crate) fn raw_device(&self) -> CUdevice {
        self.0.device
    }

    pub(crate) fn raw(&self) -> CUcontext {
        self.0.handle
    }

    /// Refuses an object that belongs to another device.
    pub fn require(&self, ordinal: u32, what: &str) -> Result<(), DeviceError> {
        let own = self.ordinal();
        if own == ordinal {
            return Ok(());
        }
        let message = format!("{what} belongs to device {ordinal}, and device {own} is meant");
        Err(DeviceError::new(DeviceErrorKind::WrongDevice, message)
            .with_advice("Use one spool for each device."))
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        self.0.handle == other.0.handle
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        if life::driver_lives() {
            let _apart = Apart::begin();
            // On an error the context stays until the end of the process.
            let _ = result::release_primary_context(self.device);
        }
    }
}

/// A context that is current on this thread until the scope is dropped.
#[derive(Debug)]
pub struct Scope {
    // Dropped after the context was popped.
    _apart: Apart,
}

/// Relaxed capture mode of this thread until it is dropped. While a stream is captured into a graph
/// in the driver's global mode, as PyTorch does, no thread may allocate, register, map or query an
/// event: the call fails and spoils the capture. In relaxed mode our threads may go on while the
/// user captures.
#[derive(Debug)]
pub(crate) struct Apart {
    before: Option<u32>,
    _on_this_thread: PhantomData<*mut ()>,
}

impl Apart {
    pub(crate) fn begin() -> Apart {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
        const RELAXED: u32 = 2;
        // On an error the mode stays as it was, which matters only during a capture.
        let before = result::exchange_capture_mode(RELAXED).ok();
        Apart { before, _on_this_thread: PhantomData }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = result::exchange_capture_mode(before);
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // An error means that other code has popped the context, which cannot be repaired here.
        let _ = result::pop_context();
    }
}

/// The context that is current on this thread, as a number: 0 when there is none. Lets a test check
/// that a call left it unchanged.
///
/// # Errors
/// When the driver is not loaded.
pub fn current_context() -> Result<usize, DeviceError> {
    Ok(result::current_context()? as usize)
}

/// The number of the device whose context is current on this thread. `None` without a driver, or
/// when nothing is current, as in a process that has not used CUDA yet. Starts nothing.
#[must_use]
pub fn current_ordinal() -> Option<u32> {
    raw::load().ok()?;
    let current = result::current_context().ok()?;
    if current.is_null() {
        return None;
    }
    result::current_device().ok().map(i32::unsigned_abs)
}

/// The number of the device whose memory `address` is in; `None` for memory of the host, pinned or
/// not, and for addresses that CUDA does not know.
///
/// # Errors
/// When the driver is missing, or no context can answer: none is current on this thread and no
/// [`Context`] lives. When the context is lost, for addresses that this process cannot read.
pub fn device_of(address: u64) -> Result<Option<u32>, DeviceError> {
    raw::load()?;
    let _apart = Apart::begin();
    let answer = match result::device_of(address) {
        Err(error) if error.code == INVALID_CONTEXT => {
            let living = any_living().ok_or(error)?;
            let _scope = living.enter()?;
            result::device_of(address)
        }
        answer => answer,
    };
    let answer = answer.map_err(DeviceError::from);
    if answer.as_ref().is_err_and(DeviceError::ends_context) && is_readable(address) {
        return Ok(None);
    }
    answer
}

/// Whether this process can read the byte at an address, as it can those of the host. It asks the
/// system to copy it, which says no where a read would end the process.
fn is_readable(address: u64) -> bool {
    let mut byte = 0_u8;
    let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let other = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 1 };
    // SAFETY: room for one byte; what cannot be read is not.
    unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const other, 1, 0) == 1
    }
}

/// A context that is still alive.
fn any_living() -> Option<Context> {
    let all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().find_map(Weak::upgrade).map(Context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_context_is_current_on_a_thread_that_never_used_the_device() {
        let found = std::thread::spawn(current_ordinal).join();
        assert_eq!(found.ok(), Some(None));
    }

    #[test]
    fn what_this_process_can_read_is_told_from_what_it_cannot() {
        let byte = 7_u8;
        assert!(is_readable((&raw const byte).addr() as u64));
        // Nothing is there, nor in the half of the addresses that is not a program's.
        assert!([0, 1 << 63].iter().all(|&address| !is_readable(address)));
    }
}
