//! The functions of MPI that the listener itself calls. All of them are local: none waits for a
//! rank.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::abi::{Abi, Handle};
use crate::real::find;

macro_rules! functions {
    ($($field:ident $name:literal ($($arg:ty),*);)*) => {
        /// What this MPI has.
        pub(crate) struct Mpi {
            pub(crate) abi: Abi,
            $($field: Option<unsafe extern "C" fn($($arg),*) -> c_int>,)*
            comm_f2c: Option<unsafe extern "C" fn(c_int) -> Handle>,
            type_f2c: Option<unsafe extern "C" fn(c_int) -> Handle>,
        }

        impl Mpi {
            /// The MPI of the process, if it has one that has begun and has not ended.
            pub(crate) fn running() -> Option<&'static Mpi> {
                static FOUND: OnceLock<Mpi> = OnceLock::new();
                let mpi = match FOUND.get() {
                    Some(mpi) => mpi,
                    None => {
                        // A program may load MPI later than it calls for it first.
                        let found = Mpi::find()?;
                        FOUND.get_or_init(|| found)
                    }
                };
                mpi.is_running().then_some(mpi)
            }

            /// Looks for the functions of the MPI in the process; `None` when it has none.
            fn find() -> Option<Mpi> {
                let probe = find(c"PMPI_Initialized");
                if probe.is_null() {
                    return None;
                }
                Some(Mpi {
                    abi: Abi::of(probe),
                    // SAFETY: the functions of MPI with these names have these types.
                    $($field: unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($arg),*) -> c_int>,
                        >(find($name))
                    },)*
                    // SAFETY: the same.
                    comm_f2c: unsafe { std::mem::transmute::<
                        *mut c_void, Option<unsafe extern "C" fn(c_int) -> Handle>,
                    >(find(c"PMPI_Comm_f2c")) },
                    // SAFETY: the same.
                    type_f2c: unsafe { std::mem::transmute::<
                        *mut c_void, Option<unsafe extern "C" fn(c_int) -> Handle>,
                    >(find(c"PMPI_Type_f2c")) },
                })
            }
        }
    };
}

