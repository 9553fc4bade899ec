//! `make bench`: tables of what the core's decisions cost and what its policies are worth.

fn main() {}
