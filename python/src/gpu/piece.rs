//! One array on a GPU on its way through a copy.

use unspool::gpu::{DeviceArray, Fence, Stream, StridedLayout};
use unspool::{Error, Spool};

use crate::array::{Access, Array, Devices, PendingWork};

/// What has to happen before an array may be let go of, once its copy is enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterCopy {
    /// Nothing: its library orders later work, and the reuse of its memory, after the copy.
    Nothing,
    /// It is kept until the copy is done; the call need not wait.
    Keep,
    /// The call waits until the copy is done, because later work is not known to.
    Wait,
}

/// See the module. The array that it was made from stays borrowed until the copy is done.
#[derive(Debug)]
pub struct DevicePiece {
    array: DeviceArray,
    stream: usize,
    after: AfterCopy,
}

impl DevicePiece {
    /// The memory of `array` on device `ordinal`, where `work` is in order with copies.
    /// `given` says that the stream is the caller's, and not that of the array's library.
    pub fn of(array: &Array, ordinal: u32, work: PendingWork, given: bool) -> DevicePiece {
        let after = match work {
            PendingWork::Enqueued(_) if given => AfterCopy::Keep,
            PendingWork::Enqueued(_) => AfterCopy::Nothing,
            PendingWork::Visible(_) if array.access() == Access::Immutable => AfterCopy::Keep,
            PendingWork::Visible(_) => AfterCopy::Wait,
        };
        let address = array.data().addr() as u64;
        let walk = array.walk();
        // SAFETY: the array stays borrowed until the copy is done: see `after`.
        let lent = unsafe {
            if walk.dims().is_empty() {
                DeviceArray::dense(ordinal, address, array.bytes() as u64)
            } else {
                DeviceArray::strided(ordinal, address, layout(array))
            }
        };
        DevicePiece { array: lent, stream: work.stream(), after }
    }

    /// `bytes` bytes at an address of device `ordinal`, whose owner orders all that it does with
    /// them, also their reuse, after what is on `stream`.
    pub fn dense(ordinal: u32, address: u64, bytes: u64, stream: usize) -> DevicePiece {
        // SAFETY: the memory stays allocated until the work on `stream` is done.
        let array = unsafe { DeviceArray::dense(ordinal, address, bytes) };
        DevicePiece { array, stream, after: AfterCopy::Nothing }
    }

    /// The array.
    pub fn array(&self) -> &DeviceArray {
        &self.array
    }

    /// What the array has to wait for.
    pub fn after(&self) -> AfterCopy {
        self.after
    }

    /// Whether copies of both go to the same stream.
    pub fn has_stream_of(&self, other: &DevicePiece) -> bool {
        self.stream == other.stream && self.array.ordinal() == other.array.ordinal()
    }

    /// The stream for its copies.
    ///
    /// # Errors
    /// `WrongDevice`, `NoDevice`, `Device`, when it cannot be used.
    pub fn stream(&self, devices: &dyn Devices) -> Result<Stream, Error> {
        let gpu = devices.gpu_of(self.array.ordinal())?;
        // SAFETY: the stream lives as long as the call: its owner is the caller or the library of
        // the array.
        Ok(unsafe { Stream::borrow(gpu.context(), self.stream) }?)
    }

    /// A fence after what is on `stream`, which is that of this array.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn fence(&self, spool: &Spool, stream: &Stream) -> Result<Fence, Error> {
        spool.gpu_of(self.array.ordinal())?.fence(stream)
    }
}

fn layout(array: &Array) -> StridedLayout {
    StridedLayout {
        shape: array.shape().iter().map(|&extent| extent as u64).collect(),
        strides: array.strides().iter().map(|&stride| stride as i64).collect(),
        itemsize: array.dtype().itemsize(),
    }
}
