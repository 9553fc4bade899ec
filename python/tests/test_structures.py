"""Items with fields: where each of them lies is part of the dtype."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
import unspool
from hypothesis import given
from hypothesis import strategies as st
from unspool.errors import ArrayError

POINT = [("x", "f8"), ("y", "f8"), ("z", "f8")]


def points() -> np.ndarray:
    made = np.zeros(3, POINT)
    made["x"], made["y"], made["z"] = 1, 2, 3
    return made


def test_fields_out_of_order_come_back_under_their_names(spool: unspool.Spool) -> None:
    some = points()[["z", "x"]]
    spool.save(0, some)
    loaded = spool.load(0)
    assert loaded.dtype == some.dtype and loaded.dtype.names == ("z", "x")
    assert loaded["z"].tolist() == [3, 3, 3] and loaded["x"].tolist() == [1, 1, 1]


def test_the_same_names_at_other_offsets_are_another_dtype(spool: unspool.Spool) -> None:
    spool.save(0, points()[["z", "x"]])
    elsewhere = {"names": ["z", "x"], "formats": ["f8", "f8"], "itemsize": 24}
    for offsets in ([0, 8], [8, 0], [0, 16]):
        target = np.zeros(3, np.dtype({**elsewhere, "offsets": offsets}))
        with pytest.raises(ArrayError, match="dtype"):
            spool.restore(0, target)
        assert not target["z"].any()
    target = np.zeros(3, np.dtype({**elsewhere, "offsets": [16, 0]}))
    spool.restore(0, target)
    assert target["z"].tolist() == [3, 3, 3]


def test_fields_that_overlap_come_back(spool: unspool.Spool) -> None:
    kind = np.dtype({"names": ["all", "low"], "formats": ["<i4", "<i2"], "offsets": [0, 0]})
    source = np.zeros(2, kind)
    source["all"] = 0x00010002
    spool.save(0, source)
    loaded = spool.load(0)
    assert loaded.dtype == kind and loaded["low"].tolist() == [2, 2]


LAYOUTS = [
    np.dtype(POINT),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype([("a", "i1"), ("b", ">f8", (2, 3)), ("c", [("d", "S3"), ("e", "M8[ns]")])]),
    np.dtype([(("a title", "a"), "i4"), ("b", "f8")]),
    np.dtype({"names": ["s"], "formats": [points()[["z", "x"]].dtype], "offsets": [8]}),
    np.dtype([("s", points()[["z", "x"]].dtype, (2,)), ("it's \u00e4", "U2")]),
    np.dtype([("", "i1"), ("", "i2")]),
    np.dtype([]),
]


@pytest.mark.parametrize("kind", LAYOUTS, ids=str)
def test_every_layout_is_read_back_as_it_is(spool: unspool.Spool, kind: np.dtype) -> None:
    block = np.random.default_rng(3).integers(0, 256, 4 * kind.itemsize, np.uint8)
    source = block.view(kind) if kind.itemsize else np.zeros(4, kind)
    spool.save(0, source)
    loaded = spool.load(0)
    assert loaded.dtype == kind and loaded.tobytes() == source.tobytes()


def test_a_layout_that_numpy_describes_keeps_that_description() -> None:
    from unspool._structures import of_dtype

    for kind in LAYOUTS[:4]:
        assert of_dtype(kind) == repr(kind.descr)


@st.composite
def layouts(draw: st.DrawFn) -> np.dtype:
    formats = draw(st.lists(st.sampled_from(["i1", "<i4", ">f8", "S3", "c8"]), max_size=4))
    offsets = [draw(st.integers(0, 20)) for _ in formats]
    names = [f"f{index}" for index in range(len(formats))]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": 32})


@given(layouts(), layouts())
def test_two_layouts_have_one_text_only_if_they_are_the_same(a: np.dtype, b: np.dtype) -> None:
    from unspool._arrays import numpy_dtype
    from unspool._structures import of_dtype

    assert (of_dtype(a) == of_dtype(b)) == (a == b)
    if a.names:
        assert numpy_dtype(f"opaque32:numpy:{of_dtype(a)}") == a


def test_fields_of_ml_dtypes_come_back(spool: unspool.Spool) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = np.zeros(2, [("b", ml_dtypes.bfloat16), ("f", "f4")])
    source["b"] = 1.5
    spool.save(0, source)
    assert spool.load(0).dtype == source.dtype and spool.load(0)["b"].tolist() == [1.5, 1.5]


class Padded(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double), ("c", ctypes.c_int8))


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double * 2))


class Derived(Padded):
    _fields_ = (("d", ctypes.c_int16),)


class Swapped(ctypes.BigEndianStructure):
    _fields_ = (("a", ctypes.c_int16), ("b", ctypes.c_double))


class Either(ctypes.Union):
    _fields_ = (("whole", ctypes.c_int64), ("half", ctypes.c_int32))


class Nested(ctypes.Structure):
    _fields_ = (("c", ctypes.c_char), ("p", Padded), ("e", Either * 2))


def test_structures_of_ctypes_have_their_values_after_a_load(spool: unspool.Spool) -> None:
    padded = (Padded * 2)((1, 2.5, 3), (4, 5.5, 6))
    spool.save(0, padded, Packed(7, (8.5, 9.5)), Derived(1, 2, 3, 4), Swapped(5, 6.5), Either(3))
    two, packed, derived, swapped, either = spool.load(0)
    assert two["b"].tolist() == [2.5, 5.5] and two["c"].tolist() == [3, 6]
    assert packed["a"] == 7 and packed["b"].tolist() == [8.5, 9.5]
    assert derived["b"] == 2 and derived["d"] == 4
    assert swapped["a"] == 5 and swapped["b"] == 6.5
    assert either["whole"] == 3 and either["half"] == 3
    back = (Padded * 2)()
    spool.restore(0, back, Packed(), Derived(), Swapped(), Either())
    assert back[1].b == 5.5 and back[1].c == 6


def test_nested_structures_of_ctypes_lie_where_ctypes_has_them(spool: unspool.Spool) -> None:
    source = Nested(b"x", Padded(1, 2.5, 3), (Either * 2)(Either(4), Either(5)))
    spool.save(0, memoryview(source))
    loaded = spool.load(0)
    assert loaded["p"]["b"] == 2.5 and loaded["e"]["whole"].tolist() == [4, 5]
    assert loaded.dtype.itemsize == ctypes.sizeof(Nested)


def test_numpy_and_ctypes_agree_about_one_layout(spool: unspool.Spool) -> None:
    spool.save(0, Padded(1, 2.5, 3))
    target = np.zeros((), np.dtype(Padded))
    spool.restore(0, target)
    assert target["b"] == 2.5


class Bits(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int, 3), ("b", ctypes.c_int, 5))


class Pointing(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("p", ctypes.c_void_p))


@pytest.mark.parametrize(("item", "why"), [(Bits(), "bits"), (Pointing(), "addresses")])
def test_what_has_no_layout_is_refused(spool: unspool.Spool, item: object, why: str) -> None:
    with pytest.raises(ArrayError, match=why):
        spool.save(0, item)
    assert 0 not in spool


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes with the buffer protocol")
def test_a_format_of_another_size_than_the_items_is_refused(spool: unspool.Spool) -> None:
    class Odd:
        def __buffer__(self, flags: int) -> memoryview:
            return memoryview((Packed * 2)())

    with pytest.raises(ArrayError, match="bytes"):
        spool.save(0, Odd())


def test_structures_of_other_exporters_are_read_as_numpy_reads_them(spool: unspool.Spool) -> None:
    source = np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    source["b"] = 2.5
    spool.save(0, memoryview(source))
    assert spool.load(0)["b"].tolist() == [2.5, 2.5]
    spool.restore(0, np.zeros_like(source))


def test_a_description_of_nothing_that_was_kept_is_bytes() -> None:
    from unspool._arrays import numpy_dtype

    assert numpy_dtype("opaque24:numpy:[('', '|V24')]") == np.dtype("V24")


@pytest.mark.parametrize("text", ["[1]", "[('a',)]", "{'names': ['a']}", "[" * 5000, "[('a', '"])
def test_a_text_that_is_not_a_layout_is_an_error_of_ours(text: str) -> None:
    from unspool._arrays import numpy_dtype

    with pytest.raises(ArrayError, match="layout"):
        numpy_dtype(f"opaque8:numpy:{text}")
