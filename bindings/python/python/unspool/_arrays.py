"""New arrays for `Spool.load`. The extension calls `allocate`, fills the array, and calls `finish`.

Nothing is imported before it is asked for: the package itself needs no library of arrays.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import math
from typing import Any

from ._unspool import Exporter
from .errors import MissingLibraryError, OptionError, UnsupportedArrayError

_LIBRARIES = ("numpy", "torch", "jax")

# The alignment from which on JAX takes memory over without a copy.
_JAX_ALIGNMENT = 64


def allocate(shape: tuple[int, ...], dtype: str, to: str) -> Any:
    """An array of `shape` and `dtype` whose content is unspecified, to be filled.

    Raises:
        OptionError: `to` names no library that is known here.
        MissingLibraryError: the library is not installed.
        UnsupportedArrayError: the library has no such dtype.
    """
    if to == "numpy":
        return _library("numpy").empty(shape, numpy_dtype(dtype))
    if to == "torch":
        return _library("torch").empty(shape, dtype=_torch_dtype(dtype))
    if to == "jax":
        _check_jax_dtype(dtype)
        return _aligned(shape, numpy_dtype(dtype))
    known = ", ".join(repr(name) for name in _LIBRARIES)
    raise OptionError(f"load(..., to={to!r}): there is no such library here; write one of {known}.")


def finish(array: Any, to: str) -> Any:
    """What the caller gets: the filled array, as an array of the library `to`."""
    return _library("jax").device_put(array) if to == "jax" else array


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        message = f"load(..., to={name!r}) needs {name}: pip install {name}"
        raise MissingLibraryError(message, name=name) from cause


@functools.lru_cache(maxsize=256)
def numpy_dtype(dtype: str) -> Any:
    """The NumPy dtype that is called `dtype` in a checkpoint."""
    numpy = _library("numpy")
    if dtype.startswith("opaque"):
        size, _, tag = dtype.removeprefix("opaque").partition(":")
        return _opaque_dtype(numpy, int(size), tag)
    try:
        return numpy.dtype(dtype)
    except TypeError:
        return _extended_dtype(numpy, dtype)


def _extended_dtype(numpy: Any, dtype: str) -> Any:
    """A dtype that NumPy itself does not have: bfloat16, the float8 kinds, int4, ..."""
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
    except ImportError as cause:
        message = (
            f"NumPy has no dtype {dtype}: install ml_dtypes (pip install ml_dtypes), which adds "
            f'it, or load to another library, such as load(..., to="torch")'
        )
        raise MissingLibraryError(message, name="ml_dtypes") from cause
    found = getattr(ml_dtypes, dtype, None)
    if found is None:
        message = f"NumPy has no dtype {dtype}, not even with ml_dtypes; restore() into an array"
        raise UnsupportedArrayError(message)
    return numpy.dtype(found)


def _opaque_dtype(numpy: Any, size: int, tag: str) -> Any:
    if tag.startswith("numpy:"):
        spelled = tag.removeprefix("numpy:")
        if spelled.startswith("["):
            return numpy.lib.format.descr_to_dtype(ast.literal_eval(spelled))
        return numpy.dtype(spelled)
    if tag.removesuffix("x").isdecimal() or tag == "x":
        return numpy.dtype((numpy.void, size))
    return _described_dtype(numpy, size, tag)


def _described_dtype(numpy: Any, size: int, tag: str) -> Any:
    """The dtype with this format. NumPy leaves the padding at the end of a structure out when it
    writes a format, and insists on it when it reads one: as much is added as it takes."""
    for padding in range(size):
        described = f"{tag[:-1]}{'x' * padding}}}" if padding else tag
        with contextlib.suppress(RuntimeError, ValueError):
            return numpy.asarray(Exporter(described, size)).dtype
    message = f"NumPy cannot read the item format {tag!r} of {size} bytes; restore() into an array"
    raise UnsupportedArrayError(message)


def _torch_dtype(dtype: str) -> Any:
    torch = _library("torch")
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedArrayError(f"PyTorch has no dtype {dtype}: use load(..., to='numpy')")
    return found


def _check_jax_dtype(dtype: str) -> None:
    """JAX halves 64-bit dtypes without a word unless it was told to keep them."""
    jax = _library("jax")
    wide = dtype in ("int64", "uint64", "float64", "complex128")
    if wide and not jax.config.jax_enable_x64:
        message = (
            f"JAX keeps no {dtype} unless it is told to: call "
            f'jax.config.update("jax_enable_x64", True) first, or use load(..., to="numpy")'
        )
        raise UnsupportedArrayError(message)
    if dtype.startswith("opaque"):
        raise UnsupportedArrayError(f"JAX has no dtype {dtype}: use load(..., to='numpy')")


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """A NumPy array whose memory JAX can take over as it is."""
    numpy = _library("numpy")
    length = math.prod(shape) * dtype.itemsize
    block = numpy.empty(length + _JAX_ALIGNMENT, numpy.uint8)
    first = -block.ctypes.data % _JAX_ALIGNMENT
    return block[first : first + length].view(dtype).reshape(shape)
