//! Checkpointers of one rank and of several, which are threads here.

use std::sync::Condvar;

use unspool::{DiskSettings, Dtype, RegionSpec, Settings as SpoolSettings};
use unspool_testkit::Scratch;

use super::*;
use crate::interval::Every;
use crate::listing;
use crate::ranks::{Alone, Unanswered};

#[path = "increment_tests.rs"]
mod increment;
#[path = "level_tests.rs"]
mod level;

const TIMEOUT: Duration = Duration::from_secs(20);

/// What threads that stand for ranks give each other: everyone's message of each round.
#[derive(Debug)]
struct Table {
    size: u32,
    rounds: Mutex<Vec<Vec<Option<Vec<u8>>>>>,
    changed: Condvar,
}

/// One rank at a table.
struct Seat<'a> {
    rank: u32,
    table: &'a Table,
    round: std::cell::Cell<usize>,
}

impl Table {
    fn of(size: u32) -> Table {
        Table { size, rounds: Mutex::default(), changed: Condvar::new() }
    }

    fn seat(&self, rank: u32) -> Seat<'_> {
        Seat { rank, table: self, round: std::cell::Cell::new(0) }
    }
}

impl Ranks for Seat<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.table.size
    }

    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
        let round = self.round.replace(self.round.get() + 1);
        let size = self.table.size as usize;
        let mut rounds = self.table.rounds.lock().unwrap();
        let least = rounds.len().max(round + 1);
        rounds.resize(least, vec![None; size]);
        rounds[round][self.rank as usize] = Some(mine.to_vec());
        self.table.changed.notify_all();
        let waits = |rounds: &mut Vec<Vec<Option<Vec<u8>>>>| rounds[round].contains(&None);
        let (rounds, late) = self.table.changed.wait_timeout_while(rounds, timeout, waits).unwrap();
        let all = &rounds[round];
        if late.timed_out() {
            let missing = (0..self.table.size).filter(|rank| all[*rank as usize].is_none());
            return Err(Unanswered::Late(missing.collect()));
        }
        Ok(all.iter().flatten().cloned().collect())
    }
}

fn settings(path: &Path, keep: u32) -> Settings {
    let rule = Rule::of(Every::Steps(1), 1);
    Settings { keep, timeout: TIMEOUT, ..Settings::new(path.join("run"), rule) }
}

fn open_as(
    settings: Settings,
    ranks: &dyn Ranks,
    capacity: Option<u64>,
) -> Result<Checkpointer, Error> {
    open_until(settings, ranks, capacity, &Wait::default())
}

fn open_until(
    settings: Settings,
    ranks: &dyn Ranks,
    capacity: Option<u64>,
    wait: &Wait<'_>,
) -> Result<Checkpointer, Error> {
    Checkpointer::open(settings, ranks, wait, |data| {
        let disk =
            data.map(|data| DiskSettings { durable: true, capacity, ..DiskSettings::new(data) });
        let settings = SpoolSettings {
            host: Some(4 << 20),
            disk,
            max_retries: 1,
            retry_delay: Duration::from_millis(1),
            ..SpoolSettings::default()
        };
        Spool::open(settings).map(Arc::new)
    })
}

fn open(scratch: &Scratch, ranks: &dyn Ranks) -> Checkpointer {
    open_as(settings(scratch.path(), 2), ranks, None).unwrap()
}

/// Saves a checkpoint whose every byte is that of its step and rank.
fn save_of(c: &Checkpointer, ranks: &dyn Ranks, step: u64, len: u64) -> Result<(), Error> {
    c.begin(step, format!("[{step}]"), ranks, &Wait::default())?;
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![len] };
    let mut ticket = c.spool().save(step as i64, vec![spec], &Wait::default())?;
    ticket.fill(0, |bytes| bytes.fill(step as u8 ^ ranks.rank() as u8))?;
    ticket.commit()?;
    c.commit()
}

fn save(c: &Checkpointer, ranks: &dyn Ranks, step: u64) {
    save_of(c, ranks, step, 100_000).unwrap();
}

