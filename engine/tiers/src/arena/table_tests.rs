//! The table against a map of bytes: who owns each, and which nobody gets before the device is
//! idle.

use super::*;
use crate::testing::Random;

const BYTES: usize = 24;
const IDS: u64 = 5;

/// An entry as the test knows it.
#[derive(Clone)]
struct Known {
    bytes: std::ops::Range<usize>,
    /// Nothing while it is written.
    readers: Option<u32>,
    stuck: bool,
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Known>,
    /// How many times bytes had got stuck before these did.
    stuck: [Option<u64>; BYTES],
    times: u64,
    /// A wait for the device that has begun: what the table and this model said then.
    wait: Option<(Stuck, u64)>,
}

impl Model {
    /// Whether the entry with this id, or a new one, may have these bytes.
    fn allows(&self, id: u64, bytes: &std::ops::Range<usize>) -> bool {
        let others = self.entries.iter().filter(|(other, _)| **other != id);
        let is_free = |at: usize| others.clone().all(|(_, known)| !known.bytes.contains(&at));
        bytes.end <= BYTES && bytes.clone().all(|at| is_free(at) && self.stuck[at].is_none())
    }

    /// Changes the bytes of an entry; what it leaves is stuck if work may be under way there.
    fn resize(&mut self, id: u64, bytes: std::ops::Range<usize>) {
        let known = self.entries.get_mut(&id).unwrap();
        for at in known.bytes.clone().filter(|at| known.stuck && !bytes.contains(at)) {
            self.stuck[at] = Some(self.times);
        }
        self.times += 1;
        known.bytes = bytes;
    }

    fn remove(&mut self, id: u64) {
        self.resize(id, 0..0);
        self.entries.remove(&id);
    }
}

/// A range in the arena or a little beyond; empty ones begin at the first byte.
fn any_range(random: &mut Random) -> std::ops::Range<usize> {
    let bytes = random.below(8) as usize;
    let start = if bytes == 0 { 0 } else { random.below(BYTES as u64) as usize };
    start..start + bytes
}

/// One call, with the same result in the table and in the model.
fn step(table: &mut ArenaTable, model: &mut Model, random: &mut Random) {
    let number = random.below(IDS);
    let (id, bytes) = (CheckpointId(number), any_range(random));
    let (offset, len) = (bytes.start as u64, bytes.len() as u64);
    let known = model.entries.get(&number).cloned();
    match (random.below(10), known) {
        (0, None) => {
            let made = table.create(id, offset, len);
            assert_eq!(made.is_ok(), model.allows(number, &bytes), "{bytes:?}: {made:?}");
            if made.is_ok() {
                let known = Known { bytes, readers: None, stuck: false };
                model.entries.insert(number, known);
            }
        }
        (0, Some(_)) => assert_eq!(table.create(id, offset, len).unwrap_err(), Misuse::Duplicate),
        (1, Some(Known { readers: None, .. })) => {
            table.commit(id, Vec::new());
            model.entries.get_mut(&number).unwrap().readers = Some(0);
        }
        (2, Some(Known { readers: None, .. })) => {
            let done = table.commit_at(id, offset, len, &[]);
            assert_eq!(done.is_ok(), model.allows(number, &bytes), "{bytes:?}: {done:?}");
            if done.is_ok() {
                model.resize(number, bytes);
                model.entries.get_mut(&number).unwrap().readers = Some(0);
            }
        }
        (3, Some(Known { readers: None, .. })) => {
            table.abandon(id, Vec::new());
            model.remove(number);
        }
        (4, Some(Known { bytes, readers: Some(_), .. })) => {
            let read = table.begin_read(id).unwrap();
            assert_eq!((read.offset, read.len), (bytes.start as u64, bytes.len() as u64));
            *model.entries.get_mut(&number).unwrap().readers.as_mut().unwrap() += 1;
        }
        (4, Some(_)) => assert_eq!(table.begin_read(id).unwrap_err(), Misuse::StillWritten),
        (5, Some(Known { readers: Some(1..), .. })) => {
            table.end_read(id, Vec::new());
            *model.entries.get_mut(&number).unwrap().readers.as_mut().unwrap() -= 1;
        }
        (6, known) => {
            let expected = match known.map(|known| known.readers) {
                None => Err(Misuse::Unknown),
                Some(None) => Err(Misuse::StillWritten),
                Some(Some(0)) => Ok(()),
                Some(Some(readers)) => Err(Misuse::StillRead { readers }),
            };
            assert_eq!(table.forget(id), expected);
            if expected.is_ok() {
                model.remove(number);
            }
        }
        (7, known) if random.below(8) == 0 => {
            table.stick(id);
            if known.is_some() {
                model.entries.get_mut(&number).unwrap().stuck = true;
            }
        }
        (8, _) if random.below(4) == 0 => model.wait = Some((table.stuck_so_far(), model.times)),
        (9, _) if let Some((seen, times)) = model.wait.take() => {
            table.unstick(seen);
            for stuck in model.stuck.iter_mut().filter(|stuck| **stuck < Some(times)) {
                *stuck = None;
            }
        }
        _ => {}
    }
}

#[test]
fn any_sequence_of_calls_leaves_each_byte_to_one_owner_or_to_unfinished_work() {
    for seed in 0..3000 {
        let (mut table, mut model) = (ArenaTable::new(BYTES as u64), Model::default());
        let mut random = Random(seed);
        for _ in 0..60 {
            step(&mut table, &mut model, &mut random);
            let used: usize = model.entries.values().map(|known| known.bytes.len()).sum();
            assert_eq!(table.used(), used as u64, "seed {seed}");
            let complete = model.entries.iter().filter(|(_, known)| known.readers.is_some());
            let stored = complete
                .map(|(&id, known)| Stored {
                    id: CheckpointId(id),
                    bytes: known.bytes.len() as u64,
                })
                .collect::<Vec<_>>();
            assert_eq!(table.list(), stored, "seed {seed}");
        }
    }
}
