//! Programs in C, Fortran and Python, run with the listener and without. An MPI or a compiler that
//! is not there is named and its programs are skipped.

#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

#[path = "programs/bench.rs"]
mod bench;
#[path = "programs/coded.rs"]
mod coded;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_messages::part::Ending;
use unspool_messages::{Events, Place, Run, What};
use unspool_testkit::programs::{all_mpis, exported, is_there, said, succeeded};

use bench::{Bench, COMMAND, by_tag, library, lines, messages, source, with_mpi4py};
use coded::same_when_coded;

// Names the library, so that it is built before this test.
use unspool_recorder as _;

/// What each rank sends by `calls.c`, by tag.
fn sent_by_calls(bench: &Bench, newer: bool) -> BTreeMap<i32, (u64, u64, u64, u64)> {
    let once = (1, 512, 0, 1);
    let mut right: BTreeMap<i32, _> = (1..=10).map(|tag| (tag, once)).collect();
    right.extend((11..=14).map(|tag| (tag, (3, 1536, 2, 3))));
    right.insert(15, (3, 1536, 2, 3));
    // Scattered values are packed to be sampled and not hashed.
    right.insert(16, (1, 65536, 0, 0));
    right.insert(17, (10, 5120, 9, 10));
    right.insert(18, (24, 24 << 16, 0, 24));
    right.insert(20, (1, 0, 0, 1));
    right.insert(21, (1, 1024, 0, 1));
    right.extend([22, 40, 41, 42].map(|tag| (tag, once)));
    if newer {
        right.insert(33, once);
        // It sends what tag 33 has sent.
        right.insert(34, (1, 512, 0, 1));
        right.insert(36, (2, 1024, 1, 2));
    }
    if bench.mpi.large {
        right.insert(31, once);
        right.insert(32, once);
    }
    right
}

#[test]
fn every_call_is_counted_exactly_and_does_what_it_did() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("calls.c");
        let (run, events) = bench.recorded(&[&program]);
        let newer = messages(&run, 0).any(|channel| channel.key.tag == 36);
        assert!(newer || !mpi.large);
        for rank in 0..2 {
            let mut found = by_tag(&run, rank);
            let mut right = sent_by_calls(&bench, newer);
            if newer {
                // Which of 33 and 34 is first differs by nothing but order: their bytes are the
                // same.
                let both = |tags: &mut BTreeMap<i32, (u64, u64, u64, u64)>| {
                    (tags.remove(&33).unwrap().2 + tags.remove(&34).unwrap().2, ())
                };
                assert_eq!((both(&mut found).0, both(&mut right).0), (1, 0));
            }
            assert_eq!(found, right, "{} rank {rank}", mpi.compiler);
            assert_eq!(run.ranks[rank].ending, Ending::Finalized);
        }
        communicators(&run);
        collectives(&run, newer, mpi.large);
        factors(&run);
        sequences(&events);
        assert_eq!(run.about.notes, Vec::<String>::new());
    }
}

/// Both ranks have the same numbers for the same communicators, and the names that were given.
fn communicators(run: &Run) {
    let comm_of = |rank: usize, tag: i32| {
        let channel = messages(run, rank).find(|one| one.key.tag == tag).unwrap();
        run.ranks[rank].comms[usize::from(channel.key.comm)].clone()
    };
    for (tag, name) in [
        (1, "MPI_COMM_WORLD"),
        (40, "halo"),
        (41, "split 1 of halo"),
        (42, "idup 1 of split 1 of halo"),
    ] {
        let (one, other) = (comm_of(0, tag), comm_of(1, tag));
        assert_eq!((one.id, &one.name), (other.id, &other.name));
        assert_eq!((one.name.as_str(), one.size), (name, 2));
    }
    let ids: std::collections::HashSet<u64> =
        [1, 40, 41, 42].map(|tag| comm_of(0, tag).id).into_iter().collect();
    assert_eq!(ids.len(), 4);
}

