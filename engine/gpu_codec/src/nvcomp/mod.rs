//! nvCOMP: codecs of NVIDIA that are loaded when they are installed, for arrays on the device.
//!
//! nvCOMP is closed and its streams are undocumented, so they are never the only copy of anything
//! that lasts: a durable spool refuses these codecs. nvCOMP trusts its input, so a container
//! carries a checksum, which is compared on the device before anything is decoded.
//!
//! No call waits for the device, with one exception in nvCOMP itself: decoding Bitcomp waits for
//! earlier work on the stream.
//!
//! - `find`, `library`: loading; `formats`: the table of formats, and the functions of one.
//! - `layout`: chunks and containers; `room`: working memory.
//! - `encode`: one array or several with one call of the library.
//! - `launch`: the kernels of `kernels/nvcomp.cu`, whose text specifies the container.

mod encode;
mod find;
mod formats;
mod launch;
pub(crate) mod layout;
mod library;
mod room;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::codec::{DecodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
use crate::pending::{DecodeStatus, Pending, Slots, Start};
use crate::scratch::ScratchPieces;
use crate::start::end;
use unspool_cuda::AccessedBytes as Touched;
use unspool_cuda::Context;
use unspool_cuda::DeviceSpan;
use unspool_cuda::FencePool;
use unspool_cuda::Stream;
use unspool_cuda::copy;
use unspool_cuda::kernels::{Kernels, Module};
use unspool_cuda::{DeviceError, DeviceErrorKind};

use formats::Format;
use launch::Launcher;
use layout::HEAD_BYTES;
use room::{Needs, Shape, WorkMemory};

pub use layout::NvCompLayout;
pub use library::NvCompLibrary;

/// The names of the kernels in the text.
pub(crate) const KERNELS: &[&str] = &[
    "nvcomp_arrays",
    "nvcomp_table",
    "nvcomp_pack",
    "nvcomp_finish",
    "nvcomp_sum",
    "nvcomp_unpack",
    "nvcomp_decoded",
    "nvcomp_copied",
];
pub(crate) const SOURCE: &str = include_str!("../../kernels/nvcomp.cu");

/// Maximum number of pieces of working memory of one shape; beyond it, a call waits for another.
const MOST_ROOMS: usize = 3;

/// Maximum temporary memory of one call: formats that need more get the chunks in batches.
const MOST_TEMPORARY: u64 = 256 << 20;

/// Encodes and decodes arrays with nvCOMP on one device.
#[derive(Debug)]
pub struct NvCompCoder {
    context: Context,
    folders: Vec<PathBuf>,
    found: OnceLock<Result<Arc<NvCompLibrary>, DeviceError>>,
    kernels: Kernels<()>,
    slots: Arc<Slots>,
    fences: Arc<FencePool>,
    rooms: ScratchPieces<WorkMemory>,
    /// Memory for several arrays. One piece per shape suffices: calls follow each other on a
    /// stream.
    batches: ScratchPieces<WorkMemory>,
}

impl NvCompCoder {
    /// Nothing is loaded before the first use. `folders` are searched first for nvCOMP and for the
    /// compiler, such as Python's `sys.path`. Results go into `slots`, which other codecs of the
    /// context share.
    #[must_use]
    pub fn looking_in(context: &Context, slots: &Arc<Slots>, folders: Vec<PathBuf>) -> NvCompCoder {
        NvCompCoder {
            context: context.clone(),
            kernels: Kernels::new(context, folders.clone()),
            folders,
            found: OnceLock::new(),
            slots: Arc::clone(slots),
            fences: FencePool::new(context),
            rooms: ScratchPieces::new(MOST_ROOMS),
            batches: ScratchPieces::new(1),
        }
    }

    /// The library, found and loaded at the first call.
    ///
    /// # Errors
    /// When no usable library is found; the text says what to install.
    pub fn loaded(&self) -> Result<Arc<NvCompLibrary>, DeviceError> {
        self.found.get_or_init(|| NvCompLibrary::find_in(&self.folders)).clone()
    }