/// Restores the newest checkpoint, and says which one that was.
fn restore(c: &Checkpointer, ranks: &dyn Ranks) -> Option<u64> {
    let mut unreadable = Vec::new();
    while let Some(step) = c.candidate(&unreadable, ranks, &Wait::default()).unwrap() {
        let read = || {
            c.ready(step, &Wait::default())?;
            let ticket = c.spool().restore(step as i64, &Wait::default())?;
            let byte = step as u8 ^ ranks.rank() as u8;
            ticket.read(0, |bytes| assert!(bytes.iter().all(|b| *b == byte)))?;
            ticket.finish()
        };
        let again = |_: Error| match c.fetch(step, &Wait::default())? {
            true => read(),
            false => Err(Error::new(ErrorKind::Corrupt, "There is no copy.")),
        };
        let outcome = match read().or_else(again) {
            Ok(_) => Outcome::Restored,
            Err(error) => Outcome::Unreadable(error.to_string()),
        };
        if c.restored(step, &outcome, ranks).unwrap().is_empty() {
            assert_eq!(c.values(step, &Wait::default()).unwrap(), format!("[{step}]"));
            return Some(step);
        }
        unreadable.push(step);
    }
    None
}

fn close(c: &Checkpointer, ranks: &dyn Ranks) {
    c.close(Some(ranks), &Wait::default()).unwrap();
    c.spool().close().unwrap();
}

/// The steps that count.
fn listed(scratch: &Scratch) -> Vec<u64> {
    let (all, damaged) = listing::list(&scratch.path().join("run")).unwrap();
    assert!(damaged.is_empty());
    all.into_iter().filter(listing::Listed::counts).map(|one| one.part.step).collect()
}

/// The steps of which any rank has a part.
fn lying(scratch: &Scratch) -> Vec<u64> {
    let (all, _) = listing::list(&scratch.path().join("run")).unwrap();
    all.into_iter().map(|one| one.part.step).collect()
}

#[test]
fn a_run_goes_on_from_its_newest_checkpoint_and_keeps_two() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    assert_eq!(restore(&c, &Alone), None);
    (1..=5).for_each(|step| save(&c, &Alone, 10 * step));
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [40, 50]);
    let c = open(&scratch, &Alone);
    assert_eq!(c.spool().versions().unwrap(), [40, 50]);
    assert_eq!(restore(&c, &Alone), Some(50));
    save(&c, &Alone, 60);
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [50, 60]);
}

#[test]
fn reading_waits_for_what_was_saved() {
    let scratch = Scratch::new();
    let (c, wait) = (open(&scratch, &Alone), Wait::default());
    for step in 1..=12 {
        save(&c, &Alone, step);
        match step % 4 {
            0 => assert_eq!(c.latest(&Alone, &wait).unwrap(), Some(step)),
            1 => assert_eq!(c.values(step, &wait).unwrap(), format!("[{step}]")),
            2 => c.ready(step, &wait).unwrap(),
            _ => assert_eq!(restore(&c, &Alone), Some(step)),
        }
    }
    close(&c, &Alone);
}

#[test]
fn a_first_save_that_does_not_come_after_what_lies_there_is_refused() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    save(&c, &Alone, 50);
    assert!(save_of(&c, &Alone, 50, 10).unwrap_err().message().contains("increase"));
    close(&c, &Alone);
    let c = open(&scratch, &Alone);
    let told = save_of(&c, &Alone, 50, 10).unwrap_err();
    assert!(told.message().contains("has a checkpoint of step 50"), "{told}");
    assert!(told.message().contains("Call `restore` first"), "{told}");
    save(&c, &Alone, 51);
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [50, 51]);
}

/// The paths below a folder, in order.
fn below(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|entry| {
        let inner = if entry.is_dir() { below(&entry) } else { Vec::new() };
        std::iter::once(entry).chain(inner).collect::<Vec<_>>()
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

#[test]
fn an_opening_that_is_refused_touches_nothing() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    save(&c, &Alone, 1);
    c.flush(&Wait::default()).unwrap();
    // As in the middle of a save.
    let unfinished = c.places().folder.path().join("step-2.part");
    std::fs::write(&unfinished, "half").unwrap();
    let before = below(scratch.path());
    let more = Settings { increments: Some(Fulls::Auto), ..settings(scratch.path(), 2) };
    for settings in [settings(scratch.path(), 2), more] {
        let told = open_as(settings, &Alone, None).unwrap_err();
        assert!(told.message().contains("in use"), "{told}");
    }
    let told =
        open_part::<Error>(&mut c.settings.clone(), (1, 2, Run(7)), &Wait::default(), |_| {
            panic!("not asked for")
        })
        .err()
        .unwrap();
    assert_eq!(told.kind(), ErrorKind::Invalid);
    listing::remove(&scratch.path().join("run"), 0, 1, 7).unwrap();
    listing::remove_copies(&scratch.path().join("run"), 0, 1, 7).unwrap();
    assert_eq!(below(scratch.path()), before);
    close(&c, &Alone);
    close(&open(&scratch, &Alone), &Alone);
    assert!(!unfinished.exists(), "nobody will finish it");
}

#[test]
fn values_that_are_too_large_are_refused() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    let large = " ".repeat(MOST_VALUES + 1);
    let told = c.begin(1, large, &Alone, &Wait::default()).unwrap_err();
    assert!(told.message().contains("save large ones as arrays"), "{told}");
}

