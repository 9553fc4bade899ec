"""Arrays of any library as dense NumPy arrays, which is what is encoded and compared here."""

from __future__ import annotations

from typing import Any

from unspool._arrays import dtype_name, numpy_dtype
from unspool.errors import ArrayError, MissingLibraryError, OptionError

__all__ = ["host_array", "is_lossy_dtype", "library", "name_of", "numpy_dtype"]

#: The dtypes that a bound applies to.
REAL = frozenset("float16 bfloat16 float32 float64 complex64 complex128".split())


def host_array(array: Any) -> Any:
    """`array` as a NumPy array in C order, in main memory and the byte order of the machine.

    What is one already, memory-mapped files included, is not copied.

    Raises:
        ArrayError: it is not an array of numbers.
        MissingLibraryError: NumPy is not installed.
    """
    numpy = library()
    found = numpy.asarray(_fetched(array))
    if found.dtype.hasobject or found.dtype.names is not None:
        raise ArrayError(
            f"items of dtype {found.dtype} cannot be encoded: pass an array of numbers, such as "
            "one field of it"
        )
    if not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    # It makes a dimension of an array that has none.
    return found if found.flags.c_contiguous else numpy.ascontiguousarray(found)


def library() -> Any:
    """NumPy.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        import numpy
    except ModuleNotFoundError as cause:
        text = "unspool.codecs works on arrays of NumPy: pip install 'unspool[numpy]'"
        raise MissingLibraryError(text, name="numpy") from cause
    return numpy


def _fetched(array: Any) -> Any:
    """Arrays that NumPy does not take by itself."""
    module = type(array).__module__.partition(".")[0]
    if module == "cupy":
        return array.get()
    if module == "torch":
        return _from_torch(array.detach().cpu())
    return array


def _from_torch(tensor: Any) -> Any:
    """NumPy has no bfloat16 of its own, which PyTorch does not know."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name != "bfloat16":
        return tensor.numpy()
    import torch

    return tensor.contiguous().view(torch.int16).numpy().view(numpy_dtype(name))


def name_of(dtype: Any) -> str:
    """The name of a dtype of numbers.

    Raises:
        ArrayError: it is none of those.
    """
    try:
        return dtype_name(dtype)
    except OptionError as cause:
        text = f"items of dtype {dtype} cannot be encoded: pass an array of numbers"
        raise ArrayError(text) from cause


def is_lossy_dtype(name: str) -> bool:
    """Whether a bound applies to this dtype."""
    return name in REAL
