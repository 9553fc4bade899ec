//! Calls of functions that this MPI does not have. A program that was linked with it makes none.
//! But one that looks first whether a function is there, as mpi4py does, finds the wrappers here
//! and takes them for it. So the large forms are carried out by those with counts of 32 bits, and
//! what cannot be carried out is refused with an error of MPI, as such a program would refuse it
//! itself.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use unspool_messages::calls::{CALLS, Does, Gives};

use crate::abi::Abi;
use crate::args::Args;
use crate::around::Form;
use crate::mpi::Mpi;
use crate::real::{function, pass};

/// Bytes of arrays that are kept for calls which may look at them after they have returned.
const MOST_KEPT: usize = 16 << 20;
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Does what a function that is not there would do, or says that it cannot be done.
pub(crate) fn missing(form: Form, row: usize, words: &[usize]) -> c_int {
    let Some(mpi) = Mpi::running() else { return OTHER };
    let done = match form {
        Form::Large => narrowed(mpi, row, words),
        Form::C | Form::Fortran { .. } => None,
    };
    done.unwrap_or(if mpi.abi == Abi::Mpich { OTHER_OF_MPICH } else { OTHER })
}

/// `MPI_ERR_OTHER`.
pub(crate) const OTHER: c_int = 16;
const OTHER_OF_MPICH: c_int = 15;

/// Calls the form with counts of 32 bits; `None` when one does not fit.
fn narrowed(mpi: &Mpi, row: usize, words: &[usize]) -> Option<c_int> {
    let call = &CALLS[row];
    let real = function(row, false);
    if real.is_null() {
        return None;
    }
    let args = Args::new(Form::Large, row, words);
    let mut words = words.to_vec();
    let mut arrays = Vec::new();
    for (place, letter) in call.args.char_indices() {
        match letter {
            'n' | 'm' => {
                i32::try_from(words[place] as i64).ok()?;
            }
            'N' | 'M' | 'D' if words[place] != 0 => {
                let sends = call.args[..=place].contains('N') && !call.args[..place].contains('M');
                let Some(count) = entries(mpi, &args, sends && letter != 'M') else { continue };
                arrays.push((place, array(words[place], count)?));
            }
            _ => {}
        }
    }
    for (place, array) in &arrays {
        words[*place] = array.as_ptr() as usize;
    }
    // A call that may go on looks at its arrays later: they are not given back.
    if call.args.contains('q') {
        let bytes: usize = arrays.iter().map(|(_, array)| array.len() * 4).sum();
        if KEPT.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST_KEPT {
            return None;
        }
        std::mem::forget(arrays);
    }
    pass(real, &words)
}

/// How many entries an array of counts has on this rank; `None` where it has no meaning.
fn entries(mpi: &Mpi, args: &Args, sends: bool) -> Option<usize> {
    let comm = args.comm(mpi)?;
    let (rank, size) = mpi.place(comm)?;
    let at_root = args.number('R').is_none_or(|root| root == rank as i32 || root < 0);
    let (Does::Together(gives) | Does::TogetherInit(gives)) = args.call.does else { return None };
    match gives {
        Gives::ToNeighbours | Gives::EachNeighbour if sends => Some(mpi.neighbours(comm)?.len()),
        Gives::ToNeighbours | Gives::EachNeighbour => mpi.sources(comm),
        Gives::Each if args.call.args.starts_with("bxN") => Some(size as usize),
        _ => at_root.then_some(()).and_then(|()| mpi.peers(comm)).map(|(peers, _)| peers.len()),
    }
}

/// The numbers of an array in 32 bits each; `None` when one does not fit.
fn array(address: usize, count: usize) -> Option<Vec<i32>> {
    // SAFETY: the array has an entry for each rank or neighbour, as the call says.
    let entry = |index| unsafe { (address as *const i64).add(index).read_unaligned() };
    (0..count).map(|index| i32::try_from(entry(index)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::array;

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let numbers = [1_i64, -2, 3 << 31];
        let address = numbers.as_ptr() as usize;
        assert_eq!(array(address, 2), Some(vec![1, -2]));
        assert_eq!(array(address, 3), None);
    }
}
