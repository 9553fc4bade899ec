//! The histories of loops: what each forward pass has saved, by the number in its token.
//!
//! A token is an array of two words that goes through every call of a loop, so that XLA keeps their
//! order. On the host its number is read in each call. On a GPU a call runs when work is enqueued,
//! long before the token has its value: there a history is found by the execution of which it is
//! and by the place of the loop in the program, and only if these fit several, or in another
//! execution, is the token waited for.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use unspool::{Error, ErrorKind};

use crate::front::Front;

/// Versions of this room begin here, far from the steps that people count and from those of
/// `unspool.torch`.
const FIRST_VERSION: i64 = 1 << 62;

/// How many forward passes begin before it is asked again who holds what earlier ones have left.
const PATIENCE: usize = 16;

static NEXT: AtomicI64 = AtomicI64::new(FIRST_VERSION);
static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// Where and in which execution a call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The execution of the program.
    pub run: i64,
    /// The loop in the program.
    pub site: i64,
    /// The GPU.
    pub device: u32,
}

/// What happens to a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// A forward pass saves; on a GPU, the one at this place.
    Written(Option<Place>),
    /// The forward pass is over, and no backward pass has begun.
    Kept,
    /// A backward pass restores; on a GPU, the one at this place.
    Read(Option<Place>),
}

/// The execution of a program, as far as a call knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Execution {
    /// Its number.
    pub run: Option<i64>,
    /// The thread of Python that has started it and waits for it; `None` in a thread of XLA's own.
    pub thread: Option<ThreadId>,
}

/// What one forward pass has saved.
#[derive(Debug)]
struct History {
    front: Arc<Front>,
    versions: Vec<i64>,
    phase: Phase,
    /// The execution in which it began to be written, or read.
    execution: Execution,
    /// Whether this execution is known to read it to its end: nothing reads it later.
    within: bool,
    /// Whether a program of Python was seen to hold its token after the forward pass.
    held: bool,
}

#[derive(Debug, Default)]
struct Table {
    histories: HashMap<u64, History>,
    /// Those that a pass writes or reads: a few of perhaps very many.
    active: Vec<u64>,
    /// Never reused.
    last: u64,
    /// How many more forward passes begin before it is asked whether those held still are.
    patience: usize,
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<History> {
        self.active.retain(|other| *other != number);
        self.histories.remove(&number)
    }

    fn remove_if(&mut self, chosen: impl Fn(u64, &History) -> bool) -> Vec<History> {
        let those = self.histories.iter().filter(|(number, each)| chosen(**number, each));
        let numbers: Vec<u64> = those.map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| self.remove(*number)).collect()
    }

    /// What was in a spool that is closed is gone.
    fn drop_closed(&mut self) {
        self.histories.retain(|_, history| {
            history.phase != Phase::Kept || !history.front.spool().is_closed()
        });
    }
}

fn with<T>(work: impl FnOnce(&mut Table) -> T) -> T {
    let mut table: MutexGuard<'_, _> = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    work(table.get_or_insert_with(Table::default))
}

/// A version that nothing else in this process uses.
pub fn next_version() -> i64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A new history; its number.
pub fn begin(front: Arc<Front>, place: Option<Place>, execution: Execution) -> u64 {
    with(|table| {
        table.drop_closed();
        table.last += 1;
        let phase = Phase::Written(place);
        let history =
            History { front, versions: Vec::new(), phase, execution, within: false, held: false };
        table.histories.insert(table.last, history);
        table.active.push(table.last);
        table.last
    })
}

/// The only history that is in this phase; `None` where several are, or none.
pub fn only(phase: Phase) -> Option<u64> {
    with(|table| {
        let is = |number: &&u64| table.histories.get(number).is_some_and(|one| one.phase == phase);
        let mut fitting = table.active.iter().filter(is);
        let number = fitting.next()?;
        fitting.next().is_none().then_some(*number)
    })
}

/// The spool of a history into which a forward pass saves.
///
/// # Errors
/// When there is no such history.
pub fn written(number: u64) -> Result<Arc<Front>, Error> {
    with(|table| match table.histories.get(&number) {
        Some(history) if matches!(history.phase, Phase::Written(_)) => {
            Ok(Arc::clone(&history.front))
        }
        _ => Err(given_up()),
    })
}

/// Notes that `version` was saved.
///
/// # Errors
/// When there is no such history any more.
pub fn saved(number: u64, version: i64) -> Result<(), Error> {
    with(|table| {
        let history = table.histories.get_mut(&number).ok_or_else(given_up)?;
        history.versions.push(version);
        Ok(())
    })
}

/// The forward pass is over.
///
/// # Errors
/// When there is no such history.
pub fn end(number: u64) -> Result<(), Error> {
    with(|table| match table.histories.get_mut(&number) {
        Some(history) if matches!(history.phase, Phase::Written(_)) => {
            history.phase = Phase::Kept;
            table.active.retain(|other| *other != number);
            Ok(())
        }
        _ => Err(given_up()),
    })
}

/// A backward pass begins: the spool, and all versions in the order of the saves.
///
/// # Errors
/// When there is no such history, or another backward pass has begun with it.
pub fn rewind(
    number: u64,
    place: Option<Place>,
    execution: Execution,
) -> Result<(Arc<Front>, Vec<i64>), Error> {
    with(|table| match table.histories.get_mut(&number) {
        Some(history) if history.phase == Phase::Kept => {
            history.phase = Phase::Read(place);
            (history.execution, history.held) = (execution, false);
            let found = (Arc::clone(&history.front), history.versions.clone());
            match found.1.is_empty() {
                true => drop(table.remove(number)),
                false => table.active.push(number),
            }
            Ok(found)
        }
        _ => Err(read_already()),
    })
}

