"""`unspool.look.zarr_store`, without Zarr until it is called."""

from __future__ import annotations

from typing import Any

from .._files import AnyPath
from ..errors import MissingLibraryError
from .dims import Dims
from .layout import warn_of

__all__ = ["zarr_store"]


def zarr_store(path: AnyPath, *, dims: Dims = None, dim: str = "step") -> Any:
    """A read-only store of Zarr, version 3, over a durable history, the folder of a run or a place
    of copies, as it is now: `zarr.open_group(unspool.look.zarr_store("run"), mode="r")`.

    Arrays have the steps as their first dimension, and the names of dimensions that
    `xarray.open_dataset(path, engine="unspool")` gives. A chunk is a step, or a slice of one of at
    most 1 MiB where the array is not encoded. What cannot be in the store is named by a
    `RuntimeWarning` and in its attribute `left_out`.

    Arguments:
        path: a directory, or a place of copies such as `"s3://bucket/run"`.
        dims: names of the dimensions of arrays: one sequence for all arrays of as many dimensions,
            or a mapping from names of arrays.
        dim: the name of the dimension of the steps.

    Raises:
        MissingLibraryError: Zarr is not installed.
        OptionError: the path holds no checkpoints, or names of dimensions do not fit.
    """
    try:
        from .store import CheckpointStore
    except ImportError as why:
        text = f"zarr_store(...) needs zarr: pip install 'unspool[zarr]' ({why})"
        raise MissingLibraryError(text, name="zarr") from why
    store = CheckpointStore(path, dims=dims, dim=dim)
    warn_of(str(path), store.left_out, "store.left_out")
    return store