#[test]
fn a_full_disk_leaves_the_last_checkpoint_and_is_told_once() {
    let scratch = Scratch::new();
    let c = open_as(settings(scratch.path(), 2), &Alone, Some(300_000)).unwrap();
    save(&c, &Alone, 1);
    c.committer.settle(&Wait::default()).unwrap();
    save_of(&c, &Alone, 2, 250_000).unwrap();
    c.committer.settle(&Wait::default()).unwrap();
    let told = c.take_failure().unwrap();
    assert!(told.message().contains("step 2 does not count"), "{told}");
    assert!(told.message().contains("that counts is step 1; it stays"), "{told}");
    assert!(c.take_failure().is_none());
    let closing = c.close(Some(&Alone), &Wait::default()).unwrap_err();
    assert!(closing.message().contains("step 2 does not count"), "{closing}");
    assert_eq!(listed(&scratch), [1]);
    // It is open as before, and the next save takes the place of what failed.
    save(&c, &Alone, 3);
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [1, 3]);
}

#[test]
fn what_could_not_be_written_counts_after_a_close_that_can_write_it() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    save(&c, &Alone, 1);
    c.committer.settle(&Wait::default()).unwrap();
    // Its manifest cannot be written where a folder has its name.
    let in_the_way = c.places().folder.path().join("step-2.manifest");
    std::fs::create_dir_all(in_the_way.join("x")).unwrap();
    save(&c, &Alone, 2);
    assert!(c.close(Some(&Alone), &Wait::default()).is_err());
    std::fs::remove_dir_all(in_the_way).unwrap();
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [1, 2]);
}

#[test]
fn a_checkpoint_counts_when_every_rank_has_it_and_newer_parts_go() {
    let scratch = Scratch::new();
    let job = |work: &(dyn Fn(&Seat<'_>) + Sync)| {
        let table = Table::of(3);
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let table = &table;
                scope.spawn(move || work(&table.seat(rank)));
            }
        });
    };
    job(&|seat| {
        let c = open(&scratch, seat);
        save(&c, seat, 10);
        save(&c, seat, 20);
        c.begin(30, "[30]".into(), seat, &Wait::default()).unwrap();
        if seat.rank == 1 {
            c.abandon();
        } else {
            let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![9] };
            let ticket = c.spool().save(30, vec![spec], &Wait::default()).unwrap();
            ticket.commit().unwrap();
            c.commit().unwrap();
        }
        close(&c, seat);
    });
    assert_eq!(listed(&scratch), [10, 20]);
    assert_eq!(lying(&scratch), [10, 20, 30]);
    job(&|seat| {
        let c = open(&scratch, seat);
        assert_eq!(c.latest(seat, &Wait::default()).unwrap(), Some(20));
        assert_eq!(restore(&c, seat), Some(20));
        save(&c, seat, 25);
        assert!(!c.spool().contains(30).unwrap());
        close(&c, seat);
    });
    assert_eq!(lying(&scratch), [20, 25]);
    // One rank's bytes are damaged: all go back.
    let data = scratch.path().join("run/rank-0002-of-0003/data");
    damage_newest(&data);
    job(&|seat| {
        let c = open(&scratch, seat);
        assert_eq!(restore(&c, seat), Some(20));
        save(&c, seat, 22);
        close(&c, seat);
    });
    assert_eq!(lying(&scratch), [20, 22]);
}

#[test]
fn old_checkpoints_go_while_the_run_goes_on() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    for step in 1..=9 {
        save(&c, &Alone, step);
        c.flush(&Wait::default()).unwrap();
        assert!(lying(&scratch).len() <= 3, "two are kept, and one more until the next save");
    }
    c.close(None, &Wait::default()).unwrap();
    assert_eq!(lying(&scratch), [7, 8, 9], "nothing was agreed on at the end");
}

/// Changes a byte in the middle of the newest frame of a directory.
fn damage_newest(data: &Path) {
    let files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let frames = files.filter(|path| path.to_string_lossy().contains("frame-"));
    let newest = frames.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(newest, bytes).unwrap();
}

