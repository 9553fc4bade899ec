"""zfp streams of ours decoded by the zfp library, and the other way round."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from unspool.codecs import Encoded, Zfp, decode, encode

zfpy = pytest.importorskip("zfpy")
pytestmark = pytest.mark.peer

SHAPES = [(1000,), (37, 50), (9, 11, 40), (3, 9, 10, 12)]
MODES = [Zfp(rate=8), Zfp(rate=16), Zfp(precision=18), Zfp(tolerance=1e-4)]

#: The head in front of a stream, as docs/reference/format.md has it.
PREFIX = "<4sBBBBIIIIdIIQ16x"
DTYPES = {"float32": 18, "float64": 19}
TYPES = {"float32": zfpy.type_float, "float64": zfpy.type_double}
KINDS = ("rate", "precision", "tolerance")


def field(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    phase = np.linspace(0.0, 60.0, int(np.prod(shape)))
    return (np.sin(phase) * np.cos(phase / 5)).astype(dtype).reshape(shape)


def options(zfp: Zfp) -> dict[str, float]:
    return {zfp.kind: getattr(zfp, zfp.kind)}


def bits_per_block(zfp: Zfp, shape: tuple[int, ...], dtype: str) -> int:
    if zfp.kind != "rate":
        return 0
    return max(round(zfp.value * 4 ** len(shape)), 9 if dtype == "float32" else 12)


def prefixed(stream: bytes, zfp: Zfp, values: np.ndarray) -> bytes:
    """A stream of the library as `unspool.codecs` reads it."""
    dtype = values.dtype.name
    sizes = [*reversed(values.shape), 0, 0, 0][:4]
    head = struct.pack(
        PREFIX,
        b"ZFP1",
        1,
        DTYPES[dtype],
        KINDS.index(zfp.kind),
        values.ndim,
        *sizes,
        zfp.value,
        bits_per_block(zfp, values.shape, dtype),
        0,
        len(stream),
    )
    return head + stream + bytes(-len(stream) % 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zfp", MODES, ids=repr)
def test_zfpy_decodes_our_streams(zfp: Zfp, dtype: str) -> None:
    for shape in SHAPES:
        values = field(shape, dtype)
        encoded = encode(values, zfp)
        head = struct.unpack_from(PREFIX, encoded.data)
        stream = encoded.data[64 : 64 + head[-1]]
        theirs = zfpy._decompress(stream, TYPES[dtype], shape, **options(zfp))
        assert np.array_equal(theirs, decode(encoded))
        assert np.abs(theirs - values).max() < 0.2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zfp", MODES, ids=repr)
def test_we_decode_streams_of_zfpy(zfp: Zfp, dtype: str) -> None:
    for shape in SHAPES:
        values = field(shape, dtype)
        stream = zfpy.compress_numpy(values, **options(zfp), write_header=False)
        ours = decode(Encoded(prefixed(stream, zfp, values), zfp, dtype, shape))
        theirs = zfpy._decompress(stream, TYPES[dtype], shape, **options(zfp))
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zfp", MODES, ids=repr)
def test_both_encoders_write_the_same_stream_for_ordinary_values(zfp: Zfp, dtype: str) -> None:
    for shape in SHAPES:
        values = field(shape, dtype)
        stream = zfpy.compress_numpy(values, **options(zfp), write_header=False)
        assert encode(values, zfp).data == prefixed(stream, zfp, values)
