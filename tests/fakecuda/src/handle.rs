//! The interface of the fake for tests in Rust: it is found, loaded and controlled without unsafe
//! code.
//!
//! A test program contains the fake twice: as the shared library that `engine/cuda` loads, which
//! does the work, and linked, of which only this file is used.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libloading::{Library, Symbol};

/// The environment variable that names the driver for `engine/cuda`.
const VARIABLE: &str = "UNSPOOL_CUDA_DRIVER";
/// The environment variable that names the compiler, which the fake replaces too.
const COMPILER: &str = "UNSPOOL_NVRTC";
/// The environment variable of the folder with the cache of compiled kernels, so that kernels of
/// the fake stay apart.
const CACHE: &str = "XDG_CACHE_HOME";

/// The file name of the fake.
pub const LIBRARY: &str =
    if cfg!(target_os = "macos") { "libunspool_fakecuda.dylib" } else { "libunspool_fakecuda.so" };

/// Maximum wait for work that a test has left unfinished.
const PATIENCE: Duration = Duration::from_secs(10);

static LOADED: OnceLock<Library> = OnceLock::new();
static TURN: Mutex<()> = Mutex::new(());

/// The fake driver of this process, for one test at a time: another test waits until this value is
/// dropped. At its creation, settings and faults are reset to those of the environment.
#[derive(Debug)]
pub struct Fake {
    driver: &'static Library,
    _turn: MutexGuard<'static, ()>,
}

/// The library in the folder of the running program, or in the folder above it.
fn find() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return path.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let folders = program.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join(LIBRARY)).find(|path| path.exists()).unwrap_or_default()
}

/// Loads the library and makes it the driver of this process.
fn load(path: &Path, variables: &[(&str, &str)]) -> Library {
    // SAFETY: the fake has no initialisers; and the variables are set before the driver is searched
    // for, by the standard library, whose lock every reader in this process takes.
    unsafe {
        variables.iter().for_each(|(name, value)| std::env::set_var(name, value));
        std::env::set_var(VARIABLE, path);
        std::env::set_var(COMPILER, path);
        std::env::set_var(CACHE, path.with_extension("cache"));
        Library::new(path)
    }
    .unwrap_or_else(|error| {
        panic!("{LIBRARY} is not there: `cargo build -p unspool-fakecuda` makes it ({error})")
    })
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Broken or stopped devices must not block the teardown, and unfinished work must not reach
        // into the next test.
        self.reset();
        let begin = Instant::now();
        while self.count("pending") > 0 && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
}

impl Fake {
    /// Makes the fake the driver of this process, and waits until no other test uses it. It has to
    /// be called before the driver is loaded.
    ///
    /// # Panics
    /// When the library has not been built.
    #[must_use]
    pub fn start() -> Fake {
        Fake::start_with(&[])
    }

    /// As [`start`](Self::start), with settings of the environment, such as `FAKECUDA_DEVICES`;
    /// only those of the first call in the process have an effect.
    ///
    /// # Panics
    /// When the library has not been built.
    #[must_use]
    pub fn start_with(variables: &[(&str, &str)]) -> Fake {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let library = LOADED.get_or_init(|| load(&find(), variables));
        let fake = Fake { driver: library, _turn: turn };
        fake.cache_in(&find().with_extension("cache"));
        fake.reset();
        fake
    }