/// The bytes that both ranks give to calls of all ranks.
fn collectives(run: &Run, newer: bool, large: bool) {
    let report = unspool_messages::report::Report::of(run, None);
    let found: BTreeMap<&str, (u64, u64)> = report
        .together
        .iter()
        .map(|(name, calls, bytes)| (name.as_str(), (*calls, *bytes)))
        .collect();
    let mut right = BTreeMap::from([
        ("MPI_Bcast", (2, 16)),
        ("MPI_Ibcast", (2, 16)),
        ("MPI_Gather", (2, 32)),
        ("MPI_Scatter", (2, 32)),
        ("MPI_Scatterv", (2, 12)),
        ("MPI_Allgather", (4, 64)),
        ("MPI_Alltoall", (2, 32)),
        ("MPI_Alltoallv", (2, 16)),
        ("MPI_Reduce", (2, 32)),
        ("MPI_Allreduce", (4 + 2 * u64::from(large), 64 + 8 * u64::from(large))),
        ("MPI_Reduce_scatter", (2, 16)),
        ("MPI_Reduce_scatter_block", (2, 32)),
        ("MPI_Scan", (2, 32)),
        ("MPI_Exscan", (2, 32)),
        ("MPI_Neighbor_allgather", (2, 16)),
        // On the line each rank has one neighbour.
        ("MPI_Neighbor_alltoall", (4, 16 + 8)),
    ]);
    if newer {
        right.insert("MPI_Allreduce_init", (4, 16));
    }
    let mut found = found;
    assert!(found.remove("MPI_Barrier").is_some_and(|(calls, bytes)| calls > 20 && bytes == 0));
    assert_eq!(found, right);
}

/// What each rank sends by `every.c`, by tag.
fn sent_by_every(prepared: bool, newest: bool, large: bool) -> BTreeMap<i32, (u64, u64, u64, u64)> {
    let (once, again) = ((1, 4, 0, 1), (1, 4, 1, 1));
    let mut right: BTreeMap<i32, _> = (1..=10).map(|tag| (tag, once)).collect();
    right.insert(20, once);
    if prepared {
        right.extend([(11, once), (21, again)]);
    }
    if newest {
        right.insert(22, again);
    }
    if large {
        right.extend((30..=42).map(|tag| (tag, once)));
        right.extend([(43, again), (44, once), (45, (3, 12, 2, 3)), (46, again)]);
    }
    right
}

#[test]
fn every_call_of_all_ranks_and_every_communicator_is_counted_exactly() {
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let program = bench.compile("every.c");
        let (run, _) = bench.recorded(&[&program]);
        let has = |tag: i32| messages(&run, 0).any(|channel| channel.key.tag == tag);
        let (prepared, newest) = (has(21), has(22));
        for rank in 0..2 {
            let right = sent_by_every(prepared, newest, mpi.large);
            assert_eq!(by_tag(&run, rank), right, "{} rank {rank}", mpi.compiler);
        }
        assert!(prepared || !mpi.large);
        every_way(&run, prepared, 1 + u64::from(mpi.large));
        assert_eq!(run.about.notes, Vec::<String>::new());
    }
}

/// The calls of all ranks, and the bytes that both ranks give to them with counts of one width.
fn every_way(run: &Run, prepared: bool, widths: u64) {
    let mut right = BTreeMap::new();
    let names = [
        (12, "Bcast Gatherv Scatterv Allgatherv"),
        (24, "Gather Scatter Allgather Alltoallv Alltoallw Reduce Allreduce Reduce_scatter"),
        (24, "Scan Exscan Neighbor_allgatherv Neighbor_alltoallv Neighbor_alltoallw"),
        (48, "Alltoall Reduce_scatter_block Neighbor_allgather Neighbor_alltoall"),
    ];
    for (bytes, names) in names {
        for name in names.split(' ') {
            let both = (2 * widths, bytes * widths);
            right.insert(format!("MPI_{name}"), both);
            right.insert(format!("MPI_I{}", name.to_lowercase()), both);
            if prepared {
                right.insert(format!("MPI_{name}_init"), both);
            }
        }
    }
    let report = unspool_messages::report::Report::of(run, None);
    let all = report.together.iter().map(|(name, calls, bytes)| (name.clone(), (*calls, *bytes)));
    let (barriers, found): (BTreeMap<_, _>, _) =
        all.partition(|(name, _)| name.to_lowercase().contains("barrier"));
    assert_eq!(found, right);
    assert_eq!(barriers.len(), 2 + usize::from(prepared));
    assert!(barriers.values().all(|(calls, bytes)| *calls >= 2 && *bytes == 0), "{barriers:?}");
}

