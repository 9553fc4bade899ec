//! Arrays of others on a device.

use unspool_cuda::{Context, DeviceError, DeviceSpan, Stream, StridedCopies, StridedLayout, copy};

/// The memory of an array on a GPU: dense in C order, or with a layout of its own.
#[derive(Clone, Debug)]
pub struct DeviceArray {
    ordinal: u32,
    address: u64,
    bytes: u64,
    layout: Option<StridedLayout>,
    /// What keeps its memory in place, where that is known.
    memory: Option<DeviceSpan>,
}

impl DeviceArray {
    /// A dense array over memory of ours, which stays in place while the array lives.
    #[must_use]
    pub fn of(memory: DeviceSpan) -> DeviceArray {
        let (ordinal, address, bytes) = (memory.ordinal(), memory.address(), memory.len());
        DeviceArray { ordinal, address, bytes, layout: None, memory: Some(memory) }
    }

    /// An array whose items are dense and in C order: `bytes` bytes at `address` of the device
    /// `ordinal`.
    ///
    /// # Safety
    /// The memory stays allocated until every copy from or to it is done.
    #[must_use]
    pub unsafe fn dense(ordinal: u32, address: u64, bytes: u64) -> DeviceArray {
        DeviceArray { ordinal, address, bytes, layout: None, memory: None }
    }

    /// An array with this layout, whose item at index 0, 0, ... is at `address` of the device
    /// `ordinal`.
    ///
    /// # Safety
    /// As for [`DeviceArray::dense`].
    #[must_use]
    pub unsafe fn strided(ordinal: u32, address: u64, layout: StridedLayout) -> DeviceArray {
        let items = layout.shape.iter().copied().fold(1, u64::saturating_mul);
        let bytes = items.saturating_mul(layout.itemsize);
        DeviceArray { ordinal, address, bytes, layout: Some(layout), memory: None }
    }

    /// The number of its device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Bytes of its items.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of its first item.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether its items are dense and in C order.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.layout.is_none()
    }

    /// Its memory, for an array that is dense.
    #[must_use]
    pub fn span(&self, context: &Context) -> DeviceSpan {
        if let Some(memory) = &self.memory {
            return memory.clone();
        }
        // SAFETY: whoever made the array has promised that its memory stays.
        unsafe { DeviceSpan::foreign(context, self.address, self.bytes) }
    }

    /// Its layout, unless it is dense.
    #[must_use]
    pub fn layout(&self) -> Option<&StridedLayout> {
        self.layout.as_ref()
    }

    /// The memory from its first byte to its last, which other arrays may share; `None` for an
    /// array without items, or of a layout that no memory has.
    #[must_use]
    pub fn extent(&self, context: &Context) -> Option<DeviceSpan> {
        let Some(layout) = &self.layout else { return Some(self.span(context)) };
        let (low, end) = layout.extent(self.address).ok().filter(|(low, end)| low < end)?;
        // SAFETY: the caller of `strided` keeps the memory of all items allocated.
        Some(unsafe { DeviceSpan::foreign(context, low, end - low) })
    }

    /// Copies its items to `to`, one after the other, after what is on `stream`. Only enqueued.
    ///
    /// # Errors
    /// When lengths or devices differ, or the driver refuses; for an array that is not dense also
    /// when a compiler for the kernel that it needs is missing.
    pub fn gather(
        &self,
        strided: &StridedCopies,
        stream: &Stream,
        to: &DeviceSpan,
    ) -> Result<(), DeviceError> {
        match &self.layout {
            None => copy::device_to_device(stream, to, &self.span(stream.context())),
            Some(layout) => {
                // SAFETY: whoever made the array has promised that its memory stays.
                unsafe { strided.gather(stream, to, self.address, layout) }
            }
        }
    }

    /// Copies `from` to its items, after what is on `stream`. Only enqueued.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather), and when items of the array share memory.
    pub fn scatter(
        &self,
        strided: &StridedCopies,
        stream: &Stream,
        from: &DeviceSpan,
    ) -> Result<(), DeviceError> {
        match &self.layout {
            None => copy::device_to_device(stream, &self.span(stream.context()), from),
            Some(layout) => {
                // SAFETY: whoever made the array has promised that its memory stays.
                unsafe { strided.scatter(stream, self.address, layout, from) }
            }
        }
    }
}
