//! A small acoustic propagator for Unspool's reverse time migration.
