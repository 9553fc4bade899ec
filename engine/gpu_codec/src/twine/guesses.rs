//! Guesses of bounds that depend on the values: for each kind of array that a stream encodes, the
//! bound of the last one, and for each kind of call how much its guesses are doubted. The device
//! reads and writes them; the host only says where they are.
//!
//! A guess saves time and changes no byte, for the device compares it with the bound that it finds:
//! launches on other streams may write it meanwhile, and arrays of different kinds may share one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use unspool_cuda::{DeviceError, DeviceMemory, Stream, copy};

use super::plan::LaunchPlan;
use super::words::Job;

/// Guesses, and doubts: many beside the kinds of arrays of an application.
const COUNT: u64 = 4096;
/// Bytes of a guess, and of a doubt.
const UNIT: u64 = 8;

/// The guesses of one device.
#[derive(Debug, Default)]
pub(super) struct Guesses(OnceLock<DeviceMemory>);

impl Guesses {
    /// Sets the addresses that jobs need whose bounds depend on their values; sums of squares begin
    /// at `bins`. Returns the address of the doubt about such calls.
    pub(super) fn assign(
        &self,
        stream: &Stream,
        plan: &mut LaunchPlan,
        bins: u64,
    ) -> Result<u64, DeviceError> {
        let first = self.address(stream)?;
        let mut call = DefaultHasher::new();
        let place = |job: &Job, number: u32| {
            let mut hash = DefaultHasher::new();
            (stream.handle(), number, job.n, job.rule, job.bound.to_bits()).hash(&mut hash);
            (job.cut.form, job.cut.nx, job.cut.ny, job.cut.nz).hash(&mut hash);
            hash.finish().hash(&mut call);
            first + UNIT * (hash.finish() % COUNT)
        };
        plan.measure_at(place, bins);
        Ok(first + UNIT * (COUNT + call.finish() % COUNT))
    }

    fn address(&self, stream: &Stream) -> Result<u64, DeviceError> {
        if let Some(memory) = self.0.get() {
            return Ok(memory.span().address());
        }
        let new = DeviceMemory::new(stream.context(), 2 * UNIT * COUNT)?;
        // Another thread may use it before it is cleared: a guess more that does not hold.
        let memory = self.0.get_or_init(|| new);
        copy::fill(stream, &memory.span(), 0)?;
        Ok(memory.span().address())
    }
}
