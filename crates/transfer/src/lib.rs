//! Unspool's background workers: they execute the core's commands and report events.
