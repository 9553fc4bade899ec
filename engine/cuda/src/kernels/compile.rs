//! The compiler NVRTC, found and loaded at run time. It needs no driver and no device.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use crate::error::{DeviceError, DeviceErrorKind};
use crate::kernels::cache::Cache;
use crate::kernels::find;
use crate::kernels::image::{Image, Key, Target};

type Program = *mut c_void;

/// The functions of the library, with their signatures from nvrtc.h.
struct Calls {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
}

/// The compiler for kernels. The library stays loaded to the end of the process: its own threads
/// and state do not survive unloading.
pub struct Nvrtc {
    calls: Calls,
    version: (i32, i32),
    path: PathBuf,
    _library: ManuallyDrop<libloading::Library>,
}

impl Nvrtc {
    /// Finds the compiler: by the environment variable `UNSPOOL_NVRTC` (the library or its folder),
    /// else in `folders`, such as Python's `sys.path`, else where the system, the toolkit and
    /// NVIDIA's Python packages install it.
    ///
    /// # Errors
    /// When it is not found; the text says what to install.
    pub fn find_in(folders: &[PathBuf]) -> Result<Nvrtc, DeviceError> {
        let candidates = find::candidates(|name| env::var_os(name), folders);
        let mut reason = None;
        for path in &candidates {
            match Nvrtc::load(path) {
                Ok(nvrtc) => return Ok(nvrtc),
                Err(error) => reason = Some(format!("{}: {error}", path.display())),
            }
        }
        let message = "NVRTC, the compiler for kernels, was not found";
        let message = match reason {
            Some(last) => format!("{message} (tried {} places, last {last})", candidates.len()),
            None => message.to_owned(),
        };
        Err(DeviceError::new(DeviceErrorKind::Missing, message).with_advice(format!(
            "Install it (pip install nvidia-cuda-nvrtc), or name the library in {}.",
            find::VARIABLE
        )))
    }

    fn load(path: &Path) -> Result<Nvrtc, libloading::Error> {
        // SAFETY: the library's initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(path) }?;
        type VersionFn = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: the signatures are those of nvrtc.h, the same in all versions.
        let (calls, version) = unsafe {
            let calls = Calls {
                create: *library.get(b"nvrtcCreateProgram")?,
                compile: *library.get(b"nvrtcCompileProgram")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize")?,
                cubin: *library.get(b"nvrtcGetCUBIN")?,
                ptx_size: *library.get(b"nvrtcGetPTXSize")?,
                ptx: *library.get(b"nvrtcGetPTX")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize")?,
                log: *library.get(b"nvrtcGetProgramLog")?,
                destroy: *library.get(b"nvrtcDestroyProgram")?,
            };
            (calls, *library.get::<VersionFn>(b"nvrtcVersion")?)
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: valid places; on an error they stay 0.
        unsafe { version(&raw mut major, &raw mut minor) };
        let _library = ManuallyDrop::new(library);
        Ok(Nvrtc { calls, version: (major, minor), path: path.to_owned(), _library })
    }

    /// The version of CUDA that it belongs to.
    #[must_use]
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// The path that it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles `source`, or takes it from `cache`. `name` is used in the compiler's messages.
    ///
    /// # Errors
    /// When it does not compile: the text holds the compiler's log.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        target: Target,
        cache: Option<&Cache>,
    ) -> Result<Image, DeviceError> {
        let key = Key::of(source);
        if let Some(found) = cache.and_then(|cache| cache.get(key, target, self.version)) {
            return Ok(found);
        }
        let program = self.compiled(name, source, target)?;
        let bytes = match target {
            Target::Code(_) => program.text(self.calls.cubin_size, self.calls.cubin),
            Target::Ptx(_) => program.text(self.calls.ptx_size, self.calls.ptx),
        };
        let image =
            Image::from_bytes(bytes).ok_or_else(|| failed(name, "NVRTC gave no kernels"))?;
        if let Some(cache) = cache {
            cache.put(key, target, self.version, &image);
        }
        Ok(image)
    }

    fn compiled(
        &self,
        name: &str,
        source: &str,
        target: Target,
    ) -> Result<OpenProgram<'_>, DeviceError> {
        let text =
            |text: &str| CString::new(text).map_err(|_| failed(name, "its text holds a zero byte"));
        let (source, title) = (text(source)?, text(name)?);
        // No fused multiply-add, as on the host: the encoded streams have to be equal.
        let of_target = format!("--gpu-architecture={target}");
        let options = [text(&of_target)?, text("--std=c++17")?, text("--fmad=false")?];
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let program = OpenProgram::new(&self.calls, &source, &title)
            .ok_or_else(|| failed(name, "NVRTC takes no program"))?;
        // SAFETY: a program that lives and a list of this many strings.
        let code = unsafe {
            (self.calls.compile)(program.handle, options.len() as c_int, options.as_ptr())
        };
        if code != 0 {
            let log = program.text(self.calls.log_size, self.calls.log);
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches(['\0', '\n']);
            return Err(failed(name, &format!("NVRTC error {code} for {target}: {log}")));
        }
        Ok(program)
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {}.{} at {}", self.version.0, self.version.1, self.path.display())
    }
}

fn failed(name: &str, why: &str) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::Kernel,
        format!("the kernels of {name} do not compile: {why}"),
    )
}

/// A program, destroyed when dropped.
struct OpenProgram<'a> {
    calls: &'a Calls,
    handle: Program,
}

impl OpenProgram<'_> {
    fn new<'a>(calls: &'a Calls, source: &CString, name: &CString) -> Option<OpenProgram<'a>> {
        let (mut handle, none) = (ptr::null_mut(), ptr::null());
        // SAFETY: strings that live for the call, which copies them; no headers.
        let code = unsafe {
            (calls.create)(&raw mut handle, source.as_ptr(), name.as_ptr(), 0, none, none)
        };
        (code == 0).then_some(OpenProgram { calls, handle })
    }

    /// The text that a pair of calls for its size and its bytes returns; empty on an error.
    fn text(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Vec<u8> {
        let mut len = 0;
        // SAFETY: a program that lives, a valid place.
        if unsafe { size(self.handle, &raw mut len) } != 0 {
            return Vec::new();
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: room for the size that the first call returned.
        match unsafe { get(self.handle, bytes.as_mut_ptr().cast()) } {
            0 => bytes,
            _ => Vec::new(),
        }
    }
}

impl Drop for OpenProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: owned by this value, not used after this.
        unsafe { (self.calls.destroy)(&raw mut self.handle) };
    }
}
