"""`unspool.tiled`: arrays larger than memory whose tiles are read, written and read again."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._types import Disk
from .._unspool import Spool
from ..errors import MissingLibraryError, OptionError

if TYPE_CHECKING:
    from ..codecs.values import Codec
    from .array import TiledArray

__all__ = ["tiled"]


def tiled(
    shape: int | Sequence[int],
    dtype: Any = float,
    *,
    tile: int | str | Sequence[int] = "16MiB",
    device_memory: int | float | str | None = None,
    host_memory: int | float | str | None = None,
    disk: Disk | str | os.PathLike[str] | tuple[Any, Any] | None = None,
    codec: Codec = "lossless",
    fill: complex = 0,
    to: Literal["auto", "numpy", "cupy", "torch"] | None = "auto",
    **options: Any,
) -> TiledArray:
    """An array that is larger than memory and is worked on tile by tile: each is read, computed
    on, written, and read again later. In between it lies encoded in the tiers of a spool, which
    brings it back before its turn when the order is known.

    Args:
        shape: its shape, in C order.
        dtype: its dtype: numbers and booleans.
        tile: how it is cut: rows of the first axis as an integer; as many rows as have so many
            bytes, as text; or the shape of a tile. 8 to 64 MiB suit a GPU. Tiles at the ends are
            smaller where the shape is not a multiple.
        device_memory: the size of the device tier, as for `Spool`.
        host_memory: the size of the host tier, as for `Spool`. One of the two is needed.
        disk: the disk tier, as for `Spool`; not a durable one.
        codec: how tiles are encoded: `"lossless"`, None for not at all, or another one as for
            `Spool`. A `Bound` holds against what was written last: each time that a tile is
            rewritten may add the bound once more (`TiledStats.lossy_most`).
        fill: what tiles hold before they are written.
        to: the library of the arrays that blocks give: `"numpy"`, `"cupy"`, `"torch"`, or None for
            the buffers of `Spool.writing`. `"auto"` takes CuPy for a device tier on a GPU, else
            NumPy.
        options: further options of `Spool`, such as `timeout` and `device`.

    Raises:
        OptionError: an argument makes no sense.
        StorageError, DeviceError: as for `Spool`.
        MissingLibraryError: NumPy is not installed.
    """
    try:
        module = importlib.import_module("unspool._tiled.array")
    except ModuleNotFoundError as missing:
        raise MissingLibraryError("tiled() needs NumPy: pip install numpy.") from missing
    if isinstance(disk, Disk) and (disk.durable or disk.mode != "a"):
        raise OptionError(
            f"tiled(disk={disk!r}): the tiles are gone with the array; give a Disk that is not "
            "durable."
        )
    for name in ("learn", "accumulate", "profile"):
        if name in options:
            raise OptionError(f"tiled({name}=...): the tiles of an array are not kept that way.")
    if isinstance(codec, Mapping):
        raise OptionError(f"tiled(codec={codec!r}): all tiles of an array have one codec.")
    if device_memory is None and host_memory is None:
        raise OptionError("tiled() computes in memory: give device_memory= or host_memory= a size.")
    name, found = module.checked_dtype(dtype)
    grid = module.grid_of(shape, tile, found.itemsize)
    value = module.checked_fill(fill, found)
    if to not in ("auto", "numpy", "cupy", "torch", None):
        raise OptionError(f'tiled(to={to!r}): write "numpy", "cupy", "torch", "auto" or None.')
    memory: dict[str, Any] = {"device_memory": device_memory, "host_memory": host_memory}
    spool = Spool(**memory, disk=disk, codec=codec, learn=False, **options)
    made: TiledArray = module.TiledArray(grid, name, value, spool, to, codec)
    return made
