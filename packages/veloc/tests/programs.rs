//! Programs in C, compiled against the header and the library and run. A compiler that is not there
//! is named and its program skipped; that of C is always there.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use unspool_testkit::ObjectServer;
use unspool_testkit::programs::{
    Mpi, all_mpis, allow_root, declared, exported, is_there, library_path, said, succeeded,
};

// Names the libraries, so that they are built before this test.
use unspool_fakecuda as _;
use veloc_client as _;

/// Where this test was built, and the library beside it.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").to_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

const STRICT_CPP: [&str; 6] = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-g"];
const STRICT: [&str; 6] = ["-std=c99", "-D_XOPEN_SOURCE=700", "-Wall", "-Wextra", "-Werror", "-g"];

/// A folder with a program, the library, scratch and persistent.
struct Bench {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Bench {
    fn new(compiler: &str, flags: &[&str], program: &str) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libveloc-client.so");
        symlink(built().join("libveloc_client.so"), library).unwrap();
        let built = folder.path().join("program");
        let mut command = Command::new(compiler);
        let strict = if compiler.ends_with("++") { STRICT_CPP } else { STRICT };
        command.current_dir(folder.path()).args(strict).args(flags);
        command.arg("-I").arg(source("include")).arg("-I").arg(source("."));
        command.arg(source(program)).arg("-o").arg(&built);
        command.arg("-L").arg(folder.path()).args(["-lveloc-client", "-lm", "-ldl"]);
        succeeded(command);
        Bench { program: built, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration with these lines besides.
    fn config(&self, more: &str) -> PathBuf {
        let path = self.path("veloc.cfg");
        let (scratch, persistent) = (self.path("scratch"), self.path("persistent"));
        let text = format!(
            "scratch = {}\npersistent = {}\nhost_memory = 64MiB\n{more}\n",
            scratch.display(),
            persistent.display()
        );
        fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, before: &[&str]) -> Command {
        let mut words = before.iter().map(PathBuf::from).collect::<Vec<_>>();
        words.push(self.program.clone());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", self.folder.path());
        command.current_dir(self.folder.path());
        command
    }
}

/// The files and folders below `path`.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn every_function_does_what_the_header_says() {
    for mode in ["mode = async", "mode = sync", "mode = async\nhost_unknown = 7\nchksum = false"] {
        let bench = Bench::new("cc", &[], "tests/programs/calls.c");
        let config = bench.config(mode);
        let mut command = bench.command(&[]);
        command.arg(&config);
        let output = succeeded(command);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "calls: all right\n");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.lines().all(|line| line.starts_with("[VELOC")), "{told}");
        assert!(told.contains("VELOC_Checkpoint_begin while checkpoint 1 of order"), "{told}");
        for path in below(&bench.path("scratch")).iter().chain(&below(&bench.path("persistent"))) {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            // What the program wrote by itself is its own.
            let own = path.extension().is_some_and(|end| end == "dat");
            assert!(own || mode & 0o077 == 0, "{} has {mode:o}", path.display());
        }
        fs::remove_dir_all(bench.path("scratch")).unwrap();
        let mut again = bench.command(&[]);
        again.arg(&config).arg("again");
        assert_eq!(said(&succeeded(again)), "");
    }
}

