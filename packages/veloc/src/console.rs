//! What is said to people: a line on standard error for each thing that went wrong, and in a file
//! too where the configuration names one.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where lines go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Console {
    /// The rank, or the number of a stand-alone client.
    id: Option<u32>,
    file: Option<PathBuf>,
}

impl Console {
    /// Lines of this rank, and the file that `prefix` names for them: in it when it is a folder.
    pub(crate) fn of(id: u32, prefix: Option<&Path>) -> Console {
        let file = prefix.map(|prefix| {
            if prefix.is_dir() {
                return prefix.join(format!("veloc-{id}.log"));
            }
            let mut name = prefix.as_os_str().to_owned();
            name.push(format!("-{id}.log"));
            PathBuf::from(name)
        });
        Console { id: Some(id), file }
    }

    /// Says one line. That it cannot be said is nobody's error.
    pub(crate) fn say(&self, text: &str) {
        let id = self.id.map_or(String::new(), |id| format!(" {id}"));
        let line = format!("[VELOC{id}] {}\n", text.replace('\n', " "));
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(path) = &self.file {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}
