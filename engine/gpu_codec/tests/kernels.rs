//! The texts of the kernels, and the compiler. Needs NVRTC but no GPU. The program that packs the
//! kernels (`examples/kernels.rs`) checks that each compiles for every supported architecture.

#![allow(clippy::print_stdout)]

use unspool_cuda::kernels::{Cache, KernelText, Key, Target};
use unspool_cuda::{Arch, DeviceErrorKind, Nvrtc};
use unspool_gpu_codec::sources;

/// NVRTC, or `None` with the reason printed. A machine that names one in `UNSPOOL_NVRTC` should
/// have it, so there its absence is a failure.
fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::find_in(&[]) {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(std::env::var_os("UNSPOOL_NVRTC").is_none(), "{error}");
            assert_eq!(error.kind(), DeviceErrorKind::Missing);
            println!("skipped: {error}");
            None
        }
    }
}

/// The text that compiles fastest.
fn short() -> KernelText {
    sources().into_iter().find(|source| source.name == "pattern.cu").expect("a text of crate cuda")
}

#[test]
fn every_text_is_there_once_and_holds_the_kernels_that_it_names() {
    let all = sources();
    for (index, source) in all.iter().enumerate() {
        let is_same = |other: &KernelText| other.text == source.text || other.name == source.name;
        assert!(!all[..index].iter().any(is_same), "{}", source.name);
        let of_family = |kernel: &&str| kernel.split('_').take(2).collect::<Vec<_>>().join("_");
        let is_there = |kernel: &&str| source.text.contains(&of_family(kernel));
        assert!(!source.kernels.is_empty() && source.kernels.iter().all(is_there));
    }
}

#[test]
fn the_kernels_of_the_studies_compile_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = format!("{root}/lab/studies/python/unspool_studies/rtm/kernels");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap()).collect();
    assert!(!files.is_empty());
    for file in files {
        let (name, text) = (file.file_name(), std::fs::read_to_string(file.path()).unwrap());
        for (major, minor) in [(8, 0), (9, 0), (10, 0)] {
            let name = name.to_str().unwrap();
            let cubin = nvrtc.compile(name, &text, Target::Code(Arch::new(major, minor)), None);
            assert!(cubin.unwrap().bytes().len() > 1000, "{name} for sm_{major}{minor}");
        }
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words() {
    let Some(nvrtc) = nvrtc() else { return };
    let target = Target::Code(Arch::new(9, 0));
    let error = nvrtc.compile("bad.cu", "__global__ void f() { nonsense; }", target, None);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Kernel);
    assert!(error.to_string().contains("nonsense"), "{error}");
}

#[test]
fn a_compiled_kernel_comes_from_the_cache_the_second_time() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap().keep();
    let (cache, target) = (Cache::at(&folder), Target::Code(Arch::new(9, 0)));
    let source = short();
    let compile = || nvrtc.compile(&source.name, &source.text, target, Some(&cache)).unwrap();
    let first = compile();
    let kept = cache.get(Key::of(&source.text), target, nvrtc.version());
    let second = compile();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(kept.as_ref(), Some(&first));
    assert_eq!(first, second);
}

#[test]
fn machine_code_and_ptx_have_the_kernels_of_their_text() {
    let Some(nvrtc) = nvrtc() else { return };
    let (source, arch) = (short(), Arch::new(10, 0));
    let image = |target| nvrtc.compile(&source.name, &source.text, target, None).unwrap();
    let (code, ptx) = (image(Target::Code(arch)), image(Target::Ptx(arch)));
    assert!(!code.is_ptx() && ptx.is_ptx());
    for image in [code, ptx] {
        assert!(source.kernels.iter().all(|kernel| image.has_kernel(kernel)), "{image:?}");
        assert!(!image.has_kernel("no_such_kernel"));
    }
}
