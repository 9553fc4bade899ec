//! Programs in C and Fortran, run with paged memory and without: what they write is the same.
//!
//! Where the kernel gives no faults to this process, or there is no compiler, each test says so and
//! passes.

#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use unspool_codec::Dtype;
use unspool_paging::{Paged, PagingErrorKind, PagingOptions};
use unspool_testkit::programs::{exported, is_there, said, succeeded};

const COMMAND: &str = env!("CARGO_BIN_EXE_unspool-paging");

/// The library, which is built beside this test. The test is not linked with it: it would get its
/// `malloc`.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").join("libunspool_pager.so")
}

/// A folder with a program that was compiled there.
struct Bench {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Bench {
    /// Compiles a program; `None`, and said, where it cannot be run paged.
    fn new(name: &str) -> Option<Bench> {
        let bench = Bench::empty(compiler_of(name))?;
        bench.compile(name, "program", &[]);
        Some(bench)
    }

    fn empty(compiler: &str) -> Option<Bench> {
        if !is_there(compiler) {
            println!("skipped: no {compiler}");
            return None;
        }
        if let Err(error) = Paged::new(8 << 20, &PagingOptions::new(1 << 20, Dtype::Float64)) {
            assert_eq!(error.kind(), PagingErrorKind::Refused, "{error}");
            println!("skipped: {error}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        Some(Bench { folder, program })
    }

    /// Compiles one file to another.
    fn compile(&self, name: &str, to: &str, more: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let mut compile = Command::new(compiler_of(name));
        compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        if name.ends_with(".c") {
            // Some compilers set it themselves, and all leave allocations out that do nothing.
            compile.args(["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fno-builtin-malloc"]);
        }
        compile.arg(source).args(more).arg("-o").arg(to).current_dir(self.folder.path());
        succeeded(compile);
    }

    fn plain(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.folder.path());
        command.output().unwrap()
    }

    fn paged(&self, options: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(COMMAND);
        command.arg("run").args(options.split_whitespace()).arg("--library").arg(library());
        command.arg("--").arg(&self.program).args(arguments).current_dir(self.folder.path());
        command.output().unwrap()
    }

    /// Runs it in both ways, and gives what was said of the paged one.
    fn same(&self, options: &str, arguments: &[&str]) -> String {
        let (plain, paged) = (self.plain(arguments), self.paged(options, arguments));
        assert_eq!(plain.status.code(), paged.status.code(), "{}", said(&paged));
        assert!(plain.stdout == paged.stdout, "{options}: {}\n{}", said(&plain), said(&paged));
        String::from_utf8_lossy(&paged.stderr).into_owned()
    }
}

fn compiler_of(name: &str) -> &'static str {
    if name.ends_with(".c") { "cc" } else { "gfortran" }
}

/// The number after a word of the statistics.
fn number(line: &str, word: &str) -> f64 {
    let rest = line.split(word).nth(1).unwrap_or_else(|| panic!("{word} in {line}"));
    let end = rest.trim_start().find(|c: char| !c.is_ascii_digit() && c != '.');
    rest.trim_start()[..end.unwrap_or(rest.len())].parse().unwrap()
}

#[test]
fn an_installed_command_finds_its_library_beside_bin() {
    let Some(bench) = Bench::empty("cc") else { return };
    let (bin, libexec) =
        (bench.folder.path().join("bin"), bench.folder.path().join("libexec/unspool"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir_all(&libexec).unwrap();
    fs::copy(COMMAND, bin.join("unspool-paging")).unwrap();
    fs::copy(library(), libexec.join("libunspool_pager.so")).unwrap();
    let mut command = Command::new(bin.join("unspool-paging"));
    command.args(["run", "--resident", "25%", "--", "true"]);
    succeeded(command);
}

#[test]
fn a_stencil_with_a_quarter_in_memory_writes_what_it_always_writes() {
    let Some(bench) = Bench::new("stencil.c") else { return };
    let told = bench.same("--match 4MiB --resident 25% --stats", &[]);
    assert_eq!(number(&told, "allocations"), 5.0);
    assert_eq!(number(&told, "MiB"), 40.0);
    assert!(number(&told, "evictions") > 50.0 && number(&told, "factor") > 1.0, "{told}");
    let told = bench.same("--match 4MiB --resident 50% --order sweep --codec lz4 --stats", &[]);
    assert!(number(&told, "evictions") > 50.0, "{told}");
}

#[test]
fn a_program_without_large_allocations_or_that_fits_is_left_alone() {
    let Some(bench) = Bench::new("stencil.c") else { return };
    for options in ["--match 64MiB --resident 25%", "--match 4MiB --resident 8MiB"] {
        let told = bench.same(&format!("{options} --stats"), &[]);
        assert!(!told.contains("allocations"), "{told}");
    }
}

#[test]
fn what_has_no_room_in_memory_is_on_the_disk_until_the_program_ends() {
    let Some(bench) = Bench::new("exit.c") else { return };
    let disk = bench.folder.path().join("scratch");
    let options = format!("--match 4MiB --resident 25% --host-memory 0 --disk {}", disk.display());
    let told = bench.same(&format!("{options} --stats"), &[]);
    assert!(number(&told, "encoded") > 8.0, "{told}");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

#[test]
fn bytes_that_cannot_be_had_back_end_the_program() {
    let Some(bench) = Bench::new("lost.c") else { return };
    let disk = bench.folder.path().join("scratch");
    let options = format!("--match 4MiB --resident 25% --host-memory 0 --disk {}", disk.display());
    assert!(bench.same(&options, &[]).is_empty());
    let output = bench.paged(&options, &[disk.to_str().unwrap()]);
    // SIGBUS, or where the kernel cannot do that, an abort.
    assert!([128 + 7, 128 + 6].contains(&output.status.code().unwrap()), "{}", said(&output));
    assert!(said(&output).starts_with("unspool.paged: bytes "), "{}", said(&output));
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

/// The command for a script, with its folder on a disk.
fn script(disk: &Path, script: &str) -> Command {
    let mut command = Command::new(COMMAND);
    command.args(["run", "--resident", "25%", "--host-memory", "0", "--disk"]).arg(disk);
    command.arg("--library").arg(library()).args(["--", "sh", "-c", script]);
    command
}

#[test]
fn a_signal_to_the_command_ends_the_program_and_clears_the_disk() {
    let disk = tempfile::tempdir().unwrap();
    for signal in [libc::SIGTERM, libc::SIGUSR1] {
        let mut command = script(disk.path(), "echo ready; exec sleep 60");
        let mut started = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(started.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let folders: Vec<_> = fs::read_dir(disk.path()).unwrap().collect();
        let [Ok(folder)] = &folders[..] else { panic!("{folders:?}") };
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // SAFETY: it only sends a signal, to a child that was not waited for yet.
        assert_eq!(unsafe { libc::kill(started.id().cast_signed(), signal) }, 0);
        assert_eq!(started.wait().unwrap().code(), Some(128 + signal));
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_signal_that_was_ignored_is_ignored_by_the_program_too() {
    let disk = tempfile::tempdir().unwrap();
    let run = script(disk.path(), "kill -HUP $$; echo stays");
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" HUP; exec "$@""#, "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    assert_eq!(said(&succeeded(command)), "stays\n");
}

#[test]
fn an_argument_of_a_program_may_have_any_bytes_and_an_option_may_not() {
    let bytes = OsStr::from_bytes(b"a\xff");
    let command = |words: &[&str]| {
        let mut command = Command::new(COMMAND);
        command.args(["run", "--resident", "25%", "--library"]).arg(library()).args(words);
        command.arg(bytes).output().unwrap()
    };
    let printed = command(&["--", "printf", "%s"]);
    assert_eq!(printed.stdout, bytes.as_bytes(), "{}", said(&printed));
    let refused = command(&["--disk"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("give it in UTF-8"), "{}", said(&refused));
}

#[test]
fn threads_of_a_library_that_begins_before_ours_have_ordinary_memory() {
    let Some(bench) = Bench::empty("cc") else { return };
    bench.compile("early.c", "libearly.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    bench.compile("early.c", "program", &["-L.", "-learly", "-Wl,-rpath,$ORIGIN"]);
    for _ in 0..20 {
        let told = bench.same("--match 4MiB --resident 25%", &[]);
        assert!(told.is_empty(), "{told}");
    }
}

#[test]
fn threads_allocate_resize_and_free_at_once() {
    let Some(bench) = Bench::new("threads.c") else { return };
    let told = bench.same("--match 4MiB --resident 25% --chunk 256KiB --stats", &[]);
    assert!(number(&told, "allocations") > 30.0 && number(&told, "evictions") > 100.0, "{told}");
}

#[test]
fn a_program_ends_with_its_own_code_while_its_threads_use_the_memory() {
    let Some(bench) = Bench::new("exit.c") else { return };
    assert_eq!(bench.plain(&[]).status.code(), Some(7));
    let told = bench.same("--match 4MiB --resident 25% --codec none --stats", &[]);
    assert!(number(&told, "evictions") > 10.0, "{told}");
}

#[test]
fn a_child_has_arrays_of_its_own_and_is_told_that_it_has_not_its_parents() {
    let Some(bench) = Bench::new("fork.c") else { return };
    let told = bench.same("--match 4MiB --resident 25% --stats", &[]);
    assert_eq!(told.matches("allocations").count(), 2, "{told}");
    let paged = said(&bench.paged("--match 4MiB --resident 25%", &["touch"]));
    assert!(paged.contains("a child with its parent's: 1011\n"), "{paged}");
    assert!(paged.contains("uses paged memory of its parent"), "{paged}");
    assert!(paged.contains("a child that was sent the signal: 1011\n"), "{paged}");
    assert!(paged.contains("wrong here: 0\n"), "{paged}");
}

#[test]
fn system_calls_take_memory_that_is_not_there() {
    let Some(bench) = Bench::new("files.c") else { return };
    for mode in ["", "--user-mode"] {
        let options = format!("--match 4MiB --resident 25% --stats {mode}");
        let told = bench.same(&options, &["file"]);
        assert!(number(&told, "evictions") > 10.0, "{told}");
    }
}

#[test]
fn what_cannot_be_done_to_a_part_is_refused_and_said_and_loses_nothing() {
    let Some(bench) = Bench::new("refused.c") else { return };
    let paged = said(&bench.paged("--match 4MiB --resident 25%", &[]));
    for what in
        ["munmap of a half", "munmap of more", "mprotect", "mremap", "madvise away", "mmap over it"]
    {
        assert!(paged.contains(&format!("{what}: Operation not supported\n")), "{what}: {paged}");
    }
    for what in ["mprotect as it was", "madvise", "all is there", "munmap"] {
        assert!(paged.contains(&format!("{what}: done\n")), "{what}: {paged}");
    }
    assert_eq!(paged.matches("refused with ENOTSUP").count(), 5, "{paged}");
}

#[test]
fn where_the_kernel_refuses_the_program_runs_as_it_is_or_is_told() {
    let Some(bench) = Bench::new("refused.c") else { return };
    let options = "--match 4MiB --resident 25%";
    let paged = said(&bench.paged(options, &["forbidden"]));
    assert!(paged.starts_with("malloc: done\n"), "{paged}");
    assert!(paged.contains("ordinary memory is used instead"), "{paged}");
    let paged = said(&bench.paged(&format!("{options} --require"), &["forbidden"]));
    assert!(paged.starts_with("malloc: Cannot allocate memory\n"), "{paged}");
    assert!(paged.contains("an allocation fails, since it cannot be paged"), "{paged}");
}

#[test]
fn a_fortran_program_writes_what_it_always_writes() {
    let Some(bench) = Bench::new("stencil.f90") else { return };
    for mode in ["", "--user-mode"] {
        let told = bench.same(&format!("--match 4MiB --resident 25% --stats {mode}"), &[]);
        assert!(number(&told, "evictions") > 50.0, "{told}");
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

#[test]
fn what_is_not_understood_starts_nothing() {
    for (given, wanted) in [
        (words("run -- true"), "--resident"),
        (words("run --resident 1GiB"), "after `--`"),
        (words("run --resident 1GiB --chunk 1000 -- true"), "`chunk` is 1000"),
        (words("run --resident 1GiB --bound 1 --dtype int32 -- true"), "A bound is for floats"),
        (words("walk"), "`walk` is not a command"),
        (words("run --resident 1GiB --library none.so -- true"), "none.so"),
        (words("run --resident 1GiB --library"), "--library has no value"),
    ] {
        let output = Command::new(COMMAND).args(&given).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(wanted), "{given:?}: {}", said(&output));
    }
}

#[test]
fn the_library_exports_functions_of_the_c_library_alone() {
    let own = exported(&library());
    let right = "__fread_chk __pread64_chk __pread_chk __read_chk aligned_alloc calloc fread free \
                 fwrite madvise malloc malloc_usable_size memalign mmap mmap64 mprotect mremap \
                 munmap posix_memalign pread pread64 pwrite pwrite64 read realloc write";
    assert_eq!(own.iter().map(String::as_str).collect::<Vec<_>>().join(" "), right);
}
