//! A client: the state that the calls of VELOC's interface work on, in their order.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool::{ErrorKind, RestoreTicket, Then, TierKind, Unflushed, Use, Wait};
use unspool_restart::{Call, Exchanges, Part, Ranks, Run, agreement};

use crate::background::Background;
use crate::config::{Config, Mode, Persist, Read};
use crate::console::Console;
use crate::memory;
use crate::names::{self, Content};
use crate::parts::{Job, Kept, Parts, text};
use crate::regions::{Regions, Selection};

/// A client between `VELOC_Init` and `VELOC_Finalize`.
pub(crate) struct Client {
    pub(crate) console: Console,
    pub(crate) regions: Regions,
    config: Config,
    ranks: Box<dyn Ranks + Send>,
    exchanges: Exchanges,
    background: Background,
    /// The numbers of names in steps.
    numbers: BTreeMap<String, u32>,
    phase: Phase,
    /// The runs whose checkpoints all ranks have, as `VELOC_Restart_test` has found out.
    agreed: BTreeMap<(String, u32), Run>,
    /// When a checkpoint of a name last went to persistent.
    persisted: BTreeMap<u32, Instant>,
    prefetch: Prefetch,
}

/// What has begun and not ended.
enum Phase {
    Idle,
    Checkpoint(Open),
    Restart(Box<Restart>),
}

/// A checkpoint that has begun.
struct Open {
    name: String,
    version: u32,
    step: u64,
    saved: bool,
    routed: bool,
    persist: bool,
    begun: Instant,
}

/// A restart that has begun.
struct Restart {
    name: String,
    version: u32,
    step: u64,
    part: Part,
    memory: bool,
    /// The bytes, once they were asked for.
    ticket: Option<RestoreTicket>,
    /// Whether regions were copied from them.
    read: bool,
}

/// Whether what was announced is brought back ahead of its restart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefetch {
    Unused,
    /// Until it is started, or the first restart.
    Held,
    Started,
}

/// Score's letter of a tier.
fn letter(kind: TierKind) -> char {
    match kind {
        TierKind::Device => 'D',
        TierKind::Host => 'H',
        TierKind::Disk => 'F',
        TierKind::Remote => 'P',
    }
}

impl Client {
    /// A client of these parts.
    pub(crate) fn new(
        config: Config,
        console: Console,
        ranks: Box<dyn Ranks + Send>,
        exchanges: Exchanges,
        parts: Parts,
        found: BTreeMap<u64, Kept>,
    ) -> Result<Client, String> {
        let number =
            |(step, kept): (&u64, &Kept)| (kept.content.name.clone(), names::unstep(*step).0);
        let numbers = found.iter().map(number).collect();
        Ok(Client {
            console,
            regions: Regions::default(),
            config,
            ranks,
            exchanges,
            background: Background::start(parts, found)?,
            numbers,
            phase: Phase::Idle,
            agreed: BTreeMap::new(),
            persisted: BTreeMap::new(),
            prefetch: Prefetch::Unused,
        })
    }

