//! Copies of arrays whose items are not dense: slices, transposed, reversed and broadcast arrays.
//! The dense side is in C order.
//!
//! Dimensions that are contiguous in memory are merged first. The rest is one plain copy, or a
//! kernel walks through it. Where kernels are not available, the driver copies rows of contiguous
//! bytes, at less than half of the speed.

mod layout;
mod many;
mod tiles;
mod walk;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::access::AccessedBytes;
use crate::context::Context;
use crate::driver::result;
use crate::ends::{enter, refused, same_length};
use crate::error::{CudaError, DeviceError, DeviceErrorKind};
use crate::kernels::{Kernels, Module};
use crate::span::DeviceSpan;
use crate::stream::Stream;

pub use layout::StridedLayout;
pub use many::DenseCopy;

use layout::Merged;
use walk::{Direction, UnitWalk};

/// The names of the kernels in the text.
pub(crate) const KERNELS: &[&str] = &[
    "copy_units_1_32",
    "copy_units_1_64",
    "copy_units_2_32",
    "copy_units_2_64",
    "copy_units_4_32",
    "copy_units_4_64",
    "copy_units_8_32",
    "copy_units_8_64",
    "copy_units_16_32",
    "copy_units_16_64",
    "copy_many",
];
pub(crate) const SOURCE: &str = include_str!("../../kernels/strided.cu");

/// Threads of a block, and the maximum number of blocks of a launch: each thread loops until all
/// items are done.
const THREADS: u32 = 256;
const MOST_BLOCKS: u64 = 4096;

/// The largest distance of rows that the driver takes (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const LARGEST_PITCH: u64 = (1 << 31) - 1;

const ROWS: &str = "a copy of rows within the device";

/// Gathers and scatters on one device.
#[derive(Debug)]
pub struct StridedCopies {
    context: Context,
    kernels: Kernels<()>,
    /// The kernels were not available when they were last needed.
    is_missing: AtomicBool,
}

/// The two ends of a copy: the array at its address, and its dense copy.
struct Ends<'a> {
    array: u64,
    layout: &'a StridedLayout,
    dense: &'a DeviceSpan,
    direction: Direction,
}

impl StridedCopies {
    /// Copies for a device. Kernels are loaded when a copy first needs one; the compiler is
    /// searched for in `folders` first, such as Python's `sys.path`.
    #[must_use]
    pub fn new(context: &Context, folders: Vec<PathBuf>) -> StridedCopies {
        let kernels = Kernels::new(context, folders);
        StridedCopies { context: context.clone(), kernels, is_missing: AtomicBool::new(false) }
    }

    /// Copies the items of the array at `from` (the address of its first item) to `to`, dense and
    /// in C order. Enqueued only: done when an event recorded after it is done. Items may share
    /// bytes.
    ///
    /// # Errors
    /// When `to` has another length than the items, the device is another one, the layout is
    /// refused, or the kernels cannot be had for a layout that needs one.
    ///
    /// # Safety
    /// The items are memory of the device, and stay allocated until the copy is done.
    pub unsafe fn gather(
        &self,
        stream: &Stream,
        to: &DeviceSpan,
        from: u64,
        layout: &StridedLayout,
    ) -> Result<(), DeviceError> {
        let direction = Direction::Gather;
        // SAFETY: the caller's duty.
        unsafe { self.copy(stream, &Ends { array: from, layout, dense: to, direction }) }
    }

