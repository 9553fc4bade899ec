//! Listens to the messages of an MPI program that it is preloaded into, and writes what it counts
//! to a part file for each rank; or codes them by a plan (module `coding`). `unspool-messages
//! record` and `run` set it up.
//!
//! What holds throughout where it listens:
//! - A call is passed on with the arguments and to the function that it would have reached, and its
//!   result is given back. Nothing is sent, and no collective call is made: a rank without this
//!   library among ranks with it is not noticed.
//! - It is one library for Open MPI, MPICH and its kin, and the standard ABI of MPI 5, whichever is
//!   in the process, also one that a program has loaded for itself. Wrappers of functions that this
//!   MPI lacks are hidden (module `audit`).
//! - What goes wrong here ends the recording and not the program. No panic crosses the border.
//! - All arguments of MPI that are listened to are integers, pointers or handles, which fit a
//!   register or a slot of the stack each: wrappers pass them on without knowing their types.

mod abi;
mod args;
mod around;
mod arrays;
mod audit;
mod coding;
mod comms;
mod datatypes;
mod device;
mod file;
#[path = "../../../../engine/codec/hidden.rs"]
mod hidden;
mod missing;
mod mpi;
mod real;
mod recorder;
mod requests;
mod waits;

/// The wrappers, made of the table of calls by the build script.
#[allow(
    non_snake_case,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    unused_variables,
    clippy::missing_safety_doc,
    clippy::missing_transmute_annotations,
    clippy::too_many_arguments,
    clippy::undocumented_unsafe_blocks
)]
mod wrappers {
    use std::ffi::{CStr, c_int};

    use crate::args::{Form, Module};
    use crate::around::around;
    use crate::arrays::address_of;
    use crate::missing::missing;
    use crate::real::Real;

    include!(concat!(env!("OUT_DIR"), "/wrappers.rs"));
}