    fn parts(&self) -> &Parts {
        self.background.parts()
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The number of a name, and the step of one of its versions.
    fn step(&mut self, name: &str, version: c_int) -> Result<(u32, u64), String> {
        names::check(name).map_err(|why| format!("{name:?} {why}."))?;
        let version = u32::try_from(version).map_err(|_| {
            format!("Version {version} of {name} is negative: versions are 0 or more.")
        })?;
        // Numbers stay below 2^31, so that a step is a version of the spool.
        let next = self.numbers.values().max().map_or(0, |last| last + 1);
        if next > i32::MAX as u32 {
            return Err("There are too many names of checkpoints.".to_owned());
        }
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        Ok((version, names::step(number, version)))
    }

    fn idle(&self, call: &str) -> Result<(), String> {
        match &self.phase {
            Phase::Idle => Ok(()),
            Phase::Checkpoint(Open { name, version, .. }) => Err(format!(
                "{call} while checkpoint {version} of {name} is open: call VELOC_Checkpoint_end \
                 first."
            )),
            Phase::Restart(restart) => Err(format!(
                "{call} while the restart from {} of {} is open: call VELOC_Restart_end first.",
                restart.version, restart.name
            )),
        }
    }

    /// The file of a program's own.
    pub(crate) fn route(&mut self) -> Result<PathBuf, String> {
        let (name, version) = match &mut self.phase {
            Phase::Idle => {
                return Err("VELOC_Route_file outside a checkpoint or restart: call it between \
                            VELOC_Checkpoint_begin and _end, or VELOC_Restart_begin and _end."
                    .to_owned());
            }
            Phase::Checkpoint(open) => {
                open.routed = true;
                (open.name.clone(), open.version)
            }
            Phase::Restart(restart) => (restart.name.clone(), restart.version),
        };
        Ok(self.parts().routed(&name, version))
    }

    // Checkpoints.

    pub(crate) fn checkpoint_begin(&mut self, name: &str, version: c_int) -> Result<(), String> {
        self.idle("VELOC_Checkpoint_begin")?;
        let (version, step) = self.step(name, version)?;
        if let Some(why) = self.background.take_failure() {
            self.console.say(&why);
        }
        let persist = self.is_to_persist(step)?;
        // What had this version gives way.
        self.background.remove(step)?;
        let (name, begun) = (name.to_owned(), Instant::now());
        self.agreed.remove(&(name.clone(), version));
        self.phase = Phase::Checkpoint(Open {
            name,
            version,
            step,
            saved: false,
            routed: false,
            persist,
            begun,
        });
        Ok(())
    }

    /// Whether a checkpoint goes to persistent: by the clock of rank 0 where time decides.
    fn is_to_persist(&self, step: u64) -> Result<bool, String> {
        let interval = match self.config.persist {
            Persist::All => return Ok(true),
            Persist::Never => return Ok(false),
            Persist::Every(interval) => interval,
        };
        let last = self.persisted.get(&names::unstep(step).0);
        let mine = last.is_none_or(|last| last.elapsed() >= interval);
        let all = self.exchanges.all(&*self.ranks, Call::Due, &[u8::from(mine)], self.timeout());
        Ok(all.map_err(text)?.first().is_some_and(|first| first == &[1]))
    }

    /// Saves regions.
    ///
    /// # Safety
    /// Regions that are protected are there.
    pub(crate) unsafe fn checkpoint_mem(&mut self, selection: &Selection) -> Result<(), String> {
        let timeout = self.timeout();
        let Phase::Checkpoint(open) = &mut self.phase else {
            return Err("No checkpoint is open: call VELOC_Checkpoint_begin first.".to_owned());
        };
        if open.saved {
            return Err(
                "The regions of this checkpoint are saved already: name all of them in one \
                        call."
                    .to_owned(),
            );
        }
        let mut regions = self.regions.of(&open.name);
        check_selection(selection, |id| regions.contains_key(&id), "protected")?;
        regions.retain(|id, _| selection.has(*id));
        if regions.is_empty() {
            return Err("No region is meant: call VELOC_Mem_protect first, and look at which are \
                        selected."
                .to_owned());
        }
        let spool = &self.background.parts().spool;
        // SAFETY: the caller's duty.
        unsafe { memory::save((spool, self.config.lossless), open.step, &regions, timeout) }
            .map_err(text)?;
        open.saved = true;
        Ok(())
    }

    pub(crate) fn checkpoint_end(&mut self, success: bool) -> Result<(), String> {
        let open = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Checkpoint(open) => open,
            other => {
                self.phase = other;
                return Err("No checkpoint is open: call VELOC_Checkpoint_begin first.".to_owned());
            }
        };
        let file = self.parts().routed(&open.name, open.version);
        let content = Content { name: open.name, memory: open.saved, file: None };
        let routed = open.routed && file.is_file();
        if !success {
            return self.parts().remove(open.step, &content);
        }
        if !open.saved && !routed {
            let missing = match open.routed {
                true => format!("{} was not written", file.display()),
                false => "neither VELOC_Checkpoint_mem nor VELOC_Route_file was called".to_owned(),
            };
            return Err(format!("Checkpoint {} has nothing: {missing}.", open.version));
        }
        if open.persist {
            self.persisted.insert(names::unstep(open.step).0, Instant::now());
        }
        let Open { step, persist, begun, .. } = open;
        let run = Run(0);
        self.background.add(Job { step, content, run, routed, persist, begun });
        match self.config.mode {
            Mode::Async => Ok(()),
            Mode::Sync => self.background.settle(),
        }
    }

