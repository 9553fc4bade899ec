//! Checkpointers with copies in a remote place, which is a directory here.

use std::fs;

use super::*;
use crate::copies::list_remote;
use crate::level::RemoteSettings;
use crate::ranks::Alone;
use crate::shelf::Shelf;
use unspool_remote::{Options, Remote};

#[cfg(feature = "object-store")]
#[path = "store_tests.rs"]
mod store;

/// Settings with a remote directory beside the folder of the run.
fn with_directory(scratch: &Scratch) -> Settings {
    let place = scratch.path().join("remote").to_string_lossy().into_owned();
    Settings { remote: Some(RemoteSettings::new(place)), ..settings(scratch.path(), 2) }
}

fn opened(settings: Settings, ranks: &dyn Ranks) -> Checkpointer {
    open_as(settings, ranks, None).unwrap()
}

/// Saves a step and waits until its copy is there.
fn save_and_copy(c: &Checkpointer, step: u64) {
    save(c, &Alone, step);
    c.committer.settle(&Wait::default()).unwrap();
    settle(c).unwrap();
}

fn settle(c: &Checkpointer) -> Result<(), Error> {
    c.places().copier.as_ref().unwrap().settle(&Wait::default())
}

/// The steps of rank 0 that are whole in a remote directory.
fn remote_steps(scratch: &Scratch, ranks: u32) -> Vec<u64> {
    let place = scratch.path().join("remote");
    let remote = Remote::open(place.to_str().unwrap(), &Options::default()).unwrap();
    let (parts, damaged) = Shelf::of(&Arc::new(remote), 0, ranks).parts().unwrap();
    assert_eq!(damaged, [""; 0]);
    parts.iter().map(|part| part.step).collect()
}

fn lose_disk(scratch: &Scratch) {
    fs::remove_dir_all(scratch.path().join("run")).unwrap();
}

#[test]
fn a_second_run_in_one_remote_place_is_refused_until_the_first_one_is_gone() {
    let scratch = Scratch::new();
    one_run_at_a_time(&scratch, &with_directory(&scratch));
    assert!(!scratch.path().join("remote/writer").exists());
}

fn one_run_at_a_time(scratch: &Scratch, settings: &Settings) {
    let second = |name: &str| {
        let path = scratch.path().join(name);
        open_as(Settings { path, ..settings.clone() }, &Alone, None)
    };
    let c = opened(settings.clone(), &Alone);
    save_and_copy(&c, 1);
    let told = second("other").unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid);
    assert!(told.message().contains("belongs to another run, whose folder is"), "{told}");
    save_and_copy(&c, 2);
    // As after a crash: it was neither closed nor given up.
    drop(c);
    let next = second("next").unwrap();
    assert_eq!(restore(&next, &Alone), Some(2));
    close(&next, &Alone);
}

#[test]
fn a_run_whose_remote_place_was_taken_over_writes_nothing_more_there() {
    let scratch = Scratch::new();
    let c = opened(with_directory(&scratch), &Alone);
    save_and_copy(&c, 1);
    // By a run on another machine.
    let place = scratch.path().join("remote");
    let remote = Remote::open(place.to_str().unwrap(), &Options::default()).unwrap();
    let writer = format!(
        "unspool-writer 1\nplace {}\nrun {}\nmachine there\nprocess 1 1\nfolder /there\n",
        remote.identity().unwrap(),
        Run(9)
    );
    remote.put("writer", &unspool_remote::Parts::of(&[writer.as_bytes()]), None).unwrap();
    save_and_copy(&c, 2);
    let told = c.take_copy_failure().unwrap();
    assert!(told.message().contains("belongs to another run now"), "{told}");
    assert_eq!(remote_steps(&scratch, 1), [1]);
    let closing = c.close(Some(&Alone), &Wait::default()).unwrap_err();
    assert!(closing.message().contains("belongs to another run now"), "{closing}");
    assert_eq!(remote_steps(&scratch, 1), [1]);
    assert!(place.join("writer").exists(), "it is that of the other run");
}

#[test]
fn a_frame_that_another_run_has_put_under_a_manifest_is_not_taken_for_its_own() {
    let scratch = Scratch::new();
    let frame = "remote/rank-0000-of-0001/step-2.frame";
    let other = Scratch::new();
    for (scratch, len) in [(&other, 2_000), (&scratch, 1_000)] {
        let c = opened(with_directory(scratch), &Alone);
        for step in [1, 2] {
            save_of(&c, &Alone, step, len).unwrap();
            c.committer.settle(&Wait::default()).unwrap();
            settle(&c).unwrap();
        }
        close(&c, &Alone);
    }
    fs::copy(other.path().join(frame), scratch.path().join(frame)).unwrap();
    lose_disk(&scratch);
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(c.latest(&Alone, &Wait::default()).unwrap(), Some(2));
    let told = c.ready(2, &Wait::default()).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Corrupt);
    assert!(told.message().contains("another run writes there"), "{told}");
    assert_eq!(restore(&c, &Alone), Some(1));
    close(&c, &Alone);
}

