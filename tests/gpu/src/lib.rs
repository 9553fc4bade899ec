//! Shared code of the programs.

#![allow(clippy::unwrap_used)]

use unspool_cuda::kernels::{ship, shipped};

/// Loads the kernels that `make kernels` has compiled, as a package does, and describes them.
/// Without any, kernels are compiled when they are first needed.
///
/// # Panics
/// When the file is damaged.
#[must_use]
pub fn ship_kernels() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/kernels/kernels.pack");
    ship(std::fs::read(path).unwrap_or_default().leak()).unwrap();
    shipped()
        .map_or_else(|| "kernels: none shipped".to_owned(), |pack| format!("kernels: {pack:?}"))
}
