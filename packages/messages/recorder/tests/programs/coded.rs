//! Programs whose messages are coded on the wire get what was sent, or end with an error.

use std::fs;
use std::path::Path;
use std::process::Output;

use unspool_testkit::programs::{all_mpis, is_there, said, succeeded};

use super::bench::{Bench, lines, source, with_mpi4py};

/// How many messages of channels of the plan there were, and how many of them were coded.
fn coded(output: &Output) -> (u64, u64) {
    let told = said(output);
    let line = told.lines().find(|line| line.contains("messages were coded")).expect(&told);
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[1], numbers[0])
}

/// Records a program and runs it coded: what it prints is the same three times.
pub fn same_when_coded(bench: &Bench, program: &[&Path]) {
    let plain = lines(&succeeded(bench.plain(program)));
    assert_eq!(plain, lines(&succeeded(bench.recording(program))));
    let output = succeeded(bench.coding(program));
    assert_eq!(plain, lines(&output), "{}", said(&output));
    let (all, coded) = coded(&output);
    assert!(coded > all / 3 && coded > 20, "{}", said(&output));
}

#[test]
fn a_coded_program_gets_what_was_sent() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("coding.c");
        same_when_coded(&bench, &[&program]);
        // A receive that is taken back is none of its channel.
        let cancels: [&Path; 2] = [&program, Path::new("cancel")];
        let plain = succeeded(bench.plain(&cancels));
        assert_eq!(lines(&plain), lines(&succeeded(bench.coding(&cancels))));
    }
}

#[test]
fn a_coded_program_of_fortran_gets_what_was_sent() {
    let Some(mpi) = all_mpis().into_iter().find(|mpi| mpi.compiler == "mpicc") else { return };
    if !is_there("mpif90") {
        return println!("skipped: no mpif90");
    }
    let bench = Bench::new(&mpi);
    let program = bench.compile_by("mpif90", &source("coding08.f90"), &[]);
    same_when_coded(&bench, &[&program]);
    let program = bench.compile_by("mpif90", &source("coding.f90"), &[]);
    same_when_coded(&bench, &[&program]);
    // A request that is given up is none of the library's any more.
    let gives_up: [&Path; 2] = [&program, Path::new("free")];
    let plain = succeeded(bench.plain(&gives_up));
    assert_eq!(lines(&plain), lines(&succeeded(bench.coding(&gives_up))));
    let output = bench.coding(&[&program, Path::new("probe")]).output().unwrap();
    let told = "rank 1: messages with rank 0 of MPI_COMM_WORLD, tag 1: MPI_Probe has found a coded";
    assert!(!output.status.success() && said(&output).contains(told), "{}", said(&output));
}

#[test]
fn messages_that_may_overtake_each_other_are_not_coded() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("hints.c");
        let plain = lines(&succeeded(bench.plain(&[&program])));
        let coded_of = |how: &str| {
            let output = succeeded(bench.coding(&[&program, Path::new(how)]));
            assert_eq!(lines(&output), plain, "{}", said(&output));
            coded(&output)
        };
        // The record shows it: neither run codes what is sent there.
        for how in ["dup", "set", "late"] {
            let recorded = succeeded(bench.recording(&[&program, Path::new(how)]));
            assert_eq!(lines(&recorded), plain);
            let (run, _) = bench.read();
            for rank in &run.ranks {
                let loose = rank.comms.iter().filter(|comm| comm.plain);
                assert!(loose.map(|comm| &comm.name).eq(["dup_with_info 2 of MPI_COMM_WORLD"]));
            }
            assert_eq!(coded_of(how), (40, 40), "{how}");
            assert_eq!(coded_of(""), (40, 40), "{how}");
        }
        // The record does not show it.
        succeeded(bench.recording(&[&program]));
        assert_eq!(coded_of(""), (80, 80));
        assert_eq!(coded_of("dup"), (40, 40));
        for how in ["set", "late"] {
            let output = bench.coding(&[&program, Path::new(how)]).output().unwrap();
            let told = "sets mpi_assert_allow_overtaking or mpi_assert_exact_length on \
                        dup_with_info 2 of MPI_COMM_WORLD";
            assert!(!output.status.success(), "{how}: {}", said(&output));
            // MPICH may lose what ranks say when several of them end the program.
            assert!(mpi.large || said(&output).contains(told), "{how}: {}", said(&output));
        }
    }
}

