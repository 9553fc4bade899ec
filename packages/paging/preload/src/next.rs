//! The functions that the program would have reached without this library: those of the next
//! library that has them, which is that of C or another one that is preloaded.
//!
//! The first look-up may itself allocate, before there is anything to allocate with. A small room
//! of our own serves that.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{off_t, size_t, ssize_t};

/// A function that calls are passed on to.
struct Place {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

/// The thread that began to look a function up last; 0: none does. One that is looked up beside it
/// has its small allocations from functions that are looked up for them.
static LOOKER: AtomicUsize = AtomicUsize::new(NOBODY);
const NOBODY: usize = 0;

/// A number of this thread: where its last error is. A variable of each thread, as Rust has them,
/// may itself allocate.
fn this_thread() -> usize {
    // SAFETY: it only says where the number is.
    unsafe { libc::__errno_location() as usize }
}

impl Place {
    fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let me = this_thread();
        let is_outer = LOOKER.swap(me, Ordering::AcqRel) != me;
        // SAFETY: a name that ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if is_outer {
            // Another thread that has begun meanwhile ends it.
            let _ = LOOKER.compare_exchange(me, NOBODY, Ordering::AcqRel, Ordering::Relaxed);
        }
        if found.is_null() {
            say(&format!("there is no function {}: the process ends", self.name.to_string_lossy()));
            std::process::abort();
        }
        self.found.store(found, Ordering::Release);
        found
    }
}

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// The next function of this name.
            ///
            /// # Safety
            /// That of the function.
            pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
                // SAFETY: the function with this name has these arguments and this result, and the
                // caller keeps to what it asks for.
                unsafe {
                    let real: unsafe extern "C" fn($($type),*) -> $result =
                        std::mem::transmute(places::$name.get());
                    real($($arg),*)
                }
            }
        )*

        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        mod places {
            use super::{AtomicPtr, CStr, Place};

            const fn place(name: &'static str) -> Place {
                let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { panic!() };
                Place { name, found: AtomicPtr::new(std::ptr::null_mut()) }
            }

            $(pub(super) static $name: Place = place(concat!(stringify!($name), "\0"));)*
        }

        /// Looks all of them up, so that no later call has to.
        pub(crate) fn find_all() {
            $(places::$name.get();)*
        }
    };
}

functions! {
    malloc(bytes: size_t) -> *mut c_void;
    calloc(count: size_t, bytes: size_t) -> *mut c_void;
    realloc(place: *mut c_void, bytes: size_t) -> *mut c_void;
    free(place: *mut c_void) -> ();
    posix_memalign(place: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int;
    aligned_alloc(align: size_t, bytes: size_t) -> *mut c_void;
    memalign(align: size_t, bytes: size_t) -> *mut c_void;
    malloc_usable_size(place: *mut c_void) -> size_t;
    mmap(place: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, file: c_int,
        offset: off_t) -> *mut c_void;
    munmap(place: *mut c_void, bytes: size_t) -> c_int;
    mprotect(place: *mut c_void, bytes: size_t, protection: c_int) -> c_int;
    mremap(place: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void)
        -> *mut c_void;
    madvise(place: *mut c_void, bytes: size_t, advice: c_int) -> c_int;
    read(file: c_int, place: *mut c_void, bytes: size_t) -> ssize_t;
    pread(file: c_int, place: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    write(file: c_int, place: *const c_void, bytes: size_t) -> ssize_t;
    pwrite(file: c_int, place: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fread(place: *mut c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t;
    fwrite(place: *const c_void, size: size_t, count: size_t, file: *mut libc::FILE) -> size_t;
}

/// Bytes for what a look-up allocates.
const ROOM: usize = 16 << 10;

#[repr(align(16))]
struct Room(std::cell::UnsafeCell<[u8; ROOM]>);

// SAFETY: each of its bytes is given to one caller, once.
unsafe impl Sync for Room {}

static OWN: Room = Room(std::cell::UnsafeCell::new([0; ROOM]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Zeros for an allocation of the thread that looks a function up, null when there is no room for
/// them; `None` for any other allocation.
pub(crate) fn early(bytes: usize) -> Option<*mut c_void> {
    if LOOKER.load(Ordering::Acquire) != this_thread() {
        return None;
    }
    // More than there is stays more, and does not overflow.
    let bytes = bytes.min(ROOM + 1).next_multiple_of(16).max(16);
    let end = |at| Some(at + bytes).filter(|&end| end <= ROOM);
    let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
    let start = OWN.0.get().cast::<u8>();
    Some(taken.map_or(std::ptr::null_mut(), |at| start.wrapping_add(at).cast()))
}

/// How many bytes there are from here to the end of that room; `None` for other memory.
pub(crate) fn early_rest(place: *mut c_void) -> Option<usize> {
    let start = OWN.0.get() as usize;
    (start..start + ROOM).contains(&(place as usize)).then(|| start + ROOM - place as usize)
}

/// Tells the user something, by the descriptor: the program may be at any point.
pub(crate) fn say(what: &str) {
    let line = format!("unspool-paging ({}): {what}\n", std::process::id());
    say_bytes(line.as_bytes());
}

/// Writes a line that is there already, also in a signal handler.
pub(crate) fn say_bytes(line: &[u8]) {
    // SAFETY: the bytes live for the call. Nobody is told when nobody listens.
    unsafe { libc::syscall(libc::SYS_write, 2_usize, line.as_ptr(), line.len()) };
}

/// What went wrong, for the caller of a function of C.
pub(crate) fn fail(errno: c_int) {
    // SAFETY: the number of this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The number of the last error, which a function that cannot fail leaves as it is.
pub(crate) fn errno() -> c_int {
    // SAFETY: the number of this thread.
    unsafe { *libc::__errno_location() }
}
