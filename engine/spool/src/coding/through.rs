//! Decoding on a GPU for main memory: there and back over the link.

use unspool_cuda::{DeviceError, copy as raw};
use unspool_gpu_codec::{GpuCodecs, GpuLayout};

use crate::gpu::Gpu;

/// Decodes `stream` on `gpu`, to `to` on the host.
pub(crate) fn through(
    gpu: &Gpu,
    coders: &GpuCodecs,
    stream: &[u8],
    layout: &GpuLayout,
    to: &mut [u8],
) -> Result<(), DeviceError> {
    let (on, limit) = (gpu.stream(), gpu.device().limit());
    let (from, values) = (gpu.scratch(stream.len() as u64, on)?, gpu.scratch(layout.bytes(), on)?);
    raw::host_to_device(on, &from.span(), stream, limit)?;
    let status = coders.decode(on, &from.span(), layout, &values.span().into())?;
    status.wait(limit)?;
    raw::device_to_host(on, to, &values.span(), limit)?;
    let fence = gpu.device().fence(on)?;
    from.done(gpu, fence.clone());
    values.done(gpu, fence);
    Ok(())
}
