"""Histories larger than every fast tier come back whole, in every order."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import children, python, random_array, same_bits

COUNT, ITEMS = 60, 2_000


def state(version: int) -> np.ndarray:
    return random_array((ITEMS,), np.dtype("f8"), seed=version)


def orders() -> dict[str, list[int]]:
    forward = list(range(COUNT))
    shuffled = np.random.default_rng(1).permutation(COUNT).tolist()
    return {
        "reverse": forward[::-1],
        "sequential": forward,
        "irregular": shuffled,
        "repeated": [*forward[::-1], *shuffled, *forward],
        "back and forth": [v for n in range(COUNT, 0, -7) for v in range(max(0, n - 7), n)],
        "some only": forward[::3],
    }


TIERS = {
    "host and disk": {"host_memory": "100KiB"},
    "device and disk": {"device_memory": "100KiB"},
    "device, host and disk": {"device_memory": "70KiB", "host_memory": "200KiB"},
    "disk": {},
    "everything fits": {"host_memory": "4MiB"},
}


def history_comes_back(spool: unspool.Spool, order: list[int], hinted: str) -> None:
    """Saves the history, restores it in this order, and compares every bit."""
    if hinted == "before":
        spool.expect(order)
    if hinted == "wrong":
        spool.expect(sorted(order))
    for version in range(COUNT):
        spool.save(version, state(version))
    if hinted == "after":
        spool.expect(order)
    target = np.empty(ITEMS)
    for version in order:
        spool.restore(version, target)
        assert same_bits(target, state(version))
    figures = spool.stats()
    assert figures.saves == COUNT and figures.restores == len(order)
    assert figures.saved_bytes == COUNT * ITEMS * 8
    assert spool.versions() == list(range(COUNT))


@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS)
@pytest.mark.parametrize("order", orders().values(), ids=orders())
def test_a_history_comes_back_through_all_tiers_in_every_order(
    tiers: dict[str, str], order: list[int], tmp_path: Path
) -> None:
    with unspool.Spool(disk=tmp_path, **tiers) as spool:
        history_comes_back(spool, order, "after")


@pytest.mark.parametrize("order", orders().values(), ids=orders())
@pytest.mark.parametrize("hinted", ["before", "never", "wrong"])
def test_a_history_comes_back_whatever_was_expected(
    order: list[int], hinted: str, tmp_path: Path
) -> None:
    with unspool.Spool(host_memory="100KiB", disk=tmp_path) as spool:
        history_comes_back(spool, order, hinted)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_read_back_once_is_discarded_after_its_last_restore(
    when: str, tmp_path: Path
) -> None:
    order = [*reversed(range(COUNT)), 0]
    with unspool.Spool(host_memory="100KiB", disk=tmp_path) as spool:
        if when == "before":
            spool.expect(iter(order), once=True)
        for version in range(COUNT):
            spool.save(version, state(version))
        if when == "after":
            spool.expect(order, once=True)
        for version in reversed(range(COUNT)):
            assert same_bits(spool.load(version), state(version))
        assert spool.versions() == [0]
        assert same_bits(spool.load(0), state(0))
        assert len(spool) == 0
        with pytest.raises(unspool.errors.UnknownVersionError, match="read back once"):
            spool.load(0)


def test_hints_may_be_forgotten(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="100KiB", disk=tmp_path) as spool:
        spool.expect(range(10))
        spool.forget_hints()
        assert spool.stats().hints == 0
        for version in range(10):
            spool.save(version, state(version))
        spool.expect(iter([3, np.int64(4)]))
        assert spool.stats().hints == 2
        with pytest.raises(TypeError):
            spool.expect(3)
        with pytest.raises(TypeError):
            spool.expect(["a"])


def test_an_order_without_an_end_is_followed() -> None:
    with unspool.Spool(host_memory="1MiB") as spool:
        for version in range(COUNT):
            spool.save(version, np.full(3, version))
        taken = itertools.count()
        spool.expect(next(taken) % COUNT for _ in itertools.repeat(None))
        first = next(taken)
        assert COUNT < spool.stats().hints <= first
        target = np.zeros(3, int)
        for restore in range(2 * first + 10):
            spool.restore(restore % COUNT, target)
            assert target[0] == restore % COUNT
        assert next(taken) > 2 * first
        stats = spool.stats()
        assert stats.hints > COUNT and stats.hinted_restores == 2 * first + 10


def test_an_order_without_an_end_is_followed_by_every_way_to_read() -> None:
    with unspool.Spool(host_memory="1MiB") as spool:
        spool.save(0, np.zeros(1))
        for read in (spool.load, lambda version: spool.reading(version).__enter__()):
            spool.expect(itertools.repeat(0))
            full = spool.stats().hints
            for _ in range(full):
                read(0)
            assert 0 < spool.stats().hints <= full
            spool.forget_hints()


def test_ranges_and_lists_longer_than_the_window_are_followed_to_their_end() -> None:
    long = 40_000
    with unspool.Spool(host_memory="1MiB") as spool:
        spool.save(0, np.zeros(1))
        spool.expect(itertools.repeat(0, long))
        spool.expect([0] * long)
        target = np.zeros(1)
        for _ in range(2 * long):
            spool.restore(0, target)
        assert spool.stats().hints == 0 and spool.stats().hinted_restores == 2 * long
        spool.expect(range(10**18))
        assert 0 < spool.stats().hints < long


def test_ctrl_c_ends_an_order_without_an_end() -> None:
    with unspool.Spool(host_memory="64KiB") as spool:
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(100):
                with contextlib.suppress(unspool.errors.OptionError):
                    spool.expect(itertools.count(), once=True)
        timer.join()
        assert spool.stats().hints == 0


def test_an_order_without_an_end_is_refused_where_all_of_it_has_to_be_known() -> None:
    with unspool.Spool(host_memory="64KiB") as spool:
        with pytest.raises(unspool.errors.OptionError, match="last=True"):
            spool.expect(itertools.count(), last=True)
        with pytest.raises(unspool.errors.OptionError, match="once=True"):
            spool.expect(itertools.count(), once=True)
        assert spool.stats().hints == 0


def test_what_an_order_raises_is_raised_by_a_restore_that_can_be_repeated() -> None:
    def order() -> Iterator[int]:
        yield from itertools.repeat(0, 20_000)
        raise ZeroDivisionError

    with unspool.Spool(host_memory="1MiB") as spool:
        spool.save(0, np.zeros(1))
        spool.expect(order())
        target = np.zeros(1)
        raised = 0
        for _ in range(20_000):
            try:
                spool.restore(0, target)
            except ZeroDivisionError:
                raised += 1
                spool.restore(0, target)
        assert raised == 1 and spool.stats().restores == 20_000


def test_an_order_may_call_the_spool_and_may_be_forgotten() -> None:
    with unspool.Spool(host_memory="1MiB") as spool:

        def order() -> Iterator[int]:
            for version in itertools.count():
                if version % 10_000 == 0:
                    assert version > 0 or spool.load(0)[0] == 7
                    spool.expect([0])
                yield 0

        spool.save(0, np.full(1, 7))
        spool.expect(order())
        spool.forget_hints()
        assert spool.stats().hints == 0
        for _ in range(3000):
            spool.load(0)
        assert spool.stats().hinted_restores <= 1


def test_a_spool_whose_order_refers_to_it_is_collected() -> None:
    spool = unspool.Spool(host_memory="64KiB")

    def order(own: unspool.Spool) -> Iterator[int]:
        while True:
            yield len(own)

    spool.expect(order(spool))
    gone = weakref.ref(spool)
    with pytest.warns(ResourceWarning):
        del spool
        gc.collect()
    assert gone() is None


def test_a_full_stack_refuses_and_goes_on_after_a_discard(tmp_path: Path) -> None:
    capacity = 10 * (ITEMS * 8 + 8192)
    with unspool.Spool(host_memory="64KiB", disk=(tmp_path, capacity)) as spool:
        saved = 0
        with pytest.raises(unspool.errors.CapacityError, match="disk") as full:
            for version in range(COUNT):
                spool.save(version, state(version))
                saved += 1
        assert full.value.version == saved and full.value.retryable
        assert 12 <= saved <= 16 and spool.versions() == list(range(saved))
        for version in (3, 4, 5):
            spool.discard(version)
        spool.save(saved, state(saved))
        for version in spool.versions():
            assert same_bits(spool.load(version), state(version))


def test_a_checkpoint_larger_than_every_tier_is_refused(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="64KiB", disk=(tmp_path, "1MiB")) as spool:
        with pytest.raises(unspool.errors.CapacityError, match="2"):
            spool.save(2, np.zeros(1 << 20))
        spool.save(2, np.zeros(100_000))
        assert not spool.load(2).any()


FULL_MEDIUM = """
import resource, sys
import numpy as np, unspool
limit = 200 * 1024
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with unspool.Spool(host_memory="1MiB", disk=sys.argv[1]) as spool:
    small, large = np.arange(10_000.0), np.arange(60_000.0)
    spool.save(0, small)
    spool.save(1, large)
    try:
        spool.save(2, large)
        spool.save(3, large)
    except unspool.Error as error:
        print(type(error).__name__, error)
    assert (spool.load(0) == small).all() and (spool.load(1) == large).all()
