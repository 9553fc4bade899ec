//! The arguments of a call, by their letters in the table of calls, whether they come from C or
//! from Fortran, which passes addresses of numbers.

use std::ffi::{CStr, c_char};

use unspool_messages::calls::{CALLS, Call};

use crate::abi::{Abi, Handle};
use crate::arrays::SCATTERED;
use crate::mpi::Mpi;
use crate::real::find_variable;

/// The language of a call, and how wide its counts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    C,
    Large,
    Fortran { module: Module, is_large: bool },
}

/// Where a program of Fortran has a function from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Module {
    /// `mpif.h`, or the module `mpi`.
    Mpi,
    /// The module `mpi_f08`, with buffers by their addresses.
    F08,
    /// The same, with buffers by the descriptors of their arrays.
    F08Arrays,
}

/// The arguments of a call that is being made.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    pub(crate) call: &'static Call,
    pub(crate) row: u8,
    form: Form,
    words: &'a [usize],
}

impl<'a> Args<'a> {
    pub(crate) fn new(form: Form, row: usize, words: &'a [usize]) -> Args<'a> {
        Args { call: &CALLS[row], row: row as u8, form, words }
    }

    pub(crate) fn is_fortran(&self) -> bool {
        matches!(self.form, Form::Fortran { .. })
    }

    /// Whether its counts have 64 bits.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.form, Form::Large | Form::Fortran { is_large: true, .. })
    }

    /// Whether this is a call of Fortran that passes through a function of C which is listened to.
    /// That is so with all MPIs but Open MPI. Their module `mpi_f08` calls those of its functions
    /// that have no buffer by their names for tools.
    pub(crate) fn is_heard_in_c(&self, abi: Abi) -> bool {
        let is_in_c = match self.form {
            Form::C | Form::Large => false,
            Form::Fortran { module, .. } => module != Module::F08,
        };
        is_in_c && !matches!(abi, Abi::OpenMpi { .. })
    }

    /// Whether a buffer is an array whose values are not one after the other.
    pub(crate) fn is_scattered(&self) -> bool {
        let has_arrays = matches!(self.form, Form::Fortran { module: Module::F08Arrays, .. });
        has_arrays && self.words.contains(&SCATTERED)
    }

    pub(crate) fn has(&self, letter: char) -> bool {
        self.call.at(letter).is_some()
    }

    fn word(&self, letter: char) -> Option<usize> {
        self.call.at(letter).map(|place| self.words[place])
    }

