"""Arrays that come by DLPack: both capsules, every lie, and the deleter called exactly once."""

from __future__ import annotations

import numpy as np
import pytest
import unspool

from fake_dlpack import CUDA_HOST, IS_COPIED, READ_ONLY, ROCM, SUBBYTE_PADDED, Exporter
from helpers import same_bits


def numbers() -> np.ndarray:
    return np.arange(24, dtype="f4").reshape(4, 6)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("cut", [np.s_[:], np.s_[::2, 1:], np.s_[::-1, ::-2], np.s_[:0]], ids=str)
def test_save_and_restore_through_capsules(
    spool: unspool.Spool, versioned: bool, cut: tuple[slice, ...]
) -> None:
    source = Exporter(numbers()[cut], versioned)
    spool.save(0, source)
    target = Exporter(np.zeros((4, 6), "f4")[cut], versioned)
    spool.restore(0, target)
    assert same_bits(np.ascontiguousarray(target.array), np.ascontiguousarray(source.array))
    for exporter in (source, target):
        assert exporter.exported == exporter.deleted == 1


def test_an_exporter_that_knows_no_versions_is_asked_again(spool: unspool.Spool) -> None:
    source = Exporter(numbers(), versioned=False, without_arguments=True)
    spool.save(0, source)
    assert same_bits(spool.load(0), numbers())
    assert source.exported == source.deleted == 1


def test_missing_strides_mean_c_order(spool: unspool.Spool) -> None:
    spool.save(0, Exporter(numbers(), strides=False))
    assert same_bits(spool.load(0), numbers())


def test_the_byte_offset_counts(spool: unspool.Spool) -> None:
    spool.save(0, Exporter(numbers(), offset=40))
    assert same_bits(spool.load(0), numbers())


def test_pinned_host_memory_is_cpu_memory(spool: unspool.Spool) -> None:
    spool.save(0, Exporter(numbers(), device=CUDA_HOST))
    assert same_bits(spool.load(0), numbers())


def test_scalars_and_empty_arrays_may_have_no_memory(spool: unspool.Spool) -> None:
    spool.save(0, Exporter(np.array(3.0)), Exporter(np.zeros((0, 3)), null=True))
    scalar, empty = spool.load(0)
    assert scalar == 3.0 and empty.shape == (0, 3)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ((4, 16, 1), "bfloat16"),
        ((6, 8, 1), "bool"),
        ((7, 8, 1), "float8_e3m4"),
        ((8, 8, 1), "float8_e4m3"),
        ((9, 8, 1), "float8_e4m3b11fnuz"),
        ((10, 8, 1), "float8_e4m3fn"),
        ((11, 8, 1), "float8_e4m3fnuz"),
        ((12, 8, 1), "float8_e5m2"),
        ((13, 8, 1), "float8_e5m2fnuz"),
        ((14, 8, 1), "float8_e8m0fnu"),
        ((17, 4, 2), "float4_e2m1fn_x2"),
        ((5, 32, 1), "complex32"),
    ],
)
def test_dtypes_that_numpy_lacks_have_names(
    spool: unspool.Spool, code: tuple[int, int, int], name: str
) -> None:
    itemsize = max(1, code[1] * code[2] // 8)
    spool.save(0, Exporter(np.zeros(5, f"u{itemsize}"), dtype=code))
    assert spool.regions(0) == (unspool.types.Region("0", name, (5,), 5 * itemsize),)


def test_items_below_a_byte_are_known_when_each_has_its_own(spool: unspool.Spool) -> None:
    spool.save(0, Exporter(np.zeros(5, "u1"), dtype=(0, 4, 1), flags=SUBBYTE_PADDED))
    assert spool.regions(0)[0].dtype == "int4"
    packed = Exporter(np.zeros(5, "u1"), dtype=(0, 4, 1))
    with pytest.raises(unspool.errors.ArrayError, match="uint8"):
        spool.save(1, packed)
    assert packed.deleted == 1


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"device": ROCM}, "ROCm.*copy it to the CPU"),
        ({"device": 99}, "type 99"),
        ({"major": 2}, "version 2"),
        ({"dtype": (2, 24, 1)}, "float24"),
        ({"dtype": (77, 32, 1)}, "code 77"),
        ({"dtype": (2, 32, 4)}, "4 lanes"),
        ({"ndim": -1}, "negative"),
        ({"null": True}, "null"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_and_given_back(
    spool: unspool.Spool, lie: dict[str, object], reason: str
) -> None:
    spool.save(0, numbers())
    for call in (lambda array: spool.save(1, array), lambda array: spool.restore(0, array)):
        exporter = Exporter(numbers(), **lie)
        with pytest.raises(unspool.errors.ArrayError, match=reason):
            call(exporter)
        assert exporter.exported == exporter.deleted == 1
    assert spool.versions() == [0]


def test_a_read_only_capsule_is_saved_and_not_restored_into(spool: unspool.Spool) -> None:
    exporter = Exporter(numbers(), flags=READ_ONLY)
    spool.save(0, exporter)
    with pytest.raises(unspool.errors.ArrayError, match="read-only"):
        spool.restore(0, exporter)
    assert exporter.exported == exporter.deleted == 2


def test_a_copy_is_saved_and_not_restored_into(spool: unspool.Spool) -> None:
    exporter = Exporter(numbers(), flags=IS_COPIED)
    spool.save(0, exporter)
    with pytest.raises(unspool.errors.ArrayError, match="copy"):
        spool.restore(0, exporter)
    assert exporter.exported == exporter.deleted == 2


def test_everything_is_given_back_when_a_later_array_is_refused(spool: unspool.Spool) -> None:
    good, bad = Exporter(numbers()), Exporter(numbers(), device=ROCM)
    with pytest.raises(unspool.errors.ArrayError, match='array "v"'):
        spool.save(0, u=good, v=bad)
    assert good.deleted == bad.deleted == 1


def test_everything_is_given_back_when_the_spool_refuses(spool: unspool.Spool) -> None:
    exporter = Exporter(numbers())
    spool.save(0, exporter)
    with pytest.raises(unspool.errors.VersionExistsError):
        spool.save(0, exporter)
    assert exporter.exported == exporter.deleted == 2


def test_a_refusal_of_the_exporter_is_the_reason(spool: unspool.Spool) -> None:
    exporter = Exporter(numbers(), raises=BufferError("the moon is full"))
    with pytest.raises(unspool.errors.ArrayError, match="the moon is full"):
        spool.save(0, exporter)


def test_ctrl_c_in_an_exporter_is_passed_on(spool: unspool.Spool) -> None:
    with pytest.raises(KeyboardInterrupt):
        spool.save(0, Exporter(numbers(), raises=KeyboardInterrupt()))


class NoCapsule:
    """Claims to speak DLPack, and does not."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __dlpack__(self, **_options: object) -> object:
        return self.answer


def test_no_capsule_and_a_used_capsule_are_refused(spool: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ArrayError, match="no fresh DLPack capsule"):
        spool.save(0, NoCapsule(None))
    exporter = Exporter(numbers())
    capsule = exporter.__dlpack__()
    spool.save(0, NoCapsule(capsule))
    with pytest.raises(unspool.errors.ArrayError, match="no fresh DLPack capsule"):
        spool.save(1, NoCapsule(capsule))
    assert exporter.deleted == 1
