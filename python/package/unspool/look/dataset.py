"""`xarray.open_dataset(directory, engine="unspool")`, and `ds.unspool`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from .._holdings import holds_history
from .._restart.parts import holds_copies, holds_run
from ..errors import OptionError
from .checkpoints import Checkpoints
from .dims import Dims
from .layout import Layout, Numbers, Variable, each_of, warn_of

__all__ = ["Backend"]

#: The bytes that a chunk of dask has at most, where an array can be read in parts.
CHUNK = 1 << 27


class Backend(BackendEntrypoint):
    """Histories of a spool, runs of a Checkpointer and their copies as datasets of xarray.

    Arrays are variables along the dimension `step`, numbers and texts are coordinates along it.
    All of it is read when it is asked for. What cannot be part of the dataset is named by a
    `RuntimeWarning` and in `ds.unspool.left_out`.
    """

    description = "Histories and checkpoints of Unspool"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "dims", "dim")

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        dims: Dims = None,
        dim: str = "step",
    ) -> xr.Dataset:
        """A dataset of the checkpoints at a path, as they are now.

        Arguments:
            filename_or_obj: the directory of a durable history, the folder of a run, or a place of
                copies such as `s3://bucket/run`.
            drop_variables: names that are left out.
            dims: names of the dimensions of arrays: one sequence for all arrays of as many
                dimensions, or a mapping from names of arrays.
            dim: the name of the dimension of the steps.

        Raises:
            OptionError: the path holds no checkpoints, or names of dimensions do not fit.
        """
        given = (drop_variables,) if isinstance(drop_variables, str) else drop_variables
        skip = tuple(given or ())
        checkpoints = Checkpoints(filename_or_obj)
        try:
            layout = Layout(checkpoints, dims, dim, skip)
            dataset = _dataset(checkpoints, layout)
        except BaseException:
            checkpoints.close()
            raise
        dataset.set_close(checkpoints.close)
        options = {"drop_variables": skip, "dims": dims, "dim": dim}
        dataset.encoding = {
            "source": str(checkpoints.place),
            "unspool": (options, tuple(layout.left_out)),
        }
        warn_of(str(checkpoints.place), layout.left_out, "ds.unspool.left_out")
        return dataset

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a directory with checkpoints."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        if "://" in str(filename_or_obj):
            return False
        path = Path(filename_or_obj)
        return path.is_dir() and (holds_run(path) or holds_copies(path) or holds_history(path))


class _Accessor:
    """`ds.unspool` of a dataset that was opened here."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @property
    def left_out(self) -> list[str]:
        """What is at the path and not in the dataset, each as a sentence."""
        return list(self._opened()[1])

    def _opened(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """How it was opened, and what was left out.

        Raises:
            OptionError: it was opened elsewhere.
        """
        try:
            found: tuple[dict[str, Any], tuple[str, ...]] = self._dataset.encoding["unspool"]
        except KeyError:
            text = 'ds.unspool is of datasets that xarray.open_dataset(..., engine="unspool") gave'
            raise OptionError(text) from None
        return found

    def refresh(self) -> xr.Dataset:
        """The dataset as it is now, in chunks as this one. This one stays as it was."""
        options, _ = self._opened()
        source = self._dataset.encoding["source"]
        dataset = xr.open_dataset(source, engine=Backend, **options)
        chunks = {dim: sizes[0] for dim, sizes in self._dataset.chunksizes.items()}
        return dataset.chunk(chunks) if chunks else dataset


_register: Any = xr.register_dataset_accessor
_register("unspool")(_Accessor)


def _dataset(checkpoints: Checkpoints, layout: Layout) -> xr.Dataset:
    variables: dict[str, xr.Variable] = {}
    coords = {along: _steps(along, steps) for steps, along in layout.dims.items()}
    for name, one in layout.variables.items():
        data = indexing.LazilyIndexedArray(_Along(checkpoints, one))
        variables[name] = xr.Variable(one.dims, data, one.attrs, {"preferred_chunks": _chunks(one)})
    for name, numbers in layout.numbers.items():
        coords[name] = xr.Variable((numbers.dim,), indexing.LazilyIndexedArray(_OfSteps(numbers)))
    # Coordinates by themselves: a dataset would read them for an index.
    return xr.Dataset(variables, coords=xr.Coordinates(coords))


def _steps(dim: str, steps: Sequence[int]) -> xr.Variable:
    return xr.Variable((dim,), np.array(steps, "int64"))


class _Along(BackendArray):
    """An array along the steps. Of each step only that is read which is asked for."""

    def __init__(self, checkpoints: Checkpoints, variable: Variable) -> None:
        self._checkpoints, self._variable = checkpoints, variable
        self.shape = (len(variable.steps), *variable.shape)
        self.dtype = variable.dtype

    def __getitem__(self, key: Any) -> Any:
        """What an index of xarray asks for."""
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        region = tuple(_block(index) for index in key[1:])
        within = [
            index - index.min() if isinstance(index, np.ndarray) and index.size else None
            for index in key[1:]
            if not isinstance(index, int | np.integer)
        ]
        steps = np.array(self._variable.steps)[key[0]]

        def read(step: int) -> Any:
            found = self._checkpoints.read(int(step), self._variable.name, region or ...)
            return _picked(found, within)

        if steps.ndim == 0:
            return read(int(steps))
        parts = each_of(read, steps.tolist())
        if not parts:
            nothing = np.broadcast_to(np.zeros((), self.dtype), self._variable.shape)[region]
            return np.array(_picked(nothing, within)[None][:0])
        return np.stack(parts)


class _OfSteps(BackendArray):
    """A number or text along the steps."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self.shape, self.dtype = (len(numbers.steps),), np.dtype(numbers.dtype)

    def __getitem__(self, key: Any) -> Any:
        """What an index of xarray asks for."""
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        steps = np.array(self._numbers.steps)[key[0]]
        found = np.empty(steps.size, self.dtype)
        found[:] = self._numbers.values(steps.reshape(-1).tolist())
        return found.reshape(steps.shape)


def _block(index: Any) -> Any:
    """What is read along an axis for an index."""
    if isinstance(index, np.ndarray):
        return slice(int(index.min()), int(index.max()) + 1) if index.size else slice(0, 0)
    return index if isinstance(index, slice) else int(index)


def _picked(found: Any, within: list[Any]) -> Any:
    """The items at these places along each axis; None takes all."""
    for axis, places in enumerate(within):
        if places is not None:
            found = np.take(found, places, axis)
    return found


def _chunks(one: Variable) -> dict[str, int]:
    """A chunk of dask for each step; a long array is cut along its first axis."""
    chunks = dict(zip(one.dims, (1, *one.shape), strict=True))
    nbytes = int(np.prod(one.shape, dtype="int64")) * one.dtype.itemsize
    if one.is_in_parts and one.shape and nbytes > CHUNK:
        chunks[one.dims[1]] = max(1, one.shape[0] * CHUNK // nbytes)
    return chunks
