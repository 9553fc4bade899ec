//! What needs processes of its own: killed ones, forked ones, ones without rights, without room.
//!
//! The test binary starts itself again in a role; roles talk over standard input and output. It
//! has no harness, so that a process can fork while it has one thread.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod player;
mod roles;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use unspool_tiers::{Disk, DiskOptions, Tier};

use player::{Player, Scratch};
use roles::{NOT_PERMITTED, assert_whole, fill, open};

const TESTS: &[(&str, fn())] = &[
    ("the_directory_of_a_killed_process_is_removed", killed_ephemeral),
    ("the_directory_of_a_living_process_is_left_alone", living_ephemeral),
    ("what_was_synced_outlives_a_killed_process", killed_durable),
    ("a_durable_directory_of_a_living_process_is_refused", living_durable),
    ("many_processes_open_one_directory_at_once", many_processes),
    ("a_process_may_change_its_working_directory", moving),
    ("a_forked_child_can_neither_use_nor_remove_the_files_of_its_parent", forked_child),
    ("a_forked_child_and_its_children_are_other_processes", forked_processes),
    ("a_directory_without_write_permission_is_refused", no_permission),
    ("a_durable_directory_of_another_user_is_read_and_not_written", archive),
    ("a_full_file_system_is_no_space_and_keeps_what_there_was", full_file_system),
    ("a_limit_on_file_sizes_is_an_error_and_leaves_no_file", file_size_limit),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, role, dir] = &args[..]
        && flag == "--role"
    {
        let (_, play) = roles::ROLES.iter().find(|(name, _)| name == role).expect("a known role");
        play(Path::new(dir));
        return ExitCode::SUCCESS;
    }
    // As cargo's own harness: words select tests by their names; `--list` shows them.
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, test) in TESTS {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        if args.iter().any(|arg| arg == "--list") {
            println!("{name}: test");
            continue;
        }
        // A panic ends the process with its message and a failure.
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn killed_ephemeral() {
    let scratch = Scratch::new();
    let mut child = Player::start("hold", &scratch.0, "ephemeral");
    child.wait_for("ready");
    assert_eq!(scratch.names().len(), 1);
    child.kill();
    assert_eq!(scratch.names().len(), 1, "a killed process removes nothing");
    let disk = open(&scratch.0, false);
    assert_eq!(scratch.names().len(), 1, "only the new directory is left");
    assert!(disk.describe().notes.iter().any(|note| note.contains("1 dead processes")));
}

fn living_ephemeral() {
    let scratch = Scratch::new();
    let mut child = Player::start("hold", &scratch.0, "ephemeral");
    child.wait_for("ready");
    for _ in 0..3 {
        drop(open(&scratch.0, false));
    }
    child.tell("check");
    child.wait_for("whole");
    child.tell("end");
    assert!(child.end());
    assert!(scratch.names().is_empty());
}

fn killed_durable() {
    let scratch = Scratch::new();
    let mut child = Player::start("hold", &scratch.0, "durable");
    child.wait_for("ready");
    child.kill();
    let disk = open(&scratch.0, true);
    let ids: Vec<u64> = disk.list().unwrap().iter().map(|stored| stored.id.0).collect();
    assert_eq!(ids, [1, 2], "frame 3 was not synced");
    assert_whole(&disk, 1);
    assert_whole(&disk, 2);
    let names = scratch.names();
    assert!(!names.iter().any(|name| name.starts_with("slot-")), "{names:?}");
}

fn living_durable() {
    let scratch = Scratch::new();
    let mut child = Player::start("hold", &scratch.0, "durable");
    child.wait_for("ready");
    let mut options = DiskOptions::new(&scratch.0);
    options.durable = true;
    let error = Disk::open(options.clone()).unwrap_err();
    let owner = format!("in use by process {}", child.process.id());
    assert!(error.to_string().contains(&owner), "{error}");
    child.tell("check");
    child.wait_for("whole");
    child.kill();
    assert_eq!(Disk::open(options).unwrap().list().unwrap().len(), 2);
}

fn many_processes() {
    let scratch = Scratch::new();
    let mut killed = Player::start("hold", &scratch.0, "ephemeral");
    killed.wait_for("ready");
    killed.kill();
    let players: Vec<Player> = (0..6).map(|_| Player::start("work", &scratch.0, "")).collect();
    assert!(players.into_iter().all(Player::end));
    assert!(scratch.names().is_empty());
}

fn moving() {
    let scratch = Scratch::new();
    assert!(Player::start("move", &scratch.0, "").end());
    assert_eq!(scratch.names(), ["durable"]);
}

fn forked_child() {
    let scratch = Scratch::new();
    let player = Player::start("fork", &scratch.0, "");
    assert!(player.end());
    assert!(scratch.names().is_empty(), "the parent removed its own files at the end");
}

fn forked_processes() {
    let scratch = Scratch::new();
    assert!(Player::start("fork-twice", &scratch.0, "").end());
}

fn no_permission() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("locked");
    fs::create_dir(&dir).unwrap();
    play_without_rights(&scratch, "expect-refusal", &dir);
    assert!(fs::read_dir(&dir).unwrap().next().is_none());
}

fn archive() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("archive");
    let mut options = DiskOptions::new(&dir);
    (options.durable, options.permissions) = (true, 0o644);
    let writer = Disk::open(options).unwrap();
    (1..3).for_each(|id| roles::put(&writer, id).unwrap());
    writer.sync().unwrap();
    let names = || -> Vec<_> {
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    play_without_rights(&scratch, "read-archive", &dir);
    assert_eq!(names(), before);
}

/// Plays a role in a directory that may not be written.
fn play_without_rights(scratch: &Scratch, role: &str, dir: &Path) {
    set_mode(dir, 0o555);
    // Root may write anywhere, so the role is played by nobody, from where nobody can read it.
    let program = scratch.0.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set_mode(&program, 0o755);
    // SAFETY: a system call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    let player = Player::start_as(&program, root.then_some(65_534), role, dir, "");
    assert!(player.end());
    set_mode(dir, 0o755);
}

fn full_file_system() {
    let scratch = Scratch::new();
    let mut player = Player::start("fill-small-file-system", &scratch.0, "");
    if player.process.wait().unwrap().code() == Some(NOT_PERMITTED) {
        println!("  mounting a small file system is not permitted here: a capacity stands for it");
        let mut options = DiskOptions::new(&scratch.0);
        options.capacity = Some(1 << 20);
        fill(&Disk::open(options).unwrap());
        return;
    }
    assert!(player.end());
}

fn file_size_limit() {
    let scratch = Scratch::new();
    assert!(Player::start("write-beyond-limit", &scratch.0, "").end());
}

fn set_mode(dir: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}
