//! Files that are none: no command waits for a pipe, or reads a device to its end.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("unspool-files-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The exit code and the error output of a command, which must not take long.
fn ended(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool-messages"));
    let mut child = command.args(words).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let (mut said, pid) = (child.stderr.take().unwrap(), child.id());
    let (done, over) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if over.recv_timeout(Duration::from_secs(30)).is_err() {
            let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
        }
    });
    let mut text = String::new();
    std::io::Read::read_to_string(&mut said, &mut text).unwrap();
    let code = child.wait().unwrap().code();
    done.send(()).unwrap_or_default();
    watch.join().unwrap();
    (code, text)
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    for kind in ["pipe", "device", "socket", "folder"] {
        let folder = folder(kind);
        let path = folder.join("000000-1-host.part");
        match kind {
            "pipe" => pipe(&path),
            "device" => symlink("/dev/zero", &path).unwrap(),
            "socket" => drop(UnixListener::bind(&path).unwrap()),
            _ => fs::create_dir(&path).unwrap(),
        }
        let (file, place) = (path.to_str().unwrap(), folder.to_str().unwrap());
        let output = folder.join("run.msg");
        for words in [
            &["merge", place, "-o", output.to_str().unwrap()][..],
            &["report", file],
            &["simulate", file, "--ranks", "4", "--network", "5300,2300,2000,3"],
        ] {
            let (code, said) = ended(words);
            assert_eq!(code, Some(2), "{words:?} on a {kind}: {said}");
            assert!(said.contains(file), "{said}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
