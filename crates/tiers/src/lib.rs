//! The places where Unspool's frames rest: memory arenas and disk.
