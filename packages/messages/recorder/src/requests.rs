//! Requests that were prepared and are started again and again: what each start sends.

use std::collections::HashMap;

use unspool_messages::hash::Quickly;
use unspool_messages::{Event, Key};

use crate::datatypes::Datatype;

/// Requests that are remembered at most.
const MOST: usize = 1 << 16;

/// What is sent, wherever it is prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) buffer: usize,
    pub(crate) count: i64,
    pub(crate) datatype: Datatype,
    pub(crate) comm: usize,
    pub(crate) key: Key,
    pub(crate) bytes: u64,
}

/// What a start does.
#[derive(Clone, Debug)]
pub(crate) enum Prepared {
    /// Sends a message.
    Message(Outgoing),
    /// Begins a message that is sent when its partitions are ready; those that are not, and how
    /// many.
    Parts { message: Outgoing, missing: Vec<bool>, left: usize },
    /// Is a call of all ranks.
    Together { key: Key, bytes: u64 },
    /// Receives.
    Receive,
}

/// A request with the event that tells what it is.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) prepared: Prepared,
    pub(crate) event: Event,
}

/// The requests that were seen being prepared.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    known: HashMap<u64, Request, Quickly>,
}

impl Requests {
    pub(crate) fn prepare(&mut self, name: u64, request: Request) {
        if self.known.len() < MOST || self.known.contains_key(&name) {
            self.known.insert(name, request);
        }
    }

    pub(crate) fn get(&mut self, name: u64) -> Option<&mut Request> {
        self.known.get_mut(&name)
    }

    pub(crate) fn forget(&mut self, name: u64) {
        self.known.remove(&name);
    }
}

impl Prepared {
    /// Begins again: no partition is ready.
    pub(crate) fn start(&mut self) {
        if let Prepared::Parts { missing, left, .. } = self {
            missing.fill(true);
            *left = missing.len();
        }
    }

    /// Takes partitions as ready; the message, when these were the last ones.
    pub(crate) fn ready(&mut self, partitions: impl Iterator<Item = i32>) -> Option<Outgoing> {
        let Prepared::Parts { message, missing, left } = self else { return None };
        let before = *left;
        for partition in partitions {
            let place = usize::try_from(partition).ok().and_then(|place| missing.get_mut(place));
            *left -= usize::from(place.is_some_and(std::mem::take));
        }
        (before > 0 && *left == 0).then_some(*message)
    }
}
