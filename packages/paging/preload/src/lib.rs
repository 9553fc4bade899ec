//! Pages the large allocations of a program that it is preloaded into. `unspool-paging run` sets
//! it up.
//!
//! What holds throughout:
//! - It stands before `malloc`, `mmap` and their kin. An allocation of at least `--match` bytes
//!   becomes paged memory of `unspool_paging`; everything else goes to the next library, as do all
//!   calls on memory that is not paged.
//! - Nothing that answers a page fault waits for one here: the memory of this library and of the
//!   pager is that of the next library, and the pager calls the kernel by number. The files of its
//!   disk alone pass through `calls`, with bytes that are not paged.
//! - What cannot be done to paged memory is refused with an error of C and a line on the error
//!   output. Bytes that cannot be had back end the program, as everywhere in paging.
//! - A program that cannot be helped runs as it would have, unless it is to be paged or nothing.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("userfaultfd is of Linux, and offsets have 64 bits");

mod allocator;
mod calls;
mod child;
#[path = "../../../../engine/codec/hidden.rs"]
mod hidden;
mod mapping;
mod memory;
mod next;
mod pages;
mod settings;
#[path = "../../../common/size.rs"]
mod size;
mod table;

/// Called before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Called at the exit, after everything that the program does there.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    next::find_all();
    pages::settings();
    child::watch();
}

/// Memory stays as it is: other threads may use it until the process is gone.
extern "C" fn end() {
    pages::tell();
}
