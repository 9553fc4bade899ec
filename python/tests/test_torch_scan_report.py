"""What `unspool.torch.scan` tells of its choice, with `report=`."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest
import unspool
from unspool.errors import OptionError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import scan  # noqa: E402
from unspool.torch._segments import Sizes  # noqa: E402
from unspool.torch._told import Resident, ScanReport  # noqa: E402

MIB = 1 << 20

#: A loop of 298 steps in main memory, after two that were measured.
WAVE = Sizes(298, 2 * MIB, 2 * MIB, MIB, 1 << 30, shared=True)


def told(steps: int, **options: Any) -> list[ScanReport]:
    weight = torch.full((64,), 0.5, requires_grad=True)
    found: list[ScanReport] = []
    init = torch.ones(64)
    options = {"length": steps, "report": found.append, **options}
    _, ys = scan(lambda u, _: (torch.tanh(u * weight), u.sum()), init, None, **options)
    ys.sum().backward()
    assert weight.grad is not None
    return found


def test_a_loop_tells_once_how_it_was_cut() -> None:
    (found,) = told(50, budget="16KiB")
    assert found.budget == 16 << 10 and found.sizes.steps == 48
    assert found.cut is not None and found.cut.segment < 48
    (found,) = told(50, budget="1GiB")
    assert found.cut is None and "all" in str(found)


def test_no_more_is_expected_than_the_budget() -> None:
    for budget in range(12 * MIB, 700 * MIB, 7 * MIB):
        cut = WAVE.cut(budget)
        expected = WAVE.bytes(cut)
        assert expected is not None and (expected <= budget or (cut is not None and cut.disk))


def test_all_segments_but_the_last_one_are_computed_again() -> None:
    cut = WAVE.cut(256 * MIB)
    assert cut is not None and cut.segment == 122
    assert WAVE.recomputed(cut) == 244 and WAVE.recomputed(None) == 0


def test_what_half_and_twice_the_budget_would_change_is_said() -> None:
    text = str(ScanReport(256 * MIB, WAVE, WAVE.cut(256 * MIB)))
    rows = [line.split() for line in text.splitlines()]
    assert rows[0][:4] == ["298", "steps", "within", "256.00"]
    assert [row[-2:] for row in rows if row and row[0] in ("128.00", "256.00", "512.00")] == [
        ["244", "122"],
        ["275", "55"],
        ["251", "251"],
    ]


def test_a_given_length_is_told_without_a_budget() -> None:
    (found,) = told(20, segment=6)
    assert found.budget is None and found.cut is not None and found.cut.segment == 6
    assert found.sizes.recomputed(found.cut) == 18 and found.expected_bytes is None
    assert "as given" in str(found)


def test_an_end_that_is_not_known_is_not_made_up() -> None:
    calls = iter(range(30))
    options = {"length": None, "until": lambda _: next(calls) == 29}
    (found,) = told(0, budget="16KiB", **options)
    assert found.expected_bytes is None and str(found).startswith("steps within")


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_loops_that_are_over_before_a_choice_keep_everything(steps: int) -> None:
    found: list[ScanReport] = []
    scan(lambda u, _: (u * 2, None), torch.ones(3), None, steps, report=found.append)
    assert [each.cut for each in found] == [None]


def test_without_gradients_nothing_is_chosen() -> None:
    found: list[ScanReport] = []
    with torch.no_grad():
        scan(lambda u, _: (u * 2, None), torch.ones(3), None, 5, report=found.append)
    assert not found


def test_a_report_is_a_function() -> None:
    with pytest.raises(OptionError, match="give a function, such as print"):
        scan(lambda u, _: (u, None), torch.ones(3), None, 5, report="yes")


def grown(bytes: int, freed: int, sizes: Sizes = WAVE, budget: int = 256 * MIB) -> str:
    return str(ScanReport(budget, sizes, sizes.cut(budget), bytes, freed))


def test_what_keeps_memory_small_is_named_where_it_is_true() -> None:
    text = grown(1100 * MIB, 900 * MIB)
    assert "grew by 1.07 GiB. Of that, 900.00 MiB were freed" in text
    assert "MALLOC_MMAP_THRESHOLD_=524288" in text and "unspool.torch.adjoint" in text
    # It has grown by what the budget is for, or by something that was not freed.
    for bytes, freed in [(300 * MIB, 200 * MIB), (1100 * MIB, 100 * MIB)]:
        assert grown(bytes, freed).endswith("MiB." if bytes < 1024 * MIB else "GiB.")
    # A mapping for each small tensor would be slow.
    small = Sizes(298, 2 * MIB, 2 * MIB, 4096, 1 << 30, shared=True)
    assert "MALLOC" not in grown(1100 * MIB, 900 * MIB, small)
    assert "adjoint" in grown(1100 * MIB, 900 * MIB, small)


def test_nothing_is_said_of_memory_that_was_not_looked_at() -> None:
    assert "Resident" not in str(ScanReport(256 * MIB, WAVE, WAVE.cut(256 * MIB)))


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="no glibc that says what it keeps"
)
def test_freed_memory_that_glibc_keeps_is_counted() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    # Every other piece stays, so that nothing goes back to the system.
    pieces = [libc.malloc(4096) for _ in range(8192)]
    for piece in pieces:
        ctypes.memset(piece, 1, 4096)
    before = Resident.now()
    for piece in pieces[::2]:
        libc.free(piece)
    after = Resident.now()
    for piece in pieces[1::2]:
        libc.free(piece)
    assert before is not None and after is not None
    assert after.freed - before.freed >= 15 * MIB
    assert before.bytes > 32 * MIB and after.bytes > 32 * MIB


def test_on_a_cpu_the_growth_is_that_of_the_loop(spool: unspool.Spool) -> None:
    weight = torch.ones(64, requires_grad=True)
    held: list[mmap.mmap] = []

    def step(u: torch.Tensor, _: Any) -> Any:
        # Memory that the process has not had before, whatever its heap has free.
        held.append(mmap.mmap(-1, 4 * MIB))
        held[-1].write(bytes([1]) * (4 * MIB))
        return u * weight, None

    found: list[ScanReport] = []
    scan(step, torch.ones(64), None, 16, spool=spool, report=found.append)
    (one,) = found
    if one.grown_bytes is not None:
        assert 60 * MIB <= one.grown_bytes <= 160 * MIB
        assert "Resident memory grew by" in str(one)