    /// All of it in one call.
    ///
    /// # Safety
    /// Regions that are protected are there.
    pub(crate) unsafe fn checkpoint(&mut self, name: &str, version: c_int) -> Result<(), String> {
        self.checkpoint_begin(name, version)?;
        // SAFETY: the caller's duty.
        let saved = unsafe { self.checkpoint_mem(&Selection::All) };
        let ended = self.checkpoint_end(saved.is_ok());
        saved.and(ended)
    }

    pub(crate) fn checkpoint_wait(&mut self) -> Result<(), String> {
        if matches!(self.phase, Phase::Checkpoint(_)) {
            self.idle("VELOC_Checkpoint_wait")?;
        }
        self.background.settle()
    }

    /// Whether nothing is on its way.
    pub(crate) fn checkpoint_finished(&self) -> bool {
        self.background.is_idle()
    }

    pub(crate) fn cleanup(&mut self, name: &str) -> Result<(), String> {
        self.idle("VELOC_Cleanup")?;
        let (_, first) = self.step(name, 0)?;
        let number = names::unstep(first).0;
        self.agreed.retain(|(of, _), _| of != name);
        self.background
            .kept_of(number)
            .into_keys()
            .try_for_each(|step| self.background.remove(step))
    }

    // Restarts.

    /// The newest version that all ranks have, up to this one if it is not 0.
    pub(crate) fn restart_test(
        &mut self,
        name: &str,
        version: c_int,
    ) -> Result<Option<u32>, String> {
        let (most, step) = self.step(name, version)?;
        let number = names::unstep(step).0;
        let kept = self.background.kept_of(number).into_values();
        let mut mine: Vec<Part> = kept.map(|kept| kept.part).collect();
        match self.parts().in_persistent(name) {
            Ok(parts) => mine.extend(parts),
            // What scratch has may do.
            Err(why) => self.console.say(&format!("Persistent cannot be looked at: {why}")),
        }
        let said = agreement::encode(&mine);
        let all = self.exchanges.all(&*self.ranks, Call::Latest, &said, self.timeout());
        let all: Option<Vec<Vec<Part>>> =
            all.map_err(text)?.iter().map(|bytes| agreement::decode(bytes)).collect();
        let all = all.ok_or("A rank said what this version does not understand.")?;
        let common = agreement::common(&all).into_iter();
        let found = common.filter(|part| most == 0 || part.step <= u64::from(most)).max();
        Ok(found.map(|part| {
            self.agreed.insert((name.to_owned(), part.step as u32), part.run);
            part.step as u32
        }))
    }

    pub(crate) fn restart_begin(&mut self, name: &str, version: c_int) -> Result<(), String> {
        self.idle("VELOC_Restart_begin")?;
        let (version, step) = self.step(name, version)?;
        if self.prefetch == Prefetch::Held {
            self.prefetch_start()?;
        }
        let wanted = self.agreed.get(&(name.to_owned(), version)).copied();
        self.background.pin(Some(step));
        let in_scratch = self.background.kept(step).filter(|kept| {
            wanted.is_none_or(|run| run == kept.part.run)
                && self.parts().has_file(version, &kept.content)
        });
        let Kept { part, content } = match in_scratch {
            Some(kept) => kept,
            None => self.fetch(step, name, wanted).inspect_err(|_| self.background.pin(None))?,
        };
        let (name, memory) = (name.to_owned(), content.memory);
        let restart = Restart { name, version, step, part, memory, ticket: None, read: false };
        self.phase = Phase::Restart(Box::new(restart));
        Ok(())
    }

