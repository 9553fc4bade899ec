//! What every copy asks of its two ends.

use crate::context::Scope;
use crate::error::{CudaError, DeviceError, DeviceErrorKind};
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// Makes the stream's context current, after checking that all memory is on its device.
pub(crate) fn enter(stream: &Stream, spans: &[&DeviceSpan]) -> Result<Scope, DeviceError> {
    let context = stream.context();
    for span in spans {
        context.require(span.ordinal(), "the memory")?;
    }
    Ok(context.enter()?)
}

pub(crate) fn refused(result: Result<(), CudaError>, what: &str) -> Result<(), DeviceError> {
    result.map_err(|cause| {
        DeviceError::new(DeviceErrorKind::Driver, format!("{what} was refused")).with_cause(cause)
    })
}

pub(crate) fn same_length(to: u64, from: u64) -> Result<(), DeviceError> {
    if to == from {
        return Ok(());
    }
    let message = format!("a copy of {from} bytes to a place of {to} bytes");
    Err(DeviceError::new(DeviceErrorKind::OutOfRange, message))
}