    /// Decodes a container.
    ///
    /// # Safety
    /// That of [`GpuCodec::decode`].
    unsafe fn decode_one(
        &self,
        stream: &Stream,
        (job, layout): (&DecodeJob, &NvCompLayout),
    ) -> Result<Pending, DeviceError> {
        let format = self.format(layout)?;
        let module = self.module()?;
        let launcher = Launcher::new(&module, stream, layout, &format);
        let container = self.foreign(job.stream, job.stored);
        let target = self.foreign(job.target, layout.bytes());
        stream.saw_copy("decoding with nvCOMP", Touched::of(&container), Touched::of(&target));
        if job.stored == layout.most() {
            return self.copy_out(stream, &launcher, &container, &target);
        }
        check_length(job.stored, layout)?;
        let (slot, fence) = (self.slots.begin(1)?, self.fences.prepare()?);
        let room = self.room(stream, &format, (layout, 1), (job.target, true))?;
        let to = staged(&room, 0, &target)?;
        // SAFETY: the caller's duty; the room has no other user until the result is present.
        unsafe {
            launcher.unpack(&room, (job.stream, job.stored), to.address())?;
            let _scope = self.context.enter()?;
            room.batches(1).try_for_each(|part| room.decompress(stream, &format, part))?;
            launcher.decoded(&room, &slot)?;
        }
        if room.shape.staged {
            copy::device_to_device(stream, &target, &to)?;
        }
        let pending = slot.launched_before(fence, stream, 0)?;
        self.give_back(room, &pending);
        Ok(pending)
    }

    /// Copies values that are stored uncompressed.
    fn copy_out(
        &self,
        stream: &Stream,
        launcher: &Launcher<'_>,
        container: &DeviceSpan,
        target: &DeviceSpan,
    ) -> Result<Pending, DeviceError> {
        let (slot, fence) = (self.slots.begin(1)?, self.fences.prepare()?);
        copy::device_to_device(stream, target, &container.slice(HEAD_BYTES, target.len())?)?;
        // SAFETY: it reads the container's head, which is allocated, and writes the slot.
        unsafe { launcher.copied((container.address(), container.len()), &slot) }?;
        slot.launched_before(fence, stream, 0)
    }

    fn foreign(&self, address: u64, len: u64) -> DeviceSpan {
        // SAFETY: the callers of `encode` and `decode` guarantee that it stays allocated as long as
        // needed.
        unsafe { DeviceSpan::foreign(&self.context, address, len) }
    }

    fn format(&self, layout: &NvCompLayout) -> Result<Format, DeviceError> {
        self.loaded()?.format(layout.codec(), layout.dtype())
    }

    fn module(&self) -> Result<Arc<Module>, DeviceError> {
        self.kernels.get((), "nvcomp.cu", || SOURCE)
    }

    /// Working memory for `arrays` arrays of a layout; `addresses` is the bitwise or of all their
    /// addresses, which shows their alignment.
    fn room(
        &self,
        stream: &Stream,
        format: &Format,
        (layout, arrays): (&NvCompLayout, u64),
        (addresses, decodes): (u64, bool),
    ) -> Result<WorkMemory, DeviceError> {
        let count = arrays.next_power_of_two();
        let mut shape = Shape { layout: layout.clone(), decodes, staged: false, count };
        let needs = self.needs(stream, format, &shape)?;
        let of_array = if decodes { needs.alignments.output } else { needs.alignments.input };
        shape.staged = !addresses.is_multiple_of(of_array.max(1) as u64);
        let fits = |room: &WorkMemory| room.shape.serves(&shape) && room.needs.are_like(&needs);
        self.rooms_for(count).take(stream, fits, || {
            let room = self.new_room(&shape, needs)?;
            copy::fill(stream, &room.control_span()?, 0)?;
            if decodes {
                self.make_spare(stream, format, &room)?;
            }
            Ok(room)
        })
    }

    fn rooms_for(&self, arrays: u64) -> &ScratchPieces<WorkMemory> {
        if arrays > 1 { &self.batches } else { &self.rooms }
    }

    fn give_back(&self, room: WorkMemory, user: &Pending) {
        self.rooms_for(room.shape.count).give(room, user);
    }

    /// Working memory of that shape, in place of pieces for smaller batches. Where memory is short,
    /// unused pieces are freed first.
    fn new_room(&self, shape: &Shape, needs: Needs) -> Result<WorkMemory, DeviceError> {
        // Freed after the work that uses them.
        drop(self.batches.remove(|room, _| shape.serves(&room.shape)));
        let make = || WorkMemory::new(&self.context, shape.clone(), needs);
        match make() {
            Err(error) if error.kind() == DeviceErrorKind::OutOfMemory => {}
            made => return made,
        }
        for rooms in [&self.rooms, &self.batches] {
            let unused = rooms.remove(|_, user| user.fence().is_done());
            unused.into_iter().for_each(WorkMemory::free_unused);
        }
        make()
    }

