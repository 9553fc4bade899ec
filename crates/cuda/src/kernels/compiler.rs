//! The compiler of one context: looked for once, when kernels are first needed.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::context::Context;
use crate::error::DeviceError;
use crate::kernels::cache::Cache;
use crate::kernels::compile::{Arch, Nvrtc};
use crate::kernels::module::Module;

/// See the module.
#[derive(Debug)]
pub struct Compiler {
    context: Context,
    folders: Vec<PathBuf>,
    found: OnceLock<Result<Nvrtc, DeviceError>>,
}

impl Compiler {
    /// `folders` are looked into first, such as Python's `sys.path`.
    pub fn new(context: &Context, folders: Vec<PathBuf>) -> Compiler {
        Compiler { context: context.clone(), folders, found: OnceLock::new() }
    }

    /// Compiles `source`, or takes it from the user's cache, and loads it.
    pub fn make(&self, name: &str, source: &str) -> Result<Module, DeviceError> {
        Module::compile(&self.context, self.nvrtc()?, name, source)
    }

    /// The same from the user's cache only.
    pub fn load_cached(&self, source: &str) -> Option<Module> {
        let arch = Arch::of(self.context.device()).to_string();
        let key = Cache::key(source, &arch, self.nvrtc().ok()?.version());
        Module::load(&self.context, &Cache::of_user()?.get(key)?).ok()
    }

    fn nvrtc(&self) -> Result<&Nvrtc, DeviceError> {
        let found = self.found.get_or_init(|| Nvrtc::find_in(&self.folders));
        found.as_ref().map_err(DeviceError::clone)
    }
}
