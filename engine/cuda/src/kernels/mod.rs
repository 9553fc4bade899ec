//! Kernels: CUDA C++ as text, compiled when the library is built and shipped with it in a [`Pack`],
//! or else compiled by NVRTC when they are first needed. The texts of this crate are in its folder
//! `kernels`.

mod cache;
mod compile;
mod find;
mod image;
mod kept;
mod module;
mod pack;
pub mod pattern;

use std::borrow::Cow;

pub use cache::Cache;
pub use compile::Nvrtc;
pub use image::{Arch, Image, Key, Target};
pub use kept::{Kernels, take_waited};
pub use module::{Argument, Module};
pub use pack::{Fit, NewImage, Pack, ship, shipped};

/// The text of some kernels.
#[derive(Clone, Debug)]
pub struct KernelText {
    /// Its name in messages.
    pub name: String,
    /// The names of the kernels in it.
    pub kernels: &'static [&'static str],
    /// CUDA C++.
    pub text: Cow<'static, str>,
}

impl KernelText {
    /// A text as it is.
    #[must_use]
    pub fn of(name: &str, kernels: &'static [&'static str], text: &'static str) -> KernelText {
        KernelText { name: name.to_owned(), kernels, text: Cow::Borrowed(text) }
    }
}