#[test]
fn the_calls_of_scores_programs_mean_what_they_say() {
    let score = source("include/veloc-gpu").display().to_string();
    let bench = Bench::new("c++", &["-I", &score], "tests/programs/score.cpp");
    let folder = |name: &str| format!("{name} = {}\n", bench.path(name).display());
    let config = bench.path("score.cfg");
    let sizes = "mode = async\ngpu_cache_size=0\nhost_cache_size=0.0625\nscore_eviction=true\n";
    fs::write(&config, [folder("scratch"), folder("persistent"), sizes.into()].concat()).unwrap();
    let mut command = bench.command(&[]);
    command.arg(&config);
    let output = succeeded(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes: usize = (993..1001).map(|items| 4 * items).sum();
    assert!(
        said.starts_with(&format!("{{AtoH : {bytes}, HtoA : {bytes}, HtoF : {bytes}, ")),
        "{said}"
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("`score_eviction` has no effect"), "{told}");
    assert!(told.contains("Checkpoint 3 of shot_0 has no region 1"), "{told}");
}

/// A bench for ranks of an MPI.
fn bench_of(mpi: &Mpi, program: &str) -> Bench {
    let libraries = library_path(&mpi.compiler);
    let flags: Vec<&str> = libraries.iter().map(String::as_str).collect();
    Bench::new(&mpi.compiler, &flags, program)
}

fn command_of(mpi: &Mpi, bench: &Bench) -> Command {
    let start: Vec<&str> = mpi.start.iter().map(String::as_str).collect();
    let mut command = bench.command(&start);
    allow_root(&mut command);
    command
}

#[test]
fn a_heat_equation_over_mpi_goes_on_from_persistent_when_scratch_is_gone() {
    for mpi in all_mpis() {
        let bench = bench_of(&mpi, "../../examples/veloc/heat.c");
        for (mode, removed) in [("sync", true), ("async", true), ("async", false)] {
            heat(&mpi, &bench, mode, removed);
        }
    }
}

fn heat(mpi: &Mpi, bench: &Bench, mode: &str, removed: bool) {
    let run = |more: &[&str], kept: &str| {
        let mut command = command_of(mpi, bench);
        command.arg(bench.config(&format!("mode = {mode}\nmax_versions = 2\n{kept}"))).args(more);
        command
    };
    let remove = |name| fs::remove_dir_all(bench.path(name)).unwrap();
    let whole = succeeded(run(&["300"], "scratch_versions = 1"));
    let whole = String::from_utf8(whole.stdout).unwrap();
    assert!(whole.starts_with("step 300: "), "{whole}");
    remove("scratch");
    remove("persistent");
    // By the clock of rank 0 only the first one goes there, on all ranks.
    succeeded(run(&["100"], "persistent_interval = 3600"));
    let copied = parts_in(bench);
    let is_first = |path: &PathBuf| path.to_string_lossy().contains("/25-");
    assert!(copied.len() == 2 && copied.iter().all(is_first), "{copied:?}");
    remove("scratch");
    remove("persistent");
    let cut = run(&["300", "210"], "").output().unwrap();
    assert!(!cut.status.success(), "{}", said(&cut));
    if removed {
        remove("scratch");
    }
    let rest = succeeded(run(&["300"], ""));
    let rest = String::from_utf8(rest.stdout).unwrap();
    let (first, last) = rest.split_once('\n').unwrap();
    assert!(["goes on from step 175", "goes on from step 200"].contains(&first), "{rest}");
    assert_eq!(last, whole);
    // Two checkpoints of two ranks, and two more when rank 1 was behind.
    assert!((4..=8).contains(&parts_in(bench).len()), "{:?}", parts_in(bench));
    remove("scratch");
    remove("persistent");
}

#[test]
fn ranks_agree_on_what_all_of_them_have() {
    for mpi in all_mpis() {
        let all =
            [("", "3"), ("persistent_interval = 3600", "1"), ("persistent_interval = -1", "-1")];
        for (more, found) in all {
            let bench = bench_of(&mpi, "tests/programs/ranks.c");
            let mut command = command_of(&mpi, &bench);
            // Rank 1 saves once more than rank 0: with an interval that is a wait for rank 0.
            let more = format!("mode = async\ntimeout = 2\n{more}");
            command.arg(bench.config(&more)).arg(found);
            let output = command.output().unwrap();
            let text = said(&output);
            if more.contains("3600") {
                assert!(!output.status.success(), "{text}");
                // Of two ranks that notice it, the first one to end may end the other.
                assert!(text.contains("asks whether a checkpoint is due"), "{text}");
            } else {
                assert!(output.status.success() && text.contains("ranks: all right"), "{text}");
                assert!(text.contains("Rank 1 could not begin: The configuration file"), "{text}");
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_answer_is_named_on_all_others() {
    for mpi in all_mpis() {
        for absent in [2, 0] {
            let bench = bench_of(&mpi, "tests/programs/late.c");
            let mut command = command_of(&mpi.with_ranks("4"), &bench);
            command.arg(bench.config("mode = sync\ntimeout = 2")).arg(absent.to_string());
            let text = said(&command.output().unwrap());
            let told = format!("After 2 s rank {absent} has not answered");
            assert_eq!(text.matches(&told).count(), 3, "{text}");
            assert!(text.contains("late: all have waited"), "{text}");
        }
    }
}

/// The objects in persistent that make checkpoints count.
fn parts_in(bench: &Bench) -> Vec<PathBuf> {
    let all = below(&bench.path("persistent")).into_iter();
    all.filter(|path| path.extension().is_some_and(|end| end == "manifest")).collect()
}

#[test]
fn a_wrong_configuration_is_told_with_file_line_and_example() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    for (more, told) in [
        ("", "veloc.cfg has no `mode`. Add a line such as `mode = async`."),
        (
            "mode = soon",
            "veloc.cfg:4: `mode = soon`: write sync or async; an example: `mode = async`.",
        ),
        ("mode = sync\nmax_versions = many", "veloc.cfg:5: `max_versions = many`: "),
        ("mode = sync\ndevice_memory = lots", "veloc.cfg:5: `device_memory = lots`: "),
    ] {
        let mut command = bench.command(&[]);
        let output = command.arg(bench.config(more)).arg("1").output().unwrap();
        let text = said(&output);
        assert!(!output.status.success() && text.contains(told), "{text}");
        assert!(text.starts_with("[VELOC] VELOC_Init_single: "), "{text}");
    }
    let mut command = bench.command(&[]);
    let config = bench.config("mode = sync\nec_interval = 1\nlog_prefix = log");
    let text = said(&succeeded({
        command.arg(config).arg("1");
        command
    }));
    assert_eq!(text.matches("`ec_interval` has no effect").count(), 1, "{text}");
    let log = fs::read_to_string(bench.path("log-0.log")).unwrap();
    assert!(log.contains("`ec_interval` has no effect"), "{log}");
}

#[test]
fn what_is_kept_is_as_many_as_was_asked_for() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let mut command = bench.command(&[]);
    command.arg(bench.config("mode = async\nmax_versions = 3\nscratch_versions = 2")).arg("9");
    succeeded(command);
    assert_eq!(parts_in(&bench).len(), 3);
    let count = |folder: &str, end: &str| {
        let all = below(&bench.path(folder)).into_iter();
        all.filter(|path| path.to_string_lossy().ends_with(end)).count()
    };
    assert_eq!((count("persistent", ".file"), count("scratch", ".dat")), (3, 2));
    assert_eq!(count("scratch", ".manifest"), 2 + 1, "that of the spool besides");
    // What `unspool ls` shows.
    let (listed, damaged) = unspool_restart::list(&bench.path("scratch/unspool-single-0")).unwrap();
    let steps: Vec<u64> = listed.iter().map(|one| one.part.step).collect();
    assert_eq!((steps, damaged), (vec![8, 9], vec![]));
}

#[test]
fn without_an_interval_nothing_goes_to_persistent_and_scratch_is_enough() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let run = |last: &str| {
        let mut command = bench.command(&[]);
        command.arg(bench.config("mode = sync\npersistent_interval = -1")).arg(last);
        String::from_utf8(succeeded(command).stdout).unwrap()
    };
    assert!(run("3").starts_with("found -1\n"));
    assert!(parts_in(&bench).is_empty());
    assert!(run("5").starts_with("found 3\n"));
}

#[test]
fn damaged_scratch_is_repaired_from_persistent() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let run = || {
        let mut command = bench.command(&[]);
        command.arg(bench.config("mode = sync")).arg("2");
        succeeded(command)
    };
    run();
    let files = below(&bench.path("scratch")).into_iter().filter(|path| path.is_file());
    for path in files.filter(|path| path.to_string_lossy().contains("/data/")) {
        let mut bytes = fs::read(&path).unwrap();
        let from = bytes.len().min(8192);
        bytes[from..].fill(0xee);
        fs::write(path, bytes).unwrap();
    }
    let told = said(&run());
    assert!(told.contains("found 2\n") && told.contains("The copy in persistent"), "{told}");
    let file = bench.path("scratch/loop-0-2.dat");
    let length = fs::metadata(&file).unwrap().len() as usize;
    fs::write(&file, vec![b'0'; length]).unwrap();
    assert_eq!(said(&run()), "found 2\n");
    fs::remove_file(&file).unwrap();
    let told = said(&run());
    assert!(told.contains("found 2\n") && told.contains("its file is not there"), "{told}");
    fs::remove_dir_all(bench.path("persistent")).unwrap();
    assert_eq!(said(&run()), "found 2\n");
}

#[test]
fn a_place_that_cannot_be_opened_is_told() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let mut command = bench.command(&[]);
    let config = bench.config("mode = sync");
    command.arg(&config).arg("1");
    fs::write(bench.path("persistent"), "not a folder").unwrap();
    let output = command.output().unwrap();
    assert!(!output.status.success() && said(&output).contains("persistent"), "{}", said(&output));
    fs::remove_file(bench.path("persistent")).unwrap();
    let mut again = bench.command(&[]);
    again.arg(config).arg("1");
    succeeded(again);
}