/// The spool of a history that a backward pass restores, and the version that is next.
///
/// # Errors
/// When there is no such history.
pub fn next(number: u64) -> Result<(Arc<Front>, i64), Error> {
    with(|table| {
        let history = table.histories.get(&number);
        let history = history.filter(|history| matches!(history.phase, Phase::Read(_)));
        let found = history.and_then(|history| Some((history, *history.versions.last()?)));
        let (history, version) = found.ok_or_else(read_already)?;
        Ok((Arc::clone(&history.front), version))
    })
}

/// Forgets the version that was next, which `run` has read; the history too when it was the last.
pub fn restored(number: u64, run: Option<i64>) {
    with(|table| {
        let Some(history) = table.histories.get_mut(&number) else { return };
        history.versions.pop();
        // Outside of compiled programs, each operation is an execution of its own.
        history.within = run.is_some() && run == history.execution.run;
        if history.versions.is_empty() {
            table.remove(number);
        }
    });
}

/// Gives up a history: nobody can read it any more.
pub fn give_up(number: u64) {
    if let Some(history) = with(|table| table.remove(number)) {
        discard(history);
    }
}

/// Gives up a history that no backward pass has begun to read.
pub fn drop_kept(number: u64) {
    let kept = |table: &mut Table| {
        let found = table.histories.get(&number)?;
        (found.phase == Phase::Kept).then(|| table.remove(number)).flatten()
    };
    if let Some(history) = with(kept) {
        discard(history);
    }
}

/// Gives up all histories that no backward pass reads at present, or those of one spool; how many.
pub fn forget(of: Option<&Front>) -> usize {
    let chosen = |history: &History| {
        let theirs = of.is_none_or(|front| std::ptr::eq(front, Arc::as_ptr(&history.front)));
        theirs && history.phase == Phase::Kept
    };
    give_up_if(|_, history| chosen(history))
}

/// Gives up what an execution that has failed has written or reads.
pub fn failed(run: i64) {
    give_up_if(|_, history| history.execution.run == Some(run));
}

/// Whether to ask which histories nobody reads, as a forward pass of `run` begins: when another
/// execution has left one that nobody was seen to hold, and now and then for the others.
pub fn is_time_to_tidy(run: Option<i64>) -> bool {
    with(|table| {
        let mut others =
            table.histories.values().filter(|each| is_of_another(each, run)).peekable();
        let any = others.peek().is_some();
        let unknown = others.any(|history| !history.held);
        table.patience = table.patience.saturating_sub(usize::from(any));
        any && (unknown || table.patience == 0)
    })
}

/// Whether a history is not known to be of the execution `run`.
fn is_of_another(history: &History, run: Option<i64>) -> bool {
    run.is_none() || history.execution.run != run
}

/// Gives up the histories of executions that have ended without an end of theirs: a call failed, or
/// JAX has left out what would have read them.
///
/// # Arguments
/// - `live`: the numbers in tokens that a program of Python holds.
/// - `thread`: the thread of Python that asks: what it has started before is over.
/// - `alone`: whether no execution of any thread goes on, besides `run`.
/// - `run`: the execution in which this is asked.
pub fn tidy(live: &HashSet<u64>, thread: Option<ThreadId>, alone: bool, run: Option<i64>) {
    give_up_if(|number, history| {
        let from = history.execution.thread;
        let over = alone || (from.is_some() && from == thread);
        over && (history.within || !live.contains(&number)) && is_of_another(history, run)
    });
    with(|table| {
        table.patience = PATIENCE;
        for (number, history) in &mut table.histories {
            history.held = history.phase == Phase::Kept && live.contains(number);
        }
    });
}

/// Gives up the histories that are chosen; how many.
fn give_up_if(chosen: impl Fn(u64, &History) -> bool) -> usize {
    let found = with(|table| table.remove_if(chosen));
    let count = found.len();
    found.into_iter().for_each(discard);
    count
}

/// Whether there is any history.
pub fn any() -> bool {
    with(|table| !table.histories.is_empty())
}

/// How many histories of a spool no backward pass has read, besides `number`.
pub fn unread(front: &Front, number: u64) -> usize {
    with(|table| {
        let theirs = |(other, history): &(&u64, &History)| {
            **other != number && std::ptr::eq(front, Arc::as_ptr(&history.front))
        };
        table.histories.iter().filter(theirs).filter(|(_, each)| each.phase == Phase::Kept).count()
    })
}

fn discard(history: History) {
    for version in history.versions {
        // It may be gone, or the spool closed: nobody will read it either way.
        let _ = history.front.spool().discard(version);
    }
}

fn given_up() -> Error {
    let text = "unspool.jax: what this forward pass has saved was given up, because an earlier \
                step of it failed or unspool.jax.forget() was called: run it again.";
    Error::new(ErrorKind::Discarded, text)
}

fn read_already() -> Error {
    let text = "unspool.jax: what this forward pass has saved was read back already, or given up \
                by unspool.jax.forget() or after an error. It is kept for one backward pass: call \
                jax.vjp again for another one, or take all cotangents at once, by jax.vmap of the \
                function that jax.vjp returns, as jax.jacrev does. A loop within the step of \
                another loop, on which it does not depend, is run once by JAX and read in every \
                step: take it out of there.";
    Error::new(ErrorKind::Discarded, text)
}
