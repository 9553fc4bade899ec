"""`unspool.advice.segments`: the fastest cut of a loop within a budget, by its own model."""

from __future__ import annotations

import itertools
import random

import pytest
from unspool.advice.segments import STAGED, Cut, ScanReport, Sizes, Way, balanced, best, least

WAYS = (Way.RECOMPUTE, Way.SPOOL)
MIB = 1 << 20
#: The wave of the results: 1,000 steps of 192^3 points.
WAVE = Sizes(1000, 27 * MIB, 54 * MIB)


def drawn(seed: int) -> tuple[Sizes, tuple[Way, ...]]:
    draw = random.Random(seed)
    steps = draw.choice([0, 1, 2, 3, 5, 7, draw.randrange(40), draw.randrange(3000)])
    saved, state, fixed = (draw.choice([0, 1, draw.randrange(5000)]) for _ in range(3))
    rows = draw.choice([0, draw.randrange(10_000)])
    ways = draw.choice([WAYS, (Way.SPOOL,)])
    return Sizes(steps, saved, state, fixed, rows, draw.choice([False, True])), ways


@pytest.mark.parametrize("seed", range(200))
def test_a_cut_is_of_all_steps_within_the_budget_and_more_budget_is_never_slower(seed: int) -> None:
    of, ways = drawn(seed)
    lowest = least(of, ways)
    assert lowest == 0 or best(of, lowest - 1, ways) is None
    most = lowest + of.fixed + of.steps * of.saved + 4 * of.state
    cost = None
    for budget in sorted(random.Random(seed).choices(range(lowest, most + 1), k=40)):
        cut = best(of, budget, ways)
        assert cut is not None and cut.recomputed + cut.kept == of.steps
        assert cut.bytes(of) <= budget
        assert cost is None or cut.cost <= cost
        cost = cut.cost
    assert best(of, most, ways) == Cut(Way.KEEP, 0, 0, of.steps)


def every(of: Sizes) -> list[Cut]:
    """All cuts of a short loop."""
    pairs = itertools.product(range(1, of.steps + 1), repeat=2)
    cuts = [(count, segment) for count, segment in pairs if count * segment <= of.steps]
    found = [Cut(way, *one, of.steps - one[0] * one[1]) for way in WAYS for one in cuts]
    return [cut for cut in found if cut.way is Way.SPOOL or cut.count > 1]


@pytest.mark.parametrize("steps", [2, 3, 5, 8, 12, 13])
@pytest.mark.parametrize("shared", [False, True])
def test_no_cut_within_the_budget_is_faster(steps: int, shared: bool) -> None:
    for saved, state, rows in [(1, 1, 0), (5, 1, 9), (2, 7, 0), (2, 7, 30), (10, 0, 5)]:
        of = Sizes(steps, saved, state, 3, rows, shared)
        for budget in range(least(of, WAYS), 3 + steps * saved):
            costs = [cut.cost for cut in every(of) if cut.bytes(of) <= budget]
            found = best(of, budget, WAYS)
            assert found is not None and found.cost == min(costs)


def test_the_wave_is_kept_recomputed_or_spooled() -> None:
    def way(budget: int) -> Way:
        cut = best(WAVE, budget << 20, WAYS)
        assert cut is not None
        return cut.way

    assert [way(mib) for mib in (27_000, 26_999, 2_500, 2_000, 200)] == [
        Way.KEEP,
        Way.RECOMPUTE,
        Way.RECOMPUTE,
        Way.SPOOL,
        Way.SPOOL,
    ]
    # A state and what one step saves, and a state that is on its way.
    assert least(WAVE, WAYS) == STAGED * WAVE.state + WAVE.saved


def test_large_inputs_are_not_copied() -> None:
    of = Sizes(1000, 27 * MIB, 54 * MIB, rows=2000 * MIB)
    cut = best(of, 3000 * MIB, (Way.RECOMPUTE,))
    assert cut == Cut(Way.RECOMPUTE, 20, 50, 0)
    # With room for a copy, the last piece saves time.
    cut = best(of, 9000 * MIB, (Way.RECOMPUTE,))
    assert cut is not None and cut.kept > 100


def test_balanced_segments_take_what_all_states_take() -> None:
    cut = best(WAVE, balanced(WAVE), (Way.SPOOL,))
    assert cut is not None and cut.segment == 44
    assert abs(cut.count * WAVE.state - cut.segment * WAVE.saved) < WAVE.state
    assert balanced(Sizes(3, 10, 10_000)) == 3 * 10 + STAGED * 10_000


def test_a_report_says_what_was_chosen_and_what_other_budgets_change() -> None:
    cut = best(WAVE, 4 << 30, WAYS)
    assert cut is not None
    report = ScanReport(4 << 30, WAVE, cut, WAYS)
    assert report.kept_bytes == 27_000 * MIB and report.expected_bytes <= report.budget
    head, _, title, *rows = str(report).splitlines()
    assert head.startswith("1,000 steps within 4.00 GiB: a state has 54.00 MiB, and a step saves")
    assert title.split() == ["budget", "bytes", "at", "once", "recomputed", "segments", "way"]
    assert rows[0].split() == [
        "4.00",
        "GiB",
        "3.85",
        "GiB",
        "87",
        "%",
        "7",
        "x",
        "124",
        "recompute",
    ]
    assert rows[-1].split()[4:] == ["0", "%", "-", "keep"]
    assert len(rows) == 5