    /// The sizes that the library needs.
    fn needs(&self, stream: &Stream, format: &Format, shape: &Shape) -> Result<Needs, DeviceError> {
        let _scope = self.context.enter()?;
        let (most, way) = (format.most()?, format.way(shape.decodes));
        let alignments = format.alignments(way)?;
        let mut batch = shape.chunks();
        let mut bytes = format.temporary(way, batch, stream)?;
        while bytes > MOST_TEMPORARY && batch > 64 {
            batch = batch.div_ceil(2);
            bytes = format.temporary(way, batch, stream)?;
        }
        if shape.decodes {
            bytes = bytes.max(format.temporary(&format.compressing, 2, stream)?);
        }
        Ok(Needs { stride: most.next_multiple_of(64), batch, temporary: bytes, alignments })
    }

    /// Compresses two chunks of zeros, which are decoded in place of those of a damaged container.
    fn make_spare(
        &self,
        stream: &Stream,
        format: &Format,
        room: &WorkMemory,
    ) -> Result<(), DeviceError> {
        let (module, zeros) = (self.module()?, room.zeros_span()?);
        copy::fill(stream, &zeros, 0)?;
        let launcher = Launcher::new(&module, stream, &room.shape.layout, format);
        let _scope = self.context.enter()?;
        // SAFETY: two chunks in our own memory, of the length that the library requires.
        unsafe {
            launcher.spare_arrays(room, zeros.address())?;
            room.compress(stream, format, (0, 2), room.at.spare)
        }
    }
}

impl GpuCodec for NvCompCoder {
    fn takes(&self, layout: &GpuLayout) -> bool {
        matches!(layout, GpuLayout::NvComp(_))
    }

    /// One, because a container holds one array.
    fn most_regions(&self) -> usize {
        1
    }

    fn prepare(&self, _: &[StoredCheckpoint<'_>]) -> Result<(), DeviceError> {
        self.loaded()?;
        self.module().map(drop)
    }

    /// Adjacent checkpoints of one layout share a call of the library.
    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let layouts = checkpoints.iter().map(only).collect::<Result<Vec<_>, _>>()?;
        let mut all: Vec<Pending> = Vec::with_capacity(checkpoints.len());
        for alike in layouts.chunk_by(|one, next| one == next) {
            let mut group = checkpoints[all.len()..][..alike.len()].to_vec();
            let before = all.last().cloned();
            if let (Start::Next { align }, Some(pending)) = (group[0].start, &before) {
                group[0].start = Start::After { pending, align };
            }
            // SAFETY: the caller's duty.
            match unsafe { self.encode_alike(stream, alike[0], &group) } {
                Ok(pending) => all.extend(pending),
                Err(error) => return Err(end(&all, error)),
            }
        }
        Ok(all)
    }

    /// A container that is damaged or holds something else never reaches nvCOMP. Waits for the
    /// stream if the format is Bitcomp.
    unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[DecodeJob],
    ) -> Result<DecodeStatus, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let one = |job: &DecodeJob| {
            let layout = nvcomp_layout(&job.layout)?;
            // SAFETY: the caller's duty.
            unsafe { self.decode_one(stream, (job, layout)) }
        };
        Ok(DecodeStatus::new(jobs.iter().map(one).collect::<Result<_, _>>()?))
    }
}

/// The layout of the one array of a checkpoint.
fn only<'a>(checkpoint: &StoredCheckpoint<'a>) -> Result<&'a NvCompLayout, DeviceError> {
    match checkpoint.jobs {
        [job] => nvcomp_layout(&job.layout),
        _ => Err(other("nvCOMP takes one region for each checkpoint")),
    }
}

fn nvcomp_layout(layout: &GpuLayout) -> Result<&NvCompLayout, DeviceError> {
    match layout {
        GpuLayout::NvComp(layout) => Ok(layout),
        _ => Err(other("an array for another codec")),
    }
}

fn other(message: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfRange, message)
}

/// Array `index` as nvCOMP gets it: the array itself, or its aligned copy in the room.
fn staged(room: &WorkMemory, index: u64, array: &DeviceSpan) -> Result<DeviceSpan, DeviceError> {
    if room.shape.staged { room.staged_span(index) } else { Ok(array.clone()) }
}

fn check_length(stored: u64, layout: &NvCompLayout) -> Result<(), DeviceError> {
    let (least, most) = (layout.table_end(), layout.most());
    if stored > least && stored < most && stored.is_multiple_of(16) {
        return Ok(());
    }
    let message = format!("a container of nvCOMP for such an array does not have {stored} bytes");
    Err(DeviceError::new(DeviceErrorKind::Damaged, message)
        .with_advice("Decode it with the shape, dtype and codec that it was encoded with."))
}
