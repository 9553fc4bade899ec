"""The arithmetic of `unspool.advise`: the dissertation's numbers, limits, and drawn failures."""

import math

import flat
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from unspool.advice.model import (
    Level,
    TwoLevels,
    best_interval,
    best_pair,
    break_even,
    efficiency,
    efficiency_of_two,
    lifespan,
    node_cost,
    optimum,
)
from unspool.errors import OptionError

from advise_failures import one_level, two_levels

#: Five years of a socket, 196,000 of them, as the dissertation counts for its 12,250 nodes.
MTBF = 5 * 365 * 86_400 / 196_000

#: A third of 2 GB, in MB and in MB/s.
CHECKPOINT = 683.0


@pytest.mark.parametrize(
    ("saved", "encode", "decode", "expected"),
    [
        (92.7, 154.2, 564.9, 224.6),
        (91.6, 209.1, 195.5, 185.1),
        (91.0, 144.0, 478.8, 201.5),
        (89.7, 193.6, 179.9, 167.3),
        (43.0, 37.2, 104.5, 23.6),
        (41.9, 26.7, 97.1, 17.5),
    ],
)
def test_the_break_even_bandwidth_is_that_of_tables_5_2_and_5_3(saved, encode, decode, expected):
    assert break_even(saved / 100, encode, decode) == pytest.approx(expected, abs=0.1)


def synchronous(commit, restart):
    level = Level(commit, commit, restart)
    return efficiency(best_interval(level, MTBF), level, MTBF)


def test_efficiency_is_that_of_the_dissertation_for_scr():
    assert synchronous(CHECKPOINT / 211, CHECKPOINT / 211) == pytest.approx(0.909, abs=0.0005)


def test_efficiency_is_that_of_the_dissertation_for_compressed_increments():
    changed = 0.2 * CHECKPOINT
    commit = changed / 154.2 + 0.073 * changed
    restart = 0.073 * CHECKPOINT + CHECKPOINT / 564.9
    assert synchronous(commit, restart) == pytest.approx(0.793, abs=0.0005)


@pytest.mark.parametrize(("cycles", "weeks"), [(750, 47.9), (3000, 191.5), (100_000, 6385)])
def test_drives_last_as_long_as_table_5_5_says_with_a_checkpoint_each_mtbf(cycles, weeks):
    weekly = 7 * 86_400 / MTBF * 8 * 2 / 3 * 2**30
    assert lifespan(256 * 2**30 * cycles, weekly) == pytest.approx(weeks, rel=0.002)


def test_a_node_costs_as_many_drives_as_it_wears_out():
    assert node_cost(500, 200, 260, 47.4) == 500 + 6 * 200
    assert node_cost(500, 200, 260, 1000) == 700
    assert lifespan(1.0, 0.0) == math.inf


@pytest.mark.parametrize(("blocked", "mtbf"), [(1.0, 3600.0), (1.0, 60.0), (1.0, 1e6)])
def test_the_optimum_is_what_the_checkpointer_goes_by(blocked, mtbf, tmp_path):
    # It takes a save to cost a second before one was measured.
    with flat.checkpointer(tmp_path / "run", mtbf=mtbf, share=0.999) as checkpoints:
        assert optimum(blocked, mtbf) == pytest.approx(checkpoints.interval, rel=2e-3)


@pytest.mark.parametrize(
    ("level", "mtbf", "interval"),
    [
        (Level(5, 5, 20), 1000, 100),
        (Level(3, 3, 5), 100, 20),
        (Level(5, 60, 20), 1000, 100),
        (Level(0.5, 250, 100), 900, 300),
        (Level(0, 30, 0), 300, 40),
    ],
)
def test_efficiency_is_that_of_drawn_failures(level, mtbf, interval):
    drawn = one_level(interval, level, mtbf, 50_000, seed=5)
    assert efficiency(interval, level, mtbf) == pytest.approx(drawn, rel=0.02)


@pytest.mark.parametrize(
    ("interval", "count", "near", "far", "healed", "mtbf"),
    [
        (100, 5, Level(2, 2, 10), Level(0, 0, 10), 1.0, 1000),
        (100, 1, Level(2, 2, 10), Level(0, 0, 50), 0.0, 1000),
        (100, 5, Level(2, 2, 10), Level(3, 150, 60), 0.85, 2000),
        (100, 10, Level(2, 10, 10), Level(0, 700, 200), 0.85, 3000),
        (50, 4, Level(1, 5, 20), Level(2, 180, 60), 0.6, 700),
        (60, 6, Level(1, 4, 10), Level(0, 90, 100), 0.9, 600),
        (60, 3, Level(2, 10, 10), Level(0, 170, 100), 0.3, 800),
        (60, 2, Level(2, 2, 150), Level(0, 60, 150), 0.7, 300),
    ],
)
def test_efficiency_of_two_levels_is_that_of_drawn_failures(
    interval, count, near, far, healed, mtbf
):
    levels = TwoLevels(near, far, healed)
    drawn = two_levels(interval, count, levels, mtbf, 15_000, seed=5)
    assert efficiency_of_two(interval, count, levels, mtbf) == pytest.approx(drawn, rel=0.02)


SECONDS = st.floats(0.0, 1e4)
ABOVE = st.floats(1e-3, 1e4)
SHARES = st.floats(0.0, 1.0)


@st.composite
def jobs(draw):
    """A level, and a time between failures that it can live with."""
    blocked, more = draw(ABOVE), draw(SECONDS)
    level = Level(blocked, blocked + more, draw(SECONDS))
    return level, level.durable * draw(st.floats(1.01, 1e4)) + 1e-3


