//! The core and the log of its decisions: the only place that steps it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use unspool_core::{Command, Config, Core, Event, Nanos, trace};

use crate::error::{Error, ErrorKind};

/// The core, and a record of everything that went in and came out when the settings ask for one.
pub(crate) struct Driver {
    core: Core,
    recorder: Option<Recorder>,
    /// Why the record ended early.
    record_failure: Option<String>,
}

impl Driver {
    pub(crate) fn new(config: Config, record: Option<&Path>) -> Result<Driver, Error> {
        let recorder = record.map(|path| Recorder::open(path, &config)).transpose()?;
        let core = Core::new(config).map_err(|cause| {
            let message = format!("These settings make no spool: {cause}.");
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        Ok(Driver { core, recorder, record_failure: None })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn record_failure(&self) -> Option<&str> {
        self.record_failure.as_deref()
    }

    /// Takes in `event` and appends what is to be done to `out`.
    pub(crate) fn step(&mut self, event: Event, now: Nanos, out: &mut Vec<Command>) {
        let before = out.len();
        self.core.step(event, now, out);
        self.record(|recorder| recorder.step(now, &event, &out[before..]));
    }

    /// The record is complete.
    pub(crate) fn end_record(&mut self) {
        self.record(Recorder::end);
        self.recorder = None;
    }

    /// Writes to the record; the first failure ends it, because a record with holes is worthless.
    fn record(&mut self, write: impl FnOnce(&mut Recorder) -> std::io::Result<()>) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Err(cause) = write(recorder) {
            let path = recorder.path.display();
            self.record_failure = Some(format!(
                "The record in {path} ends early: {cause}. Choose another path for `record`."
            ));
            self.recorder = None;
        }
    }
}

/// A file that receives every event and command as text.
struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
    line: String,
}

impl Recorder {
    fn open(path: &Path, config: &Config) -> Result<Recorder, Error> {
        let failed = |cause: std::io::Error| {
            let path = path.display();
            let message = format!(
                "The record cannot be written to {path}: {cause}. Choose a path in a directory \
                 that exists and is writable for `record`."
            );
            Error::new(ErrorKind::Io, message).caused_by(cause)
        };
        let file = BufWriter::new(File::create(path).map_err(failed)?);
        let mut recorder = Recorder { path: path.to_owned(), file, line: String::new() };
        // Text that is written to a string cannot fail.
        let _ = trace::write_header(&mut recorder.line, config);
        recorder.put().map_err(failed)?;
        Ok(recorder)
    }

    fn step(&mut self, now: Nanos, event: &Event, commands: &[Command]) -> std::io::Result<()> {
        let _ = trace::write_step(&mut self.line, now, event, commands);
        self.put()
    }

    fn end(&mut self) -> std::io::Result<()> {
        let _ = trace::write_end(&mut self.line);
        self.put()?;
        self.file.flush()
    }

    fn put(&mut self) -> std::io::Result<()> {
        let written = self.file.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }
}
