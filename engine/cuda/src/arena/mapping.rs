//! The reserved range of one arena and what of it is mapped.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::arena::mapper::Mapper;
use crate::arena::{Shrunk, taken};
use crate::bytes::Bytes;
use crate::error::{CudaError, DeviceError, DeviceErrorKind, OUT_OF_MEMORY};
use crate::release::{self, AfterUse};
use crate::span::Keep;

/// A chunk that does not fit is halved down to this many granules before the arena ends.
const SMALLEST_GRANULES: u64 = 8;

pub(super) struct Mapping {
    mapper: Option<Box<dyn Mapper>>,
    address: u64,
    reserved: u64,
    asked: u64,
    granularity: u64,
    capacity: AtomicU64,
    mapped: AtomicU64,
    closed: AtomicBool,
    state: Mutex<MappingState>,
    changed: Condvar,
}

#[derive(Default)]
struct MappingState {
    failure: Option<DeviceError>,
    /// Address and length of each mapped chunk.
    chunks: Vec<(u64, u64)>,
    after: Option<AfterUse>,
}

impl Mapping {
    /// Reserves addresses for `capacity` bytes, which are released after `after`.
    pub(super) fn reserve(
        mapper: Box<dyn Mapper>,
        after: AfterUse,
        asked: u64,
        capacity: u64,
    ) -> Result<Mapping, DeviceError> {
        let granularity = mapper.granularity();
        let reserved = capacity.max(1).next_multiple_of(granularity);
        let address = mapper.reserve(reserved)?;
        Ok(Mapping {
            mapper: Some(mapper),
            address,
            reserved,
            asked,
            granularity,
            capacity: AtomicU64::new(capacity),
            mapped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            state: Mutex::new(MappingState { after: Some(after), ..MappingState::default() }),
            changed: Condvar::new(),
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    pub(super) fn shrunk(&self) -> Option<Shrunk> {
        let got = self.capacity();
        (got < self.asked).then_some(Shrunk { asked: self.asked, got })
    }

    pub(super) fn mapped(&self) -> u64 {
        self.mapped.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn failure(&self) -> Option<DeviceError> {
        self.state().failure.clone()
    }

    fn state(&self) -> MutexGuard<'_, MappingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is mapped from now on.
    pub(super) fn close(&self) {
        let state = self.state();
        self.closed.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Maps the whole range, `chunk` bytes at a time. Runs on its own thread.
    pub(super) fn map_all(&self, chunk: u64, ordinal: u32) {
        let chunk = chunk.max(1).next_multiple_of(self.granularity);
        let mut at = 0;
        while at < self.reserved && !self.is_closed() {
            let len = chunk.min(self.reserved - at);
            match self.map_some(at, len) {
                Ok(len) => {
                    at += len;
                    self.advance(at);
                }
                Err(cause) => return self.end_early(at, cause, ordinal),
            }
        }
    }

    /// Maps `len` bytes, or fewer where memory is short, and returns how many.
    fn map_some(&self, at: u64, len: u64) -> Result<u64, CudaError> {
        let Some(mapper) = &self.mapper else { return Ok(0) };
        let (mut len, address) = (len, self.address + at);
        loop {
            // SAFETY: inside the reserved range, and chunks are mapped one after the other.
            match unsafe { mapper.map(address, len) } {
                Ok(()) => {
                    self.state().chunks.push((address, len));
                    return Ok(len);
                }
                Err(error) => {
                    let half = (len / 2).next_multiple_of(self.granularity);
                    let small = half >= len || half < SMALLEST_GRANULES * self.granularity;
                    if error.code != OUT_OF_MEMORY || small {
                        return Err(error);
                    }
                    len = half;
                }
            }
        }
    }

    fn advance(&self, upto: u64) {
        let state = self.state();
        self.mapped.store(upto.min(self.capacity()), Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Mapping has ended at byte `at`. Where memory is what is missing, the arena ends there:
    /// another process has taken it since the arena was made.
    fn end_early(&self, at: u64, cause: CudaError, ordinal: u32) {
        let free = self.mapper.as_ref().and_then(|mapper| mapper.free().ok()).unwrap_or(0);
        let mut state = self.state();
        let failure = if cause.code == OUT_OF_MEMORY {
            self.capacity.store(at.min(self.capacity()), Ordering::Release);
            taken(self.asked, at, free, ordinal)
        } else {
            let message = format!("the arena on device {ordinal} ends after {}", Bytes(at));
            DeviceError::new(DeviceErrorKind::Driver, message)
        };
        state.failure = Some(failure.with_cause(cause));
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn wait_mapped(&self, upto: u64, limit: Duration) -> Result<(), DeviceError> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if self.mapped() >= upto {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            self.refuse_unreachable(upto)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (done, limit) = (self.mapped(), limit.as_secs_f64());
                let message = format!("{done} of {upto} bytes were mapped after {limit:.3} s");
                return Err(DeviceError::new(DeviceErrorKind::TimedOut, message));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns an error when `upto` will never be reached.
    fn refuse_unreachable(&self, upto: u64) -> Result<(), DeviceError> {
        if self.is_closed() {
            return Err(DeviceError::new(DeviceErrorKind::Closed, "the device arena is closed"));
        }
        crate::span::in_range(0, upto, self.capacity(), "the device arena")
    }
}

impl Keep for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let chunks = std::mem::take(&mut state.chunks);
        let (address, reserved) = (self.address, self.reserved);
        let (Some(after), Some(mapper)) = (state.after.take(), self.mapper.take()) else { return };
        release::in_background(after, move || {
            for (address, len) in chunks {
                // SAFETY: mapped above; no span is left and the work that used them is done.
                let _ = unsafe { mapper.unmap(address, len) };
            }
            // SAFETY: reserved above; everything in it was unmapped.
            let _ = unsafe { mapper.give_back(address, reserved) };
        });
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes at {:#x}", self.mapped(), self.capacity(), self.address)
    }
}
