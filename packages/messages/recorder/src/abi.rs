//! How the MPI of the process passes handles, and its constants. Open MPI and the standard ABI of
//! MPI 5 have pointers, MPICH and its kin numbers of 32 bits, of which a register may have anything
//! above.

use std::ffi::c_void;

use crate::real::{find_variable, library_of};

/// A handle as it is passed in a register.
pub(crate) type Handle = usize;

/// Whose handles they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abi {
    OpenMpi { world: Handle, null: Handle, no_type: Handle, byte: Handle, no_request: Handle },
    Mpich,
    Standard,
}

/// The kinds of topologies that have neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topology {
    Cartesian,
    Graph,
    Distributed,
}

impl Abi {
    /// That of the MPI that has this function.
    pub(crate) fn of(function: *mut c_void) -> Abi {
        if library_of(function).starts_with(b"libmpi_abi") {
            return Abi::Standard;
        }
        let names = [
            c"ompi_mpi_comm_world",
            c"ompi_mpi_comm_null",
            c"ompi_mpi_datatype_null",
            c"ompi_mpi_byte",
            c"ompi_request_null",
        ];
        let found = names.map(|name| find_variable(name) as Handle);
        let [world, null, no_type, byte, no_request] = found;
        match world {
            0 => Abi::Mpich,
            _ => Abi::OpenMpi { world, null, no_type, byte, no_request },
        }
    }

    /// The handle that a register has.
    pub(crate) fn handle(self, register: usize) -> Handle {
        if self == Abi::Mpich { register & 0xffff_ffff } else { register }
    }

    /// The handle at an address.
    ///
    /// # Safety
    /// There is one.
    pub(crate) unsafe fn handle_at(self, address: usize) -> Handle {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Abi::Mpich => (address as *const u32).read_unaligned() as Handle,
                _ => (address as *const Handle).read_unaligned(),
            }
        }
    }

    /// Writes a handle to an address.
    ///
    /// # Safety
    /// There is room for one.
    pub(crate) unsafe fn put_handle(self, address: usize, handle: Handle) {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Abi::Mpich => (address as *mut u32).write_unaligned(handle as u32),
                _ => (address as *mut Handle).write_unaligned(handle),
            }
        }
    }

    /// `MPI_PROC_NULL`.
    pub(crate) fn no_rank(self) -> i32 {
        match self {
            Abi::OpenMpi { .. } => -2,
            Abi::Mpich => -1,
            Abi::Standard => -3,
        }
    }

    /// Bytes of a handle in memory.
    pub(crate) fn handle_bytes(self) -> usize {
        if self == Abi::Mpich { 4 } else { 8 }
    }

    /// `MPI_COMM_WORLD`.
    pub(crate) fn world(self) -> Handle {
        match self {
            Abi::OpenMpi { world, .. } => world,
            Abi::Mpich => 0x4400_0000,
            Abi::Standard => 0x101,
        }
    }

    /// `MPI_COMM_NULL`.
    pub(crate) fn null_comm(self) -> Handle {
        match self {
            Abi::OpenMpi { null, .. } => null,
            Abi::Mpich => 0x0400_0000,
            Abi::Standard => 0x100,
        }
    }

    /// `MPI_DATATYPE_NULL`.
    pub(crate) fn null_type(self) -> Handle {
        match self {
            Abi::OpenMpi { no_type, .. } => no_type,
            Abi::Mpich => 0x0c00_0000,
            Abi::Standard => 0x200,
        }
    }

    /// `MPI_BYTE`.
    pub(crate) fn byte(self) -> Handle {
        match self {
            Abi::OpenMpi { byte, .. } => byte,
            Abi::Mpich => 0x4c00_010d,
            Abi::Standard => 0x247,
        }
    }

    /// `MPI_REQUEST_NULL`.
    pub(crate) fn null_request(self) -> Handle {
        match self {
            Abi::OpenMpi { no_request, .. } => no_request,
            Abi::Mpich => 0x2c00_0000,
            Abi::Standard => 0x180,
        }
    }

    /// Bytes of a status.
    pub(crate) fn status_bytes(self) -> usize {
        match self {
            Abi::OpenMpi { .. } => 24,
            Abi::Mpich => 20,
            Abi::Standard => 32,
        }
    }

    /// Where source, tag and error are in a status.
    pub(crate) fn status_at(self) -> [usize; 3] {
        if self == Abi::Mpich { [8, 12, 16] } else { [0, 4, 8] }
    }

    /// `MPI_STATUS_IGNORE`, and `MPI_STATUSES_IGNORE`.
    pub(crate) fn no_status(self) -> usize {
        usize::from(self == Abi::Mpich)
    }

    /// `MPI_ERR_TRUNCATE`, and `MPI_ERR_IN_STATUS`.
    pub(crate) fn errors(self) -> [i32; 2] {
        match self {
            Abi::OpenMpi { .. } => [15, 18],
            Abi::Mpich => [14, 17],
            Abi::Standard => [15, 19],
        }
    }

    /// `MPI_IN_PLACE`.
    pub(crate) fn in_place(self) -> usize {
        if self == Abi::Mpich { usize::MAX } else { 1 }
    }

    /// `MPI_ANY_SOURCE`.
    pub(crate) fn any_source(self) -> i32 {
        if self == Abi::Mpich { -2 } else { -1 }
    }

    /// What `MPI_Topo_test` has said.
    pub(crate) fn topology(self, code: i32) -> Option<Topology> {
        let codes = match self {
            Abi::OpenMpi { .. } => [1, 2, 3],
            Abi::Mpich => [2, 1, 3],
            Abi::Standard => [211, 212, 213],
        };
        let kinds = [Topology::Cartesian, Topology::Graph, Topology::Distributed];
        codes.iter().position(|known| *known == code).map(|place| kinds[place])
    }
}
