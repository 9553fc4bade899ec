"""Arrays of every dtype, shape and layout come back with the same bits."""

from __future__ import annotations

import array
import contextlib
import ctypes
import mmap
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import unspool
from hypothesis import given
from hypothesis import strategies as st

from helpers import random_array, same_bits

NUMBERS = "? b B h H i I l L q Q e f d g F D G".split()
EXTENDED = """bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz
    float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int4 uint4
    int2 uint2""".split()
OTHERS = [
    "S5",
    "U3",
    "V8",
    ">f8",
    ">i2",
    ">U2",
    "M8[ns]",
    "m8[s]",
    ">M8[D]",
    [("a", "f4"), ("b", ">i2", (3,))],
    [("when", "M8[s]"), ("where", "f8", (3,))],
    {"names": ["x", "y"], "formats": ["f4", "f8"], "offsets": [0, 16], "itemsize": 32},
    {"names": ["x", "t"], "formats": ["f4", "M8[s]"], "offsets": [0, 16], "itemsize": 32},
    [("inner", [("re", "f4"), ("im", "f4")]), ("flag", "?")],
]
DTYPES = [np.dtype(code) for code in NUMBERS]
DTYPES += [np.dtype(getattr(ml_dtypes, name)) for name in EXTENDED if hasattr(ml_dtypes, name)]
DTYPES += [np.dtype(spelled) for spelled in OTHERS]

SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (4, 5), (2, 3, 4), (2, 1, 3, 1, 2), (64, 33)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, dtype: np.dtype) -> None:
    for version, shape in enumerate(SHAPES):
        saved = random_array(shape, dtype, seed=version)
        spool.save(version, saved)
        loaded = spool.load(version)
        assert same_bits(loaded, saved)
        target = np.zeros(shape, dtype)
        spool.restore(version, target)
        assert same_bits(target, saved)


def layouts(base: np.ndarray) -> dict[str, np.ndarray]:
    """The items of `base` in other layouts of the same shape."""
    padded = np.zeros(tuple(2 * n + 1 for n in base.shape), base.dtype)
    every_other = padded[tuple(slice(0, 2 * n, 2) for n in base.shape)]
    inside = np.zeros(tuple(n + 4 for n in base.shape), base.dtype)
    inside = inside[tuple(slice(2, n + 2) for n in base.shape)]
    return {
        "C": np.empty_like(base, order="C"),
        "Fortran": np.empty(base.shape, base.dtype, order="F"),
        "negative strides": np.empty_like(base)[(slice(None, None, -1),) * base.ndim],
        "every other item": every_other,
        "inside of a padded array": inside,
        "last axis first": np.moveaxis(np.empty(np.roll(base.shape, 1), base.dtype), 0, -1),
    }


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 12, 16, 24])
@pytest.mark.parametrize("shape", [(5,), (17, 9), (4, 3, 5), (2, 3, 2, 3, 4)], ids=str)
def test_every_layout_is_gathered_and_scattered(
    spool: unspool.Spool, itemsize: int, shape: tuple[int, ...]
) -> None:
    base = random_array(shape, np.dtype(f"V{itemsize}"))
    for version, (name, source) in enumerate(layouts(base).items()):
        source[...] = base
        spool.save(version, source)
        for other, target in layouts(base).items():
            spool.restore(version, target)
            assert same_bits(target, base), (name, other)


@dataclass
class View:
    """How a view is cut out of a block of memory."""

    block: tuple[int, ...]
    slices: tuple[slice, ...]
    flips: tuple[slice, ...]
    order: tuple[int, ...]
    dtype: np.dtype

    def of(self, block: np.ndarray) -> np.ndarray:
        return block[(*self.slices, ...)][(*self.flips, ...)].transpose(self.order)


