"""Arrays that are encoded by themselves."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import unspool
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from unspool import Bound, codecs
from unspool.codecs import Encoded, Zfp, decode, encode

from codec_arrays import (
    BOUNDS,
    FLOATS,
    INTEGERS,
    SHAPES,
    any_bound,
    assert_holds,
    wave,
    with_specials,
)
from helpers import random_array, same_bits

OUTERS = [None, "zstd", "lz4", "archive"]


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("codec", [None, "raw", "lossless"])
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
def test_without_loss_every_bit_comes_back(dtype: str, codec: str, outer: str) -> None:
    for shape in SHAPES:
        values = random_array(shape, np.dtype(dtype))
        assert same_bits(decode(encode(values, codec, outer=outer)), values)
        if dtype in FLOATS:
            values = with_specials(wave(shape, dtype))
            assert same_bits(decode(encode(values, codec, outer=outer)), values)


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bound_holds_for_every_value_and_the_rest_comes_back_bit_for_bit(
    dtype: str, bound: Bound
) -> None:
    for number, shape in enumerate(SHAPES):
        values = wave(shape, dtype, number)
        assert_holds(values, decode(encode(values, bound)), bound)
        values = with_specials(values, number)
        assert_holds(values, decode(encode(values, bound, outer="zstd")), bound)


@settings(max_examples=60)
@given(
    values=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=12))
    ),
    bound=any_bound(),
)
def test_bounds_hold_for_arrays_of_any_values(values: np.ndarray, bound: Bound) -> None:
    assert_holds(values, decode(encode(values, bound)), bound)


@settings(max_examples=50)
@given(
    bits=st.binary(min_size=8, max_size=4096),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    bound=any_bound(),
)
def test_bounds_hold_for_any_bits(bits: bytes, dtype: str, bound: Bound) -> None:
    values = np.frombuffer(bits[: len(bits) // 8 * 8], dtype)
    assert_holds(values, decode(encode(values, bound)), bound)


def test_bfloat16_is_encoded() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = wave((40, 50), "float32").astype(ml_dtypes.bfloat16)
    assert same_bits(decode(encode(values)), values)
    assert_holds(values, decode(encode(values, Bound(abs=1e-2))), Bound(abs=1e-2))


def test_what_was_achieved_is_what_the_reconstruction_shows() -> None:
    values = wave((300, 400), "float32")
    encoded = encode(values, Bound(range=1e-3))
    error = (decode(encoded) - values).astype(np.float64)
    achieved = encoded.achieved
    assert achieved is not None and achieved.codec == "twine"
    # A value whose rounding misses the bound by the last bit is kept as it is.
    assert achieved.values == values.size and achieved.outliers < 10
    assert 0 < achieved.max_error <= 1e-3 * float(np.ptp(values))
    assert achieved.max_error == pytest.approx(np.abs(error).max(), rel=1e-6)
    assert achieved.rms_error == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
    assert achieved.raw_bytes == values.nbytes and achieved.stored_bytes == encoded.nbytes
    assert encoded.ratio == achieved.ratio > 4
    assert encode(values).achieved.max_error == 0.0
    zfp = encode(values, Zfp(rate=8))
    largest = np.abs(decode(zfp).astype(np.float64) - values).max()
    assert zfp.achieved.codec == "zfp" and zfp.achieved.max_error == largest > 0


def test_smaller_bounds_cost_more_and_outer_coders_shrink_more() -> None:
    values = wave((300, 400), "float32")
    sizes = [encode(values, Bound(range=10.0**-k)).nbytes for k in range(2, 6)]
    assert sizes == sorted(sizes) and sizes[-1] < values.nbytes
    assert encode(values, Bound(range=1e-3), outer="zstd").nbytes < sizes[1]


def test_the_same_array_gives_the_same_bytes_in_any_layout() -> None:
    values = wave((30, 40), "float64")
    wide = np.zeros((60, 80))
    wide[::2, ::2] = values
    fortran, sliced = np.asfortranarray(values), wide[::2, ::2]
    big = values.astype(values.dtype.newbyteorder(">"))
    encoded = encode(values, Bound(abs=1e-3))
    for other in (fortran, sliced, big):
        assert encode(other, Bound(abs=1e-3)) == encoded
    values.flags.writeable = False
    assert encode(values, Bound(abs=1e-3)) == encoded
    assert pickle.loads(pickle.dumps(encoded)) == encoded


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries_are_encoded(name: str) -> None:
    values = wave((64, 64), "float32")
    array = pytest.importorskip(name).asarray(values)
    assert same_bits(decode(encode(array)), values)


def test_an_array_of_the_callers_takes_the_values() -> None:
    values = wave((40, 50), "float32")
    encoded, target = encode(values), np.zeros((40, 50), np.float32)
    assert decode(encoded, target) is target and same_bits(target, values)
    with pytest.raises(unspool.errors.ArrayError):
        decode(encoded, np.zeros((50, 40), np.float32))
    with pytest.raises(unspool.errors.ArrayError):
        decode(encoded, np.zeros((40, 50)))
    with pytest.raises(unspool.errors.ArrayError):
        decode(encoded, [0.0])
    with pytest.raises(unspool.errors.ArrayError):
        decode(encoded, np.zeros((50, 40), np.float32).T)


@pytest.mark.parametrize("zfp", [Zfp(rate=8), Zfp(precision=20), Zfp(tolerance=1e-3)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zfp_comes_back_close(dtype: str, zfp: Zfp) -> None:
    for shape in [(1000,), (40, 50), (9, 10, 40), (2, 9, 10, 40), (2, 2, 9, 10, 40)]:
        values = wave(shape, dtype)
        encoded = encode(values, zfp)
        largest = np.abs(decode(encoded).astype(np.float64) - values).max()
        assert largest < 0.1 and encoded.ratio > 0.9
        if zfp.kind == "tolerance":
            assert largest <= 1e-3


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("codec", [None, "lossless", Bound(abs=1e-3), Zfp(rate=8)], ids=repr)
def test_damaged_bytes_are_refused_or_decoded_to_something(codec: object, outer: str) -> None:
    values = wave((40, 50), "float32")
    encoded = encode(values, codec, outer=outer)
    rng = np.random.default_rng(1)
    refused = 0
    # The first byte belongs to a head, whatever the rest hits.
    for at in (0, *rng.integers(len(encoded.data), size=40)):
        data = bytearray(encoded.data)
        data[at] ^= 1 << int(rng.integers(8))
        try:
            again = decode(Encoded(bytes(data), codec, "float32", (40, 50), outer))
        except unspool.errors.CorruptCheckpointError:
            refused += 1
        else:
            assert again.shape == values.shape
    for cut in (0, 1, 60, len(encoded.data) // 2, len(encoded.data) - 1):
        with pytest.raises(unspool.errors.CorruptCheckpointError):
            decode(Encoded(encoded.data[:cut], codec, "float32", (40, 50), outer))
    assert refused > 0 or codec is None or outer is None


@pytest.mark.parametrize("outer", [None, "zstd"])
@pytest.mark.parametrize("codec", [None, "lossless", Bound(abs=1e-3), Zfp(rate=16)])
def test_one_changed_byte_of_what_was_encoded_is_noticed(codec: object, outer: str) -> None:
    encoded = encode(np.sin(np.arange(3000.0)).reshape(50, 60), codec, outer=outer)
    for place in (0, encoded.nbytes // 2, encoded.nbytes - 1):
        data = bytearray(encoded.data)
        data[place] ^= 1
        with pytest.raises(unspool.errors.CorruptCheckpointError, match="checksum"):
            decode(dataclasses.replace(encoded, data=bytes(data)))
    decode(pickle.loads(pickle.dumps(encoded)))


def test_a_stream_of_another_array_is_refused() -> None:
    encoded = encode(wave((40, 50), "float32"))
    for dtype, shape in [("float64", (20, 50)), ("float32", (41, 50)), ("int32", (40, 50))]:
        with pytest.raises(unspool.errors.CorruptCheckpointError):
            decode(Encoded(encoded.data, "lossless", dtype, shape))


def test_what_a_codec_cannot_take_is_refused_with_what_to_do() -> None:
    with pytest.raises(unspool.errors.OptionError, match="lossless"):
        encode(np.arange(10), Bound(abs=1))
    with pytest.raises(unspool.errors.OptionError, match="saves of a spool"):
        encode(np.zeros(10), "auto")
    with pytest.raises(unspool.errors.OptionError, match="needs a GPU"):
        encode(np.zeros(10), unspool.codecs.NvComp("lz4"))
    with pytest.raises(unspool.errors.OptionError, match="not a codec"):
        encode(np.zeros(10), "zip")
    with pytest.raises(unspool.errors.OptionError, match="outer"):
        encode(np.zeros(10), outer="gzip")
    with pytest.raises(unspool.errors.OptionError):
        encode(np.zeros(10, np.float16), Zfp(rate=8))
    with pytest.raises(unspool.errors.OptionError):
        encode(np.full(100, np.nan), Zfp(tolerance=1e-3))
    with pytest.raises(unspool.errors.ArrayError):
        encode(np.array(["a"]))
    with pytest.raises(unspool.errors.ArrayError):
        encode(np.zeros(3, [("a", "f4")]))


def test_what_is_no_option_is_refused_whatever_it_is() -> None:
    values = np.arange(6.0).reshape(2, 3)
    with pytest.raises(unspool.errors.OptionError, match="but an array"):
        codecs.encode(values, values)  # type: ignore[arg-type]
    with pytest.raises(unspool.errors.OptionError, match="outer="):
        codecs.encode(values, outer=values)  # type: ignore[arg-type]
    with pytest.raises(unspool.errors.OptionError, match="a bytes given"):
        codecs.decode(b"")  # type: ignore[arg-type]