/// Messages of one byte each, again and again, have factors that are known.
fn factors(run: &Run) {
    use unspool_messages::measure::Scheme;
    let measure = run.measures.iter().find(|one| one.flow.tag == 18).unwrap();
    for outcome in &measure.outcomes {
        assert!(outcome.factor() > 0.95 && outcome.failed == 0, "{outcome:?}");
    }
    let lz4 = measure.outcomes.iter().find(|one| one.scheme == Scheme::Lz4).unwrap();
    // Two ranks send 24 of them each, and two runs have them all.
    assert_eq!((lz4.messages, lz4.original), (48, 48 << 16));
    // A vector of every second value was packed: Twine sees the line that its values lie on.
    let packed = run.measures.iter().find(|one| one.flow.tag == 16).unwrap();
    let twine = packed.outcomes.iter().find(|one| one.scheme == Scheme::Twine).unwrap();
    assert!(twine.factor() > 0.8 && twine.original == 2 << 16, "{twine:?}");
}

/// Every message of tag 5 has its send, its receive and the waits for both.
fn sequences(events: &[Events]) {
    let row = |name: &str| {
        unspool_messages::calls::CALLS.iter().position(|call| call.name == name).unwrap() as u8
    };
    for events in events {
        assert!(events.last.is_empty() && events.total == events.first.len() as u64);
        let find = |name: &str, tag: i32| {
            let is_it = |one: &&unspool_messages::Event| one.call == row(name) && one.tag == tag;
            *events.first.iter().find(is_it).unwrap_or_else(|| panic!("{name} {tag}"))
        };
        let (receive, send) = (find("Irecv", 5), find("Isend", 5));
        assert_eq!((receive.bytes, send.bytes), (512, 512));
        assert!(receive.start_ns <= send.start_ns && send.peer == receive.peer);
        let after = |name: &str, request: u64| {
            let mut all = events.first.iter().filter(|one| one.start_ns >= send.start_ns);
            all.any(|one| one.call == row(name) && one.request == request)
        };
        assert!(after("Test", send.request) && after("Wait", receive.request));
        // What is received by a call that sends as well.
        assert_eq!(find("Sendrecv", 9).bytes, 512);
        assert_eq!(find("Recv", 10).bytes, 512);
    }
}

#[test]
fn fortran_is_counted_as_c_is() {
    let Some(mpi) = all_mpis().into_iter().find(|mpi| mpi.compiler == "mpicc") else { return };
    if !is_there("mpif90") {
        return println!("skipped: no mpif90");
    }
    let bench = Bench::new(&mpi);
    for (name, right) in [
        (
            "old.f90",
            vec![
                (1, (1, 512, 0, 1)),
                (2, (1, 512, 0, 1)),
                (3, (3, 1536, 2, 3)),
                (4, (1, 512, 0, 0)),
                (5, (1, 512, 0, 1)),
            ],
        ),
        ("new.f90", vec![(1, (1, 512, 0, 1)), (2, (3, 1536, 3, 3))]),
    ] {
        let program = bench.compile_by("mpif90", &source(name), &[]);
        let (run, _) = bench.recorded(&[&program]);
        for rank in 0..2 {
            assert_eq!(by_tag(&run, rank), right.iter().copied().collect(), "{name}");
        }
        let types: Vec<_> = messages(&run, 0).map(|channel| channel.key.values).collect();
        assert!(types.iter().all(|one| *one == unspool_messages::Values::Float64), "{types:?}");
        let given = run.ranks[0].channels.iter().filter(|one| one.key.what != What::Messages);
        let bytes: u64 = given.map(|one| one.bytes).sum();
        assert_eq!(bytes, if name == "old.f90" { 32 } else { 512 });
        assert_eq!(run.about.notes, Vec::<String>::new());
    }
}

