"""What the spool is told about the copies of a schedule: hints, last uses, tiers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool._adjoint import LOOKAHEAD
from unspool.interop.pyrevolve.keeper import Keeper, frame_bytes
from unspool.schedules import Discard, Restore, Revolve, Save, as_schedule


class Told:
    """A spool that writes down what it is told."""

    def __init__(self, spool: unspool.Spool) -> None:
        self._spool = spool
        self.told: list[tuple[Any, ...]] = []
        self.hints = 0

    def expect(self, versions: list[int], *, last: list[bool]) -> None:
        self.told += [("expect", *hint) for hint in zip(versions, last, strict=True)]
        self.hints += len(versions)
        self._spool.expect(versions, last=last)

    def _prefer(self, version: int, tier: str) -> None:
        self.told.append(("prefer", version, tier))
        self._spool._prefer(version, tier)

    def discard(self, version: int) -> None:
        self.told.append(("discard", version))
        self._spool.discard(version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spool, name)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with unspool.Spool(host_memory="1MiB", disk=tmp_path) as spool:
        yield Told(spool)


def keeper_on(spool: Any, first: int = 0) -> Keeper:
    def never(_arrays: Any) -> unspool.Spool:
        raise AssertionError("a spool was given")

    return Keeper(never, spool, first=first)


def test_a_state_in_two_tiers_is_one_version_in_the_faster_of_them(told: Told) -> None:
    state = [np.arange(100.0)]
    keeper = keeper_on(told, first=10)
    keeper.save(3, state, "disk")
    keeper.save(3, state, "host")
    keeper.discard(3, "host")
    assert keeper.steps() == keeper.steps("disk") == [3]
    assert keeper.steps("host") == []
    keeper.discard(3, "disk")
    assert told.told == [
        ("prefer", 13, "disk"),
        ("prefer", 13, "host"),
        ("prefer", 13, "disk"),
        ("discard", 13),
    ]
    assert told.versions() == []


def test_tiers_that_the_spool_does_not_have_are_no_preference(spool: unspool.Spool) -> None:
    told = Told(spool)
    keeper = keeper_on(told)
    for step, tier in enumerate([None, "disk", "device", "host"]):
        keeper.save(step, [np.zeros(3)], tier)
    assert told.told == []


@pytest.mark.parametrize("kind", [list, lambda schedule: schedule], ids=["listed", "native"])
def test_hints_run_far_ahead_and_name_last_uses(told: Told, kind: Any) -> None:
    schedule = Revolve(3000, 20)
    actions = list(schedule)
    restored = [n for n, action in enumerate(actions) if isinstance(action, Restore)]
    wanted = [
        ("expect", 100 + actions[n].step, isinstance(actions[n + 1], Discard)) for n in restored
    ]
    assert len(wanted) > 2 * LOOKAHEAD
    state, done = [np.zeros(5)], 0
    keeper = keeper_on(told, first=100)
    keeper.begin(as_schedule(kind(schedule)))
    for action in actions:
        match action:
            case Save(step):
                keeper.save(step, state)
            case Discard(step):
                keeper.discard(step)
            case Restore(step):
                keeper.restore(step, state)
                done += 1
                assert told.hints >= min(done + LOOKAHEAD // 2, len(wanted))
    assert [call for call in told.told if call[0] == "expect"] == wanted
    assert told.stats().hints == 0


def test_a_version_of_somebody_else_is_left_alone(told: Told) -> None:
    told.save(7, np.ones(3))
    keeper = keeper_on(told, first=5)
    keeper.save(0, [np.zeros(3)])
    with pytest.raises(unspool.errors.VersionExistsError):
        keeper.save(2, [np.zeros(3)])
    keeper.drop()
    assert told.versions() == [7]


def test_an_interrupted_save_leaves_nothing(told: Told) -> None:
    def interrupted(version: int, *arrays: np.ndarray) -> None:
        told._spool.save(version, *arrays)
        raise KeyboardInterrupt

    told.save = interrupted
    with pytest.raises(KeyboardInterrupt):
        keeper_on(told).save(0, [np.zeros(3)])
    assert told.versions() == []


def test_dropping_leaves_no_copy_and_no_hint_and_raises_nothing(told: Told) -> None:
    keeper = keeper_on(told)
    keeper.begin(Revolve(5, 2))
    keeper.save(0, [np.zeros(5)])
    assert told.stats().hints > 0
    keeper.save(1, [])
    keeper.drop()
    assert told.versions() == []
    assert told.stats().hints == 0
    assert keeper.steps() == []
    keeper.save(0, [np.zeros(5)])
    told.close()
    keeper.drop()
    keeper.close()


def test_the_room_that_is_planned_is_enough(tmp_path: Path) -> None:
    for arrays in ([np.zeros(1)], [np.zeros(511), np.zeros(3, np.int8)], [np.zeros((7, 9000))]):
        room = frame_bytes(arrays)
        for options in ({}, {"disk": tmp_path}):
            with unspool.Spool(host_memory=5 * room, **options) as spool:
                for version in range(5):
                    spool.save(version, *arrays)
                assert spool.stats().tiers[0].evictions == 0
