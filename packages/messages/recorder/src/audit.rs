//! Hides from the loader each wrapper whose function the program's MPI lacks. Programs that look
//! whether MPI has a function, by a weak symbol or by `dlsym`, then find what they would find
//! without this library.
//!
//! The loader calls `la_objopen` for each library that it has mapped, before it binds any symbol of
//! it, in a second copy of this library that `LD_AUDIT` names. That copy writes to the symbol table
//! of the preloaded one: all wrappers are hidden at first, and each is shown when a library that
//! defines its function is opened. A symbol with the value 0 is undefined to the loader.

use std::ffi::{CStr, c_char, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::real::path_of;
use crate::wrappers::NAMES;

/// A library as the loader describes it: the part of `struct link_map` that is public.
#[repr(C)]
pub struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
}

/// A wrapper that is hidden: how its symbol is looked for, where its value is, and what that was.
struct Hidden {
    name: &'static CStr,
    value: &'static AtomicU64,
    was: u64,
}

static HIDDEN: Mutex<Vec<Hidden>> = Mutex::new(Vec::new());

/// Takes part in the loader's audit, of whatever version it is.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    version
}

/// Hears of a library that was mapped. Asks for nothing else to be told.
///
/// # Safety
/// The loader calls it, with its own description of the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *const LinkMap, space: c_long, _: *mut usize) -> c_uint {
    /// The name space of the program.
    const BASE: c_long = 0;
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as the caller says; the loader has mapped all that the description leads to.
    let (map, symbols) = unsafe { (&*map, Symbols::of(&*map)) };
    let Some(symbols) = symbols.filter(|_| space == BASE) else { return 0 };
    // SAFETY: the loader's own text, which ends with a zero byte.
    let name = unsafe { CStr::from_ptr(map.name) };
    let own = path_of(la_version as *mut c_void);
    if own.is_some_and(|own| own.to_bytes() == name.to_bytes()) {
        *hidden = hide(&symbols);
    } else {
        hidden.retain(|one| {
            let is_there = symbols.find(one.name).is_some();
            if is_there {
                one.value.store(one.was, Ordering::Release);
            }
            !is_there
        });
    }
    0
}

/// Hides all wrappers of the preloaded library, whose symbols can be written to from now on.
fn hide(symbols: &Symbols) -> Vec<Hidden> {
    let places = NAMES.iter().filter_map(|name| Some((*name, symbols.find(name)?)));
    let places: Vec<(&CStr, *const Symbol)> = places.collect();
    let first = places.iter().map(|(_, place)| *place as usize).min().unwrap_or(0);
    let last = places.iter().map(|(_, place)| *place as usize).max().unwrap_or(0);
    // SAFETY: a number that the system has.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let (start, end) = (first / page * page, last + size_of::<Symbol>());
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: pages of a private mapping, whose symbols only the loader reads, and it has the lock
    // under which this is called. The linker was told to keep code out of them.
    if unsafe { libc::mprotect(start as *mut c_void, end - start, open) } != 0 {
        return Vec::new();
    }
    let hidden = |(name, place): (&'static CStr, *const Symbol)| {
        // SAFETY: the symbol is mapped, and stays so: a preloaded library is never closed.
        let value = unsafe { &(*place).value };
        Hidden { name, value, was: value.swap(0, Ordering::Release) }
    };
    places.into_iter().map(hidden).collect()
}

/// An entry of a symbol table (`Elf64_Sym`).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: AtomicU64,
    size: u64,
}

/// The symbols that a library defines.
struct Symbols {
    table: *const Symbol,
    names: *const c_char,
    hashes: Hashes,
}

/// How symbols are found by their names.
enum Hashes {
    /// `DT_GNU_HASH`.
    Gnu(*const u32),
    /// `DT_HASH`, which old linkers write alone.
    Old(*const u32),
}

impl Symbols {
    /// Those of a library; `None` when it has no table of them.
    ///
    /// # Safety
    /// The library is mapped.
    unsafe fn of(map: &LinkMap) -> Option<Symbols> {
        const HASH: usize = 4;
        const NAMES: usize = 5;
        const TABLE: usize = 6;
        const GNU_HASH: usize = 0x6fff_fef5;
        let (mut table, mut names, mut gnu, mut old) = (0, 0, 0, 0);
        let mut entry = map.dynamic;
        // SAFETY: the dynamic section ends with an entry of zero.
        while let Some([tag, place]) = unsafe { entry.as_ref() }.filter(|entry| entry[0] != 0) {
            // The loader has made addresses of them, except where the section is read-only.
            let place = if *place < map.base { map.base + place } else { *place };
            match *tag {
                TABLE => table = place,
                NAMES => names = place,
                GNU_HASH => gnu = place,
                HASH => old = place,
                _ => {}
            }
            // SAFETY: the entry was not the last.
            entry = unsafe { entry.add(1) };
        }
        let hashes = match (gnu, old) {
            (0, 0) => return None,
            (0, old) => Hashes::Old(old as *const u32),
            (gnu, _) => Hashes::Gnu(gnu as *const u32),
        };
        let symbols = Symbols { table: table as _, names: names as _, hashes };
        (table != 0 && names != 0).then_some(symbols)
    }