/// The program `arrays.f90`, by the module `mpi_f08` itself where that has counts of 64 bits, and
/// else by an imitation of what Open MPI has from version 6 on.
fn compile_arrays(bench: &Bench) -> PathBuf {
    let module = bench.path("module.f90");
    fs::write(&module, "module mpi_f08_arrays\n    use mpi_f08\nend module\n").unwrap();
    let mut whole = Command::new("mpif90");
    whole.current_dir(bench.folder.path()).arg("-o").arg("arrays").arg(&module);
    if whole.arg(source("arrays.f90")).output().is_ok_and(|output| output.status.success()) {
        return bench.path("arrays");
    }
    let library = bench.compile_by("mpicc", &source("arrays08.c"), &["-shared", "-fPIC"]);
    let module = source("arrays08.f90");
    let [module, library] = [&module, &library].map(|path| path.to_str().unwrap());
    let flags = ["-Wl,--no-as-needed", module, library];
    bench.compile_by("mpif90", &source("arrays.f90"), &flags)
}

#[test]
fn fortran_with_arrays_and_large_counts_is_counted_and_coded() {
    let Some(mpi) = all_mpis().into_iter().find(|mpi| mpi.compiler == "mpicc") else { return };
    if !is_there("mpif90") {
        return println!("skipped: no mpif90");
    }
    let bench = Bench::new(&mpi);
    let program = compile_arrays(&bench);
    let every: [&Path; 2] = [&program, Path::new("every")];
    let (run, _) = bench.recorded(&every);
    for rank in 0..2 {
        // Rank 0 sends one message more, which is not looked at.
        let first = if rank == 0 { (31, 620_000, 0, 30) } else { (30, 600_000, 0, 30) };
        let again = (30, 600_000, 30, 30);
        let right = BTreeMap::from([(1, first), (2, again), (3, again)]);
        assert_eq!(by_tag(&run, rank), right);
    }
    let given = run.ranks[0].channels.iter().filter(|one| one.key.what != What::Messages);
    assert_eq!(given.map(|one| one.bytes).sum::<u64>(), 8);
    assert_eq!(run.about.notes, Vec::<String>::new());
    let plain = lines(&succeeded(bench.plain(&every)));
    assert_eq!(plain, lines(&succeeded(bench.coding(&every))));
    same_when_coded(&bench, &[&program]);
    // MPI itself makes a datatype of such an array where it is heard in C.
    if mpi.start.iter().any(|word| word == "--oversubscribe") {
        let output = bench.coding(&every).output().unwrap();
        let told = "rank 0: messages with rank 1 of MPI_COMM_WORLD, tag 1: an array with gaps \
                    between its values (MPI_Send). Leave this program uncoded";
        assert!(!output.status.success() && said(&output).contains(told), "{}", said(&output));
    }
}

#[test]
fn mpi4py_is_counted_though_it_loads_mpi_for_itself() {
    with_mpi4py("package.py", |bench, program| {
        let (run, _) = bench.recorded(program);
        for rank in 0..2 {
            let tags = by_tag(&run, rank);
            assert_eq!((tags[&3], tags[&4]), ((5, 5000, 4, 5), (1, 1000, 1, 1)));
            assert!(tags.contains_key(&5));
        }
    });
}

/// Every name of the table of calls, with counts of 32 and of 64 bits, and in Fortran.
fn names_of_calls() -> Vec<String> {
    let forms = |name: &str| {
        let lower = name.to_lowercase();
        [format!("MPI_{name}"), format!("MPI_{name}_c"), format!("mpi_{lower}_")]
    };
    unspool_messages::calls::CALLS.iter().flat_map(|call| forms(call.name)).collect()
}