    /// The library itself, for tests that call the driver's functions.
    #[must_use]
    pub fn driver(&self) -> &'static Library {
        self.driver
    }

    /// # Safety
    /// `T` is the function's type.
    unsafe fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the caller's duty.
        unsafe { self.driver.get(name.as_bytes()) }.expect("a function of the fake")
    }

    /// Resets faults, held devices, broken contexts and memory that was taken away.
    pub fn reset(&self) {
        // SAFETY: the type is that of the function in `control.rs`, here and below.
        unsafe { self.function::<extern "C" fn()>("fakecuda_reset")() };
    }

    fn set(&self, name: &str, value: u64) {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: as above; the text lives during the call.
        unsafe {
            self.function::<extern "C" fn(*const c_char, u64) -> u32>("fakecuda_set")(
                name.as_ptr(),
                value,
            )
        };
    }

    /// Selects the order of operations that the devices use from now on.
    pub fn seed(&self, seed: u64) {
        self.set("seed", seed);
    }

    /// Sets the speed of the devices: average delay before an operation begins, and bytes per
    /// second of one copy, 0 for no limit.
    pub fn pace(&self, latency: Duration, bandwidth: u64) {
        self.set("latency_us", latency.as_micros() as u64);
        self.set("bandwidth", bandwidth);
    }

    /// Sets the bytes per second of copies between the device and main memory; 0 for the speed of
    /// other copies.
    pub fn link(&self, bandwidth: u64) {
        self.set("link", bandwidth);
    }

    /// Sets the reported version of the fake's nvCOMP, such as 5300 for 5.3.0.
    pub fn nvcomp(&self, version: u64) {
        self.set("nvcomp", version);
    }

    /// Sets the memory of each device in bytes.
    pub fn memory(&self, bytes: u64) {
        self.set("memory", bytes);
    }

    /// Sets the duration of a compilation in milliseconds.
    pub fn compile_ms(&self, time: u64) {
        self.set("compile_ms", time);
    }

    /// Keeps compiled kernels in `folder` until another fake is started.
    pub fn cache_in(&self, folder: &Path) {
        // SAFETY: by the standard library, whose lock every reader of this process takes.
        unsafe { std::env::set_var(CACHE, folder) };
    }

    /// Stops all devices until [`release`](Self::release).
    pub fn hold(&self) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn()>("fakecuda_hold")() };
    }

    /// Stops one stream, by its handle, until [`release`](Self::release). Handles of the default
    /// streams need a current context.
    pub fn hold_stream(&self, handle: usize) -> bool {
        // SAFETY: as above.
        unsafe {
            self.function::<extern "C" fn(u64) -> u32>("fakecuda_hold_stream")(handle as u64) == 0
        }
    }

    /// Continues all devices and streams.
    pub fn release(&self) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn()>("fakecuda_release")() };
    }

    /// Makes the `nth` call of `name` from now on (0: every one) fail with `code`; with code 0 it
    /// does nothing but returns success. `execute` stands for an operation of a device, whose
    /// failure breaks the context.
    pub fn fail(&self, name: &str, nth: u64, code: u32) {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: as above; the text lives during the call.
        unsafe {
            self.function::<extern "C" fn(*const c_char, u64, u32)>("fakecuda_fail")(
                name.as_ptr(),
                nth,
                code,
            );
        }
    }

    /// Takes device memory away, as another process would; 0 returns it.
    pub fn take(&self, device: u32, bytes: u64) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn(u32, u64) -> u32>("fakecuda_take")(device, bytes) };
    }

    /// Breaks the context of a device permanently.
    pub fn break_context(&self, device: u32, code: u32) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn(u32, u32) -> u32>("fakecuda_break")(device, code) };
    }

    fn number(&self, function: &str, name: &str) -> u64 {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: as above; the text lives during the call.
        unsafe { self.function::<extern "C" fn(*const c_char) -> u64>(function)(name.as_ptr()) }
    }

    /// Calls of `name` so far.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        self.number("fakecuda_calls", name)
    }

    /// A count, such as of `pending`, `streams` or `blocks`; the whole list is at
    /// [`fakecuda_count`](crate::control::fakecuda_count).
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.number("fakecuda_count", name)
    }

    /// The current content of device memory, bypassing streams; `None` when it is not usable.
    #[must_use]
    pub fn peek(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        type Peek = extern "C" fn(*mut u8, u64, u64) -> u32;
        // SAFETY: as above; the vector has the room, and the fake checks the rest.
        let code =
            unsafe { self.function::<Peek>("fakecuda_peek")(bytes.as_mut_ptr(), address, len) };
        (code == 0).then_some(bytes)
    }

    /// Writes device memory at once, bypassing streams; returns false when it is not usable.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> bool {
        type Poke = extern "C" fn(u64, *const u8, u64) -> u32;
        let len = bytes.len() as u64;
        // SAFETY: as above.
        unsafe { self.function::<Poke>("fakecuda_poke")(address, bytes.as_ptr(), len) == 0 }
    }
}
