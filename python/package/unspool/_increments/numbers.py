"""Arrays as whole numbers, whose differences are exact, and whole numbers as arrays.

An array with a bound becomes two arrays of whole numbers of its own width. One has multiples of a
step, as Twine makes them (docs/reference/twine.md, mode 1). The other has the bits of those values
that no multiple holds within the bound (NaN, infinities, what is too large), and 0 elsewhere: no
such value has the bits 0. So nothing depends on the values, and on a GPU nothing waits to look at
them. An array without a bound becomes its own bits. A complex array is two of real numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._arrays import dtype_name, numpy_dtype
from ..errors import ArrayError, OptionError

__all__ = ["Form", "Grid", "Place", "as_array", "decoded", "encoded", "on_stream", "place_of"]


class Place(NamedTuple):
    """The module of a library of arrays, such as `"torch"`, and the number of its GPU, as
    `unspool._arrays.allocate` takes them."""

    module: str
    device: int | None


@dataclass(frozen=True, slots=True)
class Grid:
    """The multiples of a step that values become. All numbers are those of the arithmetic type.

    Attributes:
        error: the largest error that is let through; smaller than the bound by more than it and a
            difference are rounded by, so that the bound holds in real numbers.
        step: twice that, exactly.
        inverse: 1 / step.
        limit: multiples are smaller than this.
    """

    error: float
    step: float
    inverse: float
    limit: float

    @classmethod
    def of(cls, bound: float, dtype: str) -> Grid | None:
        """That of an absolute bound; None where no dtype but the bits themselves is so exact.

        The error is far from the ends of the dtype: `step`, `inverse` and all multiples but 0 are
        normal numbers, also on a processor that takes subnormal ones as 0.
        """
        if dtype in ("float64", "complex128"):
            error, least, limit = min(bound * (1 - 2.0**-48), 2.0**1021), 2.0**-900, 2.0**52
            inverse = 0.5 / error if error >= least else 0.0
        else:
            error, least, limit = _single(min(bound * (1 - 2.0**-21), 2.0**125)), 2.0**-100, 1e9
            inverse = _single(0.5 / error) if error >= least else 0.0
        return cls(error, 2 * error, inverse, limit) if error >= least else None


@dataclass(frozen=True, slots=True)
class Form:
    """What has to be known of an array to make it of whole numbers again.

    Attributes:
        shape: its dimensions.
        dtype: the name of its dtype.
        size: the bytes of an item, of its real part where it is complex.
        grid: that of its bound; None where it has none.
    """

    shape: tuple[int, ...]
    dtype: str
    size: int
    grid: Grid | None

    @classmethod
    def of(cls, array: Any, bound: float | None, name: str) -> Form:
        """That of an array.

        Raises:
            ArrayError: its items are not numbers.
        """
        try:
            dtype = dtype_name(array.dtype)
        except OptionError as why:
            raise ArrayError(
                f"The array {name!r} has items of dtype {array.dtype}, and only numbers in the "
                "byte order of the machine have differences. Save such arrays in a spool of their "
                "own."
            ) from why
        size = array.dtype.itemsize // (2 if dtype.startswith("complex") else 1)
        lossy = dtype in ("float32", "float64", "complex64", "complex128")
        grid = Grid.of(bound, dtype) if lossy and bound is not None else None
        return cls(tuple(array.shape), dtype, size, grid)

    @property
    def real(self) -> str:
        """The dtype of its values, of their parts where they are complex."""
        return f"float{8 * self.size}" if self.dtype.startswith("complex") else self.dtype

    @property
    def whole(self) -> str:
        """The dtype of its whole numbers."""
        return f"int{8 * self.size}"

    @property
    def arrays(self) -> int:
        """How many arrays of whole numbers it becomes."""
        return (2 if self.grid else 1) * (2 if self.dtype.startswith("complex") else 1)


def encoded(array: Any, form: Form, place: Place) -> Iterator[Any]:
    """The arrays of whole numbers of an array of this form; nothing is shared with it."""
    library, grid = place.module, form.grid
    xp, whole = _namespace(library), _dtype(library, form.whole)
    for part in (array.real, array.imag) if form.dtype.startswith("complex") else (array,):
        # An array without dimensions would come out of arithmetic as a number.
        values = xp.atleast_1d(part)
        bits = values.view(whole)
        if grid is None:
            yield bits + 0
            continue
        with _quietly(library):
            scaled = values * grid.inverse
            fits = xp.abs(scaled) < grid.limit
            # What is cast of numbers that do not fit is unspecified, and is not kept.
            number = _cast(xp.round(scaled), whole, library)
            error = _cast(number, values.dtype, library)
            error *= grid.step
            error -= values
            fits &= xp.abs(error) <= grid.error
            number *= fits
        yield number
        yield bits * ~fits


def decoded(numbers: list[Any], form: Form, place: Place) -> Any:
    """A new array of this form: what the whole numbers were made of, within its bound."""
    library, grid = place.module, form.grid
    xp, real = _namespace(library), _dtype(library, form.real)
    parts = []
    for at in range(0, len(numbers), 2 if grid else 1):
        if grid is None:
            parts.append((numbers[at] + 0).view(real))
        else:
            number, bits = _cast(numbers[at], real, library), numbers[at + 1]
            parts.append(xp.where(bits == 0, number * grid.step, bits.view(real)))
    if not form.dtype.startswith("complex"):
        found = parts[0]
    elif library in ("numpy", "cupy"):
        found = xp.stack(parts, -1).view(numpy_dtype(form.dtype))
    else:
        found = (importlib.import_module("jax.lax") if library == "jax" else xp).complex(*parts)
    return found.reshape(form.shape)


def place_of(array: Any) -> Place:
    """Where an array that `as_array` gave lies."""
    library = _library_of(array) or "numpy"
    if library == "numpy":
        return Place(library, None)
    if library == "cupy":
        return Place(library, array.device.id)
    if library == "torch":
        return Place(library, array.device.index if array.is_cuda else None)
    (device,) = array.devices()
    return Place(library, None if device.platform == "cpu" else device.id)


def as_array(array: Any, name: str, *, written: bool = False) -> Any:
    """An array of a library that computes, over the same memory.

    Raises:
        ArrayError: there is none; or it is to be written and cannot be.
    """
    library = _library_of(array)
    if library == "jax" and written:
        raise ArrayError(f"The array {name!r} is one of JAX, which never change: use load().")
    if library == "torch":
        return array.detach().resolve_conj().resolve_neg()
    if library in ("cupy", "jax"):
        return array
    numpy = importlib.import_module("numpy")
    try:
        found = numpy.asarray(array if library == "numpy" else memoryview(array))
    except TypeError as why:
        raise ArrayError(
            f"{name!r} is a {type(array).__name__}: increments are computed by the library of the "
            "arrays, and these are NumPy, CuPy, PyTorch and JAX. Give an array of one of them over "
            "the same memory."
        ) from why
    if written and not found.flags.writeable:
        raise ArrayError(f"The array {name!r} is read-only: nothing can be restored into it.")
    return found


@contextlib.contextmanager
def on_stream(stream: Any, places: tuple[Place, ...]) -> Iterator[int | None]:
    """Has libraries of arrays on a GPU compute on `stream`, or on their own current one if it is
    None; gives the handle of that stream, None where all arrays are in main memory.

    Raises:
        ArrayError: the arrays are on several GPUs or of several libraries there.
    """
    gpus = {place for place in places if place.module != "jax" and place.device is not None}
    if len(gpus) > 1:
        raise ArrayError(f"The arrays of one save have to be on one GPU, of one library: {gpus}.")
    if not gpus:
        yield None
        return
    ((library, device),) = gpus
    cuda = importlib.import_module(f"{library}.cuda")
    with contextlib.ExitStack() as stack:
        stack.enter_context((cuda.Device if library == "cupy" else cuda.device)(device))
        if stream is not None:
            handle = _handle(stream)
            if library == "cupy":
                made = getattr(cuda.Stream, "from_external", None)
                # CuPy before 14 has the older name alone, which newer ones warn of.
                given = cuda.ExternalStream(handle) if made is None else made(_Foreign(handle))
                stack.enter_context(given)
            else:
                stack.enter_context(cuda.stream(cuda.ExternalStream(handle)))
        if library == "cupy":
            yield cuda.get_current_stream().ptr
        else:
            yield cuda.current_stream().cuda_stream


class _Foreign:
    """A stream that something else owns, in the protocol of CUDA's packages for Python."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, and the handle."""
        return 0, self._handle


