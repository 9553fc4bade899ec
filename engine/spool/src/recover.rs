//! Opening a durable directory again: what an earlier run left there comes back, and what does not
//! is named.

use std::path::Path;

use unspool_codec::{FrameError, FrameErrorKind, Head, head_len, parse_head, version_of};
use unspool_core::{CheckpointId, Event, Failure, TierId, Version};
use unspool_tiers::{Disk, FrameStart, LostFrame, Recovery, Stored, Tier, TierError};
use unspool_transfer::Frame;

use crate::error::{Error, ErrorKind};
use crate::runtime::frame_index::Unrecovered;
use crate::runtime::shared::Shared;
use crate::runtime::state::State;

/// The bytes of a head that say how long it is.
const START_BYTES: u64 = 4096;
/// The most frames that are named one by one in the notes.
const MOST_NOTES: usize = 100;

/// Recovers the frames of the durable disk, oldest first, so that of two frames of one version the
/// newer stays. Those that are damaged are left where they are; they and those that are missing are
/// named in the notes, and their versions are known to be lost.
///
/// # Errors
/// `Io` when the directory cannot be read, `Invalid` when a newer Unspool wrote a frame in it.
pub(crate) fn recover(shared: &Shared) -> Result<(), Error> {
    let (Some(disk), Some(&tier)) = (&shared.disk, shared.durable_tiers.last()) else {
        return Ok(());
    };
    let recovery = disk.take_recovery();
    let notes = recovery.doubts.iter().map(|doubt| (None, doubt.clone())).collect();
    let mut rest = Recovering { shared, disk, tier, recovery: &recovery, notes };
    let done = rest.all();
    let notes: Vec<String> = rest.notes.into_iter().map(|(_, note)| note).collect();
    let more = notes.len().saturating_sub(MOST_NOTES);
    let mut state = shared.state();
    state.notes.extend(notes.into_iter().take(MOST_NOTES));
    if more > 0 {
        state.notes.push(format!("{more} more frames did not come back."));
    }
    done
}

/// A directory whose frames are being recovered.
struct Recovering<'a> {
    shared: &'a Shared,
    disk: &'a Disk,
    tier: TierId,
    recovery: &'a Recovery,
    /// Sentences for people, with the version that one is about.
    notes: Vec<(Option<i64>, String)>,
}

/// Why a frame is not recovered.
enum Refused {
    Frame(FrameError),
    Tier(TierError),
    /// Bytes that its head announces.
    Length(u64),
}

impl Recovering<'_> {
    fn all(&mut self) -> Result<(), Error> {
        let store = self.shared.tier(self.tier);
        let frames = store.list().map_err(|cause| unreadable(&cause).caused_by(cause))?;
        let mut lost = self.recovery.lost.iter().peekable();
        for stored in frames {
            while let Some(lost) = lost.next_if(|lost| lost.id <= stored.id) {
                self.lose(lost);
            }
            match read_head(store, stored) {
                Ok((head, checksum)) => self.adopt(stored, head, checksum),
                Err(refused) => self.refuse(stored, refused)?,
            }
        }
        lost.for_each(|lost| self.lose(lost));
        Ok(())
    }

    fn adopt(&mut self, stored: Stored, head: Head, checksum: u64) {
        let (version, bytes) = (Version(head.version), head.payload_bytes);
        let mut state = self.shared.state();
        if let Some(lost) = state.frames.take_unrecovered(version.0) {
            drop(state);
            self.notes.retain(|(named, _)| *named != Some(version.0));
            // It was saved again after that. What cannot be removed now is removed by the next
            // opening.
            let _ = remove(self.disk, &lost);
            state = self.shared.state();
        }
        let older = state.driver.core().checkpoint(version);
        let frame = Frame::found(head, checksum).into();
        state.frames.insert(stored.id, frame, true);
        let (checkpoint, tier) = (stored.id, self.tier);
        self.shared.feed(&mut state, Event::Recover { checkpoint, version, bytes, tier });
        if let Some(older) = older {
            state.forget_if_gone(version, older);
        }
    }

    /// Leaves a frame alone that cannot be read.
    fn refuse(&mut self, stored: Stored, refused: Refused) -> Result<(), Error> {
        let start = self.recovery.starts.get(&stored.id);
        let file = self.disk.file(stored.id).unwrap_or_default();
        let reason = match refused {
            Refused::Frame(cause) if cause.kind() == FrameErrorKind::Newer => {
                return Err(newer(&file, &cause).caused_by(cause));
            }
            // It has the name of a frame, and nothing else says that it is one.
            Refused::Frame(cause) if cause.kind() == FrameErrorKind::Foreign && start.is_none() => {
                let file = file.display();
                self.notes.push((None, format!("{file} is left alone: {cause}")));
                self.disk.disown(stored.id);
                return Ok(());
            }
            Refused::Frame(cause) => format!("{}: {cause}", file.display()),
            Refused::Tier(cause) => cause.to_string(),
            Refused::Length(expected) => format!(
                "{} has {} bytes and its head announces {expected}.",
                file.display(),
                stored.bytes
            ),
        };
        self.give_up(stored.id, start, ErrorKind::Corrupt, &file, reason);
        Ok(())
    }

    /// Notes a frame that the directory should hold and does not.
    fn lose(&mut self, lost: &LostFrame) {
        let kind = match lost.failure {
            Failure::Missing => ErrorKind::Lost,
            _ => ErrorKind::Corrupt,
        };
        let reason = format!("{} {}.", lost.file.display(), lost.what);
        self.give_up(lost.id, Some(&lost.start), kind, &lost.file, reason);
    }

    /// The frame `id` does not come back. Its id must not be given again, so the core sees it come
    /// and go.
    fn give_up(
        &mut self,
        id: CheckpointId,
        start: Option<&FrameStart>,
        kind: ErrorKind,
        file: &Path,
        reason: String,
    ) {
        let (shared, tier) = (self.shared, self.tier);
        let mut state = shared.state();
        state.refused_frames.push(id);
        let unused = unused_version(&state);
        let recover = Event::Recover { checkpoint: id, version: unused, bytes: 0, tier };
        shared.feed(&mut state, recover);
        shared.feed(&mut state, Event::Discard { version: unused });
        let Some(version) = start.and_then(|start| version_of(start)) else {
            state.frames.set_nameless(file.display().to_string());
            let note = format!("A frame, nobody knows of which version, is left out: {reason}");
            self.notes.push((None, note));
            return;
        };
        let mut frames = vec![id];
        if let Some(before) = state.frames.take_unrecovered(version) {
            frames.extend(before.frames);
        }
        // An older frame of that version is not what was saved last. Its file stays.
        if let Some(older) = state.driver.core().checkpoint(Version(version)) {
            state.refused_frames.push(older);
            frames.push(older);
            shared.feed(&mut state, Event::Discard { version: Version(version) });
            state.forget_if_gone(Version(version), older);
        }
        let note = format!("Version {version} is left out: {reason}");
        self.notes.push((Some(version), note));
        state.frames.set_unrecovered(version, Unrecovered { kind, reason, frames });
    }
}