@st.composite
def views(draw: st.DrawFn) -> View:
    axes = st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 2), st.booleans())
    cuts = draw(st.lists(axes, max_size=5))
    return View(
        block=tuple(first + extent * step for extent, step, first, _ in cuts),
        slices=tuple(slice(first, None, step) for _, step, first, _ in cuts),
        flips=tuple(slice(None, None, -1 if flipped else 1) for *_, flipped in cuts),
        order=tuple(draw(st.permutations(range(len(cuts))))),
        dtype=np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "f8", "c16", "V3", "V24"]))),
    )


@given(views())
def test_any_view_made_by_slicing_and_transposing_comes_back(view: View) -> None:
    source = view.of(random_array(view.block, view.dtype))
    block = random_array(view.block, view.dtype, seed=1)
    expected = block.copy()
    view.of(expected)[...] = source
    with unspool.Spool(host_memory="16MiB") as spool:
        spool.save(0, source)
        spool.restore(0, view.of(block))
        assert same_bits(block, expected)
        assert same_bits(spool.load(0), source)


def test_a_restore_writes_the_items_and_nothing_between_them(spool: unspool.Spool) -> None:
    spool.save(0, np.arange(12.0).reshape(3, 4))
    block = np.full((9, 9), -1.0)
    spool.restore(0, block[1:7:2, 8:0:-2])
    expected = np.full((9, 9), -1.0)
    expected[1:7:2, 8:0:-2] = np.arange(12.0).reshape(3, 4)
    assert same_bits(block, expected)


def test_broadcast_and_sliding_views_are_saved_item_by_item(spool: unspool.Spool) -> None:
    row = np.arange(4, dtype=np.int32)
    broadcast = np.broadcast_to(row, (3, 4))
    sliding = np.lib.stride_tricks.sliding_window_view(row, 2)
    spool.save(0, broadcast, sliding)
    loaded = spool.load(0)
    assert same_bits(loaded[0], np.ascontiguousarray(broadcast))
    assert same_bits(loaded[1], np.ascontiguousarray(sliding))


def test_what_is_saved_is_a_copy(spool: unspool.Spool) -> None:
    state = np.zeros(4)
    spool.save(0, state)
    state += 1
    assert same_bits(spool.load(0), np.zeros(4))


def test_several_arrays_by_position_and_by_name(spool: unspool.Spool) -> None:
    u, v = np.arange(3.0), np.arange(4, dtype="i1")
    spool.save(0, u, v)
    spool.save(1, u=u, v=v)
    spool.save(2, self=u, version=v)
    first, second = spool.load(0)
    assert same_bits(first, u) and same_bits(second, v)
    named = spool.load(1)
    assert list(named) == ["u", "v"] and same_bits(named["v"], v)
    target_u, target_v = np.zeros_like(u), np.zeros_like(v)
    spool.restore(1, v=target_v, u=target_u)
    assert same_bits(target_u, u) and same_bits(target_v, v)
    assert list(spool.load(2)) == ["self", "version"]


def test_the_regions_of_a_checkpoint_are_described(spool: unspool.Spool) -> None:
    spool.save(5, u=np.zeros((3, 4), "f4"), t=np.zeros((), ">f8"))
    assert spool.regions(5) == (
        unspool.types.Region("u", "float32", (3, 4), 48),
        unspool.types.Region("t", "opaque8:numpy:>f8", (), 8),
    )


def test_everything_with_the_buffer_protocol_is_an_array(spool: unspool.Spool) -> None:
    numbers = array.array("d", [1.0, 2.0, 3.0])
    matrix = (ctypes.c_int32 * 3 * 2)((1, 2, 3), (4, 5, 6))
    with mmap.mmap(-1, 4096) as pages:
        pages[:4] = b"unsp"
        spool.save(0, b"abc", bytearray(b"de"), numbers, matrix, memoryview(numbers), pages)
        loaded = spool.load(0)
        pages[:4] = b"\0\0\0\0"
        target = (ctypes.c_int32 * 3 * 2)()
        back = array.array("d", [0.0] * 3)
        spool.restore(0, bytearray(3), bytearray(2), back, target, np.zeros(3), pages)
        assert pages[:4] == b"unsp"
    assert loaded[0].tobytes() == b"abc" and loaded[0].dtype == np.uint8
    assert back == numbers
    assert [list(row) for row in target] == [[1, 2, 3], [4, 5, 6]]
    assert same_bits(loaded[3], np.array([[1, 2, 3], [4, 5, 6]], "i4"))


