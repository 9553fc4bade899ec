//! The whole system in virtual time with injected faults, from a seed.
