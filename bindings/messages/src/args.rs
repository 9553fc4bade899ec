//! The arguments of a call, by their letters in the table of calls, whether they come from C or
//! from Fortran, which passes addresses of numbers.

use std::ffi::{CStr, c_char};

use unspool_messages::calls::{CALLS, Call};

use crate::abi::Handle;
use crate::around::Form;
use crate::mpi::Mpi;
use crate::real::find_variable;

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
        self.form == Form::Fortran
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
            Form::Fortran => Some(unsafe { (word as *const i32).read_unaligned() }),
        }
    }

    /// A count.
    pub(crate) fn count(&self, letter: char) -> Option<i64> {
        match (self.form, letter) {
            (Form::Large, _) | (Form::C, 'L') => self.word(letter).map(|word| word as i64),
            (Form::Fortran, 'L') => {
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
            match self.form {
                Form::Large => Some((array as *const i64).add(index).read_unaligned()),
                _ => Some(i64::from((array as *const i32).add(index).read_unaligned())),
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
            Form::Fortran => self.number(letter).map(|number| mpi.type_of_fortran(number)),
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
                Form::Fortran => {
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
            Form::Fortran => self.number('c').map(|number| mpi.comm_of_fortran(number)),
        }
    }

    /// The communicator at the address where a new one goes, or one is taken from.
    pub(crate) fn comm_there(&self, mpi: &Mpi) -> Option<Handle> {
        let word = self.word('o').filter(|word| *word != 0)?;
        match self.form {
            // SAFETY: the program's own place for a handle, as its call says.
            Form::C | Form::Large => Some(unsafe { mpi.abi.handle_at(word) }),
            Form::Fortran => self.number('o').map(|number| mpi.comm_of_fortran(number)),
        }
    }

    /// The datatype at the address of the first argument.
    pub(crate) fn datatype_there(&self, mpi: &Mpi) -> Option<Handle> {
        let word = *self.words.first().filter(|word| **word != 0)?;
        // SAFETY: the program's own place for a handle, as its call says.
        unsafe {
            match self.form {
                Form::C | Form::Large => Some(mpi.abi.handle_at(word)),
                Form::Fortran => Some(mpi.type_of_fortran((word as *const i32).read_unaligned())),
            }
        }
    }

    /// The address of what is sent. What Fortran has for `MPI_BOTTOM` is 0.
    pub(crate) fn buffer(&self) -> Option<usize> {
        let word = self.word('b')?;
        let is_bottom = self.form == Form::Fortran && bottoms().contains(&word);
        Some(if is_bottom { 0 } else { word })
    }

    /// Whether what is sent is taken from where the result goes.
    pub(crate) fn is_in_place(&self, mpi: &Mpi) -> bool {
        match self.form {
            Form::C | Form::Large => self.word('b') == Some(mpi.abi.in_place()),
            Form::Fortran => self.word('b').is_some_and(|word| in_places().contains(&word)),
        }
    }

    /// The request at the address of an argument, as a number that names it in this language.
    pub(crate) fn request(&self, mpi: &Mpi) -> Option<u64> {
        if let Some(word) = self.word('v') {
            return match self.form {
                Form::C | Form::Large => Some(mpi.abi.handle(word) as u64),
                Form::Fortran => self.number('v').map(fortran_request),
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
                Form::Fortran => fortran_request((array as *const i32).add(index).read_unaligned()),
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
        index - i32::from(self.form == Form::Fortran)
    }

    /// One of the first two arguments, as a number: the ends of a range.
    pub(crate) fn number_at(&self, place: usize) -> i32 {
        match self.form {
            Form::C | Form::Large => self.words[place] as i32,
            // SAFETY: a number of the program, as its call says.
            Form::Fortran => unsafe { (self.words[place] as *const i32).read_unaligned() },
        }
    }

    /// A text of C.
    pub(crate) fn text(&self) -> Option<String> {
        let word = self.word('a').filter(|word| *word != 0)?;
        // SAFETY: a text of the program, which ends with a zero byte.
        let text = unsafe { CStr::from_ptr(word as *const c_char) };
        Some(text.to_string_lossy().into_owned())
    }

    /// Whether the call succeeded: Fortran writes the code to its last argument, if there is one.
    pub(crate) fn succeeded(&self, code: i32) -> bool {
        match self.form {
            Form::C | Form::Large => code == 0,
            Form::Fortran => match self.words.last() {
                // SAFETY: the program's own place for the code.
                Some(place) if *place != 0 => unsafe { *(*place as *const i32) == 0 },
                _ => true,
            },
        }
    }
}

/// A request of Fortran, apart from those of C.
fn fortran_request(number: i32) -> u64 {
    u64::from(number as u32) | 1 << 63
}

/// The addresses of Open MPI's variable of Fortran with this name, by the endings of compilers.
fn variables(names: [&CStr; 3]) -> Vec<usize> {
    let found = names.map(|name| find_variable(name) as usize);
    found.into_iter().filter(|address| *address != 0).collect()
}

fn bottoms() -> &'static [usize] {
    static FOUND: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let names = [c"mpi_fortran_bottom_", c"mpi_fortran_bottom", c"mpi_fortran_bottom__"];
    FOUND.get_or_init(|| variables(names))
}

fn in_places() -> &'static [usize] {
    static FOUND: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let names = [c"mpi_fortran_in_place_", c"mpi_fortran_in_place", c"mpi_fortran_in_place__"];
    FOUND.get_or_init(|| variables(names))
}
