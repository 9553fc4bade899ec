//! Processes that play roles, and directories for them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// This program in a role.
pub(crate) struct Player {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
}

impl Player {
    pub(crate) fn start(role: &str, dir: &Path, mode: &str) -> Player {
        Player::start_as(&std::env::current_exe().unwrap(), None, role, dir, mode)
    }

    pub(crate) fn start_as(
        program: &Path,
        user: Option<u32>,
        role: &str,
        dir: &Path,
        mode: &str,
    ) -> Player {
        let mut command = Command::new(program);
        command.arg("--role").arg(role).arg(dir).env("UNSPOOL_TEST_MODE", mode);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Player { process, output }
    }

    pub(crate) fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    pub(crate) fn tell(&mut self, word: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    /// As when the machine runs out of memory.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Whether it played its role well.
    pub(crate) fn end(mut self) -> bool {
        self.process.wait().unwrap().success()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap().keep())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