    /// Copies the dense items of `from`, in C order, to the array at `to` (the address of its first
    /// item). Enqueued only, as [`gather`](Self::gather).
    ///
    /// As [`gather`](Self::gather), and when items of the array may share bytes: the result would
    /// be undefined.
    /// left to chance.
    ///
    /// # Safety
    /// As [`gather`](Self::gather).
    pub unsafe fn scatter(
        &self,
        stream: &Stream,
        to: u64,
        layout: &StridedLayout,
        from: &DeviceSpan,
    ) -> Result<(), DeviceError> {
        if layout.may_overlap()? {
            let message = format!(
                "items of an array with shape {:?} and strides {:?} share memory, so it cannot be \
                 written to",
                layout.shape, layout.strides
            );
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, message)
                .with_advice("Give an array of its own instead of a broadcast or a window."));
        }
        let direction = Direction::Scatter;
        // SAFETY: the caller's duty.
        unsafe { self.copy(stream, &Ends { array: to, layout, dense: from, direction }) }
    }

    /// # Safety
    /// As [`gather`](Self::gather).
    unsafe fn copy(&self, stream: &Stream, ends: &Ends<'_>) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        same_length(ends.dense.len(), ends.layout.bytes()?)?;
        let (low, end) = ends.layout.extent(ends.array)?;
        let _scope = enter(stream, &[ends.dense])?;
        let Some(merged) = ends.layout.merged()? else { return Ok(()) };
        // SAFETY: the caller guarantees the layout's items, and the dense side has their length.
        unsafe { self.enqueue(stream, ends, &merged) }?;
        let array = AccessedBytes::device(self.context.ordinal(), low, end - low);
        match ends.direction {
            Direction::Gather => stream.saw_copy("a gather", array, AccessedBytes::of(ends.dense)),
            Direction::Scatter => {
                stream.saw_copy("a scatter", AccessedBytes::of(ends.dense), array)
            }
        }
        Ok(())
    }

    /// # Safety
    /// The items of `merged` are there on both sides; the context is current.
    unsafe fn enqueue(
        &self,
        stream: &Stream,
        ends: &Ends<'_>,
        merged: &Merged,
    ) -> Result<(), DeviceError> {
        let rows = Rows::of(merged);
        if let Some(rows) = rows.as_ref().filter(|rows| rows.count == 1 || self.is_missing()) {
            // SAFETY: the caller's duty.
            return refused(unsafe { rows.copy(stream, ends) }, ROWS);
        }
        match (self.module(), rows) {
            // SAFETY: the caller's duty.
            (Ok(module), _) => unsafe { launch_all(&module, stream, ends, merged) },
            // SAFETY: the caller's duty.
            (Err(_), Some(rows)) => refused(unsafe { rows.copy(stream, ends) }, ROWS),
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the kernels were not available before, so that a copy that can do without them does
    /// not search for the compiler each time.
    fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Relaxed)
    }

    fn module(&self) -> Result<Arc<Module>, DeviceError> {
        let module = self.kernels.get((), "strided.cu", || SOURCE);
        self.is_missing.store(module.is_err(), Ordering::Relaxed);
        module
    }
}

/// # Safety
/// The items of `merged` are there on both sides.
unsafe fn launch_all(
    module: &Module,
    stream: &Stream,
    ends: &Ends<'_>,
    merged: &Merged,
) -> Result<(), DeviceError> {
    let dense = ends.dense.address();
    let walks = UnitWalk::all(merged, ends.array, dense, ends.direction);
    // SAFETY: the caller's duty; the walks together are the items.
    walks.iter().try_for_each(|walk| unsafe { launch(module, stream, ends, walk) })
}

/// # Safety
/// The items of the walk are there on both sides.
unsafe fn launch(
    module: &Module,
    stream: &Stream,
    ends: &Ends<'_>,
    plan: &UnitWalk,
) -> Result<(), DeviceError> {
    let array = ends.array.wrapping_add_signed(plan.array_at);
    let dense = ends.dense.address().wrapping_add_signed(plan.dense_at);
    let (mut from, mut to) = match ends.direction {
        Direction::Gather => (array, dense),
        Direction::Scatter => (dense, array),
    };
    let mut walk = plan.walk;
    let mut list: [*mut c_void; 3] =
        [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut walk).cast()];
    // SAFETY: the kernel takes two addresses and a walk, and accesses only the items, which the
    // caller guarantees.
    unsafe { module.launch_with(stream, &plan.kernel(), launch_shape(plan.walk.units), &mut list) }
}

/// Number of blocks, and of threads in each, for `units` units.
fn launch_shape(units: u64) -> (u32, u32) {
    (units.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32, THREADS)
}

/// A layout of contiguous rows at equal distances.
struct Rows {
    bytes: u64,
    count: u64,
    pitch: u64,
}

impl Rows {
    fn of(merged: &Merged) -> Option<Rows> {
        match merged.dims[..] {
            [] => Some(Rows { bytes: merged.run, count: 1, pitch: merged.run }),
            [dim] => {
                let pitch = u64::try_from(dim.stride).ok()?;
                let fits = pitch >= merged.run && pitch <= LARGEST_PITCH;
                fits.then_some(Rows { bytes: merged.run, count: dim.size, pitch })
            }
            _ => None,
        }
    }

    /// # Safety
    /// The rows are there on both sides; the context is current.
    unsafe fn copy(&self, stream: &Stream, ends: &Ends<'_>) -> Result<(), CudaError> {
        let (array, dense) = ((ends.array, self.pitch), (ends.dense.address(), self.bytes));
        let (from, to) = match ends.direction {
            Direction::Gather => (array, dense),
            Direction::Scatter => (dense, array),
        };
        if self.count == 1 {
            // SAFETY: the caller's duty.
            unsafe { result::copy_dtod(to.0, from.0, self.bytes, stream.raw()) }
        } else {
            // SAFETY: the caller's duty.
            unsafe { result::copy_rows(to, from, self.bytes, self.count, stream.raw()) }
        }
    }
}