    /// Brings a checkpoint of this rank from persistent to scratch: that of a run, or the newest.
    fn fetch(&self, step: u64, name: &str, wanted: Option<Run>) -> Result<Kept, String> {
        let (_, version) = names::unstep(step);
        let there = self.parts().in_persistent(name)?;
        let fits = |part: &Part| {
            part.step == u64::from(version) && wanted.is_none_or(|run| run == part.run)
        };
        let part = there.into_iter().filter(fits).max().ok_or_else(|| {
            format!(
                "There is no checkpoint {version} of {name} in scratch or in persistent that can \
                 be used: VELOC_Restart_test tells which is there."
            )
        })?;
        self.background.remove(step)?;
        let kept = self.parts().fetch(step, name, part)?;
        self.background.keep(step, kept.clone());
        Ok(kept)
    }

    /// Copies regions to where they are protected.
    ///
    /// # Safety
    /// Regions that are protected are there.
    pub(crate) unsafe fn recover(&mut self, selection: &Selection) -> Result<(), String> {
        let timeout = self.timeout();
        let regions = self.open_restart(|restart| {
            let protected = self.regions.of(&restart.name);
            Ok((protected, restart.step, restart.memory))
        });
        let (protected, step, memory) = regions?;
        if !memory {
            return Err("This checkpoint has a file and no regions: read the file that \
                        VELOC_Route_file names."
                .to_owned());
        }
        let head = self.parts().spool.regions(step as i64).map_err(text)?;
        check_selection(selection, |id| head.region(&id.to_string()).is_some(), "saved")?;
        let mut ticket = self.ticket()?;
        let spool = &self.background.parts().spool;
        // SAFETY: the caller's duty.
        let done = unsafe { memory::load(spool, &mut ticket, selection, &protected, timeout) };
        if let Phase::Restart(restart) = &mut self.phase {
            restart.ticket = Some(ticket);
            restart.read |= done.is_ok();
        }
        done.map_err(text)
    }

    fn open_restart<T>(
        &self,
        look: impl FnOnce(&Restart) -> Result<T, String>,
    ) -> Result<T, String> {
        match &self.phase {
            Phase::Restart(restart) => look(restart),
            _ => Err("No restart is open: call VELOC_Restart_begin first.".to_owned()),
        }
    }

    /// The bytes of the restart: from persistent where those of scratch are damaged.
    fn ticket(&mut self) -> Result<RestoreTicket, String> {
        let Phase::Restart(restart) = &mut self.phase else {
            return Err("No restart is open.".to_owned());
        };
        if let Some(ticket) = restart.ticket.take() {
            return Ok(ticket);
        }
        let (step, name, run) = (restart.step, restart.name.clone(), restart.part.run);
        let wait = Wait::at_most(self.config.timeout);
        let refused = match self.parts().spool.restore(step as i64, &wait) {
            Ok(ticket) => return Ok(ticket),
            Err(refused) => refused,
        };
        use ErrorKind::{Corrupt, Discarded, Io, Lost, Unknown};
        if !matches!(refused.kind(), Corrupt | Discarded | Io | Lost | Unknown) {
            return Err(text(refused));
        }
        self.console.say(&format!("{refused} The copy in persistent is taken."));
        self.fetch(step, &name, Some(run)).map_err(|why| format!("{refused} {why}"))?;
        self.parts().spool.restore(step as i64, &wait).map_err(text)
    }

    /// The bytes of a region of the open restart.
    pub(crate) fn recover_size(&self, id: c_int) -> Result<Option<u64>, String> {
        let (step, memory) = self.open_restart(|restart| Ok((restart.step, restart.memory)))?;
        if !memory {
            return Ok(None);
        }
        let head = self.parts().spool.regions(step as i64).map_err(text)?;
        Ok(head.region(&id.to_string()).map(|region| region.bytes))
    }

    /// The bytes of a region of a checkpoint that scratch has, open or not.
    pub(crate) fn size_in(&mut self, name: &str, version: c_int, id: c_int) -> Result<u64, String> {
        let (version, step) = self.step(name, version)?;
        let head = self.parts().spool.regions(step as i64).map_err(text)?;
        let region = head.region(&id.to_string()).map(|region| region.bytes);
        region.ok_or_else(|| format!("Checkpoint {version} of {name} has no region {id}."))
    }