@given(jobs(), st.floats(0.1, 10.0))
def test_no_interval_is_better_than_the_best_one(job, factor):
    level, mtbf = job
    best = best_interval(level, mtbf)
    other = best * factor
    assume(level.durable <= other + level.blocked)
    assert efficiency(other, level, mtbf) <= efficiency(best, level, mtbf) * (1 + 1e-9)


@given(jobs(), SHARES, SHARES, SHARES)
def test_a_faster_place_never_lowers_efficiency(job, blocked, durable, restart):
    level, mtbf = job
    faster = Level(
        level.blocked * blocked,
        level.blocked * blocked + (level.durable - level.blocked) * durable,
        level.restart * restart,
    )
    at = [efficiency(best_interval(one, mtbf), one, mtbf) for one in (level, faster)]
    assert at[1] >= at[0] * (1 - 1e-9)


@given(jobs(), st.floats(1.0, 100.0))
def test_rarer_failures_never_lower_efficiency(job, factor):
    level, mtbf = job
    at = [efficiency(best_interval(level, one), level, one) for one in (mtbf, mtbf * factor)]
    assert at[1] >= at[0] * (1 - 1e-9)


@given(st.floats(0.0, 0.99), st.floats(0.0, 0.99), ABOVE, ABOVE, SECONDS, SHARES, SHARES)
def test_a_better_ratio_never_lowers_the_break_even(one, other, encode, decode, often, a, b):
    # Below the break-even compressing pays: a better ratio makes it pay on more machines.
    less, more = sorted((one, other))
    figures = (encode, decode, often, a, b)
    assume(often or a)
    assert break_even(less, *figures) <= break_even(more, *figures)


@given(jobs(), ABOVE, SHARES)
def test_with_every_failure_healed_nearby_two_levels_are_one(job, interval, restart):
    level, mtbf = job
    assume(level.durable <= interval + level.blocked and interval < mtbf)
    levels = TwoLevels(level, Level(0.0, 0.0, restart), 1.0)
    alone = efficiency(interval, level, mtbf)
    assert efficiency_of_two(interval, 4, levels, mtbf) == pytest.approx(alone, rel=1e-6, abs=1e-12)


@given(jobs(), ABOVE)
def test_with_every_failure_far_and_instant_copies_two_levels_are_one(job, interval):
    level, mtbf = job
    assume(level.durable <= interval + level.blocked and interval < mtbf)
    levels = TwoLevels(Level(level.blocked, level.durable, 0.0), Level(0, 0, level.restart), 0.0)
    alone = efficiency(interval, level, mtbf)
    assert efficiency_of_two(interval, 1, levels, mtbf) == pytest.approx(alone, rel=1e-6, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(jobs(), st.floats(1.0, 1e4), SHARES, SHARES)
def test_a_faster_far_place_never_lowers_efficiency(job, copying, faster, healed):
    level, mtbf = job
    found = []
    for seconds in (copying, copying * faster):
        levels = TwoLevels(level, Level(0.0, seconds, 2 * level.restart), healed)
        interval, count = best_pair(levels, mtbf)
        found.append(efficiency_of_two(interval, count, levels, mtbf))
    assert found[1] >= found[0] * (1 - 1e-3)


def test_without_failures_or_costs_everything_is_work():
    level = Level(5.0, 60.0, 100.0)
    assert efficiency(best_interval(level, 1e15), level, 1e15) == pytest.approx(1.0, abs=1e-6)
    free = Level(0.0, 0.0, 0.0)
    assert efficiency(best_interval(free, 100.0), free, 100.0) == 1.0
    cheap = Level(1e-9, 1e-9, 0.0)
    assert efficiency(best_interval(cheap, 100.0), cheap, 100.0) == pytest.approx(1.0, abs=1e-4)


def test_faster_reading_makes_compressing_pay_less_often():
    # s (1 + f / k) / (1 / e + f / d), with reading k times as fast as writing.
    found = break_even(0.5, 2e9, 4e9, recoveries=1.0, reading=2.0)
    assert found == pytest.approx(0.5 * 1.5 / (1 / 2e9 + 1 / 4e9))


def test_what_nobody_waits_for_counts_only_after_a_failure():
    waited = break_even(0.5, 2e9, 4e9, recoveries=1.0)
    assert break_even(0.5, 2e9, 4e9, 0.01, commit_waits=0, encode_waits=0) == pytest.approx(waited)
    # Encoding while the application waits, and writing while it does not: hardly ever.
    assert break_even(0.5, 2e9, 4e9, 0.01, commit_waits=0) < waited / 10


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Level(-1.0, 1.0, 0.0), "blocked=-1.0"),
        (lambda: Level(math.nan, 1.0, 0.0), "blocked=nan"),
        (lambda: Level(1.0, math.inf, 0.0), "durable=inf"),
        (lambda: Level(2.0, 1.0, 0.0), "before the call returns"),
        (lambda: TwoLevels(Level(1, 1, 1), Level(1, 1, 1), 1.5), "healed=1.5"),
        (lambda: best_interval(Level(10, 10, 0), 9.0), "hardly one would be finished"),
        (lambda: best_interval(Level(10, 10, 0), math.nan), "mtbf=nan"),
        (lambda: efficiency(1.0, Level(1, 10, 0), 100), "not durable when the next one begins"),
        (lambda: efficiency(-1.0, Level(1, 1, 0), 100), "interval=-1.0"),
        (lambda: break_even(1.0, 1, 1), "saved=1.0"),
        (lambda: break_even(0.5, 0, 1), "encode=0"),
        (lambda: break_even(0.5, 1, math.nan), "decode=nan"),
        (lambda: break_even(0.5, 1, 1, -1.0), "recoveries=-1.0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(make, reason):
    with pytest.raises(OptionError, match=reason):
        make()