functions! {
    initialized c"PMPI_Initialized" (*mut c_int);
    finalized c"PMPI_Finalized" (*mut c_int);
    version c"PMPI_Get_library_version" (*mut c_char, *mut c_int);
    comm_rank c"PMPI_Comm_rank" (Handle, *mut c_int);
    comm_size c"PMPI_Comm_size" (Handle, *mut c_int);
    comm_test_inter c"PMPI_Comm_test_inter" (Handle, *mut c_int);
    comm_remote_size c"PMPI_Comm_remote_size" (Handle, *mut c_int);
    comm_group c"PMPI_Comm_group" (Handle, *mut Handle);
    comm_remote_group c"PMPI_Comm_remote_group" (Handle, *mut Handle);
    comm_get_info c"PMPI_Comm_get_info" (Handle, *mut Handle);
    info_get c"PMPI_Info_get" (Handle, *const c_char, c_int, *mut c_char, *mut c_int);
    info_free c"PMPI_Info_free" (*mut Handle);
    group_free c"PMPI_Group_free" (*mut Handle);
    group_translate c"PMPI_Group_translate_ranks" (Handle, c_int, *const c_int, Handle, *mut c_int);
    topo_test c"PMPI_Topo_test" (Handle, *mut c_int);
    cartdim_get c"PMPI_Cartdim_get" (Handle, *mut c_int);
    cart_shift c"PMPI_Cart_shift" (Handle, c_int, c_int, *mut c_int, *mut c_int);
    graph_count c"PMPI_Graph_neighbors_count" (Handle, c_int, *mut c_int);
    dist_count c"PMPI_Dist_graph_neighbors_count"
        (Handle, *mut c_int, *mut c_int, *mut c_int);
    type_size c"PMPI_Type_size_x" (Handle, *mut i64);
    type_extent c"PMPI_Type_get_extent" (Handle, *mut isize, *mut isize);
    type_true_extent c"PMPI_Type_get_true_extent" (Handle, *mut isize, *mut isize);
    type_name c"PMPI_Type_get_name" (Handle, *mut c_char, *mut c_int);
    type_envelope c"PMPI_Type_get_envelope"
        (Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    type_contents c"PMPI_Type_get_contents"
        (Handle, c_int, c_int, c_int, *mut c_int, *mut isize, *mut Handle);
    type_dup c"PMPI_Type_dup" (Handle, *mut Handle);
    type_free c"PMPI_Type_free" (*mut Handle);
    unpack c"PMPI_Unpack"
        (*const c_void, c_int, *mut c_int, *mut c_void, c_int, Handle, Handle);
    pack c"PMPI_Pack"
        (*const c_void, c_int, Handle, *mut c_void, c_int, *mut c_int, Handle);
    pack_size c"PMPI_Pack_size" (c_int, Handle, Handle, *mut c_int);
}

/// The hints of a communicator that rule coding out where they are set.
const HINTS: [&CStr; 2] = [c"mpi_assert_allow_overtaking", c"mpi_assert_exact_length"];

/// Calls a function with these arguments and says whether it is there and has succeeded.
macro_rules! ok {
    ($mpi:expr, $field:ident, $($arg:expr),*) => {
        match $mpi.$field {
            // SAFETY: handles are those of the program, in a call that it makes; results go to room
            // of their types.
            Some(function) => unsafe { function($($arg),*) == 0 },
            None => false,
        }
    };
}

impl Mpi {
    fn is_running(&self) -> bool {
        let (mut begun, mut over) = (0, 1);
        ok!(self, initialized, &raw mut begun)
            && ok!(self, finalized, &raw mut over)
            && begun != 0
            && over == 0
    }

    /// What it calls itself, up to the end of the line.
    pub(crate) fn own_name(&self) -> String {
        // The largest that an MPI asks for is half of this.
        let mut text = vec![0_u8; 16 << 10];
        let mut length = 0;
        if !ok!(self, version, text.as_mut_ptr().cast(), &raw mut length) {
            return String::new();
        }
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches(',').to_owned()
    }

    /// This rank in a communicator, and how many there are.
    pub(crate) fn place(&self, comm: Handle) -> Option<(u32, u32)> {
        let (mut rank, mut size) = (0, 0);
        let found =
            ok!(self, comm_rank, comm, &raw mut rank) && ok!(self, comm_size, comm, &raw mut size);
        found.then_some((rank as u32, size as u32))
    }

    /// The ranks of those that this communicator sends to in `MPI_COMM_WORLD`, and whether they are
    /// another group.
    pub(crate) fn peers(&self, comm: Handle) -> Option<(Vec<i32>, bool)> {
        let (mut inter, mut size) = (0, 0);
        if !ok!(self, comm_test_inter, comm, &raw mut inter) {
            return None;
        }
        let (mut group, mut world) = (0, 0);
        let found = if inter == 0 {
            ok!(self, comm_size, comm, &raw mut size) && ok!(self, comm_group, comm, &raw mut group)
        } else {
            ok!(self, comm_remote_size, comm, &raw mut size)
                && ok!(self, comm_remote_group, comm, &raw mut group)
        };
        if !found || !ok!(self, comm_group, self.abi.world(), &raw mut world) {
            return None;
        }
        let own: Vec<c_int> = (0..size).collect();
        let mut peers = vec![-1; own.len()];
        let (group_handle, world_handle) = (self.abi.handle(group), self.abi.handle(world));
        let ranks = (own.as_ptr(), peers.as_mut_ptr());
        let done = ok!(self, group_translate, group_handle, size, ranks.0, world_handle, ranks.1);
        let _freed = ok!(self, group_free, &raw mut group) && ok!(self, group_free, &raw mut world);
        done.then_some((peers, inter != 0))
    }

    /// Whether the program has allowed MPI to match the messages of this communicator in another
    /// order, or has promised that receives have exactly the room of their messages: coding rests
    /// on that order, and gives receives more room.
    pub(crate) fn is_plain(&self, comm: Handle) -> bool {
        let mut info = 0;
        if !ok!(self, comm_get_info, comm, &raw mut info) {
            return false;
        }
        let hints = self.abi.handle(info);
        let given = HINTS.iter().any(|hint| {
            let (mut text, mut found) = ([0_u8; 8], 0);
            let room = (text.as_mut_ptr().cast(), text.len() as c_int - 1);
            let known = ok!(self, info_get, hints, hint.as_ptr(), room.1, room.0, &raw mut found);
            known && found != 0 && text.starts_with(b"true\0")
        });
        let _freed = ok!(self, info_free, &raw mut info);
        given
    }

    /// Which neighbours of this rank are there, in the order of the calls to neighbours.
    pub(crate) fn neighbours(&self, comm: Handle) -> Option<Vec<bool>> {
        use crate::abi::Topology::{Cartesian, Distributed, Graph};
        let (mut code, mut count) = (0, 0);
        if !ok!(self, topo_test, comm, &raw mut code) {
            return None;
        }
        match self.abi.topology(code)? {
            Cartesian => {
                if !ok!(self, cartdim_get, comm, &raw mut count) {
                    return None;
                }
                let mut all = Vec::new();
                for dimension in 0..count {
                    let (mut below, mut above) = (-1, -1);
                    let ranks = (&raw mut below, &raw mut above);
                    let _known = ok!(self, cart_shift, comm, dimension, 1, ranks.0, ranks.1);
                    all.extend([below >= 0, above >= 0]);
                }
                Some(all)
            }
            Graph => {
                let rank = self.place(comm)?.0 as c_int;
                ok!(self, graph_count, comm, rank, &raw mut count)
                    .then(|| vec![true; count as usize])
            }
            Distributed => {
                let (mut to_here, mut weighted) = (0, 0);
                let results = (&raw mut to_here, &raw mut count, &raw mut weighted);
                ok!(self, dist_count, comm, results.0, results.1, results.2)
                    .then(|| vec![true; count as usize])
            }
        }
    }

    /// The size of a datatype, its extent, and where its bytes begin and how far they reach.
    pub(crate) fn layout(&self, of: Handle) -> Option<TypeLayout> {
        let mut found = TypeLayout::default();
        let mut bound = 0;
        let known = ok!(self, type_size, of, &raw mut found.size)
            && ok!(self, type_extent, of, &raw mut bound, &raw mut found.extent)
            && ok!(self, type_true_extent, of, &raw mut found.begins, &raw mut found.reach);
        known.then_some(found)
    }

    /// The name of a predefined datatype; `None` for one that the program has made.
    pub(crate) fn predefined(&self, of: Handle) -> Option<String> {
        if self.parts(of)? != [0; 3] {
            return None;
        }
        let mut text = [0_u8; 256];
        let mut length = 0;
        let named = ok!(self, type_name, of, text.as_mut_ptr().cast(), &raw mut length);
        let text = CStr::from_bytes_until_nul(&text).ok().filter(|_| named)?;
        Some(text.to_string_lossy().into_owned())
    }

    /// How many integers, addresses and datatypes a datatype was made of.
    fn parts(&self, of: Handle) -> Option<[c_int; 3]> {
        let (mut ints, mut addresses, mut types, mut how) = (0, 0, 0, 0);
        let counts = (&raw mut ints, &raw mut addresses, &raw mut types, &raw mut how);
        ok!(self, type_envelope, of, counts.0, counts.1, counts.2, counts.3)
            .then_some([ints, addresses, types])
    }

    /// What `look` finds in the datatypes that a datatype was made of, of which copies are given up
    /// afterwards.
    pub(crate) fn each_part(&self, of: Handle, mut look: impl FnMut(Handle)) -> Option<()> {
        /// More than this is not looked at.
        const MOST: c_int = 4096;
        let [ints, addresses, types] = self.parts(of)?;
        if types == 0 || ints.max(addresses).max(types) > MOST {
            return None;
        }
        let mut integers = vec![0; ints as usize];
        let mut places = vec![0; addresses as usize];
        let mut parts = vec![0_usize; types as usize];
        let to = (integers.as_mut_ptr(), places.as_mut_ptr(), parts.as_mut_ptr());
        if !ok!(self, type_contents, of, ints, addresses, types, to.0, to.1, to.2) {
            return None;
        }
        let first = parts.as_mut_ptr() as usize;
        for index in 0..types as usize {
            let place = first + index * self.abi.handle_bytes();
            // SAFETY: MPI has written as many handles there, one after the other.
            let part = unsafe { self.abi.handle_at(place) };
            look(part);
            if self.parts(part).is_some_and(|parts| parts != [0; 3]) {
                let mut copy = part;
                let _freed = ok!(self, type_free, &raw mut copy);
            }
        }
        Some(())
    }

    /// The same datatype by a handle of ours, which stays when the program gives its own up;
    /// `None` when MPI refuses.
    pub(crate) fn copy_of(&self, of: Handle) -> Option<Handle> {
        let mut copy = 0;
        ok!(self, type_dup, of, &raw mut copy).then(|| self.abi.handle(copy))
    }

    /// Gives such a handle up.
    pub(crate) fn free(&self, mut copy: Handle) {
        let _freed = ok!(self, type_free, &raw mut copy);
    }

    /// So many values of a datatype, one after the other; `None` when MPI refuses.
    pub(crate) fn packed(
        &self,
        buffer: usize,
        count: i32,
        of: Handle,
        comm: Handle,
    ) -> Option<Vec<u8>> {
        let (mut room, mut length) = (0, 0);
        if !ok!(self, pack_size, count, of, comm, &raw mut room) {
            return None;
        }
        let mut bytes = vec![0_u8; usize::try_from(room).ok()?];
        let (from, to) = (buffer as *const c_void, bytes.as_mut_ptr().cast::<c_void>());
        let packed = ok!(self, pack, from, count, of, to, room, &raw mut length, comm);
        bytes.truncate(usize::try_from(length).ok()?);
        packed.then_some(bytes)
    }

    /// Unpacks values into a buffer of `count` items of a datatype. Says whether MPI did.
    pub(crate) fn unpacked(
        &self,
        bytes: &[u8],
        buffer: usize,
        count: i32,
        of: Handle,
        comm: Handle,
    ) -> bool {
        let Ok(length) = i32::try_from(bytes.len()) else { return false };
        let (from, to, mut at) = (bytes.as_ptr().cast(), buffer as *mut c_void, 0);
        ok!(self, unpack, from, length, &raw mut at, to, count, of, comm)
    }

    /// The handles that numbers of Fortran stand for.
    pub(crate) fn comm_of_fortran(&self, number: c_int) -> Handle {
        match self.comm_f2c {
            // SAFETY: a number that the program passes as such a handle.
            Some(convert) => unsafe { convert(number) },
            None => number as u32 as Handle,
        }
    }

    /// The same for datatypes.
    pub(crate) fn type_of_fortran(&self, number: c_int) -> Handle {
        match self.type_f2c {
            // SAFETY: a number that the program passes as such a handle.
            Some(convert) => unsafe { convert(number) },
            None => number as u32 as Handle,
        }
    }
}

/// How the bytes of a datatype lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TypeLayout {
    /// Bytes of its values.
    pub(crate) size: i64,
    /// From one to the next.
    pub(crate) extent: isize,
    /// Where the first byte is.
    pub(crate) begins: isize,
    /// From the first to the last.
    pub(crate) reach: isize,
}
