//! What the sizes `"auto"` would be at this moment, from the figures that were found.

use super::{Cuda, Host};
use crate::auto::{
    DeviceMemoryFound, HostMemoryFound, Picked, Ranks, share_of_device, share_of_host,
};
use crate::error::Error;

/// What `"auto"` would take, in sentences; why nothing, where there is nothing sensible to take.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Automatic {
    /// For the device tier; `None` without a device.
    pub device: Option<String>,
    /// For the host tier.
    pub host: String,
}

pub(super) fn of(host: &Host, cuda: &Cuda) -> Automatic {
    let first = cuda.devices.first();
    let device = first.and_then(|device| {
        let info = &device.info;
        let (free, total) = (device.free?, info.memory);
        let sharing = Ranks::on_a_gpu(cuda.devices.len());
        Some(DeviceMemoryFound { ordinal: info.ordinal, free, total, sharing })
    });
    let counts = first.and_then(|device| device.pins_are_locked) == Some(true);
    let host = HostMemoryFound {
        free: host.free,
        limit: host.limit.clone(),
        most: host.most,
        ranks: Ranks::here(),
        lockable: host.locked_soft.filter(|_| counts),
    };
    Automatic {
        device: device.map(|figures| sentence(share_of_device(&figures))),
        host: sentence(share_of_host(&host)),
    }
}

fn sentence(picked: Result<Picked, Error>) -> String {
    picked.map_or_else(|error| error.to_string(), |picked| picked.sentence)
}