#[test]
fn a_coded_program_of_mpi4py_gets_what_was_sent() {
    with_mpi4py("coding.py", same_when_coded);
}

#[test]
fn coded_messages_of_many_ranks_come_back_with_room_for_few_of_them() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi.with_ranks("4"));
        let program = bench.compile("ranks.c");
        let plain = lines(&succeeded(bench.plain(&[&program])));
        succeeded(bench.recording(&[&program]));
        // Of four senders to a rank, each may have two of its three messages kept, or none.
        for memory in ["160KiB", "8KiB"] {
            let output = succeeded(bench.coding_with(&["--memory", memory], &[&program]));
            assert_eq!(plain, lines(&output), "{}", said(&output));
            let (all, coded) = coded(&output);
            assert!(all == 12 * 3 * (12 + 4) && coded > all / 2, "{}", said(&output));
        }
    }
}

#[test]
fn a_coded_value_is_within_the_bound_of_its_tag_and_exact_without_one() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("bounded.c");
        let told = |five: &str| {
            let line = |rank, tag, how| format!("rank {rank} tag {tag}: {how}");
            let of = |rank| [line(rank, 5, five), line(rank, 6, "exact")];
            [of(0), of(1)].concat()
        };
        assert_eq!(lines(&succeeded(bench.recording(&[&program]))), told("exact"));
        for (bound, how) in [("5=1e-5", "within 1e-6"), ("5=1e-4", "within 1e-4")] {
            let output = succeeded(bench.coding_with(&["--bound", bound], &[&program]));
            assert_eq!(lines(&output), told(how), "{}", said(&output));
            let (all, coded) = coded(&output);
            assert_eq!((all, coded), (120, 120), "{}", said(&output));
        }
        assert_eq!(lines(&succeeded(bench.coding(&[&program]))), told("exact"));
    }
}

#[test]
fn what_cannot_be_coded_ends_with_an_error_that_names_rank_and_channel() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("coding.c");
        succeeded(bench.recording(&[&program]));
        let from = "rank 1: messages with rank 0 of MPI_COMM_WORLD, tag 1: ";
        for (what, told) in [
            ("raw", "what has arrived has no header, or a damaged one"),
            ("damaged", "what has arrived has no header, or a damaged one"),
            ("probe", "MPI_Probe has found a coded message"),
            ("prepared", "a prepared receive (MPI_Recv_init)"),
            ("kill", ""),
        ] {
            let output = bench.coding(&[&program, Path::new(what)]).output().unwrap();
            let text = said(&output);
            assert!(!output.status.success(), "{what}: {text}");
            // MPICH may lose what a rank says when it ends the program.
            let is_lost = what == "kill" || (mpi.large && !text.contains("rank 1: "));
            assert!(is_lost || text.contains(&format!("{from}{told}")), "{text}");
        }
    }
}

#[test]
fn a_program_whose_record_shows_that_it_cannot_be_coded_is_run_as_it_is() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    let bench = Bench::new(&mpi);
    let program = bench.compile("calls.c");
    let recorded = succeeded(bench.recording(&[&program]));
    let output = succeeded(bench.coding(&[&program]));
    assert_eq!(lines(&recorded), lines(&output));
    assert!(said(&output).contains("nothing is coded: rank 0 calls MPI_"), "{}", said(&output));
    fs::write(bench.path("run.msg"), "something else").unwrap();
    let refused = bench.coding(&[&program]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("run.msg cannot be used"), "{}", said(&refused));
}
