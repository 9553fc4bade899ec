//! The kernels as they are compiled: one text, in variants for narrow and wide values and for the
//! warps of a tile, each compiled when it is first needed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::context::Context;
use crate::error::DeviceError;
use crate::kernels::{Module, Nvrtc};

macro_rules! variant {
    ($wide:literal, $warps:literal, $file:literal) => {
        concat!(
            "#define WIDE ",
            $wide,
            "\n#define WARPS ",
            $warps,
            "\n",
            include_str!("../../kernels/twine.cuh"),
            include_str!(concat!("../../kernels/", $file))
        )
    };
}

/// A text and what its kernel is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) file: &'static str,
    pub(super) kernel: &'static str,
    pub(crate) text: &'static str,
    wide: bool,
    warps: u32,
}

macro_rules! variants {
    ($($kernel:literal $file:literal $wide:literal $warps:literal,)*) => {
        pub(crate) const VARIANTS: &[Variant] = &[$(Variant {
            file: concat!($kernel, " of ", $file, " (wide ", $wide, ", warps ", $warps, ")"),
            kernel: $kernel,
            text: variant!($wide, $warps, $file),
            wide: $wide != 0,
            warps: $warps,
        },)*];

        /// Every text by name, for tests that compile them all.
        pub(crate) const SOURCES: &[(&str, &str)] = &[$((
            concat!("twine ", $kernel, " ", $wide, " ", $warps),
            variant!($wide, $warps, $file),
        ),)*];
    };
}

variants! {
    "twine_encode" "twine_encode.cu" 0 2,
    "twine_encode" "twine_encode.cu" 0 4,
    "twine_encode" "twine_encode.cu" 0 8,
    "twine_encode" "twine_encode.cu" 1 2,
    "twine_encode" "twine_encode.cu" 1 4,
    "twine_reduce" "twine_reduce.cu" 0 8,
    "twine_decode" "twine_decode.cu" 0 4,
    "twine_decode" "twine_decode.cu" 1 4,
}

/// Warps of a tile of the decoder, and threads of a block of the launch that computes bounds.
pub(super) const DECODE_WARPS: u32 = 4;
pub(super) const REDUCE_THREADS: u32 = 256;

/// The kernels of one context, as far as they were needed.
#[derive(Debug)]
pub(super) struct Modules {
    context: Context,
    folders: Vec<PathBuf>,
    loaded: Mutex<Vec<(usize, Arc<Module>)>>,
}

impl Modules {
    pub(super) fn new(context: &Context, folders: Vec<PathBuf>) -> Modules {
        Modules { context: context.clone(), folders, loaded: Mutex::default() }
    }

    /// The module of a kernel for these values and warps; the narrow one has fewer registers, the
    /// wide one takes all values.
    pub(super) fn get(
        &self,
        kernel: &str,
        wide: bool,
        warps: u32,
    ) -> Result<(Arc<Module>, &'static str), DeviceError> {
        let is_it = |v: &Variant| v.kernel == kernel && v.wide == wide && v.warps == warps;
        let index = VARIANTS.iter().position(is_it);
        let index = index.ok_or_else(|| super::plan::invalid("there is no such kernel"))?;
        // Held while it compiles: whoever else needs it waits instead of compiling it as well.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loaded.iter().find(|(number, _)| *number == index);
        if let Some((_, module)) = found {
            return Ok((Arc::clone(module), VARIANTS[index].kernel));
        }
        let variant = &VARIANTS[index];
        let nvrtc = Nvrtc::find_in(&self.folders)?;
        let module = Module::compile(&self.context, &nvrtc, variant.file, variant.text)?;
        let module = Arc::new(module);
        loaded.push((index, Arc::clone(&module)));
        Ok((module, variant.kernel))
    }

    /// Compiles and loads what most launches need.
    pub(super) fn prepare(&self, wide: bool) -> Result<(), DeviceError> {
        let mut all = VARIANTS.iter().filter(|variant| variant.wide == wide || variant.warps == 8);
        all.try_for_each(|v| self.get(v.kernel, v.wide, v.warps).map(drop))
    }
}