#[test]
fn a_program_that_looks_for_functions_finds_those_that_its_mpi_has() {
    let names = names_of_calls();
    for mpi in all_mpis() {
        let bench = Bench::new(&mpi);
        let (probe, library) = (source("probe.c"), bench.path("libprobe.so"));
        let built = bench.compile_by(&mpi.compiler, &probe, &["-shared", "-fPIC", "-DLATE"]);
        fs::rename(built, &library).unwrap();
        let late = bench.compile_by("cc", &source("late.c"), &[]);
        for words in [vec![bench.compile("probe.c")], vec![late, library]] {
            let mut program: Vec<&Path> = words.iter().map(PathBuf::as_path).collect();
            program.extend(names.iter().map(Path::new));
            let plain = lines(&succeeded(bench.plain(&program)));
            let weak = plain.iter().find(|line| line.starts_with("weak: "));
            assert_eq!(weak.is_some_and(|line| line.starts_with("weak: 1")), mpi.large);
            // Which compares what both have printed.
            let (run, _) = bench.recorded(&program);
            assert_eq!(messages(&run, 0).map(|one| one.key.tag).collect::<Vec<_>>(), [5]);
            assert_eq!(plain, lines(&succeeded(bench.coding(&program))));
        }
    }
}

#[test]
fn what_a_rank_had_sent_before_a_crash_is_kept_exactly() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    let bench = Bench::new(&mpi);
    let program = bench.compile("crash.c");
    for (how, ending) in [("segv", Ending::Cut), ("kill", Ending::Cut), ("abort", Ending::Aborted)]
    {
        let output = bench.recording(&[&program, Path::new(how)]).output().unwrap();
        assert!(!output.status.success(), "{}", said(&output));
        let told = said(&output);
        assert!(told.contains("what was counted until then is kept"), "{told}");
        let (run, events) = bench.read();
        for rank in 0..2 {
            assert_eq!(by_tag(&run, rank), BTreeMap::from([(5, (100, 400_000, 0, 100))]), "{how}");
        }
        assert_eq!(run.ranks[1].ending, ending);
        assert!(events[0].total >= 201);
        let report =
            Command::new(COMMAND).arg("report").arg(bench.path("run.msg")).output().unwrap();
        let text = said(&report);
        assert!(report.status.success() && text.contains("note: Rank"), "{text}");
    }
}

#[test]
fn a_recording_that_was_itself_killed_is_put_together_afterwards() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    let bench = Bench::new(&mpi);
    let program = bench.compile("crash.c");
    // What `record` does before it starts the program, and then no more.
    let parts = bench.path("run.msg.parts");
    fs::create_dir(&parts).unwrap();
    let mut command = bench.plain(&[&program, Path::new("abort")]);
    command.env("LD_PRELOAD", library()).env("UNSPOOL_MESSAGES_PARTS", &parts);
    assert!(!command.output().unwrap().status.success());
    let refused = bench.recording(&[&program, Path::new("abort")]).output().unwrap();
    assert!(said(&refused).contains("an earlier recording was cut off"), "{}", said(&refused));
    // The part of one rank is torn, and something else is in the folder.
    let first = fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let length = fs::metadata(&first).unwrap().len();
    File::options().write(true).open(&first).unwrap().set_len(length / 100).unwrap();
    fs::write(parts.join("notes.txt"), "mine").unwrap();
    let mut merge = Command::new(COMMAND);
    merge.arg("merge").arg(&parts);
    let told = said(&succeeded(merge));
    for expected in ["notes.txt is not a part", "the part of rank 0 cannot be read", "still in"] {
        assert!(told.contains(expected), "{told}");
    }
    let (run, _) = bench.read();
    assert_eq!((run.missing(), run.about.notes.len()), (vec![0], 2));
    assert!(parts.exists());
}

#[test]
fn memory_of_a_device_is_counted_and_not_looked_at() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    let bench = Bench::new(&mpi);
    let program = bench.compile("devices.c");
    let driver = bench.path("libcuda.so.1");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]).arg(source("driver.c"));
    command.arg("-o").arg(&driver);
    succeeded(command);
    let (run, _) = bench.recorded(&[&program, &driver]);
    let places: Vec<_> = messages(&run, 0)
        .map(|one| (one.key.tag, one.key.place, one.compared, one.samples))
        .collect();
    let right = [(1, Place::Host, 1, 1), (2, Place::Device, 0, 0), (3, Place::Host, 1, 1)];
    assert_eq!(places, right);
}

