//! The functions of the MPI that is in the process. A program that is linked with it has them after
//! this library in the global order. One that loads it for itself, as mpi4py does, keeps them in a
//! scope of its own, and they are found in the loaded libraries whose names begin as those of MPI
//! do.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use unspool_messages::calls::CALLS;

/// A function that a wrapper passes calls on to.
pub(crate) struct Real {
    /// Its name.
    pub(crate) name: &'static CStr,
    place: AtomicPtr<c_void>,
    /// How many libraries had been loaded when it was looked for in vain.
    missed: AtomicU64,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, place: AtomicPtr::new(std::ptr::null_mut()), missed: AtomicU64::new(0) }
    }

    /// Its address; null when this MPI does not have it.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.place.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let loads = loads();
        if self.missed.load(Ordering::Acquire) == loads {
            return known;
        }
        let found = find(self.name);
        if found.is_null() {
            self.missed.store(loads, Ordering::Release);
        } else {
            self.place.store(found, Ordering::Release);
        }
        found
    }
}

/// The function with this name beyond this library; null when there is none.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero byte.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if next.is_null() { search(name) } else { next }
}

/// The variable of MPI with this name; null when there is none. A program that is linked with MPI
/// may have a copy of its own, which hides that of the library, so it is looked for from the
/// beginning.
pub(crate) fn find_variable(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero byte.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if first.is_null() { search(name) } else { first }
}

/// Looks in the libraries of MPI that are loaded in scopes of their own.
fn search(name: &CStr) -> *mut c_void {
    for path in loaded(|file| file.starts_with(b"libmpi") || file.starts_with(b"libpmpi")) {
        // SAFETY: the library is loaded, and stays so: it is not loaded here, and never closed.
        let found = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
        };
        if !found.is_null() {
            return found;
        }
    }
    std::ptr::null_mut()
}

/// A function of a library that is loaded and whose file has this name; null when it is not.
pub(crate) fn find_in(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: names that end with zero bytes. Nothing is loaded, and the handle is never closed.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
    }
}

/// The name of the file that has this function.
pub(crate) fn library_of(function: *mut c_void) -> &'static [u8] {
    path_of(function).map(|path| file_of(path.to_bytes())).unwrap_or_default()
}

/// The path of that file, as it was loaded.
pub(crate) fn path_of(function: *mut c_void) -> Option<&'static CStr> {
    // SAFETY: a plain record, for which zeros are a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function, and room for what is found.
    let is_found = unsafe { libc::dladdr(function, &raw mut found) } != 0;
    // SAFETY: the loader's own text, which ends with a zero byte and stays while the library does:
    // those of MPI, and this one, are never closed.
    (is_found && !found.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(found.dli_fname) })
}

fn file_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The paths of loaded libraries whose file names are wanted.
pub(crate) fn loaded(wanted: fn(&[u8]) -> bool) -> Vec<CString> {
    struct Search {
        wanted: fn(&[u8]) -> bool,
        found: Vec<CString>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's record, and the search that was handed in below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the loader's own text, which ends with a zero byte.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            if (search.wanted)(file_of(name.to_bytes())) {
                search.found.push(name.to_owned());
            }
        }
        0
    }
    let mut search = Search { wanted, found: Vec::new() };
    // SAFETY: `look` takes the search, which lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// How many libraries the process has loaded so far: while it stays the same, so do they.
pub(crate) fn loads() -> u64 {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        count: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's record, and the number that was handed in below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0_u64;
    // SAFETY: `look` takes the number, which lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut count).cast()) };
    count
}

/// The function of C in this row of the table of calls, with counts of 32 bits, or of 64 bits when
/// it is large, beyond the wrappers; null when this MPI does not have it.
pub(crate) fn function(row: usize, is_large: bool) -> *mut c_void {
    static FOUND: [[OnceLock<usize>; 2]; CALLS.len()] =
        [const { [const { OnceLock::new() }; 2] }; CALLS.len()];
    let look = || {
        let width = if is_large { "_c" } else { "" };
        let name = CString::new(format!("MPI_{}{width}", CALLS[row].name));
        name.map_or(0, |name| find(&name) as usize)
    };
    *FOUND[row][usize::from(is_large)].get_or_init(look) as *mut c_void
}

/// Calls a function of MPI with as many arguments as there are; `None` where none has as many.
pub(crate) fn pass(real: *mut c_void, words: &[usize]) -> Option<c_int> {
    macro_rules! with {
        ($([$($word:ident)*])*) => {
            match words {
                $([$($word),*] => {
                    type Real = unsafe extern "C" fn($(with!(@ $word)),*) -> c_int;
                    // SAFETY: a function of MPI with as many arguments as there are words, each of
                    // which fills a register or a slot of the stack.
                    Some(unsafe { std::mem::transmute::<*mut c_void, Real>(real)($(*$word),*) })
                })*
                _ => None,
            }
        };
        (@ $word:ident) => { usize };
    }
    with! {
        [a]
        [a b]
        [a b c]
        [a b c d]
        [a b c d e]
        [a b c d e f]
        [a b c d e f g]
        [a b c d e f g h]
        [a b c d e f g h i]
        [a b c d e f g h i j]
        [a b c d e f g h i j k]
        [a b c d e f g h i j k l]
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::sync::atomic::Ordering;

    use super::{Real, loads, pass};

    #[test]
    fn what_is_not_there_is_looked_for_again_when_a_library_was_loaded() {
        let real = Real::new(c"unspool_has_no_such_function");
        assert!(real.get().is_null());
        assert_eq!(real.missed.load(Ordering::Acquire), loads());
        // As if that had been before the library with the function was loaded.
        let loaded_since = Real::new(c"getpid");
        loaded_since.missed.store(loads() - 1, Ordering::Release);
        assert!(!loaded_since.get().is_null());
    }

    unsafe extern "C" fn add(a: c_int, b: c_int, c: c_int, d: c_int, e: c_int) -> c_int {
        a + 10 * b + 100 * c + 1000 * d + 10_000 * e
    }

    #[test]
    fn arguments_are_passed_in_their_places() {
        assert_eq!(pass(add as *mut _, &[1, 2, 3, 4, 5]), Some(54321));
        assert_eq!(pass(add as *mut _, &[]), None);
    }
}