def test_numpy_scalars_and_subclasses_are_arrays(spool: unspool.Spool, tmp_path) -> None:
    mapped = np.memmap(tmp_path / "mapped", np.float32, "w+", shape=(8,))
    mapped[:] = range(8)
    record = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    spool.save(0, np.float64(2.5), mapped, record)
    scalar, numbers, fields = spool.load(0)
    assert scalar.shape == () and scalar == 2.5
    assert same_bits(numbers, np.arange(8, dtype="f4"))
    assert fields["b"][0] == 2.0


def test_a_scalar_of_numpy_that_lends_no_unit_is_refused(spool: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ArrayError, match=r"numpy\.asarray"):
        spool.save(0, np.datetime64("2026-01-01"))
    spool.save(0, np.asarray(np.datetime64("2026-01-01")))
    assert spool.load(0) == np.datetime64("2026-01-01")


def test_memory_is_given_back_after_every_call(spool: unspool.Spool) -> None:
    block = bytearray(8)
    calls = [
        lambda version: spool.save(version, block),
        lambda version: spool.restore(version, block),
        lambda version: spool.save(version, block),
        lambda version: spool.restore(version, block, block),
        lambda version: spool.save(version + 100, block, 3.0),
        lambda version: spool.restore(-1, block),
    ]
    for call in calls:
        with contextlib.suppress(unspool.Error):
            call(len(block))
        block.append(0)
        del block[-1]
    state = np.zeros(8)
    before = sys.getrefcount(state)
    spool.save(1000, state, u := state[::2])
    spool.restore(1000, np.zeros(8), u)
    del u
    assert sys.getrefcount(state) == before


def test_names_of_arrays_have_a_limit(spool: unspool.Spool) -> None:
    longest = "x" * 4096
    spool.save(0, **{longest: np.zeros(3)})
    assert list(spool.load(0)) == [longest]
    with pytest.raises(unspool.errors.ArrayError, match="4097"):
        spool.save(1, **{longest + "x": np.zeros(3)})
    assert 1 not in spool


def test_a_version_is_any_integer_of_64_bits(spool: unspool.Spool) -> None:
    for version in (-1, 0, 2**63 - 1, -(2**63), np.int32(7), np.uint8(9), True):
        spool.save(version, np.zeros(1))
        assert version in spool
    assert spool.versions() == sorted([-1, 0, 2**63 - 1, -(2**63), 7, 9, 1])
    for version in ("3", 3.0, None):
        with pytest.raises(unspool.errors.OptionError, match="version") as raised:
            spool.save(version, np.zeros(1))
        assert isinstance(raised.value, TypeError)
        assert version not in spool
    for call in (spool.save, spool.restore):
        with pytest.raises(unspool.errors.OptionError, match="version"):
            call(2**63, np.zeros(1))
    for call in (spool.load, spool.discard, spool.regions, spool.durable, spool.reading):
        with pytest.raises(unspool.errors.OptionError, match="version"):
            call(-(2**70))
    with pytest.raises(unspool.errors.OptionError, match="version"):
        spool.save_many({2**63: np.zeros(1)})
    with pytest.raises(unspool.errors.OptionError, match="version"):
        spool.expect([1, 2**63])
    assert 2**63 not in spool


def test_as_many_arrays_as_the_format_holds_come_back(spool: unspool.Spool) -> None:
    arrays = [np.full(2, i, np.float32) for i in range(65_536)]
    spool.save(0, *arrays)
    for target in arrays:
        target[:] = -1
    spool.restore(0, *arrays)
    assert all((array == i).all() for i, array in enumerate(arrays))
