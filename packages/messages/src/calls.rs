//! The functions of MPI that are listened to: one table, of which the wrappers are made and by
//! whose rows calls are named. The build script of the wrappers includes this file, so it needs
//! nothing else.
//!
//! A row is the name without `MPI_`, what the function does, and a letter for each argument:
//!
//! | letter | argument |
//! | --- | --- |
//! | `b` | the buffer that is sent |
//! | `n`, `t` | how many of which datatype are sent; of a receive, what there is room for |
//! | `N`, `T` | the same as arrays, with an entry for each rank |
//! | `m`, `u`, `M`, `U` | the same of what is received: of what is sent in place |
//! | `D` | displacements: 32 bits each, as long as an address in the large form |
//! | `d`, `s` | destination, source |
//! | `g` | tag |
//! | `h` | the tag of what a call that sends receives |
//! | `R` | root |
//! | `c` | communicator |
//! | `o` | where a new communicator goes |
//! | `q` | where a request is, or goes |
//! | `v` | a request by its value |
//! | `k` | how many requests, partitions or indices there are |
//! | `A` | an array of requests |
//! | `i`, `f` | where an index or a count of them goes, where a flag goes |
//! | `I` | an array of indices |
//! | `L` | a count that is large in every form of the function |
//! | `a` | a text |
//! | `x` | anything else |

/// A function of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name without `MPI_`.
    pub name: &'static str,
    /// What it does.
    pub does: Does,
    /// Its arguments in C, a letter each.
    pub args: &'static str,
}

/// What a function does, as far as a listener wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Begins MPI.
    Init,
    /// Ends it.
    Finalize,
    /// Ends the program.
    Abort,
    /// Sends a message.
    Send,
    /// Prepares a persistent message, which each `MPI_Start` sends.
    SendInit,
    /// Prepares a partitioned message: threads say of each part of its buffer when it is ready.
    PsendInit,
    /// Says that one partition of such a message is ready to be sent.
    Pready,
    /// Says that a range of partitions is.
    PreadyRange,
    /// Says that the partitions of a list are.
    PreadyList,
    /// Starts a request that was prepared.
    Start,
    /// Starts several.
    Startall,
    /// Forgets what was prepared.
    RequestFree,
    /// Receives a message, begins to, or prepares to.
    Receive,
    /// Waits for one request.
    Wait,
    /// Waits for all of them.
    Waitall,
    /// Waits for any of them.
    Waitany,
    /// Waits for some of them.
    Waitsome,
    /// Looks at requests or messages.
    Test,
    /// Looks at a request and leaves it as it is.
    Look,
    /// Does the same with several.
    LookAtSeveral,
    /// Takes a message back.
    Cancel,
    /// Is called by all ranks of a communicator.
    Together(Gives),
    /// Prepares such a call.
    TogetherInit(Gives),
    /// Makes a communicator, on all ranks of another.
    Communicator,
    /// Makes one on the ranks of a group alone.
    OfGroup,
    /// Gives a communicator up.
    CommunicatorFree,
    /// Names a communicator.
    CommunicatorName,
    /// Gives MPI hints for a communicator, on all of its ranks.
    CommunicatorInfo,
    /// Gives a datatype up.
    TypeFree,
}

/// The bytes that a rank gives to a call of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// None.
    Nothing,
    /// Its buffer, once.
    Once,
    /// The buffer of the root, once.
    RootOnce,
    /// A part for every rank, at the root.
    RootEach,
    /// A part for every rank.
    Each,
    /// Its buffer, to every neighbour.
    ToNeighbours,
    /// A part for every neighbour.
    EachNeighbour,
}

macro_rules! calls {
    ($($name:ident $does:expr, $args:literal;)*) => {
        /// The table.
        pub const CALLS: &[Call] = &[
            $(Call { name: stringify!($name), does: $does, args: $args },)*
        ];
    };
}

