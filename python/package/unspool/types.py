"""Classes of what calls of this package take and return; nobody has to make one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._adjoint import AdjointReport, Effect, Fidelity, FidelityWarning, Progress
from ._doctor import Diagnosis
from ._restart import CheckpointPart
from ._types import Region
from ._unspool import DeviceBuffer, HostBuffer

if TYPE_CHECKING:
    from ._paging.array import PagedArray
    from ._tiled.array import TiledArray

__all__ = [
    "AdjointReport",
    "CheckpointPart",
    "DeviceBuffer",
    "Diagnosis",
    "Effect",
    "Fidelity",
    "FidelityWarning",
    "HostBuffer",
    "PagedArray",
    "Progress",
    "Region",
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
