//! The status of decoding on the device: success, or a damaged stream.

use std::time::{Duration, Instant};

use super::{EncodeErrorKind, Pending};
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// The status of streams that are being decoded. It may be ignored: the damage is confined to the
/// array, whose content is then unspecified.
#[derive(Clone, Debug)]
pub struct DecodeStatus(Vec<Pending>);

impl DecodeStatus {
    /// The status of launches whose slots say `REFUSED` when a stream is damaged.
    pub(crate) fn new(launches: Vec<Pending>) -> DecodeStatus {
        DecodeStatus(launches)
    }

    /// Whether all streams were intact, or `None` while the device has not finished. Makes no call
    /// of the driver.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<(), DeviceError>> {
        let known: Option<Vec<_>> = self.0.iter().map(Pending::try_result).collect();
        Some(known?.into_iter().try_for_each(|result| result.map(drop)).map_err(refusal))
    }

    /// As [`try_result`](Self::try_result), waiting at most `limit`.
    ///
    /// # Errors
    /// When a stream is damaged, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        let began = Instant::now();
        let mut launches = self.0.iter();
        let left = || limit.saturating_sub(began.elapsed());
        launches.try_for_each(|launch| launch.wait(left()).map(drop)).map_err(refusal)
    }

    /// Why no status will follow: the device has failed. Makes calls of the driver.
    #[must_use]
    pub fn failure(&self) -> Option<DeviceError> {
        self.0.iter().find_map(Pending::failure).map(refusal)
    }
}

/// The status of all of them.
impl FromIterator<DecodeStatus> for DecodeStatus {
    fn from_iter<I: IntoIterator<Item = DecodeStatus>>(all: I) -> DecodeStatus {
        DecodeStatus(all.into_iter().flat_map(|one| one.0).collect())
    }
}

fn refusal(error: super::EncodeError) -> DeviceError {
    if error.kind() != EncodeErrorKind::Refused {
        return error.into_device_error();
    }
    let message = "an encoded array is damaged: the device could not decode it";
    DeviceError::new(DeviceErrorKind::Damaged, message).with_advice(
        "The bytes were changed since they were encoded, or are those of another array.",
    )
}
