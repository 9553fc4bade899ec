//! The functions of MPI that carry messages, past the wrappers, and what a status says.

use std::ffi::{c_int, c_void};

use crate::abi::{Abi, Handle};
use crate::real::find;

type Isend =
    unsafe extern "C" fn(*const c_void, i64, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Irecv =
    unsafe extern "C" fn(*mut c_void, i64, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;

macro_rules! functions {
    ($($field:ident $name:literal ($($arg:ty),*);)*) => {
        /// What this MPI has.
        #[derive(Clone, Copy)]
        pub(super) struct Calls {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            /// The forms with counts of 64 bits of `isend` and `irecv`, where it has them.
            pub(super) isend_large: Option<Isend>,
            pub(super) irecv_large: Option<Irecv>,
        }

        impl Calls {
            /// The functions of the MPI that is in the process.
            ///
            /// # Errors
            /// The name of one that it does not have.
            pub(super) fn find() -> Result<Calls, String> {
                Ok(Calls {
                    $($field: {
                        let found = find($name);
                        if found.is_null() {
                            return Err($name.to_string_lossy().into_owned());
                        }
                        // SAFETY: the function of MPI with this name has this type.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) -> c_int,
                            >(found)
                        }
                    },)*
                    // SAFETY: the same.
                    isend_large: unsafe {
                        std::mem::transmute::<*mut c_void, Option<Isend>>(find(c"PMPI_Isend_c"))
                    },
                    // SAFETY: the same.
                    irecv_large: unsafe {
                        std::mem::transmute::<*mut c_void, Option<Irecv>>(find(c"PMPI_Irecv_c"))
                    },
                })
            }
        }
    };
}

functions! {
    isend c"PMPI_Isend"
        (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    issend c"PMPI_Issend"
        (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    irsend c"PMPI_Irsend"
        (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    irecv c"PMPI_Irecv"
        (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    wait c"PMPI_Wait" (*mut Handle, *mut u8);
    test c"PMPI_Test" (*mut Handle, *mut c_int, *mut u8);
    look c"PMPI_Request_get_status" (Handle, *mut c_int, *mut u8);
    get_count c"PMPI_Get_count" (*const u8, Handle, *mut c_int);
    set_elements c"PMPI_Status_set_elements" (*mut u8, Handle, c_int);
    test_cancelled c"PMPI_Test_cancelled" (*const u8, *mut c_int);
    call_errhandler c"PMPI_Comm_call_errhandler" (Handle, c_int);
    iallgather c"PMPI_Iallgather"
        (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle);
    abort c"PMPI_Abort" (Handle, c_int);
}

/// Room for the status of one request in any MPI.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Room([u64; 4]);

impl Room {
    pub(super) fn place(&mut self) -> *mut u8 {
        (&raw mut self.0).cast()
    }
}

/// A status that MPI has filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    abi: Abi,
    place: *mut u8,
}

impl Status {
    /// # Safety
    /// There is a status, for as long as this is used.
    pub(super) unsafe fn at(abi: Abi, place: *mut u8) -> Status {
        Status { abi, place }
    }

    pub(super) fn place(self) -> *mut u8 {
        self.place
    }

    fn field(self, which: usize) -> *mut c_int {
        // SAFETY: the field is in the status.
        unsafe { self.place.add(self.abi.status_at()[which]).cast() }
    }

    pub(super) fn source(self) -> c_int {
        // SAFETY: as who has made it says.
        unsafe { self.field(0).read_unaligned() }
    }

    pub(super) fn tag(self) -> c_int {
        // SAFETY: the same.
        unsafe { self.field(1).read_unaligned() }
    }

    pub(super) fn error(self) -> c_int {
        // SAFETY: the same.
        unsafe { self.field(2).read_unaligned() }
    }

    pub(super) fn set_error(self, error: c_int) {
        // SAFETY: the same.
        unsafe { self.field(2).write_unaligned(error) }
    }

    /// Bytes that have arrived; `None` when the request was cancelled.
    pub(super) fn bytes(self, calls: &Calls) -> Option<usize> {
        let (mut cancelled, mut count) = (0, 0);
        // SAFETY: a status of MPI, and room for the answers.
        let known = unsafe {
            (calls.test_cancelled)(self.place, &raw mut cancelled) == 0
                && cancelled == 0
                && (calls.get_count)(self.place, self.abi.byte(), &raw mut count) == 0
        };
        if known { usize::try_from(count).ok() } else { None }
    }

    /// Says how many bytes the program has received.
    pub(super) fn set_bytes(self, calls: &Calls, bytes: usize) {
        // What is longer than this is refused before it is sent.
        let count = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: a status of MPI.
        let _done = unsafe { (calls.set_elements)(self.place, self.abi.byte(), count) };
    }
}
