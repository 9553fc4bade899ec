//! Every kernel compiles for every architecture that is supported. Needs NVRTC but no GPU.

#![allow(clippy::print_stdout)]

use unspool_cuda::kernels::{Cache, SOURCES};
use unspool_cuda::{Arch, DeviceErrorKind, Nvrtc};

/// NVRTC, or `None` with the reason printed where there is none. A machine that names one in
/// `UNSPOOL_NVRTC` means to have it, so there its absence is a failure.
fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::find() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(std::env::var_os("UNSPOOL_NVRTC").is_none(), "{error}");
            assert_eq!(error.kind(), DeviceErrorKind::Missing);
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    assert!(!SOURCES.is_empty());
    // Some take long, so the architectures are compiled for side by side.
    std::thread::scope(|scope| {
        for (major, minor) in [(8, 0), (9, 0), (10, 0)] {
            let nvrtc = &nvrtc;
            scope.spawn(move || {
                for (name, source) in SOURCES {
                    let cubin = nvrtc.compile(name, source, Arch::new(major, minor), None);
                    assert!(cubin.unwrap().bytes().len() > 1000, "{name} for sm_{major}{minor}");
                }
            });
        }
    });
}

#[test]
fn the_kernels_of_the_python_package_compile_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = format!("{root}/studies/python/unspool_studies/rtm/kernels");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap()).collect();
    assert!(!files.is_empty());
    for file in files {
        let (name, text) = (file.file_name(), std::fs::read_to_string(file.path()).unwrap());
        for (major, minor) in [(8, 0), (9, 0), (10, 0)] {
            let name = name.to_str().unwrap();
            let cubin = nvrtc.compile(name, &text, Arch::new(major, minor), None);
            assert!(cubin.unwrap().bytes().len() > 1000, "{name} for sm_{major}{minor}");
        }
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words() {
    let Some(nvrtc) = nvrtc() else { return };
    let error = nvrtc.compile("bad.cu", "__global__ void f() { nonsense; }", Arch::new(9, 0), None);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Kernel);
    assert!(error.to_string().contains("nonsense"), "{error}");
}

#[test]
fn a_compiled_kernel_comes_from_the_cache_the_second_time() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = std::env::temp_dir().join(format!("unspool-kernels-{}", std::process::id()));
    let (cache, arch, (name, source)) = (Cache::at(&folder), Arch::new(9, 0), SOURCES[0]);
    let first = nvrtc.compile(name, source, arch, Some(&cache)).unwrap();
    let kept = cache.get(Cache::key(source, &arch.to_string(), nvrtc.version()));
    let second = nvrtc.compile(name, source, arch, Some(&cache)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(kept.as_ref(), Some(&first));
    assert_eq!(first, second);
}
