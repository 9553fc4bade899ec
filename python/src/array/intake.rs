//! What a call knows when it takes arrays in: which devices it may read and write, and the stream
//! that it was given.

use std::cell::RefCell;

use pyo3::prelude::*;

use unspool::gpu::{Gpu, device_of};
use unspool::{Error, Spool};

use super::ArrayRefusal;
use crate::errors::from_spool;

/// The legacy default stream, as the array libraries number it.
pub const LEGACY_STREAM: usize = 1;

/// Where the memory of an array lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayPlace {
    /// In memory of the host.
    Host,
    /// In the memory of a CUDA device.
    Cuda {
        /// The number of the device.
        ordinal: u32,
        /// The stream on which copies are in order with the work of others.
        work: PendingWork,
    },
}

/// What is known about the work of others on the memory of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingWork {
    /// It is enqueued on this stream, before the call and after it: a copy that is enqueued there
    /// as well is in order with all of it.
    Enqueued(usize),
    /// What was enqueued before the call is done when this stream comes to the copy. What comes
    /// after the call is not known to wait for it.
    Visible(usize),
}

impl PendingWork {
    /// The stream for the copies.
    pub fn stream(self) -> usize {
        match self {
            PendingWork::Enqueued(stream) | PendingWork::Visible(stream) => stream,
        }
    }
}

/// The devices that a call may use.
pub trait Devices {
    /// The only one, where there is one.
    fn own(&self) -> Option<u32>;

    /// The device `ordinal`.
    ///
    /// # Errors
    /// `NoDevice` and `WrongDevice`, when it cannot be used.
    fn gpu_of(&self, ordinal: u32) -> Result<Gpu, Error>;
}

impl Devices for Spool {
    fn own(&self) -> Option<u32> {
        self.gpu().map(Gpu::ordinal)
    }

    fn gpu_of(&self, ordinal: u32) -> Result<Gpu, Error> {
        Spool::gpu_of(self, ordinal)
    }
}

/// See the module. It is of one call.
pub struct Intake<'a> {
    devices: &'a dyn Devices,
    stream: Option<usize>,
    /// The current streams of libraries that were asked, each with its library and device.
    current: RefCell<Vec<(&'static str, u32, usize)>>,
}

impl<'a> Intake<'a> {
    /// An intake for arrays on `devices`; `stream` is what the caller gave, if he did.
    pub fn new(devices: &'a dyn Devices, stream: Option<usize>) -> Intake<'a> {
        Intake { devices, stream, current: RefCell::default() }
    }

    /// The stream that the caller gave.
    pub fn stream(&self) -> Option<usize> {
        self.stream
    }

    /// The stream that the caller gave, or the current one of `library` on a device, which `ask`
    /// asks for once in a call.
    pub(super) fn stream_of<E>(
        &self,
        (library, ordinal): (&'static str, u32),
        ask: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some(given) = self.stream {
            return Ok(given);
        }
        let is_known = |known: &&(&str, u32, usize)| (known.0, known.1) == (library, ordinal);
        if let Some((_, _, stream)) = self.current.borrow().iter().find(is_known) {
            return Ok(*stream);
        }
        let stream = ask()?;
        self.current.borrow_mut().push((library, ordinal, stream));
        Ok(stream)
    }

    /// Refuses arrays of another device than the spool's.
    pub(super) fn admit(&self, ordinal: u32) -> Result<(), ArrayRefusal> {
        match self.devices.own() {
            Some(own) if own != ordinal => Err(ArrayRefusal::OtherDevice { ordinal, own }),
            _ => Ok(()),
        }
    }

    /// The stream on which an exporter is asked to make its data visible: that of the caller, or
    /// one of our own on device `ordinal`.
    pub(super) fn stream_on(&self, py: Python<'_>, ordinal: u32) -> Result<usize, ArrayRefusal> {
        self.admit(ordinal)?;
        if let Some(given) = self.stream {
            return Ok(given);
        }
        let gpu = self.devices.gpu_of(ordinal);
        let gpu = gpu.map_err(|cause| ArrayRefusal::Raised(from_spool(py, &cause, None)))?;
        Ok(gpu.stream().handle())
    }

    /// What is known about the work of an exporter that made its data visible on `stream`: the
    /// caller of a call with a stream of his own promises that later work waits for it.
    pub(super) fn work_on(&self, stream: usize) -> PendingWork {
        match self.stream {
            Some(given) => PendingWork::Enqueued(given),
            None => PendingWork::Visible(stream),
        }
    }

    /// The device whose memory begins at `address`; `None` for memory of the host.
    pub(super) fn ordinal_of(
        &self,
        py: Python<'_>,
        address: usize,
    ) -> Result<Option<u32>, ArrayRefusal> {
        let found = device_of(address as u64).map_err(unspool::Error::from);
        found.map_err(|cause| ArrayRefusal::Raised(from_spool(py, &cause, None)))
    }
}