use Does::{
    Abort, Cancel, Communicator, CommunicatorFree, CommunicatorInfo, CommunicatorName, Finalize,
    Init, Look, LookAtSeveral, OfGroup, Pready, PreadyList, PreadyRange, PsendInit, Receive,
    RequestFree, Send, SendInit, Start, Startall, Test, Together, TogetherInit, TypeFree, Wait,
    Waitall, Waitany, Waitsome,
};
use Gives::{Each, EachNeighbour, Nothing, Once, RootEach, RootOnce, ToNeighbours};

calls! {
    Init Init, "xx";
    Init_thread Init, "xxxx";
    Finalize Finalize, "";
    Abort Abort, "cx";

    Send Send, "bntdgc";
    Bsend Send, "bntdgc";
    Ssend Send, "bntdgc";
    Rsend Send, "bntdgc";
    Isend Send, "bntdgcq";
    Ibsend Send, "bntdgcq";
    Issend Send, "bntdgcq";
    Irsend Send, "bntdgcq";
    Sendrecv Send, "bntdgxmushcx";
    Sendrecv_replace Send, "bntdgshcx";
    Isendrecv Send, "bntdgxmushcq";
    Isendrecv_replace Send, "bntdgshcq";
    Send_init SendInit, "bntdgcq";
    Bsend_init SendInit, "bntdgcq";
    Ssend_init SendInit, "bntdgcq";
    Rsend_init SendInit, "bntdgcq";
    Psend_init PsendInit, "bkLtdgcxq";
    Pready Pready, "xv";
    Pready_range PreadyRange, "xxv";
    Pready_list PreadyList, "kIv";
    Start Start, "q";
    Startall Startall, "kA";
    Request_free RequestFree, "q";

    Recv Receive, "xntsgcx";
    Irecv Receive, "xntsgcq";
    Recv_init Receive, "xntsgcq";
    Precv_init Receive, "xkLtsgcxq";
    Mrecv Receive, "xntxx";
    Imrecv Receive, "xntxq";
    Wait Wait, "qx";
    Waitall Waitall, "kAx";
    Waitany Waitany, "kAix";
    Waitsome Waitsome, "kAiIx";
    Test Test, "qfx";
    Testall Test, "kAfx";
    Testany Test, "kAifx";
    Testsome Test, "kAiIx";
    Probe Test, "xxcx";
    Iprobe Test, "xxcfx";
    Mprobe Test, "xxcxx";
    Improbe Test, "xxcfxx";

    Barrier Together(Nothing), "c";
    Ibarrier Together(Nothing), "cq";
    Barrier_init TogetherInit(Nothing), "cxq";
    Bcast Together(RootOnce), "bntRc";
    Ibcast Together(RootOnce), "bntRcq";
    Bcast_init TogetherInit(RootOnce), "bntRcxq";
    Gather Together(Once), "bntxmuRc";
    Igather Together(Once), "bntxmuRcq";
    Gather_init TogetherInit(Once), "bntxmuRcxq";
    Gatherv Together(Once), "bntxMDuRc";
    Igatherv Together(Once), "bntxMDuRcq";
    Gatherv_init TogetherInit(Once), "bntxMDuRcxq";
    Scatter Together(RootEach), "bntxmuRc";
    Iscatter Together(RootEach), "bntxmuRcq";
    Scatter_init TogetherInit(RootEach), "bntxmuRcxq";
    Scatterv Together(RootEach), "bNDtxmuRc";
    Iscatterv Together(RootEach), "bNDtxmuRcq";
    Scatterv_init TogetherInit(RootEach), "bNDtxmuRcxq";
    Allgather Together(Once), "bntxmuc";
    Iallgather Together(Once), "bntxmucq";
    Allgather_init TogetherInit(Once), "bntxmucxq";
    Allgatherv Together(Once), "bntxMDuc";
    Iallgatherv Together(Once), "bntxMDucq";
    Allgatherv_init TogetherInit(Once), "bntxMDucxq";
    Alltoall Together(Each), "bntxmuc";
    Ialltoall Together(Each), "bntxmucq";
    Alltoall_init TogetherInit(Each), "bntxmucxq";
    Alltoallv Together(Each), "bNDtxMDuc";
    Ialltoallv Together(Each), "bNDtxMDucq";
    Alltoallv_init TogetherInit(Each), "bNDtxMDucxq";
    Alltoallw Together(Each), "bNDTxMDUc";
    Ialltoallw Together(Each), "bNDTxMDUcq";
    Alltoallw_init TogetherInit(Each), "bNDTxMDUcxq";
    Reduce Together(Once), "bxntxRc";
    Ireduce Together(Once), "bxntxRcq";
    Reduce_init TogetherInit(Once), "bxntxRcxq";
    Allreduce Together(Once), "bxntxc";
    Iallreduce Together(Once), "bxntxcq";
    Allreduce_init TogetherInit(Once), "bxntxcxq";
    Reduce_scatter Together(Each), "bxNtxc";
    Ireduce_scatter Together(Each), "bxNtxcq";
    Reduce_scatter_init TogetherInit(Each), "bxNtxcxq";
    Reduce_scatter_block Together(Each), "bxntxc";
    Ireduce_scatter_block Together(Each), "bxntxcq";
    Reduce_scatter_block_init TogetherInit(Each), "bxntxcxq";
    Scan Together(Once), "bxntxc";
    Iscan Together(Once), "bxntxcq";
    Scan_init TogetherInit(Once), "bxntxcxq";
    Exscan Together(Once), "bxntxc";
    Iexscan Together(Once), "bxntxcq";
    Exscan_init TogetherInit(Once), "bxntxcxq";
    Neighbor_allgather Together(ToNeighbours), "bntxmuc";
    Ineighbor_allgather Together(ToNeighbours), "bntxmucq";
    Neighbor_allgather_init TogetherInit(ToNeighbours), "bntxmucxq";
    Neighbor_allgatherv Together(ToNeighbours), "bntxMDuc";
    Ineighbor_allgatherv Together(ToNeighbours), "bntxMDucq";
    Neighbor_allgatherv_init TogetherInit(ToNeighbours), "bntxMDucxq";
    Neighbor_alltoall Together(EachNeighbour), "bntxmuc";
    Ineighbor_alltoall Together(EachNeighbour), "bntxmucq";
    Neighbor_alltoall_init TogetherInit(EachNeighbour), "bntxmucxq";
    Neighbor_alltoallv Together(EachNeighbour), "bNDtxMDuc";
    Ineighbor_alltoallv Together(EachNeighbour), "bNDtxMDucq";
    Neighbor_alltoallv_init TogetherInit(EachNeighbour), "bNDtxMDucxq";
    Neighbor_alltoallw Together(EachNeighbour), "bNxTxMxUc";
    Ineighbor_alltoallw Together(EachNeighbour), "bNxTxMxUcq";
    Neighbor_alltoallw_init TogetherInit(EachNeighbour), "bNxTxMxUcxq";

    Comm_dup Communicator, "co";
    Comm_dup_with_info Communicator, "cxo";
    Comm_idup Communicator, "coq";
    Comm_idup_with_info Communicator, "cxoq";
    Comm_create Communicator, "cxo";
    Comm_create_group OfGroup, "cxxo";
    Comm_split Communicator, "cxxo";
    Comm_split_type Communicator, "cxxxo";
    Cart_create Communicator, "cxxxxo";
    Cart_sub Communicator, "cxo";
    Graph_create Communicator, "cxxxxo";
    Dist_graph_create Communicator, "cxxxxxxxo";
    Dist_graph_create_adjacent Communicator, "cxxxxxxxxo";
    Intercomm_create OfGroup, "cxxxxo";
    Intercomm_merge Communicator, "cxo";
    Comm_free CommunicatorFree, "o";
    Comm_disconnect CommunicatorFree, "o";
    Comm_set_name CommunicatorName, "ca";
    Type_free TypeFree, "x";

    Cancel Cancel, "q";
    Request_get_status Look, "vfx";
    Request_get_status_all LookAtSeveral, "kAfx";
    Request_get_status_any LookAtSeveral, "kAifx";
    Request_get_status_some LookAtSeveral, "kAiIx";

    Comm_set_info CommunicatorInfo, "cx";
}

