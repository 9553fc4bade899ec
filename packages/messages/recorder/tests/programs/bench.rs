//! A folder in which a program of a test is compiled and run: as it is, recorded, or coded.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use unspool_messages::{Channel, Events, Run, What};
use unspool_testkit::programs::{Mpi, all_mpis, allow_root, library_path, said, succeeded};

pub const COMMAND: &str = env!("CARGO_BIN_EXE_unspool-messages");

/// The listener, which is built beside this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").join("libunspool_recorder.so")
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A folder to compile and run in.
pub struct Bench {
    pub mpi: Mpi,
    pub folder: tempfile::TempDir,
}

impl Bench {
    pub fn new(mpi: &Mpi) -> Bench {
        Bench { mpi: mpi.clone(), folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program; it is called as its source, without the ending.
    pub fn compile(&self, name: &str) -> PathBuf {
        self.compile_by(&self.mpi.compiler, &source(name), &["-Wall", "-Wextra", "-Werror"])
    }

    pub fn compile_by(&self, compiler: &str, from: &Path, flags: &[&str]) -> PathBuf {
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
    pub fn command(&self, before: &[&str], program: &[&Path]) -> Command {
        let mut all: Vec<PathBuf> = before.iter().map(PathBuf::from).collect();
        all.extend(self.mpi.start.iter().map(PathBuf::from));
        all.extend(program.iter().map(|word| word.to_path_buf()));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.folder.path());
        allow_root(&mut command);
        command
    }

    pub fn plain(&self, program: &[&Path]) -> Command {
        self.command(&[], program)
    }

    pub fn recording(&self, program: &[&Path]) -> Command {
        let (run, library) = (self.path("run.msg"), library());
        let words = ["record", "-o", run.to_str().unwrap(), "--library", library.to_str().unwrap()];
        let before = [&[COMMAND], &words[..], &["--analysis", "20", "--"]].concat();
        self.command(&before, program)
    }

    /// The run of a program that does the same with the listener and without.
    pub fn recorded(&self, program: &[&Path]) -> (Run, Vec<Events>) {
        let plain = succeeded(self.plain(program));
        let heard = succeeded(self.recording(program));
        assert_eq!(lines(&plain), lines(&heard));
        assert!(said(&heard).contains("2 of 2 ranks are in"), "{}", said(&heard));
        assert!(!self.path("run.msg.parts").exists());
        self.read()
    }

    /// The same program by a plan of its record, for a network on which everything pays.
    pub fn coding(&self, program: &[&Path]) -> Command {
        self.coding_with(&[], program)
    }

    pub fn coding_with(&self, more: &[&str], program: &[&Path]) -> Command {
        let (run, library) = (self.path("run.msg"), library());
        let words = ["run", "--plan", run.to_str().unwrap(), "--library"];
        let limits = ["--network", "0.1MB/s", "--threshold", "4KiB"];
        let library = [library.to_str().unwrap()];
        let before = [&[COMMAND], &words[..], &library, &limits, more, &["--"]].concat();
        self.command(&before, program)
    }

    pub fn read(&self) -> (Run, Vec<Events>) {
        let mut events = Vec::new();
        let file = File::open(self.path("run.msg")).unwrap();
        let run = Run::read_with(file, |_, these| events.push(these)).unwrap();
        (run, events)
    }
}

/// By tag: messages, bytes, duplicates and how many payloads were compared, of one rank.
pub fn by_tag(run: &Run, rank: usize) -> BTreeMap<i32, (u64, u64, u64, u64)> {
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

pub fn messages(run: &Run, rank: usize) -> impl Iterator<Item = &Channel> {
    run.ranks[rank].channels.iter().filter(|channel| channel.key.what == What::Messages)
}

/// Does something with a program of mpi4py and each MPI that comes as a package of Python; mpi4py's
/// own has no variant for the standard ABI.
pub fn with_mpi4py(name: &str, check: impl Fn(&Bench, &[&Path])) {
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
pub fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
