//! Fakes and the conformance suite that every tier passes.
