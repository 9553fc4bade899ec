//! Which run a remote place belongs to: an object there names it, and the process of its rank 0.
//!
//! The process of rank 0 takes the place when it opens. It is refused where the process that has it
//! is alive on this machine. Else it takes the place over: a process of this machine that is gone
//! has crashed, and of one on another machine nothing is known. That one notices before its next
//! write that the place is not its own any more, and writes nothing more. What both have written
//! meanwhile is told apart by the checksum of the frame in each manifest.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;

use unspool::{Error, ErrorKind};
use unspool_remote::{Failure, Remote};

use crate::manifest::Run;
use crate::places::failed;
use crate::worker::lock;

/// The name of the object.
const NAME: &str = "writer";

const FORMAT: &str = "unspool-writer 1";

/// The runs that have a place and are of this process.
static OWN: Mutex<BTreeSet<Run>> = Mutex::new(BTreeSet::new());

/// What says that a place belongs to a run.
#[derive(Debug)]
pub(crate) struct Claim {
    run: Run,
    /// It was taken here, and not by another rank.
    is_lead: bool,
}

/// What the object says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Writer {
    /// The identity of the place: that of a copy of it is another one.
    place: String,
    run: Run,
    /// The machine, in this boot, with the numbers of its processes.
    machine: String,
    /// The number of the process, and when it began.
    process: String,
    /// The folder of the run, for people.
    folder: String,
}

impl Claim {
    /// Takes a place for a run, as its rank 0.
    ///
    /// # Errors
    /// `Invalid` when a run that is alive on this machine has it; those of the place.
    pub(crate) fn take(remote: &Remote, run: Run, folder: &str) -> Result<Claim, Error> {
        let place = remote.identity().map_err(failed)?;
        let found = Writer::read(remote)?.filter(|found| found.place == place);
        if let Some(found) = found.filter(Writer::is_alive) {
            return Err(taken(remote, &found));
        }
        lock(&OWN).insert(run);
        let claim = Claim { run, is_lead: true };
        let folder = folder.replace(char::is_control, " ");
        let (machine, process) = (machine(), process(std::process::id()).unwrap_or_default());
        let writer = Writer { place, run, machine, process, folder };
        match remote.put(NAME, &writer.render().into_bytes(), None) {
            // Who cannot write there takes nothing from anybody, and may still read.
            Err(error) if matches!(error.kind(), Failure::Permanent | Failure::NoSpace) => {}
            put => {
                // Another run may have put its own at the same moment.
                let other = Writer::read(remote)?.filter(|found| found.run != run);
                other.map_or(Ok(()), |other| Err(taken(remote, &other)))?;
                put.map_err(failed)?;
            }
        }
        Ok(claim)
    }

    /// The claim that rank 0 of a run has.
    pub(crate) fn of(run: Run) -> Claim {
        Claim { run, is_lead: false }
    }

    /// Fine as long as the place is that of no other run.
    ///
    /// # Errors
    /// `Io` when it is that of another one; those of the place.
    pub(crate) fn check(&self, remote: &Remote) -> Result<(), Error> {
        match Writer::read(remote)? {
            Some(found) if found.run != self.run => {
                let message = format!(
                    "{} belongs to another run now, whose folder is {}: this run writes nothing \
                     more there.",
                    remote.locate("").trim_end_matches('/'),
                    found.folder
                );
                Err(Error::new(ErrorKind::Io, message))
            }
            _ => Ok(()),
        }
    }

    /// The run is over: another one of this process may take the place.
    pub(crate) fn end(&self) {
        if self.is_lead {
            lock(&OWN).remove(&self.run);
        }
    }

    /// Gives the place up. Where that fails, it is known by its process.
    pub(crate) fn release(&self, remote: &Remote) {
        if self.is_lead && self.check(remote).is_ok() {
            let _ = remote.delete(NAME);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.end();
    }
}

/// The error of a run whose place belongs to another one.
fn taken(remote: &Remote, by: &Writer) -> Error {
    let message = format!(
        "{} belongs to another run, whose folder is {} (process {} there): end that one first, or \
         choose another place.",
        remote.locate("").trim_end_matches('/'),
        by.folder,
        by.process.split(' ').next().unwrap_or_default()
    );
    Error::new(ErrorKind::Invalid, message)
}

impl Writer {
    fn render(&self) -> String {
        let Writer { place, run, machine, process, folder } = self;
        format!(
            "{FORMAT}\nplace {place}\nrun {run}\nmachine {machine}\nprocess {process}\nfolder \
             {folder}\n"
        )
    }

    /// What a text says; `None` where it is something else.
    fn parse(text: &str) -> Option<Writer> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == FORMAT)?;
        let mut next = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let place = next("place")?.to_owned();
        let run = Run(u128::from_str_radix(next("run")?, 16).ok()?);
        let (machine, process) = (next("machine")?.to_owned(), next("process")?.to_owned());
        Some(Writer { place, run, machine, process, folder: next("folder")?.to_owned() })
    }

    /// Whom a place belongs to; nobody where what is there is not whole.
    fn read(remote: &Remote) -> Result<Option<Writer>, Error> {
        let mut bytes = Vec::new();
        let found = remote.fetch(NAME, &mut |piece| {
            bytes.extend_from_slice(&piece[..piece.len().min(1 << 16)]);
            Ok(())
        });
        match found {
            Ok(_) => Ok(String::from_utf8(bytes).ok().as_deref().and_then(Writer::parse)),
            Err(error) if matches!(error.kind(), Failure::Missing | Failure::Corrupt) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether its process is alive, and known to be.
    fn is_alive(&self) -> bool {
        let number = self.process.split(' ').next().and_then(|number| number.parse().ok());
        let is_there = |number| process(number).is_some_and(|found| found == self.process);
        match number {
            Some(number) if self.machine == machine() && is_there(number) => {
                number != std::process::id() || lock(&OWN).contains(&self.run)
            }
            _ => false,
        }
    }
}

/// This machine since it was started, and its processes as they are seen from here.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), numbers.display())
}

/// A process of this machine: its number, and when it began, in ticks since the machine did.
fn process(number: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name of its program, in brackets, may have blanks.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let began = fields.nth(18)?;
    (!["Z", "X"].contains(&state)).then(|| format!("{number} {began}"))
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
