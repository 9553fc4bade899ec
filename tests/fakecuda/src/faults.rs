//! Planned faults, and counts of calls.

use std::collections::BTreeMap;

use crate::codes::Code;

/// The name that stands for operations that a device executes, whose faults are seen only later.
pub(crate) const EXECUTE: &str = "execute";

/// A planned fault.
#[derive(Debug)]
struct Fault {
    name: String,
    /// Number of calls of that name until it happens; `None` when it happens to all of them.
    left: Option<u64>,
    code: Code,
}

/// Planned faults and counts of calls, by name.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    to_come: Vec<Fault>,
    calls: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Parses `name:nth:code,...`; invalid entries are ignored.
    pub(crate) fn parse(text: &str) -> Faults {
        let mut faults = Faults::default();
        for entry in text.split(',') {
            let mut parts = entry.trim().split(':');
            let name = parts.next().unwrap_or_default();
            let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
            if let (Some(nth), Some(code)) = (number(), number()) {
                faults.order(name, u64::from(nth), Code(code));
            }
        }
        faults
    }

    /// Plans that the `nth` call of `name` from now on fails with `code`; 0 stands for every one.
    /// With code 0 a call returns success but does nothing.
    pub(crate) fn order(&mut self, name: &str, nth: u64, code: Code) {
        let left = (nth > 0).then_some(nth);
        self.to_come.push(Fault { name: name.to_owned(), left, code });
    }

    /// Counts a call and returns its planned fault.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<(), Code> {
        *self.calls.entry(name).or_default() += 1;
        let mut failed = None;
        for fault in self.to_come.iter_mut().filter(|fault| is_called(name, &fault.name)) {
            fault.left = fault.left.map(|left| left - 1);
            if fault.left.is_none_or(|left| left == 0) {
                failed = Some(fault.code);
            }
        }
        self.to_come.retain(|fault| fault.left != Some(0));
        failed.map_or(Ok(()), Err)
    }

    /// Calls of `name` so far.
    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.calls.iter().filter(|(call, _)| is_called(call, name)).map(|(_, count)| count).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.to_come.clear();
    }
}

/// Whether a call matches `wanted`: its own name, with or without its version.
fn is_called(call: &str, wanted: &str) -> bool {
    call == wanted || call.strip_suffix("_v2") == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_once() {
        let mut faults = Faults::parse("cuMemFree_v2:2:700, nonsense, cuInit:x:1");
        assert_eq!(faults.count("cuMemFree_v2"), Ok(()));
        assert_eq!(faults.count("cuInit"), Ok(()));
        assert_eq!(faults.count("cuMemFree_v2"), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(faults.count("cuMemFree_v2"), Ok(()));
        assert_eq!((faults.calls("cuMemFree"), faults.calls("cuInit")), (3, 1));
        faults.order("cuInit", 0, Code::NO_DEVICE);
        assert!((0..3).all(|_| faults.count("cuInit") == Err(Code::NO_DEVICE)));
    }
}
