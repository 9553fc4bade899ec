//! Calls of functions that this MPI does not have. Their wrappers are hidden where the loader hears
//! of this library by `LD_AUDIT`. In a process without that variable a program may find them, and
//! takes them for functions of MPI.

use std::ffi::{CStr, c_int};
use std::sync::Once;

use crate::abi::Abi;
use crate::file::tell;
use crate::mpi::Mpi;

/// Refuses such a call with an error of MPI, and says once what to do.
pub(crate) fn missing(name: &CStr) -> c_int {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tell(&format!(
            "this MPI has no {}, and the program takes the recorder's for it: LD_AUDIT is not set \
             here as the command has set it. With Open MPI on several machines, give mpirun `-x \
             LD_AUDIT` as well.",
            name.to_string_lossy()
        ));
    });
    let is_mpich = Mpi::running().is_some_and(|mpi| mpi.abi == Abi::Mpich);
    if is_mpich { OTHER_OF_MPICH } else { OTHER }
}

/// `MPI_ERR_OTHER`.
pub(crate) const OTHER: c_int = 16;
const OTHER_OF_MPICH: c_int = 15;
