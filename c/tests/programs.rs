//! Programs in C, C++ and Fortran, compiled against the header and the library and run, also under
//! the address sanitizer and valgrind, and on the fake GPU. A compiler that is not there is named
//! and its program skipped; that of C is always there.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

// Names the library, so that it is built before this test.
use unspool_c as _;
use unspool_fakecuda as _;
use unspool_testkit::programs::{declared, exported, is_there, succeeded};

/// Where this test was built, and the library beside it.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").to_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles sources with these flags into `folder`, where the library has the names that it is
/// installed with.
fn compiled(folder: &Path, compiler: &str, flags: &[&str], sources: &[&str]) -> PathBuf {
    let program = folder.join("program");
    for name in ["libunspool.so", "libunspool.so.2"] {
        symlink(built().join("libunspool_c.so"), folder.join(name)).expect("a new name");
    }
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(flags).arg("-I").arg(source("include"));
    command.args(sources.iter().map(|path| source(path)));
    command.arg("-o").arg(&program).arg("-L").arg(folder).args(["-lunspool", "-lm", "-ldl"]);
    succeeded(command);
    program
}

/// A command that runs a program and finds the library.
fn run(program: &Path) -> Command {
    let mut command = Command::new(program);
    let folder = program.parent().expect("the folder of a program");
    command.env("LD_LIBRARY_PATH", folder).current_dir(folder);
    command
}

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

#[test]
fn a_history_in_c_is_saved_restored_and_outlives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["tests/programs/history.c"]);
    let mut command = run(&program);
    command.arg(folder.path().join("history"));
    let output = succeeded(command);
    assert_eq!(output.stdout, b"history: all right\n");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_example_is_a_gradient_by_revolve() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["../examples/c/adjoint.c"]);
    let text = String::from_utf8(succeeded(run(&program)).stdout).unwrap();
    assert!(text.starts_with("200 steps, 5 states, ") && text.contains("g[500] = 0.020"), "{text}");
}

#[test]
fn the_address_sanitizer_finds_nothing_in_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99", "-fsanitize=address,undefined"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["tests/programs/history.c"]);
    let mut command = run(&program);
    command.env("ASAN_OPTIONS", "detect_leaks=1").arg(folder.path().join("history"));
    succeeded(command);
}

#[test]
#[allow(clippy::print_stdout)]
fn valgrind_finds_no_wrong_access_and_no_leak() {
    if !is_there("valgrind") {
        return println!("skipped: no valgrind");
    }
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["tests/programs/history.c"]);
    let mut command = Command::new("valgrind");
    command.args(["-q", "--leak-check=full", "--error-exitcode=9", "--show-leak-kinds=definite"]);
    command.args(["--errors-for-leak-kinds=definite"]).arg(&program);
    command.env("LD_LIBRARY_PATH", folder.path());
    succeeded(command);
}

#[test]
fn a_job_of_four_ranks_goes_on_where_all_of_them_were() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99", "-D_POSIX_C_SOURCE=200809L"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["tests/programs/ranks.c"]);
    let mut command = run(&program);
    command.arg(folder.path().join("job"));
    assert_eq!(succeeded(command).stdout, b"ranks: all right\n");
}

const HEAT: [&str; 5] = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror"];

/// Aborts a job of three ranks after many checkpoints, and lets it go on.
fn goes_on_after_an_abort(program: &Path) {
    let folder = program.parent().expect("the folder of a program");
    let start = |ranks: &str, job: &str, more: &[&str]| {
        let mut command = over_mpi(program, ranks);
        command.arg(folder.join(job)).args(more);
        command
    };
    let text = |command| String::from_utf8(succeeded(command).stdout).expect("UTF-8");
    let whole = text(start("3", "whole", &["3000"]));
    assert!(whole.starts_with("step 3000: "), "{whole}");
    let aborted = start("3", "cut", &["3000", "2900"]).output().expect("it can be started");
    assert!(!aborted.status.success());
    let rest = text(start("3", "cut", &["3000"]));
    assert!(rest.starts_with("goes on from step ") && rest.ends_with(&whole), "{rest} {whole}");
    let other = start("2", "cut", &["3000"]).output().expect("it can be started");
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && text.contains("has checkpoints of 3 ranks"), "{text}");
}