def _handle(stream: Any) -> int:
    """The handle of a stream of CuPy, of PyTorch, with `__cuda_stream__`, or itself."""
    for name in ("ptr", "cuda_stream"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else stream)


def _library_of(array: Any) -> str | None:
    """The library whose class an array has, or whose class that extends."""
    for kind in type(array).__mro__:
        root = kind.__module__.partition(".")[0]
        found = "jax" if root == "jaxlib" else root
        if found in ("numpy", "cupy", "torch", "jax") and hasattr(array, "shape"):
            return found
    return None


def _namespace(library: str) -> Any:
    return importlib.import_module("jax.numpy" if library == "jax" else library)


def _dtype(library: str, name: str) -> Any:
    return getattr(_namespace(library), name) if library == "torch" else numpy_dtype(name)


def _cast(array: Any, dtype: Any, library: str) -> Any:
    return array.to(dtype) if library == "torch" else array.astype(dtype)


def _quietly(library: str) -> Any:
    """No warnings of NumPy's: what overflows, and what NaN does, is looked at here."""
    if library != "numpy":
        return contextlib.nullcontext()
    return importlib.import_module("numpy").errstate(all="ignore")


def _single(number: float) -> float:
    """The nearest number of 32 bits."""
    (found,) = struct.unpack("f", struct.pack("f", number))
    return float(found)
