//! Programs in C, Fortran and Python, run with the listener and without. An MPI or a compiler that
//! is not there is named and its programs are skipped.

#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use unspool_messages::part::Ending;
use unspool_messages::{Channel, Events, Place, Run, What};
use unspool_testkit::programs::{
    Mpi, all_mpis, allow_root, is_there, library_path, said, succeeded,
};

// Names the library, so that it is built before this test.
use unspool_recorder as _;

const COMMAND: &str = env!("CARGO_BIN_EXE_unspool-messages");

/// The listener, which is built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").join("libunspool_recorder.so")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A folder to compile and run in.
struct Bench {
    mpi: Mpi,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(mpi: &Mpi) -> Bench {
        Bench { mpi: mpi.clone(), folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program; it is called as its source, without the ending.
    fn compile(&self, name: &str) -> PathBuf {
        self.compile_by(&self.mpi.compiler, &source(name), &["-Wall", "-Wextra", "-Werror"])
    }

    fn compile_by(&self, compiler: &str, from: &Path, flags: &[&str]) -> PathBuf {
        let to = self.path(from.file_stem().unwrap().to_str().unwrap());
        let mut command = Command::new(compiler);
        command.current_dir(self.folder.path()).args(flags).arg("-g").arg(from).arg("-o").arg(&to);
        command.arg("-lm");
        if self.mpi.large {
            command.arg("-DLARGE");
        }
        command.args(library_path(compiler));
        succeeded(command);
        to
    }

    /// A command with the environment of MPI, which these words are the end of.
    fn command(&self, before: &[&str], program: &[&Path]) -> Command {
        let mut all: Vec<PathBuf> = before.iter().map(PathBuf::from).collect();
        all.extend(self.mpi.start.iter().map(PathBuf::from));
        all.extend(program.iter().map(|word| word.to_path_buf()));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.folder.path());
        allow_root(&mut command);
        command
    }

    fn plain(&self, program: &[&Path]) -> Command {
        self.command(&[], program)
    }

    fn recording(&self, program: &[&Path]) -> Command {
        let (run, library) = (self.path("run.msg"), library());
        let words = ["record", "-o", run.to_str().unwrap(), "--library", library.to_str().unwrap()];
        let before = [&[COMMAND], &words[..], &["--analysis", "20", "--"]].concat();
        self.command(&before, program)
    }

    /// The run of a program that does the same with the listener and without.
    fn recorded(&self, program: &[&Path]) -> (Run, Vec<Events>) {
        let plain = succeeded(self.plain(program));
        let heard = succeeded(self.recording(program));
        assert_eq!(lines(&plain), lines(&heard));
        assert!(said(&heard).contains("2 of 2 ranks are in"), "{}", said(&heard));
        assert!(!self.path("run.msg.parts").exists());
        self.read()
    }

    /// The same program by a plan of its record, for a network on which everything pays.
    fn coding(&self, program: &[&Path]) -> Command {
        self.coding_with(&[], program)
    }

    fn coding_with(&self, more: &[&str], program: &[&Path]) -> Command {
        let (run, library) = (self.path("run.msg"), library());
        let words = ["run", "--plan", run.to_str().unwrap(), "--library"];
        let limits = ["--network", "0.1MB/s", "--threshold", "4KiB"];
        let library = [library.to_str().unwrap()];
        let before = [&[COMMAND], &words[..], &library, &limits, more, &["--"]].concat();
        self.command(&before, program)
    }

    fn read(&self) -> (Run, Vec<Events>) {
        let mut events = Vec::new();
        let file = File::open(self.path("run.msg")).unwrap();
        let run = Run::read_with(file, |_, these| events.push(these)).unwrap();
        (run, events)
    }
}

/// By tag: messages, bytes, duplicates and how many payloads were compared, of one rank.
fn by_tag(run: &Run, rank: usize) -> BTreeMap<i32, (u64, u64, u64, u64)> {
    let mut tags: BTreeMap<i32, (u64, u64, u64, u64)> = BTreeMap::new();
    for channel in messages(run, rank) {
        assert_eq!(channel.key.peer as usize, 1 - rank, "{channel:?}");
        let one = tags.entry(channel.key.tag).or_default();
        one.0 += channel.messages;
        one.1 += channel.bytes;
        one.2 += channel.duplicates;
        one.3 += channel.compared;
    }
    tags
}

fn messages(run: &Run, rank: usize) -> impl Iterator<Item = &Channel> {
    run.ranks[rank].channels.iter().filter(|channel| channel.key.what == What::Messages)
}

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
    assert_eq!((lz4.messages, lz4.original), (24, 24 << 16));
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

/// Does something with a program of mpi4py and each MPI that comes as a package of Python; mpi4py's
/// own has no variant for the standard ABI.
fn with_mpi4py(name: &str, check: impl Fn(&Bench, &[&Path])) {
    let Ok(folder) = std::env::var("UNSPOOL_TEST_PEERS") else {
        return println!("skipped: no UNSPOOL_TEST_PEERS with mpi4py");
    };
    for mpi in all_mpis().iter().filter(|mpi| mpi.compiler.ends_with("/bin/mpicc")) {
        let file = if mpi.large { "libmpi.so.12" } else { "libmpi.so.40" };
        let library = mpi.compiler.replace("bin/mpicc", &format!("lib/{file}"));
        let python = format!("{folder}/bin/python");
        let words = ["env".to_owned(), format!("MPI4PY_LIBMPI={library}"), python];
        let [env, library, python] = words.map(PathBuf::from);
        check(&Bench::new(mpi), &[&env, &library, &python, &source(name)]);
    }
}

/// What ranks have printed, in one order.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// How many messages of channels of the plan there were, and how many of them were coded.
fn coded(output: &Output) -> (u64, u64) {
    let told = said(output);
    let line = told.lines().find(|line| line.contains("messages were coded")).expect(&told);
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[1], numbers[0])
}

/// Records a program and runs it coded: what it prints is the same three times.
fn same_when_coded(bench: &Bench, program: &[&Path]) {
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
