"""New arrays for `Spool.load`, and arrays over the memory of `Spool.writing` and `Spool.reading`.

For a load the extension calls `allocate`, fills the array, and calls `finish`. Nothing is imported
before it is asked for: the package itself needs no library of arrays.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

from . import _structures
from ._types import Region
from ._unspool import DeviceBuffer
from .errors import ArrayError, MissingLibraryError, OptionError

_LIBRARIES = ("numpy", "cupy", "torch", "jax")

# How DLPack's dtypes are called that JAX takes over without a copy.
_JAX_BY_DLPACK = frozenset(
    """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    complex64 complex128""".split()
)

# The dtypes that can be computed in place.
_NAMES = _JAX_BY_DLPACK | frozenset(
    """complex32 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz
    float8_e5m2 float8_e5m2fnuz float8_e8m0fnu""".split()
)

# The alignment from which on JAX takes memory over without a copy.
_JAX_ALIGNMENT = 64


def device_for(to: str, device: str | None, own: int | None) -> int | None:
    """The number of the GPU on which new arrays of `to` are made; None for the CPU, -1 for where
    the library makes its arrays by itself.

    `device` is what the caller asked for, `own` the GPU of the spool.

    Raises:
        OptionError: there is no such library or device here, or not both together.
    """
    if to not in _LIBRARIES:
        known = ", ".join(repr(name) for name in _LIBRARIES)
        raise OptionError(f"to={to!r}: there is no such library here; write one of {known}.")
    if device is None:
        default = {"numpy": None, "cupy": -1 if own is None else own}
        return _jax_gpu(own) if to == "jax" else default.get(to, own)
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise OptionError(f'device={device!r}: write "cpu", "cuda" or "cuda:" and a number.')
    if (kind, to) in (("cpu", "cupy"), ("cuda", "numpy")):
        raise OptionError(f"device={device!r}: arrays of {to} are never there.")
    if kind == "cpu":
        return None
    return int(number) if number else (own or 0)


def _jax_gpu(own: int | None) -> int:
    """The GPU of the spool, if JAX uses GPUs at all."""
    return own if own is not None and _library("jax").default_backend() == "gpu" else -1


def place_of(array: Any) -> str | None:
    """The device of an array of PyTorch or CuPy: `"cuda"` for the current GPU, `"cuda:1"` and so on
    for another one, None for the CPU."""
    device = array.device
    if type(array).__module__.partition(".")[0] == "cupy":
        current, number = _library("cupy").cuda.Device().id, device.id
    elif device.type != "cuda":
        return None
    else:
        current, number = _library("torch").cuda.current_device(), device.index
    return "cuda" if number == current else f"cuda:{number}"


def device_again(library: str, place: str | None) -> int | None:
    """The number of the device for what was at `place_of`; that of the current GPU, or the CPU,
    where there is no such one."""
    if library == "jax":
        return -1
    if library == "cupy":
        return _number(place, _library("cupy").cuda.runtime.getDeviceCount(), -1)
    if library != "torch" or place is None or not _library("torch").cuda.is_available():
        return None
    cuda = _library("torch").cuda
    return _number(place, cuda.device_count(), cuda.current_device())


def _number(place: str | None, gpus: int, current: int) -> int:
    number = (place or "").partition(":")[2]
    return int(number) if number and int(number) < gpus else current


def fits(array: Any, library: str, region: Region) -> bool:
    """Whether a region can be restored into an array as it is."""
    if type(array).__module__.partition(".")[0] != library or tuple(array.shape) != region.shape:
        return False
    if library == "torch":
        plain = array.layout == _library("torch").strided and not array.requires_grad
        same = str(array.dtype) == f"torch.{region.dtype}"
        return plain and same and array.device.type != "meta" and array.is_contiguous()
    return (
        library in ("numpy", "cupy")
        and bool(array.dtype == numpy_dtype(region.dtype) and array.flags.c_contiguous)
        and getattr(array.flags, "writeable", True)
    )


def as_bytes(array: Any) -> bytes:
    """The bytes of an array on the CPU or a GPU, whatever library it is of."""
    return array.tobytes() if hasattr(array, "tobytes") else bytes(array.tolist())


def jax_takes(dtype: str) -> bool:
    """Whether JAX takes memory of a GPU with this dtype over without a copy.

    Raises:
        ArrayError: JAX has no such dtype.
    """
    _check_jax_dtype(dtype)
    return dtype in _JAX_BY_DLPACK


def allocate(shape: tuple[int, ...], dtype: str, to: str, device: int | None) -> Any:
    """An array of `shape` and `dtype` whose content is unspecified, to be filled.

    `device` is what `device_for` said. Arrays for JAX are made on the CPU first.

    Raises:
        MissingLibraryError: the library is not installed.
        ArrayError: the library has no such dtype.
    """
    if to == "numpy":
        return _library("numpy").empty(shape, numpy_dtype(dtype))
    if to == "torch":
        place = "cpu" if device is None else f"cuda:{device}"
        return _library("torch").empty(shape, dtype=_torch_dtype(dtype), device=place)
    if to == "cupy":
        return _cupy_empty(shape, dtype, device)
    _check_jax_dtype(dtype)
    return _aligned(shape, numpy_dtype(dtype))


def finish(array: Any, to: str, device: int | None) -> Any:
    """What the caller gets: the filled array, as an array of the library `to`."""
    if to != "jax":
        return array
    jax = _library("jax")
    if isinstance(array, DeviceBuffer):
        return jax.dlpack.from_dlpack(array)
    if device is None:
        return jax.device_put(array, jax.devices("cpu")[0])
    return (
        jax.device_put(array) if device < 0 else jax.device_put(array, jax.devices("cuda")[device])
    )


def memory(count: int) -> Any:
    """So many bytes, whose content is unspecified."""
    return _library("numpy").empty(count, "uint8")


def converted(array: Any, dtype: str, to: str, device: int | None) -> Any:
    """An array of NumPy, whose dtype in a checkpoint is `dtype`, as one of the library `to`.

    Raises:
        MissingLibraryError, ArrayError: as `allocate`.
    """
    dense = _library("numpy").require(array, requirements=["C", "A", "W"])
    if to == "numpy":
        return dense
    target = allocate(array.shape, dtype, to, device)
    if to == "jax":
        target[...] = dense
        return finish(target, to, device)
    plain = dense.reshape(-1).view("uint8")
    if plain.size and to == "torch":
        source = _library("torch").frombuffer(plain, dtype=target.dtype)
        target.reshape(-1).copy_(source)
    elif plain.size:
        target.reshape(-1).view("uint8").set(plain)
    return target


def adopt(buffer: Any, to: str) -> Any:
    """A buffer of the spool as an array of the library `to`, over the same memory.

    Raises:
        OptionError: the library cannot use memory that lies there.
        MissingLibraryError, ArrayError: as for `allocate`.
    """
    on_gpu = isinstance(buffer, DeviceBuffer)
    if to == "numpy" and not on_gpu:
        dtype, array = numpy_dtype(buffer.dtype), _library("numpy").asarray(buffer)
        return array if array.dtype == dtype else array.view(dtype)
    if to == "cupy" and on_gpu:
        return _cupy_over(buffer)
    if to == "torch":
        return _torch_over(buffer)
    if to == "jax":
        return _library("jax").dlpack.from_dlpack(buffer)
    if to in ("numpy", "cupy"):
        raise OptionError(
            f"to={to!r}: the memory lies on {buffer.device!r}, where {to} cannot use it; "
            f"load(..., to={to!r}) makes a copy."
        )
    known = ", ".join(repr(name) for name in _LIBRARIES)
    raise OptionError(f"to={to!r}: there is no such library here; write one of {known}.")


def close_to_writes(array: Any) -> None:
    """Makes an array of NumPy read-only; those of other libraries cannot be."""
    if type(array).__module__ == "numpy":
        array.flags.writeable = False


def dtype_name(dtype: Any) -> str:
    """What a checkpoint calls a dtype: that of PyTorch, NumPy, JAX, or its name.

    Raises:
        OptionError: it is not a dtype of numbers.
    """
    text = str(dtype) if isinstance(dtype, str) or type(dtype).__module__ == "torch" else ""
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    if text in _NAMES:
        return text
    try:
        found = _library("numpy").dtype(dtype)
    except TypeError as cause:
        raise OptionError(f"writing(...): {dtype!r} is not a dtype.") from cause
    name: str = found.name
    if name not in _NAMES or not found.isnative:
        message = f"writing(...): only numbers can be computed in place, and {dtype!r} is none."
        raise OptionError(message)
    return name


def _cupy_empty(shape: tuple[int, ...], dtype: str, device: int | None) -> Any:
    cupy = _library("cupy")
    wanted = _cupy_dtype(dtype)
    if device is None or device < 0:
        return cupy.empty(shape, wanted)
    with cupy.cuda.Device(device):
        return cupy.empty(shape, wanted)


def _cupy_dtype(dtype: str) -> Any:
    found = numpy_dtype(dtype)
    if found.kind in "biufc" or dtype == "bfloat16":
        return found
    raise ArrayError(f"CuPy has no dtype {dtype}: use load(..., to='numpy')")


def _cupy_over(buffer: Any) -> Any:
    cupy = _library("cupy")
    number = int(buffer.device.removeprefix("cuda:"))
    memory = cupy.cuda.UnownedMemory(buffer.ptr, buffer.nbytes, buffer, number)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(buffer.shape, _cupy_dtype(buffer.dtype), pointer)


def _torch_over(buffer: Any) -> Any:
    torch = _library("torch")
    dtype = _torch_dtype(buffer.dtype)
    # PyTorch has dtypes that its DLPack does not know: their bytes are what counts.
    try:
        return torch.from_dlpack(buffer)
    except (BufferError, RuntimeError, TypeError) as refusal:
        message = f"PyTorch does not take {dtype} over by DLPack: {refusal}"
        raise ArrayError(message) from refusal


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        package = "cupy-cuda13x" if name == "cupy" else name
        message = f"to={name!r} needs {name}: pip install {package}"
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
        raise ArrayError(message)
    return numpy.dtype(found)


def _opaque_dtype(numpy: Any, size: int, tag: str) -> Any:
    if tag.startswith("numpy:"):
        spelled = tag.removeprefix("numpy:")
        if spelled.startswith(("[", "{")):
            return _structures.dtype_of(spelled, numpy_dtype)
        return numpy.dtype(spelled)
    if tag.removesuffix("x").isdecimal() or tag == "x":
        return numpy.dtype((numpy.void, size))
    return _structures.described_dtype(numpy, size, tag)


def _torch_dtype(dtype: str) -> Any:
    torch = _library("torch")
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise ArrayError(f"PyTorch has no dtype {dtype}: use load(..., to='numpy')")
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
        raise ArrayError(message)
    if dtype.startswith("opaque"):
        raise ArrayError(f"JAX has no dtype {dtype}: use load(..., to='numpy')")


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """A NumPy array whose memory JAX can take over as it is."""
    numpy = _library("numpy")
    length = math.prod(shape) * dtype.itemsize
    block = numpy.empty(length + _JAX_ALIGNMENT, numpy.uint8)
    first = -block.ctypes.data % _JAX_ALIGNMENT
    return block[first : first + length].view(dtype).reshape(shape)
