"""The bound of histories: by hand, against all that could be kept, and against the real core in
virtual time, which is never faster."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool import advice, schedules
from unspool.advice import Rate
from unspool.schedules import Discard, Forward, Restore, Reverse, Save
from unspool_studies.bench import bounds, report
from unspool_studies.bench.bound import (
    Access,
    Link,
    Pace,
    accesses_of,
    least_of,
    least_seconds,
)

MB = 1 << 20


def forward(count, compute=0.0):
    return [Access(version, 1, compute, saves=True) for version in range(count)]


def backward(order, compute=0.0):
    return [Access(version, 1, compute if number else 0.0) for number, version in enumerate(order)]


def sweep(slots, compute, down=1.0, up=1.0, count=10):
    links = [Link(slots, 1 / down, 1 / up)]
    there = least_seconds(forward(count, compute), links, kept=True)
    order = range(count - 1, -1, -1)
    return there, least_seconds(backward(order, compute), links, after=compute)


def test_the_bound_of_a_sweep_is_what_the_link_and_the_compute_leave():
    assert sweep(4, 0.0, up=2.0) == (6.0, 12.0)
    assert sweep(4, 3.0, up=2.0) == (30.0, 30.0)
    assert sweep(10, 0.5, up=2.0) == (5.0, 5.0)
    # Six of ten have to move, and nothing moves before the first one is computed.
    assert sweep(4, 0.5) == (6.5, 6.5)


def test_without_a_link_there_is_nothing_but_computing_and_copies():
    copied = [Access(0, 1, 2.0, saves=True, copy=0.5), Access(0, 1, 1.0, copy=0.25)]
    assert least_seconds(copied, [], after=3.0) == 6.75
    assert least_seconds([], [Link(1, 1.0, 1.0)], after=3.0) == 3.0


def test_what_was_just_saved_is_there():
    twice = [Access(0, 1, saves=True, copy=0.5), Access(0, 1, copy=0.5), Access(0, 1)]
    assert least_seconds(twice, [Link(0, 1.0, 1.0)]) == 1.0
    assert least_seconds(twice, [Link(0, 1.0, 1.0)], kept=True) == 1.0
    again = [*twice, Access(0, 1, 1.0)]
    assert least_seconds(again, [Link(1, 1.0, 1.0)]) == 2.0
    assert least_seconds(again, [Link(0, 1.0, 1.0)]) == 3.0


def test_what_is_saved_and_never_read_does_not_move_unless_it_is_kept():
    links = [Link(2, 1.0, 1.0)]
    assert least_seconds(forward(5), links) == 0.0
    assert least_seconds(forward(5), links, kept=True) == 3.0


def test_the_slowest_link_counts_with_all_the_room_above_it():
    history = [*forward(10), *backward(range(9, -1, -1))]
    # The last one that is saved is the first to be restored: of the others seven go down and come
    # back over the first link, and four over the second one.
    assert least_seconds(history, [Link(2, 1.0, 1.0), Link(3, 1.0, 1.0)]) == 14.0
    assert least_seconds(history, [Link(2, 1.0, 1.0), Link(3, 0.1, 0.1)]) == 80.0


def test_rooms_are_of_whole_checkpoints_where_all_are_alike():
    alike = [Access(version, 4, saves=True) for version in range(3)]
    assert least_seconds(alike, [Link(7, 1.0, 1.0)], kept=True) == 8.0
    mixed = [*alike, Access(3, 1, saves=True)]
    assert least_seconds(mixed, [Link(7, 1.0, 1.0)], kept=True) == 6.0


def fewest_moves(order, slots):
    """Loads and stores of a cache that every access may pass by, by trying everything."""
    states = {(frozenset(), frozenset()): {(0, 0)}}
    for place, (version, saves) in enumerate(order):
        later = {v for v, _ in order[place + 1 :]}
        after = {}
        for (there, below), costs in states.items():
            load = 0 if saves or version in there else 1
            held = there | {version}
            for kept in itertools.chain.from_iterable(
                itertools.combinations(held, size) for size in range(min(slots, len(held)) + 1)
            ):
                # What is wanted later and not kept has to be below.
                lost = {v for v in held if v in later and v not in kept and v not in below}
                key = frozenset(kept), below | lost
                cost = {(ups + load, downs + len(lost)) for ups, downs in costs}
                after[key] = after.get(key, set()) | cost
        states = after
    found = set().union(*states.values())
    return min(ups for ups, _ in found), min(downs for _, downs in found)


@settings(max_examples=100, deadline=None)
@given(
    picks=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    slots=st.integers(0, 3),
)
def test_no_cache_moves_fewer_bytes(picks, slots):
    # A version is saved at its first access; not the same one twice in a row.
    order = [(version, False) for version, _ in itertools.groupby(picks)]
    seen = set()
    order = [(v, not (v in seen or seen.add(v))) for v, _ in order]
    ups, downs = fewest_moves(order, slots)
    accesses = [Access(v, 1, saves=saves) for v, saves in order]
    never = 1e12
    assert least_seconds(accesses, [Link(slots, never, 1.0)]) == pytest.approx(ups, abs=1e-9)
    assert least_seconds(accesses, [Link(slots, 1.0, never)]) == pytest.approx(downs, abs=1e-9)


def test_the_accesses_of_a_schedule_are_its_saves_and_restores():
    actions = [Save(0), Forward(0, 2), Save(2), Forward(2, 3), Reverse(3), Restore(2), Reverse(2)]
    actions += [Discard(2), Restore(0), Forward(0, 1), Reverse(1), Restore(0), Reverse(0)]
    pace = Pace(1.0, 10.0, Rate(1.0), Rate(2.0))
    accesses, after = accesses_of(actions, pace, 8, 4)
    assert after == 10.0
    assert accesses == [
        Access(1, 8, 0.0, saves=True, copy=8.0),
        Access(2, 4, 2.0, saves=True, copy=4.0),
        Access(2, 4, 11.0, copy=2.0),
        Access(1, 8, 10.0, copy=4.0),
        Access(1, 8, 11.0, copy=4.0),
    ]


def test_a_state_that_is_kept_in_two_tiers_is_one_checkpoint_and_one_that_is_saved_again_another():
    actions = [Save(0, "device"), Save(0, "host"), Discard(0, "device"), Restore(0, "host")]
    actions += [Discard(0, "host"), Save(0), Restore(0)]
    accesses, _ = accesses_of(actions, Pace(1.0, 1.0), 8)
    assert [(access.version, access.saves) for access in accesses] == [
        (1, True),
        (1, False),
        (2, True),
        (2, False),
    ]


def made(kind, steps, slots):
    match kind:
        case "all":
            return schedules.StoreAll(steps)
        case "revolve":
            return schedules.Revolve(steps, slots)
        case "uniform":
            return schedules.Uniform(steps, slots)
    return schedules.ZCut(steps, length=min(slots, steps))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_real_core_is_never_faster(data):
    draw = data.draw
    steps, slots = draw(st.integers(1, 40)), draw(st.integers(1, 10))
    schedule = made(draw(st.sampled_from(["all", "revolve", "uniform", "zcut"])), steps, slots)
    rates = st.floats(1e9, 60e9)
    links = tuple(
        advice.Link(fast, slow, Rate(draw(rates), 1e-5), Rate(draw(rates), 1e-5))
        for fast, slow in (("device", "host"), ("host", "disk"))
    )
    copies = Rate(1e12, 5e-6)
    found = advice.Links("cuda:0", ("device", "host", "disk"), copies, copies, links)
    times = st.sampled_from([0.0, 1e-4, 1e-3])
    pair, part = (draw(times), draw(times)), draw(st.sampled_from([4 * MB, 2 * MB]))
    candidate = advice.predict(
        schedule,
        4 * MB,
        pair[0],
        reverse_seconds=pair[1],
        reverse_bytes=part,
        device_memory=draw(st.integers(1, 6)) * 4 * MB,
        host_memory=draw(st.integers(1, 6)) * 4 * MB,
        disk=1 << 40,
        links=found,
        device="cuda:0",
    )
    least = least_of(candidate, found, pair, (4 * MB, part))
    # The core counts in nanoseconds.
    assert least <= candidate.seconds * (1 + 1e-6) + 1e-6


def test_a_schedule_that_does_not_know_its_steps_has_a_bound():
    rate = Rate(1e9)
    link = advice.Link("device", "host", rate, rate)
    found = advice.Links("cuda:0", ("device", "host"), rate, rate, (link,))
    schedule = schedules.OnlineRevolve(4)
    candidate = advice.predict(
        schedule,
        MB,
        1e-3,
        steps=20,
        device_memory=2 * MB,
        host_memory=8 * MB,
        links=found,
        device="cuda:0",
    )
    least = least_of(candidate, found, (1e-3, 1e-3), (MB, MB), 20)
    assert 20e-3 < least <= candidate.seconds * (1 + 1e-6)


def test_the_table_of_schedules_in_virtual_time_is_never_above_its_bound(monkeypatch):
    monkeypatch.setattr(bounds, "CASES", bounds.CASES[4:8])
    collected = report.Report({})
    bounds.run(None, collected)
    (table,) = collected.tables
    reached = [row[list(table.columns).index("of bound %")] for row in table.rows]
    assert len(reached) == 4
    assert all(90 < share < 100.001 for share in reached)
