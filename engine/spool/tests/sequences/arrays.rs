//! Contents to save, and the arrays that hold them.

use unspool::gpu::{Context, DeviceArray, DeviceMemory, DeviceSpan, Stream, StridedLayout};
use unspool::{Dtype, RegionSpec};
use unspool_cuda::copy;

use super::{Dice, LIMIT, Outcome};

/// Random bytes, on the host and on the device: contents are parts of it.
pub struct Bank {
    host: Vec<u8>,
    device: DeviceMemory,
}

impl Bank {
    pub fn new(context: &Context, len: u64) -> Outcome<Bank> {
        let mut dice = Dice::new(len);
        let host: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
        let (device, stream) = (DeviceMemory::new(context, len)?, Stream::new(context)?);
        copy::host_to_device(&stream, &device.span(), &host, LIMIT)?;
        Ok(Bank { host, device })
    }

    pub fn len(&self) -> u64 {
        self.host.len() as u64
    }
}

/// What a region holds, as a part of the bank.
#[derive(Clone, Debug)]
pub struct Content {
    /// Where its array begins in the bank.
    at: u64,
    rows: u64,
    width: u64,
    /// Bytes from one row of the array to the next.
    pitch: u64,
}

impl Content {
    /// A region of at most `largest` bytes: mostly dense, sometimes rows with gaps.
    pub fn draw(dice: &mut Dice, bank: &Bank, largest: u64) -> Content {
        let most = if dice.one_in(3) { largest } else { largest.div_ceil(8) };
        let (mut rows, mut width, mut pitch) = (1, 1 + dice.below(most), 0);
        if dice.one_in(40) {
            width = 0;
        } else if dice.one_in(4) && width >= 16 {
            pitch = 8 + dice.below(width - 8);
            rows = width / pitch;
            width = 1 + dice.below(pitch);
        }
        let content = Content { at: 0, rows, width, pitch };
        Content { at: dice.below(bank.len() - content.extent() + 1), ..content }
    }

    /// Bytes of the region.
    pub fn len(&self) -> u64 {
        self.rows * self.width
    }

    /// Bytes from the first to the last of its array.
    pub fn extent(&self) -> u64 {
        (self.rows - 1) * self.pitch + self.width
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Row `index` of a dense and of a scattered array.
    pub fn row(
        &self,
        index: u64,
        dense: &DeviceSpan,
        scattered: &DeviceSpan,
    ) -> Outcome<(DeviceSpan, DeviceSpan)> {
        let to = dense.slice(index * self.width, self.width)?;
        Ok((to, scattered.slice(index * self.pitch, self.width)?))
    }

    pub fn spec(&self, index: usize) -> RegionSpec {
        RegionSpec {
            name: format!("region {index}"),
            dtype: Dtype::UInt8,
            shape: vec![self.rows, self.width],
        }
    }

    /// The bytes of its array in the bank on the device.
    pub fn on_device(&self, bank: &Bank) -> Outcome<DeviceSpan> {
        Ok(bank.device.span().slice(self.at, self.extent())?)
    }

    /// The bytes of the region.
    pub fn dense(&self, bank: &Bank) -> Vec<u8> {
        let row = |index: u64| (self.at + index * self.pitch) as usize;
        let rows = (0..self.rows).map(|index| &bank.host[row(index)..][..self.width as usize]);
        rows.flatten().copied().collect()
    }

    /// The bytes of an array that held `byte` everywhere and then got the region.
    pub fn scattered(&self, bank: &Bank, byte: u8) -> Vec<u8> {
        let mut bytes = vec![byte; self.extent() as usize];
        for index in 0..self.rows {
            let (to, from) = (index * self.pitch, self.at + index * self.pitch);
            let width = self.width as usize;
            bytes[to as usize..][..width].copy_from_slice(&bank.host[from as usize..][..width]);
        }
        bytes
    }

    /// An array of this layout at the begin of `memory`, which lives longer than the copies.
    pub fn array(&self, memory: &DeviceSpan) -> DeviceArray {
        assert!(self.extent() <= memory.len());
        let (ordinal, address) = (memory.ordinal(), memory.address());
        if self.rows == 1 {
            // SAFETY: memory of a lane or of the results, which live until the streams have been
            // waited for, and are freed after everything on the device.
            return unsafe { DeviceArray::dense(ordinal, address, self.width) };
        }
        let (shape, strides) = (vec![self.rows, self.width], vec![self.pitch as i64, 1]);
        let layout = StridedLayout { shape, strides, itemsize: 1 };
        // SAFETY: as above.
        unsafe { DeviceArray::strided(ordinal, address, layout) }
    }
}