    /// Every argument as it was passed.
    pub(crate) fn words(&self) -> &'a [usize] {
        self.words
    }

    /// The address that an argument is.
    pub(crate) fn address(&self, letter: char) -> Option<usize> {
        self.word(letter).filter(|word| *word != 0)
    }

    /// A number, such as a rank or a tag.
    pub(crate) fn number(&self, letter: char) -> Option<i32> {
        let word = self.word(letter)?;
        match self.form {
            Form::C | Form::Large => Some(word as i32),
            // SAFETY: a number of the program, as its call says.
            Form::Fortran { .. } => Some(unsafe { (word as *const i32).read_unaligned() }),
        }
    }

    /// A count.
    pub(crate) fn count(&self, letter: char) -> Option<i64> {
        match (self.form, letter) {
            (Form::Large, _) | (Form::C, 'L') => self.word(letter).map(|word| word as i64),
            (Form::Fortran { .. }, 'L') | (Form::Fortran { is_large: true, .. }, _) => {
                // SAFETY: a number of the program, as its call says.
                self.word(letter).map(|word| unsafe { (word as *const i64).read_unaligned() })
            }
            _ => self.number(letter).map(i64::from),
        }
    }

    /// One of an array of counts.
    pub(crate) fn count_at(&self, letter: char, index: usize) -> Option<i64> {
        let array = self.word(letter).filter(|array| *array != 0)?;
        // SAFETY: the array has an entry for each rank or neighbour, as the call says.
        unsafe {
            if self.is_large() {
                Some((array as *const i64).add(index).read_unaligned())
            } else {
                Some(i64::from((array as *const i32).add(index).read_unaligned()))
            }
        }
    }

    /// Where what is received goes, and how many of which datatype have room there.
    pub(crate) fn received(&self, mpi: &Mpi) -> (usize, i64, Handle) {
        let (buffer, count, of) = match self.call.name {
            "Sendrecv_replace" | "Isendrecv_replace" => (0, 'n', 't'),
            _ if self.has('u') => (5, 'm', 'u'),
            _ => (0, 'n', 't'),
        };
        let count = self.count(count).unwrap_or(-1);
        (self.words[buffer], count, self.datatype(mpi, of).unwrap_or(0))
    }

    /// The datatype of an argument.
    pub(crate) fn datatype(&self, mpi: &Mpi, letter: char) -> Option<Handle> {
        match self.form {
            Form::C | Form::Large => self.word(letter).map(|word| mpi.abi.handle(word)),
            Form::Fortran { .. } => self.number(letter).map(|number| mpi.type_of_fortran(number)),
        }
    }

    /// One of an array of datatypes.
    pub(crate) fn datatype_at(&self, mpi: &Mpi, letter: char, index: usize) -> Option<Handle> {
        let array = self.word(letter).filter(|array| *array != 0)?;
        // SAFETY: the array has an entry for each rank or neighbour, as the call says.
        unsafe {
            match self.form {
                Form::C | Form::Large => {
                    Some(mpi.abi.handle_at(array + index * mpi.abi.handle_bytes()))
                }
                Form::Fortran { .. } => {
                    let number = (array as *const i32).add(index).read_unaligned();
                    Some(mpi.type_of_fortran(number))
                }
            }
        }
    }

    /// The communicator.
    pub(crate) fn comm(&self, mpi: &Mpi) -> Option<Handle> {
        match self.form {
            Form::C | Form::Large => self.word('c').map(|word| mpi.abi.handle(word)),
            Form::Fortran { .. } => self.number('c').map(|number| mpi.comm_of_fortran(number)),
        }
    }

    /// The communicator at the address where a new one goes, or one is taken from.
    pub(crate) fn comm_there(&self, mpi: &Mpi) -> Option<Handle> {
        let word = self.word('o').filter(|word| *word != 0)?;
        match self.form {
            // SAFETY: the program's own place for a handle, as its call says.
            Form::C | Form::Large => Some(unsafe { mpi.abi.handle_at(word) }),
            Form::Fortran { .. } => self.number('o').map(|number| mpi.comm_of_fortran(number)),
        }
    }

    /// The datatype at the address of the first argument.
    pub(crate) fn datatype_there(&self, mpi: &Mpi) -> Option<Handle> {
        let word = *self.words.first().filter(|word| **word != 0)?;
        // SAFETY: the program's own place for a handle, as its call says.
        unsafe {
            match self.form {
                Form::C | Form::Large => Some(mpi.abi.handle_at(word)),
                Form::Fortran { .. } => {
                    Some(mpi.type_of_fortran((word as *const i32).read_unaligned()))
                }
            }
        }
    }

    /// The address of what is sent. What Fortran has for `MPI_BOTTOM` is 0.
    pub(crate) fn buffer(&self) -> Option<usize> {
        let word = self.word('b')?;
        let is_bottom = self.is_fortran() && bottoms().contains(&word);
        Some(if is_bottom { 0 } else { word })
    }

    /// Whether what is sent is taken from where the result goes.
    pub(crate) fn is_in_place(&self, mpi: &Mpi) -> bool {
        match self.form {
            Form::C | Form::Large => self.word('b') == Some(mpi.abi.in_place()),
            Form::Fortran { .. } => self.word('b').is_some_and(|word| in_places().contains(&word)),
        }
    }

    /// The request at the address of an argument, as a number that names it in this language.
    pub(crate) fn request(&self, mpi: &Mpi) -> Option<u64> {
        if let Some(word) = self.word('v') {
            return match self.form {
                Form::C | Form::Large => Some(mpi.abi.handle(word) as u64),
                Form::Fortran { .. } => self.number('v').map(|number| fortran_request(mpi, number)),
            };
        }
        self.word('q').filter(|word| *word != 0).map(|word| self.request_from(mpi, word, 0))
    }

    /// The requests of an array.
    pub(crate) fn requests(&self, mpi: &Mpi, most: usize) -> Vec<u64> {
        let count = self.number('k').unwrap_or(0).max(0) as usize;
        match self.word('A').filter(|array| *array != 0) {
            Some(array) => (0..count.min(most)).map(|i| self.request_from(mpi, array, i)).collect(),
            None => Vec::new(),
        }
    }

    fn request_from(&self, mpi: &Mpi, array: usize, index: usize) -> u64 {
        // SAFETY: the program's own requests, as many as its call says.
        unsafe {
            match self.form {
                Form::C | Form::Large => {
                    mpi.abi.handle_at(array + index * mpi.abi.handle_bytes()) as u64
                }
                Form::Fortran { .. } => {
                    fortran_request(mpi, (array as *const i32).add(index).read_unaligned())
                }
            }
        }
    }

    /// A number that the call has written: an index, a count of them, a flag.
    pub(crate) fn result(&self, letter: char) -> Option<i32> {
        let word = self.word(letter).filter(|word| *word != 0)?;
        // SAFETY: the program's own place for a number, as its call says.
        Some(unsafe { (word as *const i32).read_unaligned() })
    }

    /// One of the indices of an array, from 0 in both languages.
    pub(crate) fn index_at(&self, index: usize) -> Option<i32> {
        let array = self.word('I').filter(|array| *array != 0)?;
        // SAFETY: as many as the call has said that there are.
        Some(self.as_in_c(unsafe { (array as *const i32).add(index).read_unaligned() }))
    }

    /// An index as C counts.
    pub(crate) fn as_in_c(&self, index: i32) -> i32 {
        index - i32::from(self.is_fortran())
    }

    /// One of the first two arguments, as a number: the ends of a range.
    pub(crate) fn number_at(&self, place: usize) -> i32 {
        match self.form {
            Form::C | Form::Large => self.words[place] as i32,
            // SAFETY: a number of the program, as its call says.
            Form::Fortran { .. } => unsafe { (self.words[place] as *const i32).read_unaligned() },
        }
    }

    /// A text of C.
    pub(crate) fn text(&self) -> Option<String> {
        let word = self.word('a').filter(|word| *word != 0)?;
        // SAFETY: a text of the program, which ends with a zero byte.
        let text = unsafe { CStr::from_ptr(word as *const c_char) };
        Some(text.to_string_lossy().into_owned())
    }

    /// The numbers that Fortran has for the request of a call, or for those of an array.
    pub(crate) fn fortran_requests(&self, count: usize) -> impl Iterator<Item = i32> {
        let (word, count) = match self.word('A') {
            Some(array) => (array, count),
            None => (self.word('q').or_else(|| self.word('v')).unwrap_or(0), 1),
        };
        let count = if word == 0 { 0 } else { count };
        // SAFETY: the program's own requests, as many as its call says.
        (0..count).map(move |at| unsafe { (word as *const i32).add(at).read_unaligned() })
    }

    /// The address that an argument of Fortran is, as C writes it.
    pub(crate) fn address_in_c(&self, mpi: &Mpi, place: usize) -> usize {
        let word = self.words[place];
        match () {
            () if bottoms().contains(&word) => 0,
            () if ignored().contains(&word) => mpi.abi.no_status(),
            () => word,
        }
    }

    /// Where the status of a call of one request goes; `None` when the program wants none.
    pub(crate) fn status(&self, mpi: &Mpi) -> Option<usize> {
        let word = self.words[self.status_at()];
        let is_ignored = match self.form {
            Form::C | Form::Large => word == mpi.abi.no_status(),
            Form::Fortran { .. } => ignored().contains(&word),
        };
        (!is_ignored).then_some(word)
    }

    /// The place of the status, which is the last argument of C.
    pub(crate) fn status_at(&self) -> usize {
        self.call.args.len() - 1
    }

    /// Writes a number to where an argument of Fortran says, or to one of the places from there on.
    pub(crate) fn put(&self, letter: char, at: usize, number: i32) {
        if let Some(word) = self.address(letter) {
            // SAFETY: the program's own place for what the call gives.
            unsafe { (word as *mut i32).add(at).write_unaligned(number) };
        }
    }

    /// Writes the code of a call of Fortran, where the program wants it.
    pub(crate) fn put_code(&self, code: i32) {
        if let Some(word) = self.words.last().filter(|word| **word != 0) {
            // SAFETY: the program's own place for the code.
            unsafe { (*word as *mut i32).write_unaligned(code) };
        }
    }

    /// Whether the call succeeded: Fortran writes the code to its last argument, if there is one.
    pub(crate) fn succeeded(&self, code: i32) -> bool {
        match self.form {
            Form::C | Form::Large => code == 0,
            Form::Fortran { .. } => match self.words.last() {
                // SAFETY: the program's own place for the code.
                Some(place) if *place != 0 => unsafe { *(*place as *const i32) == 0 },
                _ => true,
            },
        }
    }
}

