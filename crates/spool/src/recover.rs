//! Opening a durable directory again: what an earlier run left there comes back.

use unspool_codec::{FrameError, FrameErrorKind, Head, head_len, parse_head};
use unspool_core::{Event, TierId, Version};
use unspool_tiers::{Stored, Tier, TierError};
use unspool_transfer::Frame;

use crate::error::{Error, ErrorKind};
use crate::runtime::shared::Hub;
use crate::runtime::state::State;

/// The bytes of a head that say how long it is.
const START_BYTES: u64 = 4096;

/// Recovers the frames of the durable tiers, oldest first, so that of two frames of one version the
/// newer stays. Torn and foreign ones are left where they are, with a note.
///
/// # Errors
/// `Io` when the directory cannot be read, `Invalid` when a newer Unspool wrote a frame in it.
pub(crate) fn recover(hub: &Hub) -> Result<(), Error> {
    hub.durable_tiers.iter().try_for_each(|tier| recover_from(hub, *tier))
}

fn recover_from(hub: &Hub, tier: TierId) -> Result<(), Error> {
    let store = hub.tier(tier);
    let frames = store.list().map_err(|cause| unreadable(&cause).caused_by(cause))?;
    for stored in frames {
        let found = read_head(store, stored);
        let mut state = hub.state();
        match found {
            Ok((head, checksum)) => recover_frame(hub, &mut state, tier, stored, head, checksum),
            Err(Refused::Frame(cause)) if cause.kind() == FrameErrorKind::Newer => {
                return Err(newer(store, &cause).caused_by(cause));
            }
            Err(refused) => refuse(hub, &mut state, tier, stored, &refused),
        }
    }
    Ok(())
}

/// Why a frame is not recovered.
enum Refused {
    Frame(FrameError),
    Tier(TierError),
    /// Bytes that its head announces.
    Length(u64),
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

fn recover_frame(
    hub: &Hub,
    state: &mut State,
    tier: TierId,
    stored: Stored,
    head: Head,
    checksum: u64,
) {
    let (version, bytes) = (Version(head.version), head.payload_bytes);
    let older = state.driver.core().checkpoint(version);
    let frame = Frame::found(head, checksum).into();
    state.frames.insert(stored.id, frame, true);
    hub.feed(state, Event::Adopt { checkpoint: stored.id, version, bytes, tier });
    if let Some(older) = older {
        state.forget_if_gone(version, older);
    }
}

/// Leaves a frame alone. Its id must not be given again, so the core sees it come and go.
fn refuse(hub: &Hub, state: &mut State, tier: TierId, stored: Stored, refused: &Refused) {
    let reason = match refused {
        Refused::Frame(cause) => cause.to_string(),
        Refused::Tier(cause) => cause.to_string(),
        Refused::Length(expected) => format!(
            "it has {} bytes and its head announces {expected}. It was cut off while it was \
             written; remove it.",
            stored.bytes
        ),
    };
    state.notes.push(format!("Frame {:016x} was not adopted: {reason}", stored.id.0));
    state.refused_frames.push(stored.id);
    let version = unused_version(state);
    hub.feed(state, Event::Adopt { checkpoint: stored.id, version, bytes: 0, tier });
    hub.feed(state, Event::Discard { version });
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

fn newer(store: &dyn Tier, cause: &FrameError) -> Error {
    let location = store.describe().location;
    let message = format!("The history in {location} cannot be opened: {cause}");
    Error::new(ErrorKind::Invalid, message)
}
