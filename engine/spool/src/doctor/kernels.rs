//! The kernels that came with the library, and the devices that they do not run on.

use std::fmt::Write as _;

use unspool_cuda::Arch;
use unspool_cuda::kernels::{Fit, Pack, shipped};

use super::cuda::Cuda;

/// The kernels that came with the library.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kernels {
    /// What they are for, in words.
    pub sentence: String,
    /// The numbers of the devices whose kernels the compiler has to make, when they are first
    /// needed.
    pub compiled_on: Vec<u32>,
}

pub(super) fn look(cuda: &Cuda) -> Kernels {
    of(shipped(), cuda.devices.iter().map(|one| (one.info.ordinal, Arch::of(&one.info))))
}

fn of(pack: Option<&Pack>, devices: impl IntoIterator<Item = (u32, Arch)>) -> Kernels {
    let fits = |arch| pack.is_some_and(|pack| pack.fit(arch) != Fit::No);
    let others = devices.into_iter().filter(|&(_, arch)| !fits(arch));
    let compiled_on = others.map(|(ordinal, _)| ordinal).collect();
    Kernels { sentence: pack.map_or_else(none, sentence), compiled_on }
}

fn none() -> String {
    "none came with this build: NVRTC compiles them when they are first needed".to_owned()
}

fn sentence(pack: &Pack) -> String {
    let archs: Vec<String> = pack.archs().iter().map(Arch::to_string).collect();
    let (major, minor) = pack.compiler();
    let mut text = format!("compiled for {} by CUDA {major}.{minor}", archs.join(", "));
    if let Some(first) = pack.first_ptx() {
        let _ = write!(text, "; PTX from {first} on");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use unspool_cuda::kernels::{Image, Key, NewImage, Target};

    use super::*;

    fn pack() -> Pack {
        let made = |target, bytes: &[u8]| {
            let image = Image::from_bytes(bytes.to_vec()).unwrap();
            NewImage { key: Key::of("a text"), target, image }
        };
        let code = |major| made(Target::Code(Arch::new(major, 0)), b"\x7fELF");
        let all = vec![code(8), code(9), made(Target::Ptx(Arch::new(10, 0)), b"//\0")];
        Pack::open(Cow::Owned(Pack::write((12, 9), &[all], 1).unwrap())).unwrap()
    }

    #[test]
    fn devices_that_nothing_was_shipped_for_are_named() {
        let devices = [(0, Arch::new(8, 9)), (1, Arch::new(7, 5)), (2, Arch::new(12, 1))];
        let found = of(Some(&pack()), devices);
        assert_eq!(found.compiled_on, [1]);
        let expected = "compiled for sm_80, sm_90 by CUDA 12.9; PTX from sm_100 on";
        assert_eq!(found.sentence, expected);
        let found = of(None, devices);
        assert_eq!(found.compiled_on, [0, 1, 2]);
        assert!(found.sentence.contains("NVRTC compiles them"));
    }
}