#[test]
fn a_file_that_is_no_run_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.msg");
    for (bytes, told) in [
        (&b"#!/bin/sh\n"[..], "it is not a file that `unspool-messages record`"),
        (b"UNSPMSG\n\x02\0\0\0", "its end is missing"),
        (b"UNSPMSG\n\x09\0\0\0", "it is of version 9"),
        (&[b"UNSPMSG\n\x02\0\0\0".as_slice(), &[0; 64]].concat(), "it is damaged"),
    ] {
        fs::write(&path, bytes).unwrap();
        let output = Command::new(COMMAND).arg("report").arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    let gone = Command::new(COMMAND).args(["report", "nowhere.msg"]).output().unwrap();
    assert!(said(&gone).contains("nowhere.msg"), "{}", said(&gone));
}

#[test]
fn a_program_without_mpi_ends_as_it_does_and_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let record = |program: &[&str]| {
        let mut command = Command::new(COMMAND);
        command.current_dir(folder.path()).arg("record").arg("--library").arg(library());
        command.arg("--").args(program).output().unwrap()
    };
    let told = said(&record(&["sh", "-c", "echo from the program; exit 5"]));
    assert!(told.contains("from the program\n"), "{told}");
    assert!(told.contains("No rank has left anything. Does the program use MPI"), "{told}");
    let told = said(&record(&["./not-there"]));
    assert!(told.contains("./not-there cannot be started"), "{told}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_report_is_a_text_a_page_and_json() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    let bench = Bench::new(&mpi);
    let program = bench.compile("calls.c");
    succeeded(bench.recording(&[&program]));
    let report = |more: &[&str]| {
        let mut command = Command::new(COMMAND);
        command.arg("report").arg(bench.path("run.msg")).args(more);
        String::from_utf8(succeeded(command).stdout).unwrap()
    };
    let text = report(&["--network", "10GB/s"]);
    assert!(text.contains("At 10 GB/s, ") && text.contains("difference, two levels"), "{text}");
    let page = bench.path("page.html");
    assert_eq!(report(&["-o", page.to_str().unwrap()]), "");
    assert!(fs::read_to_string(page).unwrap().ends_with("</body></html>\n"));
    if is_there("python3") {
        fs::write(bench.path("report.json"), report(&["--json"])).unwrap();
        let mut command = Command::new("python3");
        let check = "import json, sys; r = json.load(open(sys.argv[1])); assert r['ranks'] == 2; \
                     assert sum(map(sum, r['matrix']['bytes'])) == r['bytes'] > 3e6";
        command.args(["-c", check]).arg(bench.path("report.json"));
        succeeded(command);
    }
}

#[test]
fn valgrind_finds_no_wrong_access() {
    let Some(mpi) = all_mpis().into_iter().next() else { return };
    if !is_there("valgrind") {
        return println!("skipped: no valgrind");
    }
    // MPI itself sends values that were never set.
    let words = ["valgrind", "-q", "--undef-value-errors=no", "--error-exitcode=9"];
    let words = words.map(Path::new);
    let bench = Bench::new(&mpi);
    for name in ["calls.c", "every.c"] {
        let program = bench.compile(name);
        succeeded(bench.recording(&[&words[..], &[&program]].concat()));
    }
    let mut programs = vec![bench.compile("coding.c")];
    if mpi.compiler == "mpicc" && is_there("mpif90") {
        programs.push(bench.compile_by("mpif90", &source("coding08.f90"), &[]));
        programs.push(compile_arrays(&bench));
    }
    for program in programs {
        succeeded(bench.recording(&[&program]));
        succeeded(bench.coding(&[&words[..], &[&program]].concat()));
    }
}

#[test]
fn the_library_exports_functions_of_mpi_and_what_the_loader_calls() {
    let names = exported(&library());
    let of_mpi = |name: &&String| name.to_lowercase().starts_with("mpi_");
    let (of_mpi, rest): (Vec<_>, Vec<_>) = names.iter().partition(of_mpi);
    assert!(of_mpi.len() > 500, "{}", of_mpi.len());
    assert_eq!(rest, ["la_objopen", "la_version"]);
}
