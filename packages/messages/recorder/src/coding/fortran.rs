//! Calls of Fortran that are not heard in C: those of Open MPI, and those of MPICH's module
//! `mpi_f08` that have no buffer. Calls that send, receive or complete messages are made by the
//! functions for C, and their results are converted for Fortran: requests become integers, and
//! indices count from 1. Statuses are the same in both.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use unspool_messages::calls::Does;

use super::{Coding, Real};
use crate::abi::Handle;
use crate::args::Args;
use crate::args::Form;
use crate::missing::OTHER;
use crate::real::{find, function, pass};

type OfFortran = unsafe extern "C" fn(c_int) -> Handle;
type ToFortran = unsafe extern "C" fn(Handle) -> c_int;

/// The functions that turn numbers of Fortran into requests, and back; those of MPICH are the same.
#[derive(Clone, Copy)]
struct Numbers {
    of_fortran: Option<OfFortran>,
    to_fortran: Option<ToFortran>,
}

/// A call of Fortran as C makes it.
struct InC {
    /// Its arguments, some of which are addresses of what follows.
    words: Vec<usize>,
    /// Requests one after the other, as C has them.
    requests: Vec<u64>,
    indices: Vec<c_int>,
    /// An index or a count of them, and a flag.
    results: Vec<c_int>,
}

impl Coding {
    /// Does what a call of Fortran does.
    pub(super) fn call_of_fortran(&self, args: &Args, real: Real) -> c_int {
        if args.is_scattered() {
            self.refuse(args, "an array with gaps between its values");
            return real(args.words());
        }
        let is_in_c = match args.call.does {
            Does::Send | Does::Wait | Does::Waitall | Does::Waitany | Does::Waitsome => true,
            Does::Look | Does::LookAtSeveral | Does::Cancel | Does::RequestFree => true,
            Does::Receive => matches!(args.call.name, "Recv" | "Irecv"),
            Does::Test => args.has('q') || args.has('A'),
            _ => false,
        };
        if !is_in_c {
            return self.call(args, real);
        }
        let row = usize::from(args.row);
        let large = if args.is_large() { function(row, true) } else { ptr::null_mut() };
        let form = if large.is_null() { Form::C } else { Form::Large };
        let function = if large.is_null() { function(row, false) } else { large };
        let fits = |letter| args.count(letter).is_none_or(|count| i32::try_from(count).is_ok());
        let can_be_made = !function.is_null() && (form == Form::Large || fits('n') && fits('m'));
        let in_c = InC::of(self, args);
        let call = Args::new(form, row, &in_c.words);
        let code = match can_be_made {
            true => self.call(&call, &|words| pass(function, words).unwrap_or(OTHER)),
            false => OTHER,
        };
        in_c.tell(self, args, code);
        code
    }
}

impl InC {
    fn of(coding: &Coding, args: &Args) -> InC {
        let (mpi, count) = (coding.mpi, args.number('k').unwrap_or(0).max(0) as usize);
        let (mut requests, mut results) = (vec![0; count.max(1)], vec![0; 2]);
        let first = requests.as_mut_ptr() as usize;
        // Calls that send and receive make a request.
        if !matches!(args.call.does, Does::Send | Does::Receive) {
            for (at, number) in args.fortran_requests(count).enumerate() {
                let request = Numbers::known().request(number);
                // SAFETY: there is room for as many.
                unsafe { mpi.abi.put_handle(first + at * mpi.abi.handle_bytes(), request) };
            }
        }
        let mut indices = vec![0; if args.has('I') { count } else { 0 }];
        let one = |(place, letter): (usize, char)| match letter {
            'b' => args.buffer().unwrap_or(0),
            'n' | 'm' => args.count(letter).unwrap_or(0) as usize,
            'd' | 's' | 'g' | 'h' | 'k' => args.number(letter).unwrap_or(0) as usize,
            't' | 'u' => args.datatype(mpi, letter).unwrap_or(0),
            'c' => args.comm(mpi).unwrap_or(0),
            'q' | 'A' => first,
            // SAFETY: it was put there.
            'v' => unsafe { mpi.abi.handle_at(first) },
            'I' => indices.as_mut_ptr() as usize,
            'i' => results.as_mut_ptr() as usize,
            'f' => results[1..].as_mut_ptr() as usize,
            _ => args.address_in_c(mpi, place),
        };
        let words = args.call.args.char_indices().map(one).collect();
        InC { words, requests, indices, results }
    }

    /// Writes what the call has left to where the program wants it.
    fn tell(self, coding: &Coding, args: &Args, code: c_int) {
        let (abi, first) = (coding.mpi.abi, self.requests.as_ptr() as usize);
        let count = if args.has('A') { args.number('k').unwrap_or(0).max(0) as usize } else { 1 };
        for at in 0..count {
            // SAFETY: there are as many.
            let request = unsafe { abi.handle_at(first + at * abi.handle_bytes()) };
            // A call that has failed may have made none.
            if request != 0 {
                let number = Numbers::known().number(request);
                args.put('q', at, number);
                args.put('A', at, number);
            }
        }
        let [found, flag] = [self.results[0], self.results[1]];
        let in_fortran = |index: c_int| if index < 0 { index } else { index + 1 };
        args.put('i', 0, if args.has('I') { found } else { in_fortran(found) });
        args.put('f', 0, flag);
        for (at, index) in self.indices.iter().take(found.max(0) as usize).enumerate() {
            args.put('I', at, in_fortran(*index));
        }
        args.put_code(code);
    }
}

impl Numbers {
    fn known() -> Numbers {
        static FOUND: OnceLock<Numbers> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let (of, to) = (find(c"PMPI_Request_f2c"), find(c"PMPI_Request_c2f"));
            // SAFETY: the functions of MPI with these names have these types.
            unsafe {
                Numbers {
                    of_fortran: std::mem::transmute::<*mut c_void, Option<OfFortran>>(of),
                    to_fortran: std::mem::transmute::<*mut c_void, Option<ToFortran>>(to),
                }
            }
        })
    }

    fn request(self, number: c_int) -> Handle {
        match self.of_fortran {
            // SAFETY: a number that the program has for its request.
            Some(convert) => unsafe { convert(number) },
            None => number as u32 as Handle,
        }
    }

    fn number(self, request: Handle) -> c_int {
        match self.to_fortran {
            // SAFETY: a request of MPI.
            Some(convert) => unsafe { convert(request) },
            None => request as c_int,
        }
    }
}