/// A request of Fortran: apart from those of C, but where both have the same numbers.
fn fortran_request(mpi: &Mpi, number: i32) -> u64 {
    let apart = u64::from(mpi.abi != Abi::Mpich) << 63;
    u64::from(number as u32) | apart
}

/// The addresses of MPI's variables of Fortran with these names, by the endings of compilers.
fn variables<const N: usize>(names: [&CStr; N]) -> Vec<usize> {
    let found = names.map(|name| find_variable(name) as usize);
    found.into_iter().filter(|address| *address != 0).collect()
}

fn bottoms() -> &'static [usize] {
    static FOUND: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let names = [c"mpi_fortran_bottom_", c"mpi_fortran_bottom", c"mpi_fortran_bottom__"];
    FOUND.get_or_init(|| variables(names))
}

/// What Fortran has for `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
fn ignored() -> &'static [usize] {
    static FOUND: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let names = [
        c"mpi_fortran_status_ignore_",
        c"mpi_fortran_status_ignore",
        c"mpi_fortran_status_ignore__",
        c"mpi_fortran_statuses_ignore_",
        c"mpi_fortran_statuses_ignore",
        c"mpi_fortran_statuses_ignore__",
        c"MPIR_F08_MPI_STATUS_IGNORE_OBJ",
        c"MPIR_F08_MPI_STATUSES_IGNORE_OBJ",
    ];
    FOUND.get_or_init(|| variables(names))
}

fn in_places() -> &'static [usize] {
    static FOUND: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let names = [c"mpi_fortran_in_place_", c"mpi_fortran_in_place", c"mpi_fortran_in_place__"];
    FOUND.get_or_init(|| variables(names))
}