#[test]
#[allow(clippy::print_stdout)]
fn a_program_over_mpi_goes_on_where_it_was_when_it_was_aborted() {
    if !is_there("mpicc") || !is_there("mpirun") {
        return println!("skipped: no mpicc or mpirun");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "mpicc", &HEAT, &["../examples/c/heat.c"]);
    goes_on_after_an_abort(&program);
}

#[test]
#[allow(clippy::print_stdout)]
fn a_program_in_fortran_over_mpi_goes_on_as_well() {
    if !is_there("mpicc") || !is_there("mpifort") || !is_there("mpirun") {
        return println!("skipped: no mpicc, mpifort or mpirun");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut glue = Command::new("mpicc");
    glue.current_dir(folder.path()).args(HEAT).arg("-I").arg(source("include"));
    glue.arg("-c").arg(source("fortran/unspool_mpi.c"));
    succeeded(glue);
    // An object, which is found in the folder of the program.
    let flags = [&FORTRAN[..], &["unspool_mpi.o"]].concat();
    let sources = ["fortran/unspool.f90", "../examples/fortran/heat.f90"];
    let program = compiled(folder.path(), "mpifort", &flags, &sources);
    goes_on_after_an_abort(&program);
}

/// Runs `mpirun` with `ranks` processes of a program, for at most two minutes.
fn over_mpi(program: &Path, ranks: &str) -> Command {
    let version = Command::new("mpirun").arg("--version").output().expect("mpirun").stdout;
    let mut command = Command::new("timeout");
    command.args(["120", "mpirun"]);
    if String::from_utf8_lossy(&version).contains("Open MPI") {
        command.arg("--oversubscribe");
    }
    command.args(["-n", ranks]).arg(program);
    command.env("LD_LIBRARY_PATH", program.parent().expect("the folder of a program"));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

/// That of the C++ interface, of which Open MPI's headers are not free of warnings, is left out.
const MPI_IN_CXX: [&str; 3] = ["-std=c++17", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"];

#[test]
#[allow(clippy::print_stdout)]
fn over_mpi_parts_go_to_partners_and_a_rank_that_hangs_is_named_by_all_others() {
    for (compiler, standard) in [("mpicc", &["-std=c11"][..]), ("mpicxx", &MPI_IN_CXX)] {
        if !is_there(compiler) || !is_there("mpirun") {
            println!("skipped: no {compiler} or mpirun");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let language = if compiler == "mpicc" { "c" } else { "c++" };
        let flags = [standard, &STRICT[..], &["-x", language]].concat();
        let program = compiled(folder.path(), compiler, &flags, &["tests/programs/mpi.c"]);
        let run = folder.path().join("run");
        let said = |path: &Path, what: &str| {
            let output = over_mpi(&program, "4").arg(path).arg(what).output().expect("it starts");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "mpi: all right\n", "{errors}");
        };
        said(&run, "saves");
        std::fs::remove_dir_all(run.join("rank-0001-of-0004")).unwrap();
        said(&run, "restores");
        for away in ["0", "2"] {
            said(&folder.path().join(away), away);
        }
    }
}

#[test]
fn arrays_of_a_gpu_are_saved_in_the_order_of_their_stream() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["-std=c99", "-D_POSIX_C_SOURCE=200809L"], &STRICT[..]].concat();
    let program = compiled(folder.path(), "cc", &flags, &["tests/programs/gpu.c"]);
    for codec in ["none", "lossless"] {
        let mut command = run(&program);
        command.arg(codec).env("UNSPOOL_CUDA_DRIVER", built().join("libunspool_fakecuda.so"));
        assert_eq!(succeeded(command).stdout, b"gpu: all right\n", "{codec}");
    }
}

#[test]
fn the_name_for_the_loader_has_the_version_of_the_interface() {
    let header = std::fs::read_to_string(source("include/unspool.h")).unwrap();
    let abi = header.split("#define UNSPOOL_ABI ").nth(1).unwrap().lines().next().unwrap();
    let build = std::fs::read_to_string(source("build.rs")).unwrap();
    assert!(build.contains(&format!("const ABI: u32 = {abi};")), "build.rs has another version");
    let fortran = std::fs::read_to_string(source("fortran/unspool.f90")).unwrap();
    assert!(fortran.contains(&format!(":: abi = {abi}\n")), "the module has another version");
}

#[test]
#[allow(clippy::print_stdout)]
fn the_cxx_header_compiles_with_all_warnings_and_throws_what_went_wrong() {
    if !is_there("c++") {
        return println!("skipped: no c++");
    }
    for standard in ["-std=c++17", "-std=c++20"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = [&[standard, "-pthread"], &STRICT[..]].concat();
        let program = compiled(folder.path(), "c++", &flags, &["tests/programs/wrapper.cpp"]);
        let mut command = run(&program);
        command.arg(folder.path().join("run"));
        assert_eq!(succeeded(command).stdout, b"wrapper: all right\n");
    }
}

const FORTRAN: [&str; 5] = ["-std=f2018", "-Wall", "-Werror", "-fcheck=all", "-g"];

#[test]
#[allow(clippy::print_stdout)]
fn arrays_of_fortran_keep_their_ranks_and_errors_are_told() {
    if !is_there("gfortran") {
        return println!("skipped: no gfortran");
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = ["fortran/unspool.f90", "tests/programs/arrays.f90"];
    let program = compiled(folder.path(), "gfortran", &FORTRAN, &sources);
    assert_eq!(succeeded(run(&program)).stdout, b"arrays: all right\n");
    // Without `stat` an error ends the program, with its text.
    for (what, says) in
        [("option", "The option host_memory=\"a lot\""), ("write", "spool` is null")]
    {
        let mut ends = Command::new("timeout");
        ends.arg("30").arg(&program).arg(what).env("LD_LIBRARY_PATH", folder.path());
        let ended = ends.output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{text}");
        assert!(text.starts_with("ERROR STOP ") && text.contains(says), "{text}");
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn the_adjoint_in_fortran_has_the_same_gradient_by_every_schedule() {
    if !is_there("gfortran") {
        return println!("skipped: no gfortran");
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = ["fortran/unspool.f90", "../examples/fortran/adjoint.f90"];
    let program = compiled(folder.path(), "gfortran", &FORTRAN, &sources);
    let gradient = |schedule: &str, states: &str, advances: &str| {
        let mut command = run(&program);
        command.args([schedule, states]);
        let text = String::from_utf8(succeeded(command).stdout).unwrap();
        let (steps, gradient) = text.split_once('\n').unwrap();
        assert_eq!(steps, format!("200 steps, {advances} advances"));
        gradient.to_owned()
    };
    let stored = gradient("store-all", "200", "199");
    assert_eq!(gradient("revolve", "5", "790"), stored);
    assert!(stored.lines().any(|line| !line.trim().starts_with("0.0")), "{stored}");
}

/// The example is compiled where there is a compiler of CUDA, and run where there is a GPU as well.
#[test]
#[allow(clippy::print_stdout)]
fn the_example_in_cuda_compiles() {
    if !is_there("nvcc") {
        return println!("skipped: no nvcc");
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = ["../examples/cpp/wave.cu"];
    compiled(folder.path(), "nvcc", &["-std=c++17"], &sources);
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let header = std::fs::read_to_string(source("include/unspool.h")).expect("the header");
    let right = declared(&header, "unspool_");
    assert!(right.contains("unspool_save") && right.len() > 20, "{right:?}");
    assert_eq!(exported(&built().join("libunspool_c.so")), right);
}
