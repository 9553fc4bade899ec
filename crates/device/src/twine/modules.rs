//! The kernels as they are compiled: one text in variants, each compiled when it is first needed.
//! The general ones take all values of up to 32 or of 64 bits; where all arrays of a launch have
//! one form, a variant for that form alone is smaller and faster.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::context::Context;
use crate::error::DeviceError;
use crate::kernels::{Module, Nvrtc};

const COMMON: &str = include_str!("../../kernels/twine.cuh");
const ENCODE: &str = concat!(
    include_str!("../../kernels/twine_values.cuh"),
    include_str!("../../kernels/twine_pack.cuh"),
    include_str!("../../kernels/twine_quick.cuh"),
    include_str!("../../kernels/twine_chunk.cuh"),
    include_str!("../../kernels/twine_encode.cu"),
);
const REDUCE: &str = include_str!("../../kernels/twine_reduce.cu");
const DECODE: &str = include_str!("../../kernels/twine_decode.cu");

macro_rules! text {
    ($head:literal, $($file:literal),*) => {
        concat!(
            $head,
            include_str!("../../kernels/twine.cuh"),
            $(include_str!(concat!("../../kernels/", $file))),*
        )
    };
}

macro_rules! encode {
    ($head:literal) => {
        text!(
            $head,
            "twine_values.cuh",
            "twine_pack.cuh",
            "twine_quick.cuh",
            "twine_chunk.cuh",
            "twine_encode.cu"
        )
    };
}

/// Every general text by name, and some of those for one form, for tests that compile them all.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    ("twine_encode.cu, narrow", encode!("#define WIDE 0\n#define WARPS 4\n")),
    ("twine_encode.cu, wide", encode!("#define WIDE 1\n#define WARPS 2\n")),
    (
        "twine_encode.cu, float32 in two dimensions by steps",
        encode!("#define WIDE 0\n#define WARPS 8\n#define FORM 0x01020220u\n#define MODE 1\n"),
    ),
    ("twine_reduce.cu", text!("#define WIDE 0\n#define WARPS 8\n", "twine_reduce.cu")),
    ("twine_decode.cu, narrow", text!("#define WIDE 0\n#define WARPS 4\n", "twine_decode.cu")),
    ("twine_decode.cu, wide", text!("#define WIDE 1\n#define WARPS 4\n", "twine_decode.cu")),
];

/// What a kernel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kernel {
    Encode,
    Reduce,
    Decode,
}

impl Kernel {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kernel::Encode => "twine_encode",
            Kernel::Reduce => "twine_reduce",
            Kernel::Decode => "twine_decode",
        }
    }
}

/// What all arrays of a launch have in common: the form as `Cut` has it, and the mode of the format
/// for an encoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Special {
    pub(super) form: u32,
    pub(super) mode: Option<u32>,
}

/// One way to compile a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    pub(super) kernel: Kernel,
    /// Whether there are values of 64 bits.
    pub(super) wide: bool,
    /// Warps of a block.
    pub(super) warps: u32,
    /// Warps that a multiprocessor should hold: more of them hide more of what they wait for, and
    /// leave each fewer registers. Only for an encoder of narrow values of one form.
    pub(super) busy: Option<u32>,
    pub(super) special: Option<Special>,
}

/// Warps of a tile of the decoder, and threads of a block of the launch that computes bounds.
pub(super) const DECODE_WARPS: u32 = 4;
pub(super) const REDUCE_THREADS: u32 = 256;

impl Variant {
    /// Measured on an H100: with loss more warps gain more than the registers that are spilled for
    /// them cost; without, there is one way more to pack, and they do not.
    fn busy_warps(&self) -> Option<u32> {
        let mode = self.special.and_then(|special| special.mode);
        match (self.wide, mode) {
            (false, Some(1)) => Some(self.busy.unwrap_or(32)),
            (false, Some(0)) | (true, Some(1)) => Some(16),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let mut text =
            format!("#define WIDE {}\n#define WARPS {}\n", u32::from(self.wide), self.warps);
        if let Some(Special { form, mode }) = self.special {
            text += &format!("#define FORM {form:#x}u\n");
            text += &mode.map(|mode| format!("#define MODE {mode}\n")).unwrap_or_default();
            if let Some(busy) = self.busy_warps().filter(|_| self.kernel == Kernel::Encode) {
                text += &format!("#define LEAST_BLOCKS {}\n", busy / self.warps);
            }
        }
        text += COMMON;
        match self.kernel {
            Kernel::Encode => text + ENCODE,
            Kernel::Reduce => text + REDUCE,
            Kernel::Decode => text + DECODE,
        }
    }
}

/// The kernels of one context, as far as they were needed.
#[derive(Debug)]
pub(super) struct Modules {
    context: Context,
    folders: Vec<PathBuf>,
    loaded: Mutex<Vec<(Variant, Arc<Module>)>>,
}

impl Modules {
    pub(super) fn new(context: &Context, folders: Vec<PathBuf>) -> Modules {
        Modules { context: context.clone(), folders, loaded: Mutex::default() }
    }

    /// The module of a variant.
    pub(super) fn get(&self, variant: Variant) -> Result<Arc<Module>, DeviceError> {
        // Held while it compiles: whoever else needs it waits instead of compiling it as well.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, module)) = loaded.iter().find(|(other, _)| *other == variant) {
            return Ok(Arc::clone(module));
        }
        let nvrtc = Nvrtc::find_in(&self.folders)?;
        let name = variant.kernel.name();
        let module = Arc::new(Module::compile(&self.context, &nvrtc, name, &variant.text())?);
        loaded.push((variant, Arc::clone(&module)));
        Ok(module)
    }
}