fn threads(count: u32, work: &(dyn Fn(&Seat<'_>) + Sync)) {
    let table = Table::of(count);
    std::thread::scope(|scope| {
        for rank in 0..count {
            let table = &table;
            scope.spawn(move || work(&table.seat(rank)));
        }
    });
}

#[test]
fn a_run_goes_on_from_its_copies_when_the_disk_is_gone() {
    let scratch = Scratch::new();
    let c = opened(with_directory(&scratch), &Alone);
    (1..=5).for_each(|step| save_and_copy(&c, 10 * step));
    close(&c, &Alone);
    assert_eq!(remote_steps(&scratch, 1), [40, 50]);
    let place = scratch.path().join("remote");
    let (copies, damaged) = list_remote(place.to_str().unwrap(), &Wait::default()).unwrap();
    assert!(copies.iter().all(listing::Listed::counts) && damaged.is_empty());
    assert_eq!(copies.iter().map(|one| one.part.step).collect::<Vec<_>>(), [40, 50]);
    lose_disk(&scratch);
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(c.latest(&Alone, &Wait::default()).unwrap(), Some(50));
    let told = save_of(&c, &Alone, 50, 10).unwrap_err();
    assert!(told.message().contains("has a checkpoint of step 50"), "{told}");
    assert_eq!(restore(&c, &Alone), Some(50));
    assert_eq!(listed(&scratch), [50], "it counts here again");
    save_and_copy(&c, 60);
    close(&c, &Alone);
    assert_eq!(listed(&scratch), [50, 60]);
    assert_eq!(remote_steps(&scratch, 1), [50, 60]);
    // Without the remote place everything is as before.
    let c = open(&scratch, &Alone);
    assert_eq!(restore(&c, &Alone), Some(60));
}

#[test]
fn a_restart_takes_the_newest_step_that_each_rank_can_get_from_anywhere() {
    let scratch = Scratch::new();
    threads(3, &|seat| {
        let c = opened(with_directory(&scratch), seat);
        for step in [10, 20] {
            save(&c, seat, step);
            c.committer.settle(&Wait::default()).unwrap();
            settle(&c).unwrap();
        }
        // Nobody has time for a copy of this one.
        let saving = |c: &Checkpointer| lock(&c.life).saving.as_mut().unwrap().copy = false;
        c.begin(30, "[30]".into(), seat, &Wait::default()).unwrap();
        saving(&c);
        let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![9] };
        let mut ticket = c.spool().save(30, vec![spec], &Wait::default()).unwrap();
        ticket.fill(0, |bytes| bytes.fill(30 ^ seat.rank as u8)).unwrap();
        ticket.commit().unwrap();
        c.commit().unwrap();
        c.close(None, &Wait::default()).unwrap();
        c.spool().close().unwrap();
    });
    assert_eq!(listed(&scratch), [10, 20, 30]);
    assert_eq!(remote_steps(&scratch, 3), [10, 20]);
    fs::remove_dir_all(scratch.path().join("run/rank-0001-of-0003")).unwrap();
    threads(3, &|seat| {
        let c = opened(with_directory(&scratch), seat);
        assert_eq!(restore(&c, seat), Some(20));
        save(&c, seat, 25);
        close(&c, seat);
    });
    assert_eq!(lying(&scratch), [20, 25]);
    assert_eq!(remote_steps(&scratch, 3), [10, 20, 25]);
    // The folder of another rank, with the newest: both of its steps are elsewhere.
    fs::remove_dir_all(scratch.path().join("run/rank-0002-of-0003")).unwrap();
    threads(3, &|seat| {
        let c = opened(with_directory(&scratch), seat);
        assert_eq!(restore(&c, seat), Some(25));
        close(&c, seat);
    });
    assert_eq!(listed(&scratch), [25]);
}

#[test]
fn a_damaged_part_is_fetched_before_an_older_step_is_taken() {
    let scratch = Scratch::new();
    let c = opened(with_directory(&scratch), &Alone);
    (1..=2).for_each(|step| save_and_copy(&c, step));
    close(&c, &Alone);
    damage_newest(&scratch.path().join("run/rank-0000-of-0001/data"));
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(restore(&c, &Alone), Some(2));
    close(&c, &Alone);
    let c = open(&scratch, &Alone);
    assert_eq!(restore(&c, &Alone), Some(2), "it is whole here again");
    close(&c, &Alone);
    // When the copy is damaged as well, the older one has to do.
    damage_newest(&scratch.path().join("run/rank-0000-of-0001/data"));
    let copy = scratch.path().join("remote/rank-0000-of-0001/step-2.frame");
    let mut bytes = fs::read(&copy).unwrap();
    bytes[5000] ^= 1;
    fs::write(&copy, bytes).unwrap();
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(restore(&c, &Alone), Some(1));
}

#[test]
fn a_damaged_frame_is_not_copied() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    save(&c, &Alone, 1);
    close(&c, &Alone);
    damage_newest(&scratch.path().join("run/rank-0000-of-0001/data"));
    let c = opened(with_directory(&scratch), &Alone);
    settle(&c).unwrap();
    let told = c.take_copy_failure().unwrap();
    assert!(told.message().contains("checksum of its payload"), "{told}");
    assert_eq!(remote_steps(&scratch, 1), [0; 0]);
}