/// Removes what there is of a version that did not come back, so that later openings do not miss
/// it.
///
/// # Errors
/// `Io`: it is still there, and can be removed later.
pub(crate) fn discard(shared: &Shared, version: i64, lost: Unrecovered) -> Result<(), Error> {
    let removed = shared.disk.as_ref().map_or(Ok(()), |disk| remove(disk, &lost));
    removed.map_err(|cause| {
        shared.state().frames.set_unrecovered(version, lost);
        let message = format!("Version {version} cannot be removed: {cause}");
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })
}

fn remove(disk: &Disk, lost: &Unrecovered) -> Result<(), TierError> {
    lost.frames.iter().try_for_each(|&id| match disk.forget(id) {
        // An earlier try has removed it.
        Err(cause) if cause.kind() == Failure::Missing => Ok(()),
        removed => removed,
    })
}

fn read_head(store: &dyn Tier, stored: Stored) -> Result<(Head, u64), Refused> {
    let start = read_start(store, stored, START_BYTES.min(stored.bytes))?;
    let len = head_len(&start).map_err(Refused::Frame)?;
    let bytes = if len <= start.len() as u64 {
        start
    } else if len <= stored.bytes {
        read_start(store, stored, len)?
    } else {
        return Err(Refused::Length(len));
    };
    let (head, checksum) = parse_head(&bytes).map_err(Refused::Frame)?;
    let expected = head.frame_bytes();
    if expected == stored.bytes { Ok((head, checksum)) } else { Err(Refused::Length(expected)) }
}

fn read_start(store: &dyn Tier, stored: Stored, len: u64) -> Result<Vec<u8>, Refused> {
    // At most the largest head, and never more than the file has.
    let mut bytes = vec![0; len as usize];
    store.get(stored.id, 0, &mut [&mut bytes]).map_err(Refused::Tier)?;
    Ok(bytes)
}

/// A version that names no checkpoint.
fn unused_version(state: &State) -> Version {
    let core = state.driver.core();
    let unused = |version: &Version| !core.contains(*version);
    (i64::MIN..).map(Version).find(unused).unwrap_or(Version(i64::MIN))
}

fn unreadable(cause: &TierError) -> Error {
    Error::new(ErrorKind::Io, format!("The history cannot be opened: {cause}"))
}

fn newer(file: &Path, cause: &FrameError) -> Error {
    let message = format!("The history cannot be opened because of {}: {cause}", file.display());
    Error::new(ErrorKind::Invalid, message)
}
