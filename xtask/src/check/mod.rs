//! One check per file. A check looks at the tree and says what it found; it changes nothing.

pub mod circles;
pub mod columns;
pub mod concurrency;
pub mod core_purity;
pub mod decisions;
pub mod dependencies;
pub mod file_length;
pub mod floors;
pub mod function_length;
pub mod laboratory;
pub mod links;
pub mod machine_paths;
pub mod opening;
pub mod parameters;
pub mod planning;
pub mod readme;
pub mod rooms;
pub mod unsafe_code;
pub mod versions;
pub mod words;

/// The extensions of what counts as source code.
pub const SOURCE: &[&str] = &["rs", "py", "pyi", "cu", "c", "h"];