    /// The symbol with this name, if the library defines it.
    fn find(&self, name: &CStr) -> Option<*const Symbol> {
        // SAFETY: the tables of a library that is mapped are as its linker has written them.
        let found = unsafe {
            match self.hashes {
                Hashes::Gnu(table) => self.find_by_gnu_hash(table, name),
                Hashes::Old(table) => self.find_by_old_hash(table, name),
            }
        };
        found.map(|index| self.at(index))
    }

    fn at(&self, index: u32) -> *const Symbol {
        self.table.wrapping_add(index as usize)
    }

    /// Whether a symbol has this name and is defined.
    ///
    /// # Safety
    /// There is a symbol of this number.
    unsafe fn is(&self, index: u32, name: &CStr) -> bool {
        // SAFETY: as the caller says, and names end with zero bytes.
        unsafe {
            let symbol = &*self.at(index);
            symbol.section != 0 && CStr::from_ptr(self.names.add(symbol.name as usize)) == name
        }
    }

    /// Looks in a table of the header: buckets, first symbol, words of the filter, its shift.
    unsafe fn find_by_gnu_hash(&self, table: *const u32, name: &CStr) -> Option<u32> {
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
        let hash = name.to_bytes().iter().fold(5381, step);
        // SAFETY: as the caller says: filter, buckets and chains follow one another.
        unsafe {
            let [buckets, first, words, shift] = *table.cast::<[u32; 4]>();
            if buckets == 0 || words == 0 {
                return None;
            }
            let filter = table.add(4).cast::<u64>();
            let word = *filter.add((hash / 64 % words) as usize);
            let bits = [hash, hash.wrapping_shr(shift)].map(|bit| word >> (bit % 64) & 1);
            if bits != [1, 1] {
                return None;
            }
            let bucket = filter.add(words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            while index >= first {
                let link = *chain.add((index - first) as usize);
                if link | 1 == hash | 1 && self.is(index, name) {
                    return Some(index);
                }
                // The last of a chain has the lowest bit.
                index = if link & 1 == 0 { index + 1 } else { return None };
            }
        }
        None
    }

    /// Looks in a table of buckets and chains, after the numbers of both.
    unsafe fn find_by_old_hash(&self, table: *const u32, name: &CStr) -> Option<u32> {
        let step = |hash: u32, byte: &u8| {
            let hash = (hash << 4).wrapping_add(u32::from(*byte));
            (hash ^ hash >> 24 & 0xf0) & 0x0fff_ffff
        };
        let hash = name.to_bytes().iter().fold(0, step);
        // SAFETY: as the caller says.
        unsafe {
            let [buckets, _] = *table.cast::<[u32; 2]>();
            let bucket = table.add(2);
            let mut index = *bucket.add(hash.checked_rem(buckets)? as usize);
            while index != 0 && !self.is(index, name) {
                index = *bucket.add((buckets + index) as usize);
            }
            (index != 0).then_some(index)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::atomic::Ordering;

    use super::{LinkMap, Symbols};

    /// The C library, as the loader describes it.
    fn c_library() -> LinkMap {
        // SAFETY: a library that every program has, which is not closed. Its handle is what the
        // loader describes it by.
        unsafe {
            let handle = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            assert!(!handle.is_null());
            handle.cast::<LinkMap>().read()
        }
    }

    #[test]
    fn symbols_of_a_library_are_found_where_the_loader_finds_them() {
        let map = c_library();
        // SAFETY: it is mapped.
        let symbols = unsafe { Symbols::of(&map) }.unwrap();
        for name in [c"getpid", c"fopen", c"qsort", c"strtol"] {
            // SAFETY: the symbol is mapped.
            let value = unsafe { &*symbols.find(name).unwrap() }.value.load(Ordering::Relaxed);
            assert!(value > 0 && value < 1 << 32, "{name:?}");
        }
        let longest = [c"getpidx", c"MPI_Send", c"", c"__tls_get_addr"];
        let found = longest.map(|name: &CStr| symbols.find(name).is_some());
        assert_eq!(found, [false; 4]);
    }
}