#[test]
fn what_persistent_refuses_stays_and_is_tried_again() {
    let bench = Bench::new("cc", &[], "tests/programs/retry.c");
    let mut command = bench.command(&[]);
    command.arg(bench.config("mode = async")).arg(bench.path("persistent"));
    let output = succeeded(command);
    assert_eq!(output.stdout, b"retry: all right\n");
    let told = String::from_utf8(output.stderr).unwrap();
    let line = "VELOC_Checkpoint_wait: Checkpoint 1 of retry is durable in scratch, and not in ";
    assert_eq!(told.matches(line).count(), 2, "{told}");
    assert_eq!(parts_in(&bench).len(), 2);
}

#[test]
fn a_program_that_ends_without_saying_so_leaves_what_it_saved() {
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let mut command = bench.command(&[]);
    command.arg(bench.config("mode = async")).args(["5", "silent"]);
    succeeded(command);
    assert_eq!(parts_in(&bench).len(), 5);
}

#[test]
fn persistent_may_be_an_object_store() {
    let server = ObjectServer::start();
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let config = bench.path("veloc.cfg");
    let scratch = bench.path("scratch");
    let text = format!(
        "scratch = {}\npersistent = s3://bucket/jobs\nmode = sync\nhost_memory = 16MiB\n\
         max_versions = 2\n",
        scratch.display()
    );
    fs::write(&config, text).unwrap();
    let run = |last: &str| {
        let mut command = bench.command(&[]);
        command.arg(&config).arg(last);
        command.envs(server.client().into_iter().map(|(key, value)| (key.to_uppercase(), value)));
        String::from_utf8(succeeded(command).stdout).unwrap()
    };
    assert!(run("4").starts_with("found -1\n"));
    let frames = server.objects().keys().filter(|name| name.ends_with(".manifest")).count();
    assert_eq!(frames, 2);
    fs::remove_dir_all(&scratch).unwrap();
    assert!(run("5").starts_with("found 4\n"));
}