"""


def test_a_medium_that_refuses_bytes_loses_nothing(tmp_path: Path) -> None:
    done = python(FULL_MEDIUM, tmp_path)
    assert done.returncode == 0, done.stderr
    kind = done.stdout.split()[0]
    assert kind in ("CapacityError", "StorageError") and str(tmp_path) in done.stdout
    assert done.stderr == ""


def test_flush_brings_everything_to_the_disk(tmp_path: Path) -> None:
    with unspool.Spool(device_memory="1MiB", host_memory="2MiB", disk=tmp_path) as spool:
        for version in range(20):
            spool.save(version, state(version))
        spool.flush()
        assert spool.stats().tiers[-1].copies == 20
        assert not spool.durable(3)


def test_a_durable_spool_is_found_again(tmp_path: Path) -> None:
    disk = unspool.Disk(tmp_path, durable=True)
    with unspool.Spool(host_memory="1MiB", disk=disk) as spool:
        spool.save(-3, u=state(1), flags=np.array([True, False]))
        spool.save(4, np.zeros(3, [("when", "M8[s]"), ("x", ">f4")]))
        assert not spool.durable(-3)
        spool.flush()
        assert spool.durable(-3)
        spool.save(5, state(5))
        spool.discard(4)
    with unspool.Spool(host_memory="1MiB", disk=disk) as spool:
        assert spool.versions() == [-3, 5]
        found = spool.load(-3)
        assert same_bits(found["u"], state(1)) and found["flags"].tolist() == [True, False]
        assert same_bits(spool.load(5), state(5))
        with pytest.raises(unspool.errors.VersionExistsError):
            spool.save(5, state(5))


def test_damage_on_disk_is_noticed_and_nothing_is_given_out(tmp_path: Path) -> None:
    with unspool.Spool(disk=unspool.Disk(tmp_path, durable=True)) as spool:
        spool.save(0, state(0))
        spool.save(1, state(1))
        spool.flush()
        frames = [path for path in tmp_path.rglob("*") if path.stat().st_size > ITEMS * 8]
        with max(frames, key=lambda path: path.name).open("r+b") as frame:
            frame.seek(4096 + ITEMS * 4)
            frame.write(b"damage")
        kinds = (unspool.errors.CorruptCheckpointError, unspool.errors.LostCheckpointError)
        refused = [version for version in (0, 1) if _is_refused(spool, version, kinds)]
        assert len(refused) == 1
        good = 1 - refused[0]
        assert same_bits(spool.load(good), state(good))


def _is_refused(spool: unspool.Spool, version: int, kinds: tuple[type[Exception], ...]) -> bool:
    try:
        spool.load(version)
    except kinds:
        return True
    return False


def test_a_closed_spool_leaves_nothing_behind(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        for version in range(10):
            spool.save(version, state(version))
        spool.flush()
        assert children(tmp_path)
    assert children(tmp_path) == []


@pytest.mark.parametrize("last", [True, [True] * 20])
def test_what_is_discarded_before_its_room_is_needed_is_never_moved(tmp_path: Path, last) -> None:
    with unspool.Spool(device_memory="1MiB", host_memory="1MiB", disk=tmp_path) as spool:
        order = list(reversed(range(20)))
        spool.expect(order, last=last)
        for version in range(20):
            spool.save(version, state(version))
        for version in order:
            assert same_bits(spool.load(version), state(version))
            spool.discard(version)
        assert [link.flush.bytes for link in spool.stats().links] == [0, 0]


def test_a_promise_to_discard_may_be_broken(tmp_path: Path) -> None:
    with unspool.Spool(device_memory="64KiB", host_memory="64KiB", disk=tmp_path) as spool:
        spool.expect([*range(COUNT), 3], last=[version != 3 for version in range(COUNT)] + [True])
        for version in range(COUNT):
            spool.save(version, state(version))
        for version in [*range(COUNT), 3, *range(COUNT)]:
            assert same_bits(spool.load(version), state(version))


def test_flags_that_do_not_fit_the_versions_are_refused() -> None:
    with unspool.Spool(host_memory="64KiB") as spool:
        with pytest.raises(unspool.errors.OptionError, match="one truth value for each version"):
            spool.expect([1, 2, 3], last=[True, False])
        with pytest.raises(unspool.errors.OptionError, match="leave one of them out"):
            spool.expect([1, 2, 3], once=True, last=True)
        with pytest.raises(TypeError):
            spool.expect([1], last=7)
        with pytest.raises(TypeError):
            spool.expect([1], last=["yes"])
        assert spool.stats().hints == 0


def test_what_prefers_a_slower_tier_leaves_the_faster_one_first(tmp_path: Path) -> None:
    with unspool.Spool(device_memory="64KiB", host_memory="1MiB", disk=tmp_path) as spool:
        for version in range(3):
            spool.save(version, state(version))
            spool._prefer(version, "disk")
        spool.flush()
        for version in range(3):
            assert same_bits(spool.load(version), state(version))


def test_a_preference_that_cannot_be_is_refused() -> None:
    with unspool.Spool(device_memory="64KiB") as spool:
        spool.save(0, state(0))
        with pytest.raises(unspool.errors.OptionError, match="no disk tier"):
            spool._prefer(0, "disk")
        with pytest.raises(unspool.errors.OptionError, match="There is no tier"):
            spool._prefer(0, "tape")
        with pytest.raises(unspool.errors.UnknownVersionError):
            spool._prefer(5, "device")
