//! Results that wait on the device until somebody looks.

use unspool::gpu::{DeviceMemory, DeviceSpan, Gpu};
use unspool_cuda::copy;

use super::{LIMIT, Lane, Outcome, Wrong};

/// What a part of the results has to be.
struct Check {
    at: u64,
    expected: Vec<u8>,
    what: String,
}

/// Memory for results, and what is expected there.
pub(super) struct Checks {
    memory: DeviceMemory,
    used: u64,
    list: Vec<Check>,
    /// How many there were when the call began that is under way.
    before: usize,
}

impl Checks {
    pub(super) fn new(gpu: &Gpu, len: u64) -> Outcome<Checks> {
        let memory = DeviceMemory::new(gpu.context(), len)?;
        Ok(Checks { memory, used: 0, list: Vec::new(), before: 0 })
    }

    /// A call begins.
    pub(super) fn begin(&mut self) {
        self.before = self.list.len();
    }

    /// The call has failed: nothing is known of its results.
    pub(super) fn forget(&mut self) {
        self.list.truncate(self.before);
    }

    /// Whether there is room for `len` bytes more.
    pub(super) fn has_room(&self, len: u64) -> bool {
        self.used + len <= self.memory.span().len()
    }

    /// Room for a result, which has to be `expected` in the end.
    pub(super) fn add(&mut self, expected: Vec<u8>, what: String) -> Outcome<DeviceSpan> {
        let (at, len) = (self.used, expected.len() as u64);
        self.used += len.next_multiple_of(256);
        self.list.push(Check { at, expected, what });
        Ok(self.memory.span().slice(at, len)?)
    }

    /// Waits for all streams and compares everything. Returns how many bytes.
    pub(super) fn settle(&mut self, lanes: &[Lane]) -> Outcome<u64> {
        for lane in lanes {
            lane.stream.sync(LIMIT)?;
        }
        let mut bytes = vec![0; self.used.min(self.memory.span().len()) as usize];
        let from = self.memory.span().slice(0, bytes.len() as u64)?;
        copy::device_to_host(&lanes[0].stream, &mut bytes, &from, LIMIT)?;
        let mut compared = 0;
        for check in self.list.drain(..) {
            same(
                &bytes[check.at as usize..][..check.expected.len()],
                &check.expected,
                &check.what,
            )?;
            compared += check.expected.len() as u64;
        }
        (self.used, self.before) = (0, 0);
        Ok(compared)
    }
}

/// Compares two contents, and says where they differ.
pub(super) fn same(got: &[u8], expected: &[u8], what: &str) -> Outcome {
    let pairs = || got.iter().zip(expected).enumerate();
    let wrong = pairs().filter(|(_, (got, expected))| got != expected).count();
    let Some((first, (byte, other))) = pairs().find(|(_, (got, expected))| got != expected) else {
        assert_eq!(got.len(), expected.len(), "{what}");
        return Ok(());
    };
    let len = expected.len();
    let text = format!(
        "{what}: {wrong} of {len} bytes differ, the first at {first}: {byte:#x} instead of \
         {other:#x}"
    );
    Err(Wrong(text).into())
}
