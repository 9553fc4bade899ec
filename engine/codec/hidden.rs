//! Keeps functions of a dependency out of what a shared library of ours exports: those for C of
//! `crc-fast`, whose feature `ffi` the client of object stores switches on. Each of our shared
//! libraries includes this file; it is not a module of this crate.

use std::arch::global_asm;

// A symbol that any object names as hidden is hidden in the library that is linked of them.
global_asm!(
    ".irp name, checksum, checksum_combine, checksum_combine_with_params, checksum_file, \
     checksum_file_with_params, checksum_with_params, clear_error, crc32_iscsi, crc32_iso_hdlc, \
     crc64_nvme, digest_combine, digest_finalize, digest_finalize_reset, digest_free, \
     digest_get_amount, digest_get_state, digest_new, digest_new_with_init_state, \
     digest_new_with_params, digest_reset, digest_update, error_message, get_calculator_target, \
     get_custom_params, get_last_error, get_version",
    ".weak crc_fast_\\name",
    ".hidden crc_fast_\\name",
    ".endr",
);
