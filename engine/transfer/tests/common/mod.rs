//! A store in memory with faults and a gate, and a sink that records reports: for the tests.
#![allow(dead_code)]

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Dtype, Head, RegionSpec};
use unspool_core::{
    CheckpointId, Event, Failure, Place, TierId, TierKind, TransferId, TransferKind, Version,
};
use unspool_tiers::{Arena, Description, Stored, Tier, TierError};
use unspool_transfer::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use unspool_transfer::{Frame, Job, Sink, Span, TransferError};

/// What a call of the store does instead of succeeding.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Fail(Failure),
    Panic,
}

#[derive(Debug, Default)]
struct Inside {
    frames: HashMap<CheckpointId, Vec<u8>>,
    /// What the next calls do.
    faults: VecDeque<Option<Fault>>,
    shut: bool,
    waiting: usize,
    puts: Vec<CheckpointId>,
}

/// A store in memory. While its gate is shut, calls wait in it.
#[derive(Default)]
pub struct Store {
    inside: Mutex<Inside>,
    changed: Condvar,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    pub fn fail_next(&self, fault: Fault) {
        self.fail_after(0, fault);
    }

    /// The next `calls` calls succeed, and the one after them fails.
    pub fn fail_after(&self, calls: usize, fault: Fault) {
        let faults = &mut lock(&self.inside).faults;
        faults.extend((0..calls).map(|_| None));
        faults.push_back(Some(fault));
    }

    pub fn shut(&self) {
        lock(&self.inside).shut = true;
    }

    pub fn open(&self) {
        lock(&self.inside).shut = false;
        self.changed.notify_all();
    }

    /// Waits until `calls` calls wait at the gate.
    pub fn wait_for_waiting(&self, calls: usize) {
        let mut inside = lock(&self.inside);
        while inside.waiting < calls {
            inside = wait(&self.changed, inside);
        }
    }

    /// The ids in the order in which their puts began.
    pub fn puts(&self) -> Vec<CheckpointId> {
        lock(&self.inside).puts.clone()
    }

    /// Flips one bit of a stored frame.
    pub fn damage(&self, id: CheckpointId, byte: usize) {
        lock(&self.inside).frames.get_mut(&id).expect("stored")[byte] ^= 1;
    }

    pub fn swap(&self, a: CheckpointId, b: CheckpointId) {
        let mut inside = lock(&self.inside);
        let (x, y) = (inside.frames[&a].clone(), inside.frames[&b].clone());
        inside.frames.insert(a, y);
        inside.frames.insert(b, x);
    }

    fn enter(&self, operation: &'static str) -> Result<(), TierError> {
        let mut inside = lock(&self.inside);
        inside.waiting += 1;
        self.changed.notify_all();
        while inside.shut {
            inside = wait(&self.changed, inside);
        }
        inside.waiting -= 1;
        match inside.faults.pop_front().flatten() {
            None => Ok(()),
            Some(Fault::Fail(kind)) => {
                Err(TierError::new(kind, operation, "fake", "a planned fault"))
            }
            Some(Fault::Panic) => {
                drop(inside);
                panic!("the store panics as planned");
            }
        }
    }
}

impl Tier for Store {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Disk,
            location: "fake".to_owned(),
            capacity: u64::MAX,
            used: 0,
            alignment: 1,
            durable: false,
            notes: Vec::new(),
        }
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        lock(&self.inside).puts.push(id);
        self.enter("put")?;
        lock(&self.inside).frames.insert(id, parts.concat());
        Ok(())
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        self.enter("get")?;
        let inside = lock(&self.inside);
        let missing = || TierError::new(Failure::Missing, "get", "fake", "no such frame");
        let mut rest = &inside.frames.get(&id).ok_or_else(missing)?[skip as usize..];
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.enter("delete")?;
        let missing = || TierError::new(Failure::Missing, "delete", "fake", "no such frame");
        lock(&self.inside).frames.remove(&id).map(|_| ()).ok_or_else(missing)
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        let inside = lock(&self.inside);
        let mut all: Vec<Stored> = inside
            .frames
            .iter()
            .map(|(&id, frame)| Stored { id, bytes: frame.len() as u64 })
            .collect();
        all.sort_unstable();
        Ok(all)
    }

    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }
}

/// A report and its error text.
pub type Entry = (Event, Option<String>);

/// A sink that records everything.
#[derive(Default)]
pub struct Log {
    entries: Mutex<(Vec<Entry>, Vec<Span>)>,
    changed: Condvar,
}

impl Sink for Log {
    fn event(&self, event: Event, error: Option<TransferError>) {
        lock(&self.entries).0.push((event, error.map(|error| error.to_string())));
        self.changed.notify_all();
    }

    fn span(&self, span: Span) {
        lock(&self.entries).1.push(span);
    }
}

impl Log {
    /// Waits until there are `count` reports, and returns them.
    pub fn wait_for(&self, count: usize) -> Vec<Entry> {
        let mut entries = lock(&self.entries);
        for _ in 0..1000 {
            if entries.0.len() >= count {
                return entries.0.clone();
            }
            entries = wait_timeout(&self.changed, entries, Duration::from_millis(10));
        }
        panic!("{} of {count} reports came within 10 s", entries.0.len());
    }

    pub fn events(&self) -> Vec<Event> {
        lock(&self.entries).0.iter().map(|(event, _)| *event).collect()
    }

    pub fn spans(&self) -> Vec<Span> {
        lock(&self.entries).1.clone()
    }
}

/// The number of reports of each transfer in `events`.
pub fn reports(events: &[Event]) -> HashMap<TransferId, usize> {
    let mut count = HashMap::new();
    for event in events {
        if let Event::TransferDone { transfer, .. }
        | Event::TransferFailed { transfer, .. }
        | Event::TransferCancelled { transfer } = *event
        {
            *count.entry(transfer).or_insert(0) += 1;
        }
    }
    count
}

/// A checkpoint of one region of `bytes` bytes.
pub fn frame(version: i64, bytes: u64) -> Arc<Frame> {
    let spec = RegionSpec { name: "u".to_owned(), dtype: Dtype::UInt8, shape: vec![bytes] };
    Arc::new(Frame::new(Head::layout(version, vec![spec]).expect("one small region")))
}

/// A movement of checkpoint `id` of `bytes` bytes; offsets are `id * bytes`.
pub fn job(id: u64, bytes: u64, from: u8, to: u8) -> Job {
    let place = |tier| Place { tier: TierId(tier), offset: id * bytes };
    Job {
        transfer: TransferId(1000 + id),
        checkpoint: CheckpointId(id),
        version: Version(id as i64),
        bytes,
        kind: if from < to { TransferKind::Flush } else { TransferKind::Prefetch },
        from: place(from),
        to: place(to),
        frame: frame(id as i64, bytes),
    }
}

/// Recognisable content of checkpoint `id`.
pub fn content(id: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + id * 31 + (i >> 8)) as u8).collect()
}

/// Puts checkpoint `id` into an arena, at `id * bytes`.
pub fn fill(arena: &Arena, id: u64, bytes: u64) {
    arena.put(CheckpointId(id), id * bytes, &[&content(id, bytes)]).expect("room");
}
