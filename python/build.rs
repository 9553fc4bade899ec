//! Puts the pack of compiled kernels where the package embeds it: `kernels/kernels.pack`, which
//! `make kernels` writes. Without one the package has none, and compiles kernels when they are
//! first needed.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // The folder is always there: of a file that is not, a build would never be up to date.
    println!("cargo:rerun-if-changed=kernels");
    let pack = match fs::read("kernels/kernels.pack") {
        Ok(pack) => pack,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join("kernels.pack"), pack)
}
