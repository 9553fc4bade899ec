"""Classes of what calls of this package take and return; nobody has to make one of them."""

from ._adjoint import AdjointReport, Progress
from ._doctor import Diagnosis
from ._restart import CheckpointPart
from ._types import Region
from ._unspool import DeviceBuffer, HostBuffer

__all__ = [
    "AdjointReport",
    "CheckpointPart",
    "DeviceBuffer",
    "Diagnosis",
    "HostBuffer",
    "Progress",
    "Region",
]
