//! A medium for tests: the real one, which writes down what is done to it, moves only as much at
//! once as it is asked to, and fails when it is asked to.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rustix::io::Errno;

use crate::disk::medium::{Medium, Mode, System};

/// The identity of a file: never given twice, unlike the numbers of the file system.
pub(super) type FileId = u64;

/// One change of the directory or of a file in it, or a promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Create { name: String, file: FileId },
    Write { file: FileId, at: u64, bytes: Vec<u8> },
    SetLen { file: FileId, len: u64 },
    SyncFile { file: FileId },
    Rename { from: String, to: String },
    Remove { name: String },
    SyncDir,
}

/// The kinds of calls, for faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Open,
    Write,
    Read,
    SetLen,
    SyncFile,
    SyncDir,
    Rename,
    Remove,
}

#[derive(Debug)]
struct State {
    ops: Vec<Op>,
    files: HashMap<u64, FileId>,
    created: FileId,
    calls: Vec<Call>,
    /// The number of the call that fails, and how.
    fault: Option<(usize, i32)>,
    /// Every call of this kind fails like this.
    broken: Option<(Call, i32)>,
    /// Whether nothing can be opened past the page cache.
    only_cached: bool,
    /// How files were opened.
    opened: Vec<Mode>,
    /// The most bytes that one read or write owns up to.
    most: usize,
    /// The next so many reads and writes are interrupted.
    interrupted: u32,
}

#[derive(Debug)]
pub(super) struct TestMedium(Mutex<State>);

impl Default for TestMedium {
    fn default() -> TestMedium {
        TestMedium(Mutex::new(State {
            ops: Vec::new(),
            files: HashMap::new(),
            created: 0,
            calls: Vec::new(),
            fault: None,
            broken: None,
            only_cached: false,
            opened: Vec::new(),
            most: usize::MAX,
            interrupted: 0,
        }))
    }
}

impl TestMedium {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        self.state().ops.clone()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Lets the call fail that comes after `calls` more.
    pub(super) fn fail_after(&self, calls: usize, errno: i32) {
        let mut state = self.state();
        state.fault = Some((state.calls.len() + calls, errno));
    }

    pub(super) fn fail_every(&self, call: Call, errno: i32) {
        self.state().broken = Some((call, errno));
    }

    /// Refuses to open files past the page cache.
    pub(super) fn refuse_direct(&self) {
        self.state().only_cached = true;
    }

    pub(super) fn opened(&self) -> Vec<Mode> {
        self.state().opened.clone()
    }

    pub(super) fn heal(&self) {
        let mut state = self.state();
        (state.fault, state.broken) = (None, None);
    }

    pub(super) fn move_at_most(&self, bytes: usize) {
        self.state().most = bytes;
    }

    pub(super) fn interrupt(&self, calls: u32) {
        self.state().interrupted = calls;
    }

    /// Counts a call and lets it fail when it is its turn.
    fn begin(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.calls.push(call);
        let number = state.calls.len() - 1;
        let planned = state.fault.filter(|&(at, _)| at == number).map(|(_, errno)| errno);
        let broken = state.broken.filter(|&(kind, _)| kind == call).map(|(_, errno)| errno);
        match planned.or(broken) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(state),
        }
    }

    fn interrupted(state: &mut State) -> io::Result<()> {
        if state.interrupted == 0 {
            return Ok(());
        }
        state.interrupted -= 1;
        Err(io::ErrorKind::Interrupted.into())
    }
}

fn id_of(state: &State, file: &File) -> io::Result<FileId> {
    Ok(state.files[&file.metadata()?.ino()])
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Medium for TestMedium {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<File> {
        let mut state = self.begin(Call::Open)?;
        if mode.direct && state.only_cached {
            return Err(Errno::INVAL.into());
        }
        let file = System.open(path, mode)?;
        state.opened.push(mode);
        if mode.create.is_some() {
            state.created += 1;
            let id = state.created;
            state.files.insert(file.metadata()?.ino(), id);
            state.ops.push(Op::Create { name: name_of(path), file: id });
        }
        Ok(file)
    }

    fn write(&self, file: &File, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.begin(Call::Write)?;
        TestMedium::interrupted(&mut state)?;
        let mut all: Vec<u8> = bytes.iter().flat_map(|slice| slice.iter().copied()).collect();
        // One slice at a page, as the bytes may go past the page cache.
        let mut page = vec![0; all.len() + 4096];
        let start = page.as_ptr().align_offset(4096);
        page[start..start + all.len()].copy_from_slice(&all);
        let moved = System.write(file, at, &[IoSlice::new(&page[start..start + all.len()])])?;
        all.truncate(moved);
        let file = id_of(&state, file)?;
        state.ops.push(Op::Write { file, at, bytes: all });
        Ok(moved.min(state.most))
    }

    fn read(&self, file: &File, at: u64, bytes: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut state = self.begin(Call::Read)?;
        TestMedium::interrupted(&mut state)?;
        let moved = System.read(file, at, bytes)?;
        // What was moved beyond that must be asked for again.
        let mut kept = state.most.min(moved);
        for slice in bytes {
            let beyond = kept.min(slice.len());
            slice[beyond..].fill(0xEE);
            kept -= beyond;
        }
        Ok(moved.min(state.most))
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        let mut state = self.begin(Call::SetLen)?;
        System.set_len(file, len)?;
        let file = id_of(&state, file)?;
        state.ops.push(Op::SetLen { file, len });
        Ok(())
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        let mut state = self.begin(Call::SyncFile)?;
        let file = id_of(&state, file)?;
        state.ops.push(Op::SyncFile { file });
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.begin(Call::SyncDir)?.ops.push(Op::SyncDir);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Rename)?;
        System.rename(from, to)?;
        state.ops.push(Op::Rename { from: name_of(from), to: name_of(to) });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Remove)?;
        System.remove(path)?;
        state.ops.push(Op::Remove { name: name_of(path) });
        Ok(())
    }
}
