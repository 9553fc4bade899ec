//! The command `simulate` on files of runs: whole ones, and such as cannot be used.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use unspool_messages::calls::CALLS;
use unspool_messages::part::{Comm, Ending};
use unspool_messages::run::{About, Duplicates, RankRecord, Writer};
use unspool_messages::{Event, Events};

/// The file of a run of two ranks that send each other 1000 bytes in each of some steps.
fn written(steps: u64) -> Vec<u8> {
    let row = |name: &str| CALLS.iter().position(|call| call.name == name).unwrap() as u8;
    let about = About { size: 2, command: vec!["./halo".into()], ..About::default() };
    let mut writer = Writer::begin(Vec::new(), &about).unwrap();
    for rank in 0..2 {
        let record = RankRecord {
            rank,
            host: String::new(),
            ending: Ending::Finalized,
            wall_ns: 1,
            calls: vec![],
            comms: vec![Comm { id: 1, size: 2, name: "MPI_COMM_WORLD".into(), plain: false }],
            channels: vec![],
            sent: Duplicates::default(),
            received: Duplicates::default(),
        };
        writer.rank(&record).unwrap();
        let peer = 1 - rank as i32;
        let of_step = |step: u64| {
            let one = Event { peer, tag: 1, bytes: 1000, duration_ns: 100, ..Event::default() };
            let start_ns = step * 10_000;
            [
                Event { start_ns, call: row("Send"), ..one },
                Event { start_ns: start_ns + 100, call: row("Recv"), ..one },
                Event { start_ns: start_ns + 200, call: row("Barrier"), bytes: 0, ..one },
            ]
        };
        let first: Vec<Event> = (0..steps).flat_map(of_step).collect();
        let total = first.len() as u64;
        writer.events(rank, &Events { total, first, last: vec![] }).unwrap();
    }
    writer.end(&vec![]).unwrap()
}

fn simulate(run: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool-messages"));
    command.arg("simulate").arg(run).args(["--network", "1000,100,50,2"]).args(more);
    command.output().unwrap()
}

fn refused(run: &Path, more: &[&str]) -> String {
    let output = simulate(run, more);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_run_is_played_on_more_ranks_as_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.msg");
    fs::write(&path, written(20)).unwrap();
    let output = simulate(&path, &["--ranks", "2..8", "--codec", "1,0.5"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // 9700 of computation, 3200 for the messages, rounds of 1200; coding adds 1000.
    assert!(text.contains("On 8 ranks, coding would cost 6.1 % here"), "{text}");
    assert!(text.contains("14.100 us") && text.contains("17.500 us"), "{text}");
    let output = simulate(&path, &["--ranks", "4", "--json", "--spread"]);
    let json = String::from_utf8(output.stdout).unwrap();
    assert!(json.starts_with('{') && json.ends_with("}\n") && json.contains("\"ranks\":4"));
}

#[test]
fn what_is_cut_damaged_or_asked_wrongly_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.msg");
    let whole = written(20);
    fs::write(&path, &whole).unwrap();
    assert!(refused(&path, &["--ranks", "3"]).contains("ask for a multiple, such as 2."));
    assert!(refused(&path, &["--ranks", "none"]).contains("is not a number of ranks"));
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    assert!(refused(&path, &["--ranks", "4"]).contains("its end is missing"));
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, damaged).unwrap();
    assert!(refused(&path, &["--ranks", "4"]).contains("it is damaged"));
    fs::write(&path, b"something else").unwrap();
    assert!(refused(&path, &["--ranks", "4"]).contains("is not a file that"));
    fs::write(&path, written(0)).unwrap();
    assert!(refused(&path, &["--ranks", "4"]).contains("has no events"));
    fs::remove_file(&path).unwrap();
    assert!(refused(&path, &["--ranks", "4"]).contains("No such file"));
}
