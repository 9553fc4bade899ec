//! The fake as tests of Rust use it: found, loaded, and told what to do, without unsafe code.
//!
//! A test program has the fake twice: as the shared library that `crates/cuda` loads, which is
//! the one that counts, and linked, of which only this file is used.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libloading::{Library, Symbol};

/// The variable that tells `crates/cuda` which driver to load.
const VARIABLE: &str = "UNSPOOL_CUDA_DRIVER";
/// The one that tells it which compiler: the fake is that too.
const COMPILER: &str = "UNSPOOL_NVRTC";
/// The folder above that of compiled kernels: what the fake compiles is for nobody else.
const CACHE: &str = "XDG_CACHE_HOME";

/// The file name of the fake.
pub const LIBRARY: &str =
    if cfg!(target_os = "macos") { "libunspool_fakecuda.dylib" } else { "libunspool_fakecuda.so" };

/// The longest wait for what a test has left under way.
const PATIENCE: Duration = Duration::from_secs(10);

static LOADED: OnceLock<Library> = OnceLock::new();
static TURN: Mutex<()> = Mutex::new(());

/// The fake driver of this process, for one test at a time: another test waits for this value to
/// be dropped. Settings and faults are those of the environment again when it is made.
#[derive(Debug)]
pub struct Fake {
    driver: &'static Library,
    _turn: MutexGuard<'static, ()>,
}

/// The library beside the running program, or in the folder above it.
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
    // SAFETY: the fake has no initialisers; and the variables are set before the driver is looked
    // for, by the standard library, whose lock every reader of this process takes.
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
        // What a test has broken or stopped must not stop what ends after it, and what it has left
        // under way must not reach into the next one.
        self.reset();
        let begin = Instant::now();
        while self.count("pending") > 0 && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
}

impl Fake {
    /// Makes the fake the driver of this process, and waits until no other test uses it. To be
    /// called before the driver is loaded for the first time.
    ///
    /// # Panics
    /// When the library has not been built.
    #[must_use]
    pub fn start() -> Fake {
        Fake::start_with(&[])
    }

    /// The same with settings of the environment, such as `FAKECUDA_DEVICES`; those of the first
    /// call of the process count.
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

    /// Forgets faults, held devices, broken contexts and memory that was taken.
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

    /// Which of the possible orders the devices take from now on.
    pub fn seed(&self, seed: u64) {
        self.set("seed", seed);
    }

    /// The pace of the devices: what an operation waits before it begins, on average, and bytes a
    /// second of one copy, 0 for no limit.
    pub fn pace(&self, latency: Duration, bandwidth: u64) {
        self.set("latency_us", latency.as_micros() as u64);
        self.set("bandwidth", bandwidth);
    }

    /// Copies between the device and main memory move so many bytes a second; 0: as all others.
    pub fn link(&self, bandwidth: u64) {
        self.set("link", bandwidth);
    }

    /// The version that the fake's nvCOMP tells, such as 5300 for 5.3.0.
    pub fn nvcomp(&self, version: u64) {
        self.set("nvcomp", version);
    }

    /// Bytes of memory of each device.
    pub fn memory(&self, bytes: u64) {
        self.set("memory", bytes);
    }

    /// How long its compiler takes for a text, in milliseconds.
    pub fn compile_ms(&self, time: u64) {
        self.set("compile_ms", time);
    }

    /// From now until another fake is started compiled kernels are kept in `folder`.
    pub fn cache_in(&self, folder: &Path) {
        // SAFETY: by the standard library, whose lock every reader of this process takes.
        unsafe { std::env::set_var(CACHE, folder) };
    }

    /// Stops all devices until [`release`](Self::release).
    pub fn hold(&self) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn()>("fakecuda_hold")() };
    }

    /// Stops one stream, by its handle, until [`release`](Self::release). For handles of the
    /// default streams a context has to be current.
    pub fn hold_stream(&self, handle: usize) -> bool {
        // SAFETY: as above.
        unsafe {
            self.function::<extern "C" fn(u64) -> u32>("fakecuda_hold_stream")(handle as u64) == 0
        }
    }

    /// Lets all devices and streams go on.
    pub fn release(&self) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn()>("fakecuda_release")() };
    }

    /// The `nth` call of `name` from now on (0: every one) fails with `code`; with the code 0 it
    /// does nothing and says that it succeeded. `execute` stands for an operation of a device,
    /// whose failure breaks the context.
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

    /// Takes device memory away, as another process would; 0 gives it back.
    pub fn take(&self, device: u32, bytes: u64) {
        // SAFETY: as above.
        unsafe { self.function::<extern "C" fn(u32, u64) -> u32>("fakecuda_take")(device, bytes) };
    }

    /// Breaks the context of a device for good.
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

    /// How many there are of something, such as `pending`, `streams` or `blocks`; the whole list
    /// is at [`fakecuda_count`](crate::control::fakecuda_count).
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.number("fakecuda_count", name)
    }

    /// What is in device memory at this moment, past all streams; `None` when it may not be used.
    #[must_use]
    pub fn peek(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        type Peek = extern "C" fn(*mut u8, u64, u64) -> u32;
        // SAFETY: as above; the vector has the room, and the fake checks the rest.
        let code =
            unsafe { self.function::<Peek>("fakecuda_peek")(bytes.as_mut_ptr(), address, len) };
        (code == 0).then_some(bytes)
    }

    /// Writes device memory at once, past all streams; false when it may not be used.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> bool {
        type Poke = extern "C" fn(u64, *const u8, u64) -> u32;
        let len = bytes.len() as u64;
        // SAFETY: as above.
        unsafe { self.function::<Poke>("fakecuda_poke")(address, bytes.as_ptr(), len) == 0 }
    }
}
