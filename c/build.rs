//! Gives the shared library its name for the loader, which has the version of the interface, and
//! puts the pack of compiled kernels where the library embeds it (`make kernels` writes it for all
//! bindings; without it kernels are compiled when they are needed).

use std::path::Path;
use std::{env, fs, io};

/// As `UNSPOOL_ABI` in the header; a test compares them.
const ABI: u32 = 2;

/// The folder is always there: of a file that is not, a build would never be up to date.
const KERNELS: &str = "../python/kernels";

fn main() -> io::Result<()> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libunspool.so.{ABI}");
    println!("cargo:rerun-if-changed={KERNELS}");
    let pack = match fs::read(Path::new(KERNELS).join("kernels.pack")) {
        Ok(pack) => pack,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join("kernels.pack"), pack)
}