    /// Whether a checkpoint is in the fastest memory, so that its restart has nothing to wait for.
    pub(crate) fn is_near(&mut self, name: &str, version: c_int) -> Result<bool, String> {
        let (_, step) = self.step(name, version)?;
        Ok(self.parts().spool.fastest(step as i64).is_ok_and(|tier| tier == Some(0)))
    }

    /// Bytes that were moved, by way, as Score calls the ways: of the application (A), the device
    /// (D), main memory (H), the disk (F).
    pub(crate) fn moved(&self) -> Result<String, String> {
        let stats = self.parts().spool.stats().map_err(text)?;
        let first = stats.tiers.first().map_or('H', |tier| letter(tier.kind));
        let mut ways = vec![
            (format!("Ato{first}"), stats.application.saved_bytes),
            (format!("{first}toA"), stats.application.restored_bytes),
        ];
        for link in &stats.links {
            let (fast, slow) = (letter(link.fast), letter(link.slow));
            ways.push((format!("{fast}to{slow}"), link.flush.bytes));
            ways.push((format!("{slow}to{fast}"), link.prefetch.bytes));
        }
        let words: String = ways.iter().map(|(way, bytes)| format!("{way} : {bytes}, ")).collect();
        Ok(format!("{{{words}}}"))
    }

    pub(crate) fn restart_end(&mut self) -> Result<(), String> {
        let restart = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Restart(restart) => restart,
            other => {
                self.phase = other;
                return Err("No restart is open: call VELOC_Restart_begin first.".to_owned());
            }
        };
        self.background.pin(None);
        let Some(ticket) = restart.ticket else { return Ok(()) };
        ticket.finish().map_err(text)?;
        match self.config.read {
            Read::Goes if restart.read => self.background.remove(restart.step),
            Read::Goes | Read::Stays => Ok(()),
        }
    }

    /// All of it in one call.
    ///
    /// # Safety
    /// Regions that are protected are there.
    pub(crate) unsafe fn restart(&mut self, name: &str, version: c_int) -> Result<(), String> {
        self.restart_begin(name, version)?;
        // SAFETY: the caller's duty.
        let loaded = unsafe { self.recover(&Selection::All) };
        let ended = self.restart_end();
        loaded.and(ended)
    }

    // Hints.

    pub(crate) fn prefetch_enqueue(&mut self, name: &str, version: c_int) -> Result<(), String> {
        let (_, step) = self.step(name, version)?;
        if self.prefetch == Prefetch::Unused {
            self.parts().spool.hold_prefetch().map_err(text)?;
            self.prefetch = Prefetch::Held;
        }
        let then = match self.config.read {
            Read::Stays => Then::Stays,
            Read::Goes => Then::Ends,
        };
        let used = Use { version: step as i64, then };
        self.parts().spool.expect_uses([used]).map_err(text)
    }

    pub(crate) fn prefetch_start(&mut self) -> Result<(), String> {
        self.prefetch = Prefetch::Started;
        self.parts().spool.start_prefetch().map_err(text)
    }

    // The end.

    /// Makes everything durable, and ends.
    pub(crate) fn finalize(&mut self) -> Result<(), String> {
        if matches!(self.phase, Phase::Checkpoint(_)) {
            self.checkpoint_end(false)?;
        }
        self.phase = Phase::Idle;
        let ended = self.background.end();
        let wait = Wait::at_most(self.timeout());
        let closed = self.parts().spool.close_as(Unflushed::Discard, &wait).map_err(text);
        ended.and(closed)
    }

    #[cfg(test)]
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// The figures of the spool.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> unspool::Stats {
        self.parts().spool.stats().expect("the spool is open")
    }

    /// Makes everything durable at the end of a process that did not say so.
    pub(crate) fn drain(&self) {
        if let Err(why) = self.background.settle() {
            self.console.say(&why);
        }
    }
}

/// Refuses a selection that names a region which is not there.
fn check_selection(
    selection: &Selection,
    is_there: impl Fn(c_int) -> bool,
    what: &str,
) -> Result<(), String> {
    let Selection::Some(ids) = selection else { return Ok(()) };
    match ids.iter().find(|id| !is_there(**id)) {
        Some(id) => Err(format!("Region {id} is selected, and none is {what} with that number.")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