impl Call {
    /// Where the argument with this letter is.
    #[must_use]
    pub fn at(&self, letter: char) -> Option<usize> {
        self.args.find(letter)
    }

    /// Whether there may be a form of it whose counts have 64 bits, called `MPI_..._c`.
    #[must_use]
    pub fn has_large_form(&self) -> bool {
        self.args.contains(['n', 'N']) && self.args.contains(['t', 'T'])
    }

    /// Where its buffers are among its arguments: what is sent, and where what is received goes.
    pub fn buffers(&self) -> impl Iterator<Item = usize> {
        let letters = self.args.as_bytes();
        let is_buffer = |place: usize| match letters[place] {
            b'b' => true,
            // What comes after a buffer is how many values have room there.
            b'x' => letters.get(place + 1).is_some_and(|next| b"nNmMk".contains(next)),
            _ => false,
        };
        (0..letters.len()).filter(move |place| is_buffer(*place))
    }

    /// Whether its form in Fortran can be listened to by the same row: texts are passed in another
    /// way.
    #[must_use]
    pub fn has_fortran_form(&self) -> bool {
        !matches!(self.does, CommunicatorName)
    }

    /// How many arguments that form has: those of C, without the two of the command line, and a
    /// code.
    #[must_use]
    pub fn fortran_arguments(&self) -> usize {
        let command_line = if matches!(self.does, Init) { 2 } else { 0 };
        self.args.len() - command_line + 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{CALLS, Does};

    #[test]
    fn every_row_has_a_name_of_its_own_and_known_letters() {
        let names: HashSet<_> = CALLS.iter().map(|call| call.name).collect();
        assert_eq!(names.len(), CALLS.len());
        for call in CALLS {
            let known =
                call.args.chars().all(|letter| "bntNTmuMUDdsghRcoqvkAifILax".contains(letter));
            assert!(known, "{call:?}");
        }
    }

    #[test]
    fn buffers_are_found_by_the_counts_after_them() {
        let buffers = |name: &str| -> Vec<usize> {
            let call = CALLS.iter().find(|call| call.name == name);
            call.expect("a row of the table").buffers().collect()
        };
        for (name, right) in [
            ("Send", &[0][..]),
            ("Recv", &[0]),
            ("Mrecv", &[0]),
            ("Precv_init", &[0]),
            ("Sendrecv", &[0, 5]),
            ("Sendrecv_replace", &[0]),
            ("Reduce", &[0, 1]),
            ("Reduce_scatter", &[0, 1]),
            ("Gatherv", &[0, 3]),
            ("Alltoallw", &[0, 4]),
            ("Neighbor_alltoallw", &[0, 4]),
            ("Pready_range", &[]),
            ("Waitall", &[]),
            ("Comm_create_group", &[]),
        ] {
            assert_eq!(buffers(name), right, "{name}");
        }
        assert!(CALLS.iter().all(|call| !call.has_large_form() || call.buffers().next().is_some()));
    }

    #[test]
    fn messages_have_all_that_a_channel_is_named_by() {
        for call in CALLS.iter().filter(|call| matches!(call.does, Does::Send | Does::SendInit)) {
            assert_eq!(&call.args[..5], "bntdg", "{call:?}");
            assert!(call.at('c').is_some() && call.has_large_form());
        }
        for call in CALLS {
            if let Does::Together(_) | Does::TogetherInit(_) = call.does {
                assert!(call.at('c').is_some(), "{call:?}");
                let starts = matches!(call.does, Does::TogetherInit(_));
                assert!(!starts || call.at('q').is_some(), "{call:?}");
                assert_eq!(starts, call.name.ends_with("_init"), "{call:?}");
            }
        }
    }
}
