//! The driver, and what it reports about the devices of the machine.

pub(crate) mod raw;
pub(crate) mod result;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::error::CudaError;
use crate::life;

/// The oldest supported version of the driver interface: CUDA 12.0 (driver 525).
const OLDEST: i32 = 12_000;

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// The CUDA driver of this machine, loaded.
#[derive(Clone, Debug)]
pub struct Driver {
    version: i32,
    devices: Vec<DeviceInfo>,
}

/// One device, in the order of `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The number of the device in this process.
    pub ordinal: u32,
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Bytes of device memory, used or not.
    pub memory: u64,
    /// Compute capability, major and minor: (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// `domain:bus:device.function`.
    pub pci: String,
    /// Whether kernels can read and write pinned host memory.
    pub maps_host_memory: bool,
    /// Whether address ranges can be mapped piece by piece (virtual memory management).
    pub maps_in_pieces: bool,
    /// Whether the device shares the host's memory, so that copies between them gain nothing.
    pub integrated: bool,
    /// Number of copies that run in parallel with kernels and each other.
    pub copy_engines: u32,
    /// Number of multiprocessors: at least as many blocks of a kernel run in parallel.
    pub multiprocessors: u32,
}

impl Driver {
    /// Loads the driver and lists its devices. On a machine without CUDA it fails at once and
    /// without side effects.
    ///
    /// # Errors
    /// When there is no driver, it is too old, or no device exists or is visible: the text says
    /// which, and what to do.
    pub fn load() -> Result<Driver, CudaError> {
        raw::load()?;
        life::watch();
        let version = result::driver_version()?;
        if version < OLDEST {
            return Err(too_old(version));
        }
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        result::init().map_err(|error| explain_init(error, visible.as_deref()))?;
        let count = result::device_count()?;
        let devices = (0..count).map(describe).collect::<Result<Vec<_>, _>>()?;
        if devices.is_empty() {
            return Err(no_device(visible.as_deref()));
        }
        Ok(Driver { version, devices })
    }

    /// The newest CUDA that the driver supports, major and minor.
    #[must_use]
    pub fn cuda_version(&self) -> (u32, u32) {
        let version = self.version.unsigned_abs();
        (version / 1000, version % 1000 / 10)
    }

    /// The devices that this process sees; at least one.
    #[must_use]
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }
}

fn describe(ordinal: i32) -> Result<DeviceInfo, CudaError> {
    let device = result::device(ordinal)?;
    let number = |attribute| result::device_attribute(device, attribute).map(i32::unsigned_abs);
    let flag = |attribute| number(attribute).map(|value| value != 0);
    Ok(DeviceInfo {
        ordinal: ordinal.unsigned_abs(),
        name: result::device_name(device)?,
        memory: result::device_memory(device)?,
        compute_capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        pci: result::device_pci(device)?,
        maps_host_memory: flag(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)?,
        maps_in_pieces: flag(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
        integrated: flag(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)?,
        copy_engines: number(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
        multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
    })
}

fn too_old(version: i32) -> CudaError {
    let text = format!(
        "it supports CUDA {}.{}, and 12.0 is needed; install driver 525 or newer",
        version / 1000,
        version % 1000 / 10
    );
    CudaError::before_any_call("the CUDA driver is too old", text)
}

/// Adds to an error of `cuInit` what its code means and the remedy.
fn explain_init(error: CudaError, visible: Option<&str>) -> CudaError {
    let remedy = match error.code {
        NO_DEVICE => return no_device(visible),
        34 => "this is the toolkit's stub and not a driver; take its folder out of LD_LIBRARY_PATH",
        802 | 804 => {
            "the driver's library and its kernel module do not fit or are not ready yet; \
                      use matching versions, and on NVSwitch machines start the fabric manager"
        }
        999 => "the kernel module may have been updated or lost its devices; reboot, or reload it",
        803 => "the library is newer than the kernel module; reboot or install matching versions",
        _ => "nvidia-smi says more",
    };
    CudaError { text: format!("{}; {remedy}", error.text), ..error }
}

fn no_device(visible: Option<&str>) -> CudaError {
    let text = match visible {
        Some(list) if list.trim().is_empty() => {
            "CUDA_VISIBLE_DEVICES is set and empty, which hides every device; unset it or name one"
                .to_owned()
        }
        Some(list) => format!(
            "CUDA_VISIBLE_DEVICES is `{list}`, which names no device of this machine; correct it"
        ),
        None => "the driver sees no device; in a container give it access (docker: --gpus all)"
            .to_owned(),
    };
    CudaError::before_any_call("no CUDA device", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_devices_are_distinguished_from_missing_ones() {
        assert!(no_device(Some("")).text.contains("set and empty"));
        assert!(no_device(Some("7")).text.contains("`7`"));
        assert!(no_device(None).text.contains("--gpus"));
    }

    #[test]
    fn a_driver_that_is_too_old_is_named_with_both_versions() {
        let error = too_old(11_040);
        assert!(error.to_string().contains("CUDA 11.4"), "{error}");
        assert!(error.to_string().contains("12.0"), "{error}");
    }

    #[test]
    fn loading_never_panics_and_says_what_is_missing() {
        match Driver::load() {
            Ok(driver) => assert!(!driver.devices().is_empty()),
            Err(error) => assert!(!error.text.is_empty(), "{error}"),
        }
    }
}
