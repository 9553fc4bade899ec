//! Memory and copies for checks and measurements.

use std::time::Duration;

use unspool_cuda::{Context, DeviceMemory, Stream, copy};

pub const LONG: Duration = Duration::from_secs(60);

/// Device memory with these bytes at offset `skip`.
pub fn upload(context: &Context, stream: &Stream, bytes: &[u8], skip: u64) -> DeviceMemory {
    let memory = DeviceMemory::new(context, bytes.len() as u64 + skip).unwrap();
    let span = memory.span().slice(skip, bytes.len() as u64).unwrap();
    copy::host_to_device(stream, &span, bytes, LONG).unwrap();
    memory
}

pub fn download(stream: &Stream, memory: &DeviceMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.span().len() as usize];
    copy::device_to_host(stream, &mut bytes, &memory.span(), LONG).unwrap();
    bytes
}
