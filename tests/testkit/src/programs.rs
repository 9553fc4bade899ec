//! Programs that a test runs: compilers, what they have made, and the MPIs that start it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

/// Whether a program can be started.
#[must_use]
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// All that a program wrote, what went to standard output first.
#[must_use]
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started, or has not succeeded.
pub fn succeeded(mut command: Command) -> Output {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, said(&output));
    output
}

/// The names that a shared library defines for others.
///
/// # Panics
/// When there is no `nm`, which every compiler of C brings, or it cannot read the library.
#[must_use]
pub fn exported(library: &Path) -> BTreeSet<String> {
    let mut command = Command::new("nm");
    command.args(["--dynamic", "--defined-only", "--format=posix"]).arg(library);
    let text = String::from_utf8_lossy(&succeeded(command).stdout).into_owned();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The functions that the text of a header declares, of those whose names begin with `prefix`.
#[must_use]
pub fn declared(header: &str, prefix: &str) -> BTreeSet<String> {
    let is_in_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let name = |(before, _): (&str, &str)| {
        before.rsplit(|letter| !is_in_name(letter)).next().unwrap_or_default().to_owned()
    };
    let calls = header.match_indices('(').map(|(place, _)| header.split_at(place));
    calls.map(name).filter(|name| name.starts_with(prefix)).collect()
}

/// An MPI: a compiler, and the words that start two ranks.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// Its compiler of C.
    pub compiler: String,
    /// The words that come before a program.
    pub start: Vec<String>,
    /// Whether it has the forms of functions with large counts.
    pub large: bool,
}

/// Every MPI that is here: that of the system, both ABIs of the MPICH in the folder
/// `UNSPOOL_TEST_MPICH`, and the Open MPI of the Python packages in `UNSPOOL_TEST_PEERS`, which is
/// the last one. Where there is none, that is printed.
#[must_use]
#[allow(clippy::print_stdout)]
pub fn all_mpis() -> Vec<Mpi> {
    let one = |compiler: String, start: &str, large| {
        let start = format!("{start} -n 2").split(' ').map(str::to_owned).collect();
        Mpi { compiler, start, large }
    };
    let mut found = Vec::new();
    if is_there("mpicc") && is_there("mpirun") {
        let version = Command::new("mpirun").arg("--version").output();
        let is_open = version.is_ok_and(|version| said(&version).contains("Open MPI"));
        let start = if is_open { "mpirun --oversubscribe" } else { "mpirun" };
        found.push(one("mpicc".into(), start, false));
    }
    if let Ok(folder) = std::env::var("UNSPOOL_TEST_MPICH") {
        let of = |compiler| {
            one(format!("{folder}/bin/{compiler}"), &format!("{folder}/bin/mpiexec"), true)
        };
        found.extend(["mpicc", "mpicc_abi"].map(of));
    }
    if let Ok(folder) = std::env::var("UNSPOOL_TEST_PEERS") {
        let start = format!("{folder}/bin/mpirun --oversubscribe");
        found.push(one(format!("{folder}/bin/mpicc"), &start, false));
    }
    if found.is_empty() {
        println!("skipped: no mpicc or mpirun");
    }
    found
}

impl Mpi {
    /// The same with another number of ranks.
    #[must_use]
    pub fn with_ranks(&self, ranks: &str) -> Mpi {
        let mut other = self.clone();
        if let Some(last) = other.start.last_mut() {
            ranks.clone_into(last);
        }
        other
    }
}

/// The flag by which a program finds the libraries of the MPI of this compiler; none for the MPI of
/// the system.
#[must_use]
pub fn library_path(compiler: &str) -> Option<String> {
    let folder = Path::new(compiler).parent()?.parent()?;
    Some(format!("-Wl,-rpath,{}/lib", folder.display()))
}

/// Lets MPI start ranks as any user. Open MPI's files go to the folder of the command: jobs that
/// begin at the same moment are in each other's way where they make one folder for all.
pub fn allow_root(command: &mut Command) {
    if let Some(folder) = command.get_current_dir().map(Path::to_path_buf) {
        command.env("OMPI_MCA_orte_tmpdir_base", folder);
    }
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
    }
}
