//! Which requests a wait has completed: their handles are gone when it returns, so they are read
//! before.

use unspool_messages::calls::Does;

use crate::args::Args;
use crate::mpi::Mpi;

/// Requests of one wait that are written down.
const MOST: usize = 1024;

/// The requests that a call may complete.
pub(crate) fn waited_for(args: &Args, mpi: &Mpi) -> Vec<u64> {
    match args.call.does {
        Does::Wait => args.request(mpi).into_iter().collect(),
        Does::Waitall | Does::Waitany | Does::Waitsome => args.requests(mpi, MOST),
        Does::Test if args.has('A') => args.requests(mpi, MOST),
        Does::Test if args.has('q') => args.request(mpi).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Those of them that it has completed.
pub(crate) fn completed(args: &Args, mut requests: Vec<u64>) -> Vec<u64> {
    let some = |count: i32| -> Vec<u64> {
        let indices = (0..count.clamp(0, MOST as i32) as usize).filter_map(|i| args.index_at(i));
        let known = indices.filter_map(|index| requests.get(usize::try_from(index).ok()?).copied());
        known.collect()
    };
    let one = |index: Option<i32>| -> Vec<u64> {
        let place = index.and_then(|index| usize::try_from(args.as_in_c(index)).ok());
        place.and_then(|place| requests.get(place).copied()).into_iter().collect()
    };
    match args.call.does {
        Does::Wait | Does::Waitall | Does::Start | Does::Startall => requests,
        Does::Waitany => one(args.result('i')),
        Does::Waitsome => some(args.result('i').unwrap_or(0)),
        // Testsome has a count and indices, Testany an index and a flag, the others a flag.
        Does::Test if args.has('I') => some(args.result('i').unwrap_or(0)),
        Does::Test if args.result('f').unwrap_or(0) == 0 => Vec::new(),
        Does::Test if args.has('i') => one(args.result('i')),
        Does::Test => std::mem::take(&mut requests),
        _ => Vec::new(),
    }
}
