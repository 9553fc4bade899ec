"""Which blocks are kept, computed again or moved: the forecast and the choice, without PyTorch."""

from __future__ import annotations

import bisect
import itertools
import random

import pytest
from unspool.advice import blocks as room
from unspool.advice.blocks import Block, Contention, Forecast, Lane, Way, best, enough, forecast
from unspool.advice.links import Rate

GIB = 1 << 30


def block(draw: random.Random) -> Block:
    saved = draw.randint(4, 60)
    inputs = draw.randint(0, saved if draw.random() < 0.3 else saved // 3)
    forward = draw.uniform(1, 5)
    again, backward = forward * draw.uniform(0.6, 1.1), forward * draw.uniform(1, 3)
    return Block(saved, inputs, forward, again, backward)


def lane(draw: random.Random, total: int) -> Lane:
    speed = 10 ** draw.uniform(0, 2.5)
    capacity = draw.choice([10**9, total // 2, total])
    back = Rate(max(1.0, speed * draw.uniform(0.7, 1.2)))
    beside, slows = draw.random() < 0.8, draw.choice([0.0, 0.06, 0.5])
    return Lane(Rate(speed), back, beside, capacity, Contention(slows, slows / 3, slows / 10))


def problem(seed: int, *, equal: bool) -> tuple[random.Random, list[Block], Lane | None]:
    draw = random.Random(seed)
    count = draw.randint(1, 6)
    blocks = [block(draw)] * count if equal else [block(draw) for _ in range(count)]
    total = sum(each.saved for each in blocks)
    return draw, blocks, None if draw.random() < 0.1 else lane(draw, total)


def least_moved(
    blocks: list[Block], ways: tuple[Way, ...], budget: int, given: Lane | None
) -> list[int]:
    """The bytes that are moved, where of the last block that is moved no more are than have to be:
    looked for by trying, in a lane without an end."""
    moved = [each.moved(way) for each, way in zip(blocks, ways, strict=True)]
    if Way.OFFLOAD in ways and given is not None:
        last = len(ways) - 1 - ways[::-1].index(Way.OFFLOAD)
        endless = Lane(given.away, given.back, given.beside)

        def fits(part: int) -> bool:
            tried = [*moved[:last], part, *moved[last + 1 :]]
            return forecast(blocks, ways, budget, endless, tried) is not None

        moved[last] = bisect.bisect_left(range(moved[last]), True, key=fits)
    return moved


def brute(blocks: list[Block], budget: int, given: Lane | None) -> Forecast | None:
    found = []
    for ways in itertools.product(Way, repeat=len(blocks)):
        found.append(forecast(blocks, ways, budget, given))
        parts = least_moved(blocks, ways, budget, given)
        found.append(forecast(blocks, ways, budget, given, parts))
    return min((one for one in found if one), key=lambda one: one.seconds, default=None)


def bytes_at_once(blocks: list[Block], found: Forecast) -> int:
    """The most bytes of a pass, counted anew from what the forecast says is to be done."""
    kept, fetched, leaving, most = 0, 0, [], 0

    def make_room(most: int) -> None:
        while sum(leaving) > most:
            leaving.pop(0)

    for each, way, space, moved in zip(blocks, found.ways, found.room, found.moved, strict=True):
        make_room(space)
        most = max(most, kept + sum(leaving) + each.saved)
        kept += {Way.KEEP: each.saved, Way.RECOMPUTE: each.inputs}.get(way, 0)
        if way.moves:
            leaving.append(moved)
            kept += each.saved - moved if way is Way.OFFLOAD else 0
    away = {p for p, moved in enumerate(found.moved) if moved}
    for place in reversed(range(len(blocks))):
        make_room(found.room_back[place])
        for other in found.fetch[place]:
            away.remove(other)
            fetched += found.moved[other]
        each, way, moved = blocks[place], found.ways[place], found.moved[place]
        assert place not in away
        more = each.saved - each.inputs if way.repeats else 0
        most = max(most, kept + fetched + sum(leaving) + more)
        fetched -= moved
        kept -= {Way.KEEP: each.saved, Way.RECOMPUTE: each.inputs}.get(way, 0)
        kept -= each.saved - moved if way is Way.OFFLOAD else 0
    assert kept == fetched == 0 and not away
    return most


@pytest.mark.parametrize("seed", range(150))
def test_no_more_bytes_than_the_budget_are_there_at_once(seed: int) -> None:
    draw, blocks, given = problem(seed, equal=seed % 2 == 0)
    if given is not None:
        given = Lane(given.away, given.back, beside=True, capacity=given.capacity)
    total = sum(each.saved for each in blocks)
    for _ in range(20):
        ways = [draw.choice(list(Way)) for _ in blocks]
        budget = draw.randint(1, total)
        found = forecast(blocks, ways, budget, given)
        if found is not None:
            assert bytes_at_once(blocks, found) == found.peak_bytes <= budget
            part = forecast(
                blocks, ways, budget, given, least_moved(blocks, tuple(ways), budget, given)
            )
            assert part is not None
            assert bytes_at_once(blocks, part) == part.peak_bytes <= budget


@pytest.mark.parametrize("seed", range(60))
def test_a_larger_budget_is_never_slower(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(room, "FEW", 0)
    draw, blocks, given = problem(seed, equal=seed % 3 == 0)
    total = sum(each.saved for each in blocks)
    budgets = sorted(draw.randint(1, total) for _ in range(12))
    found = [best(blocks, budget, given) for budget in [*budgets, total]]
    seconds = [one.seconds if one else float("inf") for one in found]
    assert seconds == sorted(seconds, reverse=True)
    assert set(found[-1].ways) == {Way.KEEP}


@pytest.mark.parametrize("seed", range(40))
def test_of_equal_blocks_the_runs_are_as_good_as_all_choices(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FEW", 0)
    draw, blocks, given = problem(seed, equal=True)
    # Now and then the sixth, which takes four times as long.
    blocks = blocks[: 6 if seed % 8 == 0 else 5]
    budget = draw.randint(blocks[0].saved, sum(each.saved for each in blocks))
    found, expected = best(blocks, budget, given), brute(blocks, budget, given)
    assert (found is None) == (expected is None)
    assert found is None or found.seconds == pytest.approx(expected.seconds, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_of_few_blocks_all_choices_are_compared(seed: int) -> None:
    draw, blocks, given = problem(seed, equal=False)
    blocks = blocks[:4]
    budget = draw.randint(1, sum(each.saved for each in blocks))
    found, expected = best(blocks, budget, given), brute(blocks, budget, given)
    assert (found and found.seconds) == (expected and expected.seconds)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_to_be_enough_is(seed: int) -> None:
    _, blocks, given = problem(seed, equal=seed % 2 == 0)
    blocks = blocks[:4]
    least = enough(blocks, given)
    assert best(blocks, least, given) is not None
    if given is None or given.capacity >= sum(each.inputs for each in blocks):
        assert best(blocks, least - 1, given) is None


def test_sixteen_layers_on_a_gpu() -> None:
    # A stack that was measured on an H100: see python/decisions/0060-a-budget-for-blocks.md.
    saved = 3 * GIB // 2
    layer = Block(saved, saved // 17, 72.3e-3 / 16, 58e-3 / 16, 144.7e-3 / 16)
    link = Rate(51.2 * GIB)
    given = Lane(link, link, beside=True)
    expected = {24: 0.217, 20: 0.225, 16: 0.236, 12: 0.247, 8: 0.258, 4: 0.275}
    for budget, most in expected.items():
        found = best([layer] * 16, budget * GIB, given)
        assert found is not None and found.seconds <= most + 1e-9
        assert found.peak_bytes <= budget * GIB
    # What the forward pass hides is moved: this is what makes it faster than computing again.
    found, again = (best([layer] * 16, 12 * GIB, each) for each in (given, None))
    assert Way.OFFLOAD in found.ways and found.seconds < again.seconds


def test_bytes_are_moved_beside_computing_or_instead_of_it() -> None:
    layer = Block(100, 10, 1.0, 1.0, 2.0)
    ways = [Way.OFFLOAD, Way.KEEP, Way.KEEP, Way.KEEP]
    for speed, beside, seconds in [
        (100, True, 12.0),
        (100, False, 12.0 + 2.0),
        # The copy away ends after 101 s, that back after 201, and then the block runs backwards.
        (1, True, 201 + 2.0),
        (1, False, 12.0 + 200),
    ]:
        found = forecast([layer] * 4, ways, 400, Lane(Rate(speed), Rate(speed), beside))
        assert found is not None and found.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("slows", "more"),
    [
        # The copies take two seconds away and two back, of three and six.
        (Contention(away=0.5), 0.5 * 2.0),
        (Contention(back=0.5), 0.5 * 2.0),
        (Contention(late=0.5), 0.0),
    ],
)
def test_computing_is_slower_beside_copies(slows: Contention, more: float) -> None:
    layer, link = Block(100, 10, 1.0, 1.0, 2.0), Rate(100.0)
    ways = [Way.OFFLOAD, Way.OFFLOAD, Way.KEEP]
    alone, beside = (
        forecast([layer] * 3, ways, 300, Lane(link, link, True, contention=each))
        for each in (Contention(), slows)
    )
    assert alone is not None and beside is not None
    assert beside.seconds == pytest.approx(alone.seconds + more)


def test_copies_that_outlast_the_forward_pass_slow_the_backward_pass_down() -> None:
    layer, link = Block(100, 10, 1.0, 1.0, 2.0), Rate(40.0)
    slows, ways = Contention(away=0.5, late=0.25), [Way.OFFLOAD, Way.OFFLOAD, Way.KEEP]
    found = forecast([layer] * 3, ways, 300, Lane(link, link, True, contention=slows))
    alone = forecast([layer] * 3, ways, 300, Lane(link, link, True))
    assert found is not None and alone is not None
    # They take five seconds, of which three are hidden by the forward pass.
    assert found.seconds - alone.seconds == pytest.approx(0.5 * 3 + 0.25 * 2)


def test_what_a_lane_cannot_hold_is_not_moved() -> None:
    layer = Block(100, 10, 1.0, 1.0, 2.0)
    link = Rate(1e9)
    assert forecast([layer] * 3, [Way.OFFLOAD] * 3, 300, Lane(link, link, True, 299)) is None
    assert forecast([layer] * 3, [Way.OFFLOAD] * 3, 300, Lane(link, link, True, 300)) is not None
    assert forecast([layer] * 3, [Way.RECALL] * 3, 300, None) is None
    assert best([layer] * 3, 105, Lane(link, link, True, 19)) is None
    found = best([layer] * 3, 105, Lane(link, link, True, 20))
    assert found is not None and found.ways == (Way.RECALL, Way.RECALL, Way.KEEP)


def test_of_very_many_blocks_a_choice_is_made() -> None:
    layer = Block(100, 10, 1.0, 1.0, 2.0)
    link = Rate(20.0)
    found = best([layer] * 200, 9000, Lane(link, link, True))
    again = best([layer] * 200, 9000, None)
    assert found is not None and again is not None
    assert found.seconds <= again.seconds and found.peak_bytes <= 9000