#[test]
fn another_number_of_ranks_is_refused_with_both_numbers() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    save(&c, &Alone, 1);
    close(&c, &Alone);
    let table = Table::of(2);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (table, scratch) = (&table, &scratch);
            scope.spawn(move || {
                let seat = table.seat(rank);
                let told = open_as(settings(scratch.path(), 2), &seat, None).unwrap_err();
                assert!(told.message().contains("checkpoints of 1 ranks, and this run has 2"));
                assert!(told.message().contains("Checkpointer.parts"));
            });
        }
    });
}

#[test]
fn an_opening_that_fails_on_one_rank_fails_on_all_at_once() {
    let scratch = Scratch::new();
    let table = Table::of(2);
    std::thread::scope(|scope| {
        let (scratch, table) = (&scratch, &table);
        scope.spawn(move || {
            let told = open_as(settings(scratch.path(), 2), &table.seat(0), None).unwrap_err();
            assert!(told.message().contains("Rank 1 could not open its part"), "{told}");
        });
        scope.spawn(move || {
            let path = settings(&scratch.path().join("missing/folder"), 2);
            open_as(path, &table.seat(1), None).unwrap_err();
        });
    });
}

#[test]
fn a_rank_that_never_answers_is_named_and_nothing_is_lost() {
    let scratch = Scratch::new();
    let table = Table::of(2);
    let mut told = None;
    std::thread::scope(|scope| {
        let (scratch, table) = (&scratch, &table);
        let quick =
            || Settings { timeout: Duration::from_millis(300), ..settings(scratch.path(), 2) };
        let gone = scope.spawn(move || {
            let seat = table.seat(1);
            let c = open_as(Settings { timeout: TIMEOUT, ..quick() }, &seat, None).unwrap();
            save(&c, &seat, 1);
            c.close(None, &Wait::default()).unwrap();
        });
        let seat = table.seat(0);
        let c = open_as(quick(), &seat, None).unwrap();
        save(&c, &seat, 1);
        gone.join().unwrap();
        told = Some(save_of(&c, &seat, 2, 10).unwrap_err());
        c.close(Some(&seat), &Wait::default()).unwrap();
    });
    let told = told.unwrap();
    assert!(
        told.message().contains("rank 1 has not answered, while this rank saves step 2"),
        "{told}"
    );
    assert_eq!(listed(&scratch), [1]);
}

#[test]
fn a_signal_makes_one_checkpoint_due_and_a_limit_does_too() {
    let scratch = Scratch::new();
    let rule = Rule::of(Every::Never, 1);
    let c = open_as(Settings { rule, stops: true, ..settings(scratch.path(), 2) }, &Alone, None)
        .unwrap();
    assert!(!c.due(1, &Alone).unwrap() && !c.stopping());
    c.stop();
    assert!(c.due(2, &Alone).unwrap() && c.stopping());
    save(&c, &Alone, 2);
    assert!(!c.due(3, &Alone).unwrap() && c.stopping());
    close(&c, &Alone);
    let limit = Some(Duration::ZERO);
    let c = open_as(Settings { rule, limit, ..settings(scratch.path(), 2) }, &Alone, None).unwrap();
    assert!(c.due(3, &Alone).unwrap() && c.stopping());
}

