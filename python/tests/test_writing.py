"""Checkpoints that are computed and read in the spool's own memory, on the CPU."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import same_bits

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
DTYPES += ["complex64", "complex128", "bfloat16", "float8_e4m3fn"]


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    with unspool.Spool(host_memory="64MiB", device="cpu") as opened:
        yield opened


def numbers() -> np.ndarray:
    return np.arange(12, dtype="f4").reshape(3, 4)


def test_what_is_computed_in_a_block_is_the_checkpoint(spool: unspool.Spool) -> None:
    with spool.writing(1, (3, 4), "float32") as buffer:
        assert (buffer.shape, buffer.dtype, buffer.nbytes) == ((3, 4), "float32", 48)
        assert buffer.device == "cpu" and "float32 (3, 4)" in repr(buffer)
        array = np.asarray(buffer)
        assert array.ctypes.data == buffer.ptr
        array[...] = numbers()
        assert 1 not in spool
    assert same_bits(spool.load(1), numbers())
    with spool.reading(1) as buffer:
        assert same_bits(np.asarray(buffer), numbers())
    assert spool.stats().restores == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_lent_to_numpy(spool: unspool.Spool, dtype: str) -> None:
    with spool.writing(1, (5,), dtype, to="numpy") as array:
        array[...] = np.arange(5)
    with spool.reading(1, to="numpy") as array:
        assert array.dtype.name == dtype and not array.flags.writeable
        assert same_bits(np.array(array), spool.load(1))
        assert (array == np.arange(5).astype(array.dtype)).all()


def test_dtypes_are_named_as_people_name_them(spool: unspool.Spool) -> None:
    for version, dtype in enumerate([np.float32, np.dtype("<f4"), "f4", float, "d", np.int8]):
        with spool.writing(version, 3, dtype) as buffer:
            assert buffer.dtype == np.dtype(dtype).name and buffer.shape == (3,)
    for nonsense in ["float13", "S5", [("a", "f4")], ">f8", object, "M8[s]"]:
        with pytest.raises(unspool.errors.OptionError):
            spool.writing(99, (3,), nonsense)


def test_several_arrays_are_lent_by_name(spool: unspool.Spool) -> None:
    with spool.writing(3, u=((3, 4), "f4"), v=(7, "i8")) as buffers:
        assert list(buffers) == ["u", "v"]
        np.asarray(buffers["u"])[...] = numbers()
        np.asarray(buffers["v"])[...] = 7
    with spool.reading(3, to="numpy") as arrays:
        assert same_bits(np.array(arrays["u"]), numbers())
        assert (arrays["v"] == 7).all()
    spool.save(4, numbers(), numbers() + 1)
    with spool.reading(4, to="numpy") as arrays:
        assert isinstance(arrays, tuple) and (arrays[1] == numbers() + 1).all()


def test_a_block_left_by_an_exception_saves_and_restores_nothing() -> None:
    with unspool.Spool(host_memory="8MiB", device="cpu") as spool:
        with pytest.raises(ZeroDivisionError), spool.writing(1, (3,), "f4"):
            raise ZeroDivisionError
        assert 1 not in spool
        spool.save(1, np.zeros(3))
        spool.expect([1], once=True)
        with pytest.raises(ZeroDivisionError), spool.reading(1):
            raise ZeroDivisionError
        assert 1 in spool
        with spool.reading(1):
            pass
        assert 1 not in spool


def test_a_block_that_is_never_left_is_given_up(spool: unspool.Spool) -> None:
    block = spool.writing(1, (3,), "f4")
    block.__enter__()
    with pytest.raises(unspool.errors.UnknownVersionError):
        spool.load(1)
    del block
    gc.collect()
    with pytest.raises(unspool.errors.UnknownVersionError):
        spool.load(1)


def test_after_the_block_the_memory_is_lent_no_more_and_stays_mapped() -> None:
    spool = unspool.Spool(host_memory="8MiB", device="cpu")
    with spool.writing(1, (1 << 20,), "u1") as buffer:
        written = np.asarray(buffer)
        written[:] = 7
    with spool.reading(1) as read:
        seen = np.asarray(read)
    for lent in (buffer, read):
        with pytest.raises(BufferError, match="was left"):
            memoryview(lent)
        with pytest.raises(BufferError, match="was left"):
            lent.__dlpack__()
        with pytest.raises(BufferError, match="was left"):
            _ = lent.__array_interface__
        with pytest.raises(unspool.errors.ArrayError, match="was left"):
            spool.save(2, lent)
    spool.close()
    del spool, buffer, read
    gc.collect()
    # What it shows is unspecified; that it can be read is what counts.
    assert written.sum() >= 0 and seen.sum() >= 0


@pytest.mark.parametrize("leaves", ["by its end", "by an exception"])
def test_the_numpy_array_of_a_block_is_read_only_after_it(
    spool: unspool.Spool, leaves: str
) -> None:
    with (
        contextlib.suppress(ZeroDivisionError),
        spool.writing(1, u=((3, 4), "f4"), v=(3, "f8"), to="numpy") as arrays,
    ):
        arrays["u"][...] = numbers()
        arrays["v"][...] = 1
        if leaves == "by an exception":
            raise ZeroDivisionError
    for array in arrays.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 2
    if leaves == "by its end":
        assert same_bits(spool.load(1)["u"], numbers())


def checked(**tiers: object) -> unspool.Spool:
    return unspool.Spool(device="cpu", debug=unspool.Debug(check_order=True), **tiers)


def test_a_write_through_a_view_after_the_block_is_found() -> None:
    with checked(host_memory="8MiB") as spool:
        with spool.writing(1, (3, 4), "f4", to="numpy") as array:
            array[...] = numbers()
            view = array[1:]
        target = np.zeros((3, 4), "f4")
        spool.restore(1, target)
        assert same_bits(target, numbers())
        view[...] = 7
        with pytest.raises(unspool.errors.CorruptCheckpointError, match="after the block"):
            spool.restore(1, target)
        with pytest.raises(unspool.errors.CorruptCheckpointError, match="after the block"):
            spool.load(1)
        with (
            pytest.raises(unspool.errors.CorruptCheckpointError, match="after the block"),
            spool.reading(1),
        ):
            pass


def test_a_write_after_the_block_never_gives_other_values_out(tmp_path: Path) -> None:
    with checked(host_memory="64KiB", disk=tmp_path) as spool:
        with spool.writing(1, (4096,), "f8") as buffer:
            array = np.asarray(buffer)
            array[...] = 1
        array[...] = 2
        spool.flush()
        for version in range(2, 8):
            spool.save(version, np.zeros(4096))
        # The bytes may have been on their way to the disk before they were written.
        seen = 1.0
        with contextlib.suppress(unspool.errors.CorruptCheckpointError):
            seen = spool.load(1).mean()
        assert seen == 1.0


def test_a_version_that_is_saved_again_is_another_checkpoint() -> None:
    with checked(host_memory="8MiB") as spool:
        with spool.writing(1, (3,), "f4", to="numpy") as array:
            array[...] = 1
        spool.discard(1)
        spool.save(1, np.zeros(3, "f4"))
        assert not spool.load(1).any()


def test_a_block_is_entered_once(spool: unspool.Spool) -> None:
    block = spool.writing(1, (3,), "f4")
    with block:
        pass
    with pytest.raises(unspool.errors.OptionError, match="already"):
        block.__enter__()
    reading = spool.reading(1)
    with reading:
        pass
    with pytest.raises(unspool.errors.OptionError, match="already"):
        reading.__enter__()


def test_what_is_lent_for_reading_cannot_be_written(spool: unspool.Spool) -> None:
    spool.save(1, numbers())
    with spool.reading(1) as buffer:
        assert memoryview(buffer).readonly
        assert not np.from_dlpack(buffer).flags.writeable
        with pytest.raises(unspool.errors.ArrayError):
            spool.restore(1, buffer)
    with spool.writing(2, (3, 4), "f4") as buffer:
        assert not memoryview(buffer).readonly
        spool.restore(1, buffer)
    assert same_bits(spool.load(2), numbers())


def test_dlpack_lends_the_memory_itself(spool: unspool.Spool) -> None:
    with spool.writing(1, (3, 4), "f4") as buffer:
        assert buffer.__dlpack_device__() == (1, 0)
        array = np.from_dlpack(buffer)
        assert array.ctypes.data == buffer.ptr
        for wish in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}):
            with pytest.raises(BufferError):
                buffer.__dlpack__(**wish)
        assert "dltensor_versioned" in repr(buffer.__dlpack__(max_version=(1, 0)))
        assert "dltensor_versioned" not in repr(buffer.__dlpack__())


def test_scalars_and_empty_arrays_are_lent(spool: unspool.Spool) -> None:
    with spool.writing(1, s=((), "f8"), e=((0, 3), "f4")) as buffers:
        np.asarray(buffers["s"])[...] = 2.5
        assert np.asarray(buffers["e"]).shape == (0, 3)
    assert spool.load(1)["s"] == 2.5


def test_a_checkpoint_that_no_arena_holds_is_refused_for_writing_and_copied_for_reading(
    tmp_path: Path,
) -> None:
    with unspool.Spool(disk=tmp_path) as spool:
        with (
            pytest.raises(unspool.errors.CapacityError, match=r"save\(1, array\)"),
            spool.writing(1, (3,), "f4"),
        ):
            pass
        assert 1 not in spool
        spool.save(1, numbers())
        with spool.reading(1, to="numpy") as array:
            assert same_bits(np.array(array), numbers())


def test_a_tier_that_is_full_at_the_moment_is_stood_in_for(tmp_path: Path) -> None:
    debug = unspool.Debug(check_order=True)
    with unspool.Spool(host_memory="1MiB", disk=tmp_path, device="cpu", debug=debug) as spool:
        blocks = [spool.writing(version, 400_000, "u1", to="numpy") for version in range(4)]
        for version, block in enumerate(blocks):
            block.__enter__()[...] = version
        for block in blocks:
            block.__exit__(None, None, None)
        assert [set(spool.load(version)) for version in range(4)] == [{0}, {1}, {2}, {3}]


def test_arguments_that_make_no_sense_are_refused(spool: unspool.Spool) -> None:
    for arguments in [(), ((3,),)]:
        with pytest.raises(unspool.errors.ArrayError, match="a shape and a dtype"):
            spool.writing(1, *arguments)
    with pytest.raises(unspool.errors.ArrayError, match="pair"):
        spool.writing(1, u=3)
    with pytest.raises(unspool.errors.OptionError, match="not a shape"):
        spool.writing(1, "large", "f4")
    for to in ("cupy", "mxnet"):
        with pytest.raises(unspool.errors.OptionError), spool.writing(1, (3,), "f4", to=to):
            pass
    with pytest.raises(unspool.errors.OptionError, match="not a CUDA stream"):
        spool.writing(1, (3,), "f4", stream="fast")
    with spool.writing(1, (3,), "f4"):
        pass
    with (
        pytest.raises(unspool.errors.VersionExistsError),
        spool.writing(1, (3,), "f4"),
    ):
        pass


def test_structured_items_are_read_in_place(spool: unspool.Spool) -> None:
    saved = np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f8")])
    spool.save(1, saved, saved["a"].astype("M8[s]"))
    with spool.reading(1, to="numpy") as (structured, times):
        assert structured.dtype == saved.dtype and (structured == saved).all()
        assert times.dtype == "M8[s]"


def test_jax_reads_in_place(spool: unspool.Spool) -> None:
    jax = pytest.importorskip("jax")
    spool.save(1, numbers())
    with spool.reading(1, to="jax") as array:
        assert isinstance(array, jax.Array) and (array == numbers()).all()
