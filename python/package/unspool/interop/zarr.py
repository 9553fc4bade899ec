"""Twine as a codec of Zarr, version 3: arrays that are written to Zarr by other programs.

import zarr
from unspool import Bound
from unspool.interop.zarr import Twine

u = zarr.create_array("u.zarr", shape=(100, 512, 512), chunks=(1, 512, 512), dtype="f4",
                      serializer=Twine(Bound(abs=1e-4)), compressors=None)

Who reads such an array needs Unspool installed, and imports nothing: Zarr finds the codec by its
name, `unspool.twine`. A chunk is a stream of Twine, as the reference has it, and then the checksum
of its bytes.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any, Self

from zarr.abc.codec import ArrayBytesCodec

from .._unspool import codec_checksum
from ..codecs import Bound, Encoded, decode, encode
from ..codecs.host import is_lossy_dtype, name_of
from ..errors import CorruptCheckpointError, OptionError

__all__ = ["Twine"]

#: The name of the codec in the metadata of arrays.
NAME = "unspool.twine"

#: The bytes of the checksum after a stream.
FOOT = 8


@dataclass(frozen=True)
class Twine(ArrayBytesCodec):
    """The serializer of an array of Zarr: `serializer=Twine(Bound(abs=1e-4))`.

    Bytes are not compressed further by the compressors that Zarr takes by itself: pass
    `compressors=None`.

    Attributes:
        bound: how far values may be from those that were written; None loses nothing.

    Raises:
        OptionError: `bound` is none, or the array has no floating-point values to be within it.
    """

    bound: Bound | None = None

    is_fixed_size = False

    def __post_init__(self) -> None:
        if self.bound is not None and not isinstance(self.bound, Bound):
            raise OptionError(f"Twine({self.bound!r}): give a Bound, or None to lose nothing.")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The codec that the metadata of an array describe."""
        given = dict(data.get("configuration") or {})
        bound = given.pop("bound", None)
        if given or data.get("name") != NAME:
            raise OptionError(f"{data}: this is not a configuration of {NAME}.")
        return cls(None if bound is None else Bound(**bound))

    def to_dict(self) -> dict[str, Any]:
        """What the metadata of an array say of it."""
        if self.bound is None:
            return {"name": NAME}
        given = {name: one for name, one in asdict(self.bound).items() if one is not None}
        return {"name": NAME, "configuration": {"bound": given}}

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Refuses a bound for values that have none."""
        native = dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else dtype
        if self.bound is not None and not is_lossy_dtype(name_of(native)):
            raise OptionError(f"{self.bound!r} says nothing about {native}: write Twine().")

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Not known before a chunk is encoded."""
        raise NotImplementedError

    async def _encode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        content = await asyncio.to_thread(self._encoded, chunk_data.as_numpy_array())
        return chunk_spec.prototype.buffer.from_bytes(content)

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        dtype = chunk_spec.dtype.to_native_dtype().newbyteorder("=")
        shape = tuple(chunk_spec.shape)
        values = await asyncio.to_thread(_decoded, chunk_data.to_bytes(), dtype, shape)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(values)

    def _encoded(self, values: Any) -> bytes:
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        data = encode(native, self.bound or "lossless").data
        return data + codec_checksum(data).to_bytes(FOOT, "little")


def _decoded(content: bytes, dtype: Any, shape: tuple[int, ...]) -> Any:
    data, foot = content[:-FOOT], content[-FOOT:]
    if len(content) < FOOT or codec_checksum(data).to_bytes(FOOT, "little") != foot:
        raise CorruptCheckpointError(f"a chunk of {NAME} is damaged: its checksum differs.")
    # A stream says by itself which bound it was made with.
    return decode(Encoded(data, "lossless", name_of(dtype), shape))