#[test]
fn a_run_goes_on_from_what_was_loaded_and_a_look_deletes_nothing() {
    let scratch = Scratch::new();
    let c = open_as(Settings { keep: 9, ..settings(scratch.path(), 9) }, &Alone, None).unwrap();
    (1..=5).for_each(|step| save(&c, &Alone, step));
    c.flush(&Wait::default()).unwrap();
    let begins = |step| c.begin(step, String::new(), &Alone, &Wait::default());
    assert_eq!(begins(4).unwrap_err().kind(), ErrorKind::Invalid);
    c.loaded(3);
    assert_eq!(begins(3).unwrap_err().kind(), ErrorKind::Invalid);
    begins(6).unwrap();
    c.abandon();
    assert_eq!(steps(&c), [1, 2, 3, 4, 5]);
    save(&c, &Alone, 4);
    c.flush(&Wait::default()).unwrap();
    assert_eq!(steps(&c), [1, 2, 3, 4]);
    assert_eq!(begins(4).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_is_gone_on_from_stays_until_the_next_one_counts() {
    for keep in [1, 2, 3] {
        let scratch = Scratch::new();
        let all = Settings { keep: 9, ..settings(scratch.path(), 9) };
        let c = open_as(all, &Alone, None).unwrap();
        (1..=5).for_each(|step| save(&c, &Alone, step));
        close(&c, &Alone);
        let c = open_as(settings(scratch.path(), keep), &Alone, None).unwrap();
        c.loaded(3);
        c.begin(4, String::new(), &Alone, &Wait::default()).unwrap();
        assert_eq!(steps(&c), [1, 2, 3]);
        c.abandon();
        c.close(Some(&Alone), &Wait::default()).unwrap();
        assert!(steps(&c).ends_with(&[3]), "{keep}");
    }
}

/// The steps that count on this rank.
fn steps(c: &Checkpointer) -> Vec<u64> {
    c.committer.counted().iter().map(|part| part.step).collect()
}

#[test]
fn what_came_after_a_step_that_is_gone_back_to_stays_until_the_next_save_counts() {
    let scratch = Scratch::new();
    let keep = settings(scratch.path(), 9);
    let c = open_as(keep.clone(), &Alone, None).unwrap();
    (1..=5).for_each(|step| save(&c, &Alone, step));
    close(&c, &Alone);
    let c = open_as(keep.clone(), &Alone, None).unwrap();
    let back = |c: &Checkpointer| {
        c.ready(2, &Wait::default()).unwrap();
        c.restored(2, &Outcome::Restored, &Alone).unwrap();
    };
    back(&c);
    // It begins, and the process is killed.
    c.begin(4, "[4]".into(), &Alone, &Wait::default()).unwrap();
    assert_eq!(listed(&scratch), [1, 2, 3, 5], "one of the same step makes way");
    assert_eq!(c.latest(&Alone, &Wait::default()).unwrap(), Some(2));
    c.give_up();
    let _ = c.spool().close();
    drop(c);
    let c = open_as(keep.clone(), &Alone, None).unwrap();
    assert_eq!(c.latest(&Alone, &Wait::default()).unwrap(), Some(5));
    back(&c);
    c.begin(4, "[4]".into(), &Alone, &Wait::default()).unwrap();
    c.abandon();
    assert_eq!(listed(&scratch), [1, 2, 3, 5]);
    save(&c, &Alone, 5);
    c.flush(&Wait::default()).unwrap();
    assert_eq!(listed(&scratch), [1, 2, 5]);
    close(&c, &Alone);
    let c = open_as(keep, &Alone, None).unwrap();
    assert_eq!(restore(&c, &Alone), Some(5));
    close(&c, &Alone);
}

#[test]
fn the_best_and_the_periodic_ones_stay_beside_the_last_ones() {
    let scratch = Scratch::new();
    let stays = Stays { best: 2, every: Some(4) };
    let settings = Settings { stays, ..settings(scratch.path(), 1) };
    for half in [1..=5, 6..=10] {
        let c = open_as(settings.clone(), &Alone, None).unwrap();
        restore(&c, &Alone);
        let scores = [9.0, 1.0, f64::NAN, 7.0, 6.0, 2.0, 5.0, 3.0, 8.0, 4.0];
        (1..).zip(scores).for_each(|(step, score)| c.score(step, score));
        half.for_each(|step| save(&c, &Alone, step));
        close(&c, &Alone);
    }
    assert_eq!(listed(&scratch), [2, 4, 6, 8, 10]);
}

#[test]
fn ranks_that_only_save_tell_each_other_of_a_stop() {
    let scratch = Scratch::new();
    let table = Table::of(3);
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let (seat, scratch) = (table.seat(rank), &scratch);
            scope.spawn(move || {
                let c = open(scratch, &seat);
                save(&c, &seat, 1);
                assert!(!c.stopping());
                if rank == 1 {
                    c.stop();
                }
                assert!(!c.stopping(), "the others do not know it yet");
                save(&c, &seat, 2);
                assert!(c.stopping());
                close(&c, &seat);
            });
        }
    });
}

#[test]
fn a_step_that_was_restored_and_is_saved_again_is_restored_as_it_is_now() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    (1..=2).for_each(|step| save(&c, &Alone, step));
    close(&c, &Alone);
    let c = open(&scratch, &Alone);
    assert_eq!(restore(&c, &Alone), Some(2));
    c.ready(1, &Wait::default()).unwrap();
    c.restored(1, &Outcome::Restored, &Alone).unwrap();
    save(&c, &Alone, 2);
    c.flush(&Wait::default()).unwrap();
    c.ready(2, &Wait::default()).unwrap();
    close(&c, &Alone);
}