/// A number that the next one is drawn from.
fn drawn(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

#[test]
fn a_program_that_is_killed_goes_on_from_what_it_was_told_is_durable() {
    let kills = std::env::var("UNSPOOL_TEST_KILLS").map_or(24, |text| text.parse().unwrap());
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let (mut seed, mut durable, mut last) = (11, 0, 0);
    for kill in 0..kills {
        // Now and then the node is lost.
        if drawn(&mut seed).is_multiple_of(3) {
            let _ = fs::remove_dir_all(bench.path("scratch"));
        }
        let config = bench.config("mode = async\nmax_versions = 3\nscratch_versions = 3");
        let mut command = bench.command(&[]);
        command.arg(config).arg("1000000").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let first = lines.next().map(|line| line.unwrap()).unwrap_or_default();
        let found: i64 = first.strip_prefix("found ").and_then(|n| n.parse().ok()).unwrap_or(-9);
        assert!(
            found >= durable.max(-1) || durable == 0 && found == -1,
            "kill {kill}: {first} {durable}"
        );
        last = last.max(found);
        // The moment is drawn; nothing waits for it.
        std::thread::sleep(Duration::from_micros(drawn(&mut seed) % 60_000));
        program.kill().unwrap();
        let output = program.wait_with_output().unwrap();
        assert!(!output.status.success());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!told.contains("loop.c"), "kill {kill}: {told}");
        let words = lines.map_while(Result::ok);
        let durables = words.filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
        durable = durables.max().unwrap_or(durable).max(durable);
    }
    assert!(last > 0, "no program got far enough");
}

#[test]
#[allow(clippy::print_stdout)]
fn velocs_python_package_finds_what_it_calls() {
    if !is_there("python3") {
        return println!("skipped: no python3");
    }
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let mut command = Command::new("python3");
    command.arg(source("tests/programs/package.py"));
    command.arg(bench.path("libveloc-client.so")).arg(bench.config("mode = async"));
    assert_eq!(said(&succeeded(command)), "finalize 0\n");
}

#[test]
fn a_history_on_a_gpu_comes_back_in_the_order_that_was_said() {
    for tiers in ["device_memory = 4MiB", "device_memory = 4MiB\npersistent_interval = -1", ""] {
        let bench = Bench::new("cc", &[], "../../examples/veloc/score.c");
        let mut command = bench.command(&[]);
        command.arg(bench.config(&format!("mode = async\n{tiers}")));
        command.env("UNSPOOL_CUDA_DRIVER", built().join("libunspool_fakecuda.so"));
        let output = succeeded(command);
        let text = said(&output);
        assert_eq!(text, "96 versions came back in reverse order\n", "{tiers}");
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    let bench = Bench::new("cc", &["-fsanitize=address,undefined"], "tests/programs/calls.c");
    let mut command = bench.command(&[]);
    command.arg(bench.config("mode = async")).env("ASAN_OPTIONS", "detect_leaks=1");
    succeeded(command);
}

#[test]
#[allow(clippy::print_stdout)]
fn valgrind_finds_no_wrong_access_and_no_leak() {
    if !is_there("valgrind") {
        return println!("skipped: no valgrind");
    }
    let bench = Bench::new("cc", &[], "tests/programs/loop.c");
    let mut command = bench.command(&[
        "valgrind",
        "-q",
        "--leak-check=full",
        "--error-exitcode=9",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ]);
    command.arg(bench.config("mode = async")).arg("3");
    succeeded(command);
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let header = |path| fs::read_to_string(source(path)).unwrap();
    let all = [header("include/veloc.h"), header("include/veloc-gpu/veloc.h")].concat();
    let right = declared(&all, "VELOC_");
    assert!(right.contains("VELOC_Checkpoint") && right.len() > 20, "{right:?}");
    assert_eq!(exported(&built().join("libveloc_client.so")), right);
}
