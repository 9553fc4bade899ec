//! The compiler for kernels.

use std::path::PathBuf;

use unspool_cuda::Nvrtc as Compiler;

use super::Checkup;
use super::bounded;
use super::system::System;

/// The compiler for kernels, NVRTC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nvrtc {
    /// Where it is.
    pub path: Option<PathBuf>,
    /// The version of CUDA that it belongs to.
    pub version: Option<(u32, u32)>,
    /// Why there is none, with a remedy.
    pub problem: Option<String>,
}

pub(super) fn look(checkup: &Checkup) -> Nvrtc {
    let folders = checkup.nvrtc_folders.clone();
    let (mut found, problem) = bounded::within(checkup.limit, Nvrtc::default(), move |report| {
        report.begins("loading NVRTC");
        let answer = Compiler::find_in(&folders);
        report.note(|nvrtc| match &answer {
            Ok(compiler) => *nvrtc = describe(compiler),
            Err(error) => nvrtc.problem = Some(error.to_string()),
        });
    });
    found.problem = found.problem.or(problem);
    found
}

fn describe(compiler: &Compiler) -> Nvrtc {
    let (major, minor) = compiler.version();
    // It may have been found by its name alone; the system knows where that was.
    let path = match compiler.path() {
        path if path.is_absolute() => Some(path.to_owned()),
        _ => System::here().loaded("libnvrtc.so"),
    };
    Nvrtc { path, version: Some((major.unsigned_abs(), minor.unsigned_abs())), problem: None }
}
