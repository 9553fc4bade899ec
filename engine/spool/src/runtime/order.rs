//! The check of stream order, for debugging: every operation of the device crate on the arenas goes
//! through the core's vector clocks, and if wanted into a file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;

use unspool_cuda::Watch;
use unspool_verify::{Checker, Op, write_header, write_op};

use crate::error::{Error, ErrorKind};

/// What was seen so far. Its lock is a plain one: nothing is waited for under it.
#[derive(Debug)]
pub(crate) struct OrderCheck(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    checker: Checker,
    /// The first access that was not ordered.
    violation: Option<String>,
    trace: Option<Trace>,
}

/// A file that receives every operation as a line of text.
#[derive(Debug)]
struct Trace {
    file: BufWriter<File>,
    line: String,
    failure: Option<String>,
}

impl OrderCheck {
    /// A check that also writes what it sees to `trace`, if that is given.
    ///
    /// # Errors
    /// `Io` when the file cannot be made.
    pub(crate) fn new(trace: Option<&Path>) -> Result<OrderCheck, Error> {
        let trace = trace.map(Trace::open).transpose()?;
        let seen = Seen { checker: Checker::new(), violation: None, trace };
        Ok(OrderCheck(Mutex::new(seen)))
    }

    /// What was found, as an error.
    ///
    /// # Errors
    /// `Device` when an access was not ordered, `Io` when the file is not complete.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        let mut seen = self.seen();
        let traced = seen.trace.as_mut().map_or(Ok(()), Trace::end);
        if let Some(violation) = &seen.violation {
            let message = format!(
                "The check of stream order found an access that is not ordered with one that it \
                 depends on: {violation}"
            );
            return Err(Error::new(ErrorKind::Device, message));
        }
        traced
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Watch for OrderCheck {
    fn saw(&self, op: Op) {
        let mut seen = self.seen();
        if let Some(trace) = &mut seen.trace {
            trace.write(&op);
        }
        if seen.violation.is_none()
            && let Err(violation) = seen.checker.see(&op)
        {
            seen.violation = Some(violation.to_string());
        }
    }
}

impl Trace {
    fn open(path: &Path) -> Result<Trace, Error> {
        let file = File::create(path).map_err(|cause| {
            let path = path.display();
            let message = format!(
                "The trace of stream order cannot be written to {path}: {cause}. Choose a path in \
                 a directory that exists and is writable."
            );
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })?;
        let mut line = String::new();
        // Text that is written to a string cannot fail.
        let _ = write_header(&mut line);
        let mut trace = Trace { file: BufWriter::new(file), line, failure: None };
        trace.put();
        Ok(trace)
    }

    fn write(&mut self, op: &Op) {
        let _ = write_op(&mut self.line, op);
        self.put();
    }

    fn put(&mut self) {
        if !self.line.ends_with('\n') {
            let _ = self.line.write_char('\n');
        }
        let written = self.file.write_all(self.line.as_bytes());
        self.line.clear();
        self.note(written);
    }

    fn note(&mut self, done: std::io::Result<()>) {
        if let (Err(cause), None) = (done, &self.failure) {
            self.failure = Some(cause.to_string());
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        let flushed = self.file.flush();
        self.note(flushed);
        self.failure.as_ref().map_or(Ok(()), |cause| {
            let message = format!("The trace of stream order is not complete: {cause}.");
            Err(Error::new(ErrorKind::Io, message))
        })
    }
}
