//! One call of the driver: the lock, the count, planned faults, and waits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::capture;
use crate::codes::{Code, Outcome};
use crate::settings::Settings;
use crate::world::World;

static WORLD: LazyLock<Mutex<World>> =
    LazyLock::new(|| Mutex::new(World::new(Settings::from_environment())));
/// Notified after every change of the world.
static CHANGED: Condvar = Condvar::new();
/// Number of callers that wait for the lock; devices let them go first.
static CALLERS: AtomicUsize = AtomicUsize::new(0);
/// The process that made the first call. As with the driver, every call in a forked child fails.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Maximum number of times that a device lets callers go first.
const POLITENESS: usize = 20;

/// Access to the world under the lock.
pub(crate) struct Held(Option<MutexGuard<'static, World>>);

impl Held {
    /// For a caller.
    pub(crate) fn by_caller() -> Held {
        CALLERS.fetch_add(1, Ordering::AcqRel);
        let guard = lock();
        CALLERS.fetch_sub(1, Ordering::AcqRel);
        Held(Some(guard))
    }

    /// For a device.
    pub(crate) fn by_device() -> Held {
        for _ in 0..POLITENESS {
            if CALLERS.load(Ordering::Acquire) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        Held(Some(lock()))
    }

    /// Releases the lock until something changes, or the time has passed.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) {
        let Some(guard) = self.0.take() else { return };
        let guard = match limit {
            None => CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                CHANGED.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.0 = Some(guard);
    }

    /// Waits until `over`, or until the context of the device is broken.
    pub(crate) fn wait_until(&mut self, device: u32, over: impl Fn(&World) -> bool) -> Outcome {
        let generation = self.devices[device as usize].generation;
        loop {
            self.works(device)?;
            if self.devices[device as usize].generation != generation {
                return Err(Code::INVALID_CONTEXT);
            }
            if over(self) {
                return Ok(());
            }
            self.wait(None);
        }
    }

    /// Waits until all work enqueued on the device so far is done.
    pub(crate) fn wait_for_all(&mut self, device: u32) -> Outcome {
        let work = self.work_of(device);
        self.wait_until(device, |world| work.iter().all(|&place| world.is_over(place)))
    }

    /// Wakes all waiting threads after a change.
    pub(crate) fn changed(&self) {
        CHANGED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Held {
    type Target = World;

    fn deref(&self) -> &World {
        self.0.as_ref().expect("the lock is away only inside of `wait`")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut World {
        self.0.as_mut().expect("the lock is away only inside of `wait`")
    }
}

/// Whether this is the process that made the first call.
fn is_own_process() -> bool {
    *PROCESS.get_or_init(std::process::id) == std::process::id()
}

/// Executes one call, and returns the driver's code.
pub(crate) fn run(name: &'static str, body: impl FnOnce(&mut Held) -> Outcome) -> u32 {
    if !is_own_process() {
        return Code::NOT_INITIALIZED.0;
    }
    let mut world = Held::by_caller();
    let outcome = world.faults.count(name).inspect_err(|&code| break_current(&mut world, code));
    let outcome = outcome.and_then(|()| {
        let early = ["cuInit", "cuDriverGetVersion"].contains(&name);
        if !world.initialized && !early {
            return Err(Code::NOT_INITIALIZED);
        }
        let captures = world.streams.values_mut().filter_map(|stream| stream.capture.as_mut());
        capture::check(captures, name)?;
        body(&mut world)
    });
    outcome.err().map_or(0, |code| code.0)
}

/// Breaks the current context if no context survives the code.
fn break_current(world: &mut Held, code: Code) {
    if let (true, Ok(device)) = (code.is_sticky(), world.current_device()) {
        world.break_context(device, code);
        world.changed();
    }
}

/// The place of a result. The caller of a C function guarantees it.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    ///
    /// # Errors
    /// When the place is null.
    pub(crate) fn give(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: only callers of the exported functions make such values, and they guarantee what
        // the values point to.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes a result that the caller may not want.
    pub(crate) fn give_if_wanted(self, value: T) {
        if !self.0.is_null() {
            let _ = self.give(value);
        }
    }
}

/// Defines exported functions of the driver: each takes the lock, is counted, and may have a
/// planned fault.
macro_rules! driver_calls {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($world:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The duties of the driver's function of that name.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> u32 {
                $crate::call::run(stringify!($name), |$world| $body)
            }
        )*
    };
}

pub(crate) use driver_calls;