#[test]
fn a_step_that_is_saved_again_takes_the_place_of_its_copy() {
    let scratch = Scratch::new();
    let c = opened(with_directory(&scratch), &Alone);
    (1..=3).for_each(|step| save_and_copy(&c, step));
    close(&c, &Alone);
    let data = scratch.path().join("run/rank-0000-of-0001");
    damage_newest(&data.join("data"));
    fs::remove_file(scratch.path().join("remote/rank-0000-of-0001/step-3.frame")).unwrap();
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(restore(&c, &Alone), Some(2));
    save_and_copy(&c, 3);
    close(&c, &Alone);
    lose_disk(&scratch);
    let c = opened(with_directory(&scratch), &Alone);
    assert_eq!(restore(&c, &Alone), Some(3));
}

#[test]
fn what_came_after_the_restored_step_goes_from_the_remote_place_too() {
    let scratch = Scratch::new();
    let c = opened(Settings { keep: 9, ..with_directory(&scratch) }, &Alone);
    (1..=3).for_each(|step| save_and_copy(&c, step));
    assert_eq!(c.candidate(&[3], &Alone, &Wait::default()).unwrap(), Some(2));
    assert!(c.restored(2, &Outcome::Restored, &Alone).unwrap().is_empty());
    lock(&c.life).standing = Standing::Restored(1);
    save_and_copy(&c, 2);
    assert_eq!(remote_steps(&scratch, 1), [1, 2]);
    assert_eq!(c.copies().unwrap().steps, [1, 2]);
}

#[test]
fn copies_are_made_as_often_as_asked_for_and_of_the_last_one() {
    let scratch = Scratch::new();
    let settings = |every| {
        let mut settings = with_directory(&scratch);
        settings.remote.as_mut().unwrap().every = every;
        Settings { keep: 9, ..settings }
    };
    let c = opened(settings(Every::Steps(4)), &Alone);
    (1..=9).for_each(|step| save_and_copy(&c, step));
    assert_eq!(c.copies().unwrap().steps, [4, 8]);
    close(&c, &Alone);
    assert_eq!(remote_steps(&scratch, 1), [4, 8, 9]);
    let c = opened(settings(Every::Never), &Alone);
    assert_eq!(restore(&c, &Alone), Some(9));
    (10..=12).for_each(|step| save_and_copy(&c, step));
    close(&c, &Alone);
    assert_eq!(remote_steps(&scratch, 1), [4, 8, 9, 12]);
    let c = opened(settings(Every::Time(Duration::from_secs(3600))), &Alone);
    assert_eq!(restore(&c, &Alone), Some(12));
    save_and_copy(&c, 13);
    assert_eq!(c.copies().unwrap().steps, [4, 8, 9, 12]);
}

/// Settings with copies that other ranks keep.
fn with_partner(scratch: &Scratch) -> Settings {
    Settings { partner: Some(Every::Auto), ..settings(scratch.path(), 2) }
}

/// Saves these steps on all of four ranks, each durable before the next one.
fn save_with_partner(scratch: &Scratch, steps: std::ops::RangeInclusive<u64>) {
    threads(4, &|seat| {
        let c = opened(with_partner(scratch), seat);
        assert!(c.warnings().iter().any(|text| text.contains("on the same machine")));
        restore(&c, seat);
        for step in steps.clone() {
            save_of(&c, seat, step, 9 << 20).unwrap();
            c.committer.settle(&Wait::default()).unwrap();
        }
        close(&c, seat);
        assert_eq!(c.take_copy_failure().map(|error| error.to_string()), None);
    });
}

