//! Records every step of a simulation and plays it back, in any order, faster than it is asked for.
