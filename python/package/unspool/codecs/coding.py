"""Encoding and decoding arrays by themselves, without a spool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from unspool._arrays import numpy_dtype
from unspool._unspool import codec_checksum, codec_decode, codec_encode, codec_room
from unspool.codecs.host import host_array, is_lossy_dtype, library, name_of
from unspool.codecs.values import Achieved, Bound, NvComp, Zfp
from unspool.errors import ArrayError, CorruptCheckpointError, OptionError

__all__ = ["Encoded", "Outer", "decode", "encode", "encode_into"]

#: What may be done to encoded bytes on their way to a disk.
Outer = Literal["zstd", "lz4", "archive"]
OUTERS = ("zstd", "lz4", "archive")

Lone = Literal["raw", "lossless"] | Bound | Zfp | None


@dataclass(frozen=True, slots=True)
class Encoded:
    """An array as a codec made it; `decode` gives the array back.

    One that was made elsewhere, such as a zfp stream, is decoded by making this of its bytes.

    Attributes:
        data: the bytes.
        codec: what made them; any bound stands for all of them.
        dtype: the type of the items, such as `"float32"`.
        shape: the dimensions, slowest first.
        outer: what has shrunk the bytes afterwards, or None; also None where it would not have.
        achieved: sizes and errors; None for what was made elsewhere.
        checksum: of the bytes, which `decode` compares; None for what was made elsewhere.
    """

    data: bytes = field(repr=False)
    codec: Lone
    dtype: str
    shape: tuple[int, ...]
    outer: Outer | None = None
    achieved: Achieved | None = None
    checksum: int | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        return len(self.data)

    @property
    def ratio(self) -> float:
        """How many times smaller than the array it is."""
        raw = math.prod(self.shape) * int(numpy_dtype(self.dtype).itemsize)
        return raw / len(self.data) if self.data else 1.0


def encode(array: Any, codec: Lone = "lossless", *, outer: Outer | None = None) -> Encoded:
    """Encodes an array of numbers, on all cores.

    Arguments:
        array: of NumPy, CuPy, PyTorch or JAX; strided ones are copied first.
        codec: `"lossless"`, a `Bound`, a `Zfp`, or None for the bytes as they are. A bound on
            integers and booleans is refused.
        outer: `"zstd"` or `"lz4"` to shrink the encoded bytes further, as a disk tier may;
            `"archive"` for the smallest and slowest way.

    Raises:
        OptionError: `codec` or `outer` is none, or cannot be used for these values.
        ArrayError: it is not an array of numbers.
        MissingLibraryError: NumPy is not installed.
    """
    values = host_array(array)
    room = library().empty(room_for(values, codec, outer), "u1")
    stored, achieved, packed = encode_into(room, values, codec, outer)
    data, shape = room[:stored].tobytes(), tuple(values.shape)
    made_by, dtype = outer if packed else None, name_of(values.dtype)
    return Encoded(data, codec, dtype, shape, made_by, achieved, codec_checksum(data))


def room_for(values: Any, codec: Lone, outer: Outer | None) -> int:
    """The most bytes that `encode_into` may write for an array of NumPy in C order.

    Raises:
        OptionError, ArrayError: as for `encode`.
    """
    dtype = name_of(values.dtype)
    return codec_room(dtype, values.shape, _checked(codec, dtype), _outer(outer))


def encode_into(
    room: Any, values: Any, codec: Lone, outer: Outer | None
) -> tuple[int, Achieved, bool]:
    """Encodes an array of NumPy in C order into memory that `room_for` was asked about: how many
    bytes that took, what was achieved, and whether `outer` has shrunk them.

    Raises:
        OptionError, ArrayError: as for `encode`.
    """
    dtype = name_of(values.dtype)
    flat, wanted = values.reshape(-1).view("u1"), _checked(codec, dtype)
    made_by, stored, errors, packed = codec_encode(
        flat, dtype, values.shape, wanted, _outer(outer), room
    )
    return stored, Achieved(made_by, values.nbytes, stored, *errors), packed


def decode(encoded: Encoded, out: Any = None) -> Any:
    """The array of an `Encoded`, as one of NumPy.

    Arguments:
        out: an array of NumPy in C order to write to, instead of a new one.

    Raises:
        CorruptCheckpointError: the bytes are damaged, or of another codec, dtype or shape.
        OptionError: `encoded` names a codec that makes no bytes by itself.
        ArrayError: `out` does not fit.
        MissingLibraryError: NumPy is not installed, or `ml_dtypes` for its dtype.
    """
    if not isinstance(encoded, Encoded):
        kind = type(encoded).__name__
        raise OptionError(f"decode(...): a {kind} given; give what encode returned")
    numpy, dtype = library(), numpy_dtype(encoded.dtype)
    if encoded.checksum not in (None, codec_checksum(encoded.data)):
        raise CorruptCheckpointError(
            "decode(...): the bytes are not those that encode returned: their checksum differs. "
            "Look at how they were kept; what is damaged has to be encoded again."
        )
    target = numpy.empty(encoded.shape, dtype) if out is None else out
    _check_target(target, dtype, encoded.shape)
    codec = _checked(encoded.codec, encoded.dtype)
    flat = target.reshape(-1).view("u1")
    outer = _outer(encoded.outer)
    codec_decode(encoded.data, encoded.dtype, encoded.shape, codec, outer, flat)
    return target


def _check_target(target: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    numpy = library()
    if not isinstance(target, numpy.ndarray) or target.dtype != dtype:
        found = getattr(target, "dtype", type(target).__name__)
        raise ArrayError(f"decode(..., out): {found} given, and {dtype} is encoded")
    if target.shape != tuple(shape):
        text = f"decode(..., out): shape {target.shape} given, and {tuple(shape)} is encoded"
        raise ArrayError(text)
    if not target.flags.writeable or not target.flags.c_contiguous:
        raise ArrayError("decode(..., out): it has to be writable and in C order")


def _checked(codec: Any, dtype: str) -> Any:
    """A codec that makes bytes of an array by itself; the extension says what is none at all."""
    # Arrays compare with text item by item: only what is text may be compared with it.
    is_auto = isinstance(codec, str) and codec == "auto"
    if is_auto or isinstance(codec, NvComp):
        where = "chooses for the saves of a spool" if is_auto else "needs a GPU"
        raise OptionError(f'{codec!r} {where}; here write "lossless", a Bound or a Zfp')
    if isinstance(codec, Bound) and not is_lossy_dtype(dtype):
        raise OptionError(
            f'{codec!r} says nothing about items of dtype {dtype}: write "lossless", or convert '
            "them to floating point first"
        )
    return codec


def _outer(outer: Any) -> str | None:
    if outer is None or (isinstance(outer, str) and outer in OUTERS):
        return outer
    known = ", ".join(f'"{name}"' for name in OUTERS)
    raise OptionError(f"outer={outer!r}: write None, {known}")