fn lose(scratch: &Scratch, rank: u32) {
    let folder = scratch.path().join(format!("run/rank-{rank:04}-of-0004"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_rank_whose_disk_is_gone_gets_its_part_back_from_its_partner() {
    let scratch = Scratch::new();
    save_with_partner(&scratch, 1..=3);
    assert_eq!(listed(&scratch), [2, 3]);
    // Rank 1 keeps the part of rank 3, and rank 2 that of rank 0.
    lose(&scratch, 2);
    lose(&scratch, 3);
    threads(4, &|seat| {
        let c = opened(with_partner(&scratch), seat);
        assert_eq!(c.latest(seat, &Wait::default()).unwrap(), Some(3));
        assert_eq!(restore(&c, seat), Some(3));
        close(&c, seat);
    });
    assert_eq!(listed(&scratch), [3]);
    save_with_partner(&scratch, 4..=6);
    let kept = scratch.path().join("run/rank-0001-of-0004/partner/rank-0003-of-0004");
    let kept = fs::read_dir(kept).unwrap().count();
    assert!((4..=6).contains(&kept), "two are kept, and one more until the next save: {kept}");
    // Two that keep each other's parts: nothing of them is left.
    lose(&scratch, 1);
    lose(&scratch, 3);
    threads(4, &|seat| {
        let c = opened(with_partner(&scratch), seat);
        assert_eq!(restore(&c, seat), None);
        c.close(None, &Wait::default()).unwrap();
    });
}

#[test]
fn what_partners_have_stays_on_the_disks_of_all_until_they_have_a_newer_one() {
    let scratch = Scratch::new();
    let every = |every| Settings { partner: Some(every), ..settings(scratch.path(), 2) };
    threads(4, &|seat| {
        let c = opened(every(Every::Steps(4)), seat);
        for step in 1..=7 {
            save(&c, seat, step);
            c.committer.settle(&Wait::default()).unwrap();
        }
        // It ends without a word, as a job that is killed does.
        c.close(None, &Wait::default()).unwrap();
    });
    assert_eq!(listed(&scratch), [3, 5, 6, 7], "the save of step 4 gave step 3 away");
    lose(&scratch, 1);
    threads(4, &|seat| {
        let c = opened(every(Every::Steps(4)), seat);
        assert_eq!(restore(&c, seat), Some(3));
    });
}

#[test]
fn a_copy_of_a_partner_that_is_damaged_is_not_taken() {
    let scratch = Scratch::new();
    save_with_partner(&scratch, 1..=3);
    lose(&scratch, 2);
    let kept = scratch.path().join("run/rank-0000-of-0004/partner/rank-0002-of-0004/step-3.frame");
    let mut bytes = fs::read(&kept).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(&kept, bytes).unwrap();
    threads(4, &|seat| {
        let c = opened(with_partner(&scratch), seat);
        assert_eq!(restore(&c, seat), Some(2));
        save(&c, seat, 4);
        close(&c, seat);
    });
    assert_eq!(listed(&scratch), [2, 4]);
}

/// The frame that a rank of four keeps of another one, damaged.
fn damage_kept(scratch: &Scratch, keeper: u32, rank: u32, step: u64) {
    let folder = scratch.path().join(format!("run/rank-{keeper:04}-of-0004/partner"));
    let kept = folder.join(format!("rank-{rank:04}-of-0004/step-{step}.frame"));
    let mut bytes = fs::read(&kept).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(&kept, bytes).unwrap();
}

#[test]
fn a_damaged_part_comes_from_the_partner_before_an_older_step_is_taken() {
    let scratch = Scratch::new();
    save_with_partner(&scratch, 1..=3);
    let data = |rank: u32| scratch.path().join(format!("run/rank-{rank:04}-of-0004/data"));
    damage_newest(&data(2));
    damage_newest(&data(1));
    threads(4, &|seat| {
        let c = opened(with_partner(&scratch), seat);
        assert_eq!(restore(&c, seat), Some(3));
        close(&c, seat);
    });
    // It is whole here again.
    threads(4, &|seat| {
        let c = opened(settings(scratch.path(), 2), seat);
        assert_eq!(restore(&c, seat), Some(3));
        close(&c, seat);
    });
    // The partner of one is lost, so that there is none for all.
    damage_newest(&data(2));
    damage_newest(&data(1));
    fs::remove_dir_all(scratch.path().join("run/rank-0003-of-0004/partner")).unwrap();
    threads(4, &|seat| {
        let c = opened(with_partner(&scratch), seat);
        assert_eq!(restore(&c, seat), Some(2));
        close(&c, seat);
    });
}

#[test]
fn the_remote_place_is_asked_after_the_partner() {
    let scratch = Scratch::new();
    let both = || Settings { partner: Some(Every::Auto), ..with_directory(&scratch) };
    threads(4, &|seat| {
        let c = opened(both(), seat);
        save_of(&c, seat, 1, 9 << 20).unwrap();
        c.committer.settle(&Wait::default()).unwrap();
        save_of(&c, seat, 2, 9 << 20).unwrap();
        close(&c, seat);
    });
    let data = scratch.path().join("run/rank-0002-of-0004/data");
    let copy = scratch.path().join("remote/rank-0002-of-0004/step-2.frame");
    let kept_back = scratch.path().join("kept-back");
    damage_newest(&data);
    fs::rename(&copy, &kept_back).unwrap();
    threads(4, &|seat| {
        let c = opened(both(), seat);
        assert_eq!(restore(&c, seat), Some(2), "from the partner");
        c.give_up();
        c.spool().close().unwrap();
    });
    fs::rename(&kept_back, &copy).unwrap();
    damage_newest(&data);
    damage_kept(&scratch, 0, 2, 2);
    threads(4, &|seat| {
        let c = opened(both(), seat);
        assert_eq!(restore(&c, seat), Some(2), "from the remote place");
        close(&c, seat);
    });
}

#[test]
fn a_step_that_is_removed_does_not_come_back_from_its_copies() {
    let scratch = Scratch::new();
    let both = || Settings { partner: Some(Every::Auto), ..with_directory(&scratch) };
    threads(4, &|seat| {
        let c = opened(both(), seat);
        for step in [1, 2] {
            save(&c, seat, step);
            c.committer.settle(&Wait::default()).unwrap();
            settle(&c).unwrap();
        }
        close(&c, seat);
    });
    let run = scratch.path().join("run");
    assert_eq!(remote_steps(&scratch, 4), [1, 2]);
    for rank in 0..4 {
        let removed = listing::remove_copies(&run, rank, 4, 2).unwrap();
        let place = scratch.path().join("remote").to_string_lossy().into_owned();
        assert_eq!(removed, listing::RemovedCopies { kept: 1, remote: Some(place) });
        assert_eq!(listing::remove_copies(&run, rank, 4, 2).unwrap(), Default::default());
        listing::remove(&run, rank, 4, 2).unwrap();
    }
    assert_eq!(remote_steps(&scratch, 4), [1]);
    threads(4, &|seat| {
        let c = opened(both(), seat);
        assert_eq!(restore(&c, seat), Some(1));
        c.give_up();
    });
    // A place that cannot be had leaves everything as it is.
    let place = scratch.path().join("remote");
    fs::rename(&place, scratch.path().join("elsewhere")).unwrap();
    fs::write(&place, "a file").unwrap();
    let told = listing::remove_copies(&run, 0, 4, 1).unwrap_err();
    assert!(told.message().contains("could come back"), "{told}");
    assert_eq!(listed(&scratch), [1]);
}

#[test]
fn copies_are_found_and_opened_from_outside() {
    let scratch = Scratch::new();
    let c = opened(with_directory(&scratch), &Alone);
    save_and_copy(&c, 10);
    save_and_copy(&c, 20);
    c.close(Some(&Alone), &Wait::default()).unwrap();
    let place = scratch.path().join("remote").to_string_lossy().into_owned();
    let found = crate::find_remote(&place, None, &Wait::default()).unwrap();
    assert_eq!((found.len(), found[0].step), (1, 20));
    let spool = crate::open_remote(&place, &found[0], &Wait::default()).unwrap();
    assert_eq!(spool.versions().unwrap(), [20]);
    let error = crate::find_remote(&place, Some(7), &Wait::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.message().contains("parts of 10, 20"), "{error}");
    // What another run has put there meanwhile is not given for it.
    let other = Manifest { run: Run(1), ..found[0].clone() };
    let refused = crate::open_remote(&place, &other, &Wait::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
}

#[test]
fn the_folder_of_a_run_is_refused_as_its_remote_place_and_not_made() {
    let scratch = Scratch::new();
    let place = scratch.path().join("run").to_string_lossy().into_owned();
    let settings =
        Settings { remote: Some(RemoteSettings::new(place)), ..settings(scratch.path(), 2) };
    let told = open_as(settings, &Alone, None).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid);
    assert!(told.message().contains("is the folder of the run itself"), "{told}");
    assert!(scratch.names().is_empty());
}
