//! Codecs: in the words of Python, and on arrays by themselves.

mod bytes;
mod lone;
mod word;

pub use lone::register;
pub use word::{choice, made_by, named, outer};
