"""Records that calls of this package take, and classes of what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._adjoint import (
    AdjointReport,
    Chosen,
    Effect,
    Fidelity,
    FidelityWarning,
    Progress,
    Stretch,
)
from ._adjoint.options import Access, Resume
from ._doctor import Diagnosis
from ._restart import CheckpointPart
from ._restart.options import Auto, Copies, Keep, Stop
from ._shards import Shard
from ._types import Region
from ._unspool import DeviceBuffer, HostBuffer

if TYPE_CHECKING:
    from ._paging.array import PagedArray
    from ._tiled.array import TiledArray

__all__ = [
    "Access",
    "AdjointReport",
    "Auto",
    "CheckpointPart",
    "Chosen",
    "Copies",
    "DeviceBuffer",
    "Diagnosis",
    "Effect",
    "Fidelity",
    "FidelityWarning",
    "HostBuffer",
    "Keep",
    "PagedArray",
    "Progress",
    "Region",
    "Resume",
    "Shard",
    "Stop",
    "Stretch",
    "TiledArray",
]


def __getattr__(name: str) -> Any:
    if name == "PagedArray":
        # It is a class of NumPy's, which the package does not need.
        from ._paging.array import PagedArray

        return PagedArray
    if name == "TiledArray":
        from ._tiled.array import TiledArray

        return TiledArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
