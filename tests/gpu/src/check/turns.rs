//! Processes that register at the same time, with and without turns.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use unspool_cuda::{Context, PinnedArena, PinnedOptions};

use crate::util::{GIB, LONG, ms, rate};

const GIB_EACH: u64 = 4;

pub fn run() {
    let directory = std::env::temp_dir().join(format!("unspool-turns-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for processes in [1, 2, 4] {
        for turns in ["no", "yes", "no", "yes"] {
            let mut children: Vec<Child> =
                (0..processes).map(|_| start(&directory, turns, processes)).collect();
            for child in &mut children {
                let mut line = [0; 6];
                child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
            }
            // All contexts exist now; the children begin together.
            children.iter_mut().for_each(|child| drop(child.stdin.take()));
            for child in children {
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success(), "a process failed");
                let text = String::from_utf8_lossy(&output.stdout);
                print!("  {processes} processes, turns {turns}: {text}");
            }
            std::fs::remove_dir_all(&directory).unwrap();
            std::fs::create_dir_all(&directory).unwrap();
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
    println!("processes that take turns: passed");
}

fn start(directory: &std::path::Path, turns: &str, processes: usize) -> Child {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.arg("child").arg(directory).arg(turns).arg(processes.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

pub fn child(context: &Context, directory: &str, turns: bool, processes: usize) {
    let gib = GIB_EACH;
    let options = PinnedOptions {
        take_turns: turns,
        turn_directory: Some(directory.into()),
        keep: false,
        ..PinnedOptions::default()
    };
    println!("ready");
    let mut nothing = String::new();
    std::io::stdin().read_to_string(&mut nothing).unwrap();
    let begin = Instant::now();
    let arena = PinnedArena::new(context, gib * GIB, &options).unwrap();
    assert_eq!(arena.takes_turns(), turns);
    arena.wait_registered(gib * GIB, LONG).unwrap();
    let (all, stats) = (begin.elapsed(), arena.stats());
    println!(
        "{gib} GiB in {:.0} ms ({:.1} GB/s), inside calls {:.0} ms, longest {:.1} ms, waited for \
         turns {:.1} ms",
        ms(all),
        rate(gib * GIB, all),
        ms(stats.inside),
        ms(stats.longest),
        ms(stats.waited_for_turns)
    );
    wait_for_the_others(directory, processes);
}

/// Waits for the others, because the end of a process disturbs them.
fn wait_for_the_others(directory: &str, processes: usize) {
    let begin = Instant::now();
    let own = format!("{directory}/done-{}", std::process::id());
    std::fs::write(&own, "").unwrap();
    let done = || {
        let names = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("done-")).count()
    };
    while done() < processes && begin.elapsed() < LONG {
        std::thread::yield_now();
    }
}
