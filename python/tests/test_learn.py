"""Spools learn: what one iteration of a loop restored announces the next one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unspool
from adjoints import Problem, reference, same_gradient
from unspool.schedules import StoreAll

COUNT, ITEMS = 24, 2_000
BACKWARDS = list(range(COUNT))[::-1]
SHUFFLED = np.random.default_rng(3).permutation(COUNT).tolist()


def state(version: int) -> np.ndarray:
    return np.random.default_rng(version).normal(size=ITEMS)


def iterate(spool: unspool.Spool, first: int, order: list[int]) -> tuple[int, int]:
    """Saves, restores and discards; the hints after the saves, and the restores that had one."""
    for version in range(COUNT):
        spool.save(first + version, state(version))
    hints, before = spool.stats().hints, spool.stats().hinted_restores
    target = np.empty(ITEMS)
    for version in order:
        spool.restore(first + version, target)
        assert (target == state(version)).all()
    for version in range(COUNT):
        spool.discard(first + version)
    return hints, spool.stats().hinted_restores - before


@pytest.mark.parametrize("growing", [0, 100])
@pytest.mark.parametrize("order", [BACKWARDS, SHUFFLED, BACKWARDS[::2], SHUFFLED + BACKWARDS])
def test_a_loop_is_announced_from_its_second_iteration(
    order: list[int], growing: int, tmp_path: Path
) -> None:
    with unspool.Spool(host_memory="100KiB", disk=tmp_path, learn=True) as spool:
        assert spool.learn
        found = [iterate(spool, turn * growing, order) for turn in range(4)]
    assert found == [(0, 0)] + 3 * [(len(order), len(order))]


def test_another_order_is_served_and_learned(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="100KiB", disk=tmp_path, learn=True) as spool:
        found = [iterate(spool, 0, order) for order in 2 * [BACKWARDS] + 3 * [SHUFFLED]]
        assert spool.stats().hints == 0
    hinted = [hinted for _, hinted in found]
    assert hinted[:2] == [0, COUNT] and hinted[2] < COUNT and hinted[-1] == COUNT


def test_what_is_expected_goes_before_what_is_learned(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="100KiB", disk=tmp_path, learn=True) as spool:
        iterate(spool, 0, BACKWARDS)
        spool.expect(SHUFFLED)
        assert iterate(spool, 0, SHUFFLED) == (COUNT, COUNT)


def test_every_spool_with_a_slower_tier_learns(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="1MiB", disk=tmp_path) as spool:
        assert spool.learn
        assert [iterate(spool, 0, BACKWARDS) for _ in range(2)] == [(0, 0), (COUNT, COUNT)]


def test_a_program_that_departs_again_and_again_is_left_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    with unspool.Spool(host_memory="100KiB", disk=tmp_path) as spool:
        found = [iterate(spool, 0, random.permutation(COUNT).tolist()) for _ in range(12)]
        assert [hints for hints, _ in found[:3]] == [0, COUNT, COUNT]
        assert all(hints <= 4 for hints, _ in found[7:])
        for _ in range(3):
            found.append(iterate(spool, 0, BACKWARDS))
        assert found[-1] == (COUNT, COUNT)


@pytest.mark.parametrize("learn", [False, True])
def test_a_loop_that_fits_stops_writing_to_the_disk(learn: bool, tmp_path: Path) -> None:
    with unspool.Spool(host_memory="1MiB", disk=tmp_path, device="cpu", learn=learn) as spool:
        written = []
        for turn in range(10):
            for version in range(COUNT):
                spool.save(version, state(version))
            if turn < 6:
                spool.flush()
            for version in BACKWARDS:
                assert (spool.load(version) == state(version)).all()
                spool.discard(version)
            written.append(spool.stats().links[0].flush.bytes)
        assert written[5] == 6 * COUNT * ITEMS * 8
        assert written[6:] == 4 * [written[5]]


def test_without_the_option_nothing_is_learned() -> None:
    with unspool.Spool(host_memory="1MiB", learn=False) as spool:
        assert not spool.learn
        assert [iterate(spool, 0, BACKWARDS) for _ in range(2)] == [(0, 0), (0, 0)]


def test_an_option_that_is_no_truth_value_is_refused() -> None:
    with pytest.raises(unspool.errors.OptionError, match="True or False"):
        unspool.Spool(host_memory="1MiB", learn="yes")


def test_an_adjoint_can_leave_the_hints_to_the_spool(tmp_path: Path) -> None:
    steps = 30
    wanted = reference(steps)
    with unspool.Spool(host_memory="32KiB", disk=tmp_path, device="cpu", learn=True) as spool:
        for turn in range(3):
            problem, before = Problem(steps), spool.stats().hinted_restores
            problem.run(StoreAll(steps), spool, lookahead="learn")
            assert same_gradient(problem, wanted)
            hinted = spool.stats().hinted_restores - before
            assert hinted == (0 if turn == 0 else steps)
        assert len(spool) == 0 and spool.stats().hints == 0


def test_an_adjoint_says_when_its_spool_does_not_learn() -> None:
    with unspool.Spool(host_memory="1MiB", device="cpu", learn=False) as spool:
        with pytest.raises(unspool.errors.OptionError, match="does not learn"):
            Problem(3).run(StoreAll(3), spool, lookahead="learn")
        with pytest.raises(unspool.errors.OptionError, match="lookahead='guess'"):
            Problem(3).run(StoreAll(3), spool, lookahead="guess")
