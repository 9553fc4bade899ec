//! Codecs in the words of Python.

mod word;

pub use word::{choice, made_by};
