//! The kernels of one context: each module is loaded when it is first needed, and stays loaded.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::DeviceError;
use crate::kernels::cache::Cache;
use crate::kernels::compile::Nvrtc;
use crate::kernels::image::{Arch, Key, Target};
use crate::kernels::module::Module;
use crate::kernels::pack::shipped;

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long this thread has waited for kernels to be loaded or compiled since its last call of this
/// function.
#[must_use]
pub fn take_waited() -> Duration {
    WAITED.take()
}

/// Modules by a key of the user's. Shipped kernels take milliseconds to load; only a device that
/// none were shipped for waits for the compiler.
#[derive(Debug)]
pub struct Kernels<K> {
    context: Context,
    folders: Vec<PathBuf>,
    /// Found when it is first needed.
    compiler: OnceLock<Result<Nvrtc, DeviceError>>,
    kept: Mutex<Vec<(K, Arc<Module>)>>,
}

impl<K: PartialEq> Kernels<K> {
    /// An empty set. The compiler is searched for in `folders` first, such as Python's `sys.path`.
    #[must_use]
    pub fn new(context: &Context, folders: Vec<PathBuf>) -> Kernels<K> {
        let (compiler, kept) = (OnceLock::new(), Mutex::default());
        Kernels { context: context.clone(), folders, compiler, kept }
    }

    /// The module of `key`, made from `text` on the first request; `name` is used in messages.
    /// Concurrent requests wait for it.
    ///
    /// # Errors
    /// When no kernels were shipped for the device and no compiler is found, or the text does not
    /// compile.
    pub fn get<T: AsRef<str>>(
        &self,
        key: K,
        name: &str,
        text: impl FnOnce() -> T,
    ) -> Result<Arc<Module>, DeviceError> {
        let began = Instant::now();
        let mut kept = self.kept();
        if let Some(module) = among(&kept, &key) {
            return Ok(module);
        }
        let loaded = self.load(name, text().as_ref());
        WAITED.set(WAITED.get() + began.elapsed());
        let module = Arc::new(loaded?);
        kept.push((key, Arc::clone(&module)));
        Ok(module)
    }

    fn load(&self, name: &str, text: &str) -> Result<Module, DeviceError> {
        let arch = Arch::of(self.context.device());
        let Some(image) = shipped().and_then(|pack| pack.image(Key::of(text), arch)) else {
            return self.compile(name, text);
        };
        // A driver that is older than the shipped kernels may load those of the installed compiler.
        Module::load(&self.context, &image)
            .or_else(|refused| self.compile(name, text).map_err(|_| refused))
    }

    fn compile(&self, name: &str, text: &str) -> Result<Module, DeviceError> {
        let found = self.compiler.get_or_init(|| Nvrtc::find_in(&self.folders));
        let nvrtc = found.as_ref().map_err(DeviceError::clone)?;
        let target = Target::Code(Arch::of(self.context.device()));
        Module::load(&self.context, &nvrtc.compile(name, text, target, Cache::of_user().as_ref())?)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(K, Arc<Module>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn among<K: PartialEq>(kept: &[(K, Arc<Module>)], key: &K) -> Option<Arc<Module>> {
    kept.iter().find(|(other, _)| other == key).map(|(_, module)| Arc::clone(module))
}
