//! Which device a spool is on.

use std::time::Duration;

use unspool_codec::CodecId;
use unspool_cuda::{Driver, current_ordinal};
use unspool_tiers::Gpu as Device;

use crate::error::{Error, ErrorKind};
use crate::gpu::{Gpu, On};
use crate::settings::Settings;

/// The longest wait for one piece of work of the device: much longer than any copy takes, even
/// after kernels of the application.
const LIMIT: Duration = Duration::from_secs(120);

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// The device for these settings; `None` for main memory.
pub(crate) fn choose(settings: &Settings) -> Result<Option<Gpu>, Error> {
    let arenas = settings.device.is_some() || settings.host.is_some();
    let ordinal = match settings.on {
        On::Cpu => None,
        On::Cuda(ordinal) => Some(ordinal.or_else(current_ordinal).unwrap_or(0)),
        On::Auto if settings.device.is_some() => found()?,
        On::Auto if arenas => current_ordinal(),
        On::Auto => None,
    };
    ordinal.map(|ordinal| open(ordinal, settings)).transpose()
}

/// The current device, or the first; `None` without a driver or a device.
fn found() -> Result<Option<u32>, Error> {
    match Driver::load() {
        Ok(driver) if driver.devices().is_empty() => Ok(None),
        Ok(_) => Ok(Some(current_ordinal().unwrap_or(0))),
        // Without a call there is no driver; the other code is that of a driver without a device.
        Err(cause) if matches!(cause.code, 0 | NO_DEVICE) => Ok(None),
        Err(cause) => {
            let message = format!(
                "There is a CUDA driver, and it does not work: {cause} Mend it, or open the spool \
                 with `on` set to `cpu` to keep its device tier in main memory."
            );
            Err(Error::new(ErrorKind::NoDevice, message).caused_by(cause))
        }
    }
}

/// The device `ordinal`.
pub(crate) fn open(ordinal: u32, settings: &Settings) -> Result<Gpu, Error> {
    let device = Device::open(ordinal, LIMIT).map_err(|cause| {
        let message = format!(
            "CUDA device {ordinal} cannot be used: {cause} `unspool doctor` tells more; \
             `on` set to `cpu` keeps the spool in main memory."
        );
        Error::new(ErrorKind::NoDevice, message).caused_by(cause)
    })?;
    let gpu = Gpu::new(device, settings.compiler_folders.clone());
    if settings.codec.specs().any(|spec| spec.id() == CodecId::NvComp) {
        // A large library, which the first save is not to wait for. What fails is told there.
        let _ = gpu.own_coders().nvcomp().loaded();
    }
    Ok(gpu)
}
