//! What can be wrong with what a caller asks for.

use std::fmt;

/// A request that cannot be computed; the text says what is wrong and what to do.
#[derive(Clone, PartialEq, Debug)]
pub enum WaveError {
    /// The grid is empty, too large to index, or its spacing is not a positive length.
    Grid(String),
    /// A velocity is not a positive finite number.
    Velocity {
        /// Where, in cells from the corner of the model.
        x: usize,
        /// Where, in cells of depth.
        z: usize,
        /// What was found there, in m/s.
        value: f32,
    },
    /// The time step breaks the stability (CFL) limit.
    Unstable {
        /// The time step asked for, in seconds.
        dt: f64,
        /// The largest stable one, in seconds.
        limit: f64,
    },
    /// A buffer has another length than the grid or the points ask for.
    Length {
        /// Which buffer.
        what: &'static str,
        /// Its length in elements.
        found: usize,
        /// The length that fits.
        expected: usize,
    },
    /// A source or a receiver lies outside the model.
    Outside {
        /// Its place in the list.
        index: usize,
        /// Its position in metres.
        x: f64,
        /// Its depth in metres.
        z: f64,
        /// The extent of the model in metres.
        extent: (f64, f64),
    },
    /// Points of one grid were used on another.
    ForeignPoints,
    /// This machine lacks the instruction set asked for.
    Instructions(&'static str),
    /// The threads could not be started.
    Threads(String),
}

impl fmt::Display for WaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grid(reason) => write!(f, "the grid cannot be used: {reason}"),
            Self::Velocity { x, z, value } => write!(
                f,
                "the velocity at cell ({x}, {z}) is {value} m/s: every velocity must be positive \
                 and finite"
            ),
            Self::Unstable { dt, limit } => write!(
                f,
                "a time step of {dt} s is unstable on this model: the largest stable one is \
                 {limit} s; take a smaller step or a coarser grid"
            ),
            Self::Length { what, found, expected } => {
                write!(f, "{what} has {found} elements where {expected} are needed")
            }
            Self::Outside { index, x, z, extent } => write!(
                f,
                "point {index} at x = {x} m, depth {z} m lies outside the model of {} m by {} m",
                extent.0, extent.1
            ),
            Self::ForeignPoints => {
                f.write_str("these points were made for another grid; make them with this one")
            }
            Self::Instructions(name) => write!(
                f,
                "this machine does not offer {name}; leave the choice of instructions to the \
                 library"
            ),
            Self::Threads(reason) => {
                write!(f, "the threads of the propagator could not be started: {reason}")
            }
        }
    }
}

impl std::error::Error for WaveError {}

/// Checks the length of one buffer.
pub(crate) fn expect_length(
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), WaveError> {
    if found == expected { Ok(()) } else { Err(WaveError::Length { what, found, expected }) }
}
