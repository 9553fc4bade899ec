"""What does not fit is refused with the reason and the remedy, and nothing is written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
import unspool
from unspool import _arrays


@pytest.fixture
def saved(spool: unspool.Spool) -> unspool.Spool:
    """Version 1: one array by position; 2: two by position; 3: two by name."""
    u, v = np.arange(12.0).reshape(3, 4), np.arange(4, dtype="i4")
    spool.save(1, u)
    spool.save(2, u, v)
    spool.save(3, u=u, v=v)
    return spool


@contextlib.contextmanager
def refused(kind: type[unspool.Error], *parts: str) -> Iterator[pytest.ExceptionInfo]:
    """Expects an error of exactly this class whose text has all `parts`."""
    with pytest.raises(kind) as info:
        yield info
    assert type(info.value) is kind
    for part in parts:
        assert part in str(info.value)


def test_another_shape_is_refused(saved: unspool.Spool) -> None:
    for shape in [(4, 3), (12,), (3, 4, 1), (3, 5), ()]:
        target = np.full(shape, 7.0)
        with refused(unspool.errors.ArrayError, str(shape), "(3, 4)", "load(1)"):
            saved.restore(1, target)
        assert (target == 7).all()
    assert issubclass(unspool.errors.ArrayError, ValueError)


def test_another_dtype_is_refused_even_of_the_same_size(saved: unspool.Spool) -> None:
    for dtype in ("f4", "i8", "u8", ">f8", "M8[s]", "V8", "c16"):
        target = np.zeros((3, 4), dtype)
        with refused(unspool.errors.ArrayError, "float64", "Nothing is converted"):
            saved.restore(1, target)
        assert not target.tobytes().strip(b"\0")
    assert issubclass(unspool.errors.ArrayError, TypeError)


def test_read_only_targets_are_refused(saved: unspool.Spool) -> None:
    target = np.zeros((3, 4))
    target.flags.writeable = False
    with refused(unspool.errors.ArrayError, "read-only", "load(1)"):
        saved.restore(1, target)
    saved.save(4, b"abc")
    with refused(unspool.errors.ArrayError, "read-only"):
        saved.restore(4, b"xyz")
    when = np.zeros(3, "M8[s]")
    saved.save(5, when)
    when.flags.writeable = False
    with refused(unspool.errors.ArrayError, "read-only"):
        saved.restore(5, when)


def test_targets_whose_items_share_memory_are_refused(saved: unspool.Spool) -> None:
    strided = np.lib.stride_tricks.as_strided
    row = np.zeros(32)
    for strides in [(0, 8), (8, 8), (24, 8), (-8, 16)]:
        target = strided(row[16:], (3, 4), strides, writeable=True)
        with refused(unspool.errors.ArrayError, "share memory"):
            saved.restore(1, target)
    assert not row.any()


def test_two_targets_in_the_same_memory_are_refused(spool: unspool.Spool) -> None:
    spool.save(1, np.zeros(8), np.ones(8))
    u = np.full(12, 7.0)
    with refused(unspool.errors.ArrayError, "two of the arrays"):
        spool.restore(1, u[:8], u[4:])
    assert (u == 7).all()
    halves = np.zeros(16)
    spool.restore(1, halves[::2], halves[1::2])
    assert (halves[1::2] == 1).all() and not halves[::2].any()


def test_other_arrays_than_those_that_were_saved_are_refused(saved: unspool.Spool) -> None:
    u, v = np.zeros((3, 4)), np.zeros(4, "i4")
    kind = unspool.errors.ArrayError
    with refused(kind, "1 array by position", "2 arrays by position"):
        saved.restore(2, u)
    with refused(kind, "arrays named u, v", "2 arrays by position"):
        saved.restore(2, u=u, v=v)
    with refused(kind, "2 arrays by position", "arrays named u, v"):
        saved.restore(3, u, v)
    with refused(kind, "arrays named u, w", "arrays named u, v"):
        saved.restore(3, u=u, w=v)
    with refused(kind, "arrays named u, v, w"):
        saved.restore(3, u=u, v=v, w=v)
    with refused(kind, "no array"):
        saved.restore(3)
    with refused(kind, "no array"):
        saved.save(9)
    with refused(kind, "by position and some by name"):
        saved.save(9, u, v=v)
    assert not u.any() and 9 not in saved


class WithoutMemory:
    """Has an array, but lends none."""

    def __array__(self) -> np.ndarray:
        return np.zeros(3)


def test_what_is_no_array_is_refused_with_advice(spool: unspool.Spool) -> None:
    kind = unspool.errors.ArrayError
    with refused(kind, "save(1): array 0 (dict_keys)", "one by one"):
        spool.save(1, {1: 2}.keys())
    with refused(kind, 'array "u" (object)', "NumPy, CuPy, PyTorch or JAX"):
        spool.save(1, u=object())
    with refused(kind, "WithoutMemory", "numpy.asarray"):
        spool.save(1, WithoutMemory())
    with refused(kind, "Python objects"):
        spool.save(1, np.array([{}, []], object))
    with refused(kind, "Python objects"):
        spool.save(1, np.zeros(2, [("a", "f4"), ("b", "O")]))
    if hasattr(np.dtypes, "StringDType"):
        with refused(kind, "Python objects"):
            spool.save(1, np.array(["a", "b"], np.dtypes.StringDType()))
    with refused(kind, "mask", "array.data"):
        spool.save(1, np.ma.masked_array([1.0, 2.0], [True, False]))
    assert spool.versions() == []


def test_a_version_that_is_not_there_is_refused(saved: unspool.Spool) -> None:
    u = np.zeros((3, 4))
    saved.discard(1)
    calls = [saved.load, saved.regions, saved.discard, saved.durable]
    calls.append(lambda version: saved.restore(version, u))
    for call in calls:
        with refused(unspool.errors.UnknownVersionError, "77") as unknown:
            call(77)
        assert unknown.value.version == 77
        with refused(unspool.errors.UnknownVersionError, "1") as discarded:
            call(1)
        assert discarded.value.version == 1
    assert issubclass(unspool.errors.UnknownVersionError, KeyError)
    assert issubclass(unspool.errors.UnknownVersionError, KeyError)
    assert 1 not in saved and 77 not in saved and 2 in saved


def test_a_version_that_is_saved_is_not_saved_again(saved: unspool.Spool) -> None:
    with refused(unspool.errors.VersionExistsError, "1"):
        saved.save(1, np.full((3, 4), 9.0))
    assert saved.load(1)[0, 1] == 1.0
    saved.discard(1)
    saved.save(1, np.full((3, 4), 9.0))
    assert saved.load(1)[0, 1] == 9.0


def test_a_failed_save_leaves_the_version_free(spool: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ArrayError):
        spool.save(1, np.zeros(3), object())
    spool.save(1, np.zeros(3), np.zeros(3))
    assert len(spool.load(1)) == 2


def test_load_names_the_libraries_that_it_knows(saved: unspool.Spool) -> None:
    with refused(unspool.errors.OptionError, "'mxnet'", "numpy", "cupy", "torch", "jax"):
        saved.load(1, to="mxnet")
    with pytest.raises(TypeError):
        saved.load(1, to=3)


def test_a_dtype_that_numpy_lacks_is_loaded_with_ml_dtypes_or_refused(
    spool: unspool.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.save(1, np.ones(3, ml_dtypes.bfloat16))
    assert spool.load(1).dtype == ml_dtypes.bfloat16
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _arrays.numpy_dtype.cache_clear()
    monkeypatch.setattr(np, "dtype", _numpy_without_extensions(np.dtype))
    with refused(unspool.errors.MissingLibraryError, "pip install ml_dtypes"):
        spool.load(1)
    assert issubclass(unspool.errors.MissingLibraryError, ImportError)


def _numpy_without_extensions(real: type[np.dtype]):
    def dtype(spelled: object) -> np.dtype:
        if spelled == "bfloat16":
            raise TypeError(spelled)
        return real(spelled)

    return dtype
