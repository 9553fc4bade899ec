"""Adjoints that go on after they were interrupted or killed: the same bits as without that."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from adjoints import SIZE, Problem, reference, same_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from random_schedules import random_schedule
from unspool import errors
from unspool.schedules import (
    Listed,
    MultiLevel,
    OnlineRevolve,
    Revolve,
    Schedule,
    StoreAll,
    Uniform,
    ZCut,
)

from rank_processes import CONTEXT, finish

N = 40
BYTES = 2 * 8 * SIZE
SCHEDULES = [
    StoreAll(N),
    Revolve(N, 1),
    Revolve(N, 4),
    Uniform(N, 4),
    ZCut(N, length=7),
    OnlineRevolve(4),
    MultiLevel(N, device=2, host=2, disk=4, write_seconds={"disk": 2.0}),
    Listed(Revolve(N, 3)),
]
REFERENCE = reference(N)

#: The processes that are killed in `test_killed_...`; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "24"))


class Interrupted(Exception):
    """What ends an attempt."""


class Kept(Problem):
    """The problem with everything that its reverse steps change in one dictionary."""

    def __init__(self, steps: int, path: Path, every: int | str = 3) -> None:
        self.kept: dict[str, Any] = {
            "by_u": np.zeros(SIZE),
            "by_forcing": np.zeros(SIZE),
            "objective": None,
        }
        super().__init__(steps)
        self.options = {"resume": path, "adjoint_state": self.kept, "every": every}
        self.reversed: list[int] = []
        #: Calls of `forward` and `reverse` until one of them is interrupted.
        self.left = -1

    @property
    def gradient(self) -> Any:
        """Both parts of it."""
        return self.kept["by_u"], self.kept["by_forcing"]

    @gradient.setter
    def gradient(self, both: Any) -> None:
        if both is not None:
            self.kept["by_u"], self.kept["by_forcing"] = both

    @property
    def objective(self) -> Any:
        """The sum of squares."""
        return self.kept["objective"]

    @objective.setter
    def objective(self, value: Any) -> None:
        self.kept["objective"] = value

    def forward(self, state: Any, start: int, stop: int) -> Any:
        """Takes steps, or is interrupted."""
        self._count()
        return super().forward(state, start, stop)

    def reverse(self, state: Any, step: int) -> None:
        """Takes one back, or is interrupted."""
        self._count()
        super().reverse(state, step)
        self.reversed.append(step)

    def _count(self) -> None:
        if self.left == 0:
            raise Interrupted
        self.left -= 1

    def run(self, schedule: Schedule, spool: Any, part: bool = False, **options: Any) -> Any:
        """Drives it, from what is durable."""
        return super().run(schedule, spool, part, **{**self.options, **options})


def attempts(
    schedule: Schedule,
    spool: unspool.Spool,
    path: Path,
    calls: int,
    part: bool = False,
    every: int | str = 3,
) -> list[Kept]:
    """New problems that are interrupted after so many calls, until one comes to the end."""
    found = []
    while True:
        problem = Kept(N, path, every)
        problem.left = calls
        found.append(problem)
        try:
            problem.run(schedule, spool, part)
        except Interrupted:
            assert len(spool) == 0 and spool.stats().hints == 0
        else:
            return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("part", [False, True])
def test_an_adjoint_that_is_interrupted_again_and_again_ends_with_the_same_bits(
    schedule: Schedule, part: bool, tmp_path: Path
) -> None:
    with unspool.Spool(device_memory=3 * BYTES, host_memory="1MiB", device="cpu") as spool:
        for calls in (9, 23):
            tried = attempts(schedule, spool, tmp_path / "run", calls, part)
            assert same_gradient(tried[-1], REFERENCE)
            assert len(tried) > 2 and not (tmp_path / "run").exists()
            # Each attempt goes on where the one before it was, but for what was not due yet.
            assert sum(len(one.reversed) for one in tried) <= N + 3 * len(tried)
            assert len(spool) == 0 and spool.stats().hints == 0


def test_what_is_recomputed_after_an_interruption_is_what_no_checkpoint_has(
    spool: unspool.Spool, tmp_path: Path
) -> None:
    broken = Kept(N, tmp_path / "run", every=10)
    # The forward sweep, the step to the end, and 25 steps of the reverse sweep.
    broken.left = 39 + 1 + 25
    with pytest.raises(Interrupted) as raised:
        broken.run(Revolve(N, 99), spool)
    assert "25 of 40 steps were reversed" in raised.value.__notes__[0]
    whole = Kept(N, tmp_path / "run", every=10)
    report = whole.run(Revolve(N, 99), spool)
    assert same_gradient(whole, REFERENCE)
    assert whole.reversed == list(reversed(range(20)))
    # Each of the two ways between durable states once.
    assert report.forward_steps == report.recomputed_steps == 9 + 9
    assert whole.calls[0] == (10, 11) and (report.steps, report.reversed_steps) == (N, 20)


def test_without_an_interruption_nothing_is_different_but_the_pieces(
    spool: unspool.Spool, tmp_path: Path
) -> None:
    plain, kept = Problem(N), Kept(N, tmp_path / "run", every=N)
    assert plain.run(Revolve(N, 4), spool).recomputed_steps == (
        kept.run(Revolve(N, 4), spool).recomputed_steps
    )
    assert same_gradient(kept, REFERENCE) and plain.calls == kept.calls
    # States that are kept durably save steps as well.
    often = Kept(N, tmp_path / "run", every=5)
    assert often.run(Revolve(N, 1), spool).recomputed_steps <= N * 5
    assert same_gradient(often, REFERENCE)


@settings(max_examples=40)
@given(data=st.data(), steps=st.integers(1, 14), seed=st.integers(0, 1 << 32))
def test_any_valid_list_of_actions_goes_on(
    data: st.DataObject, steps: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schedule, path = Listed(random_schedule(steps, seed)), tmp_path_factory.mktemp("resume")
    part, every = data.draw(st.booleans()), data.draw(st.integers(1, 8))
    at_end = data.draw(st.booleans())
    lookahead, calls = data.draw(st.sampled_from([0, 1, 1024])), data.draw(st.integers(3, 30))
    expected = Problem(steps)
    expected.gradient = np.ones(SIZE), np.ones(SIZE)
    with unspool.Spool(device_memory=4 * BYTES, host_memory="1MiB", device="cpu") as spool:
        expected.run(StoreAll(steps), spool, at_end=expected.at_end if at_end else None)
        while True:
            problem = Kept(steps, path / "run", every)
            problem.gradient = np.ones(SIZE), np.ones(SIZE)
            options = {"at_end": problem.at_end if at_end else None, "lookahead": lookahead}
            # What comes before the next checkpoint may take any number of calls.
            problem.left = calls = calls + 1
            try:
                report = problem.run(schedule, spool, part, **options)
                break
            except Interrupted:
                continue
        assert same_gradient(problem, expected)
        assert len(spool) == 0 and spool.stats().hints == 0
        assert report.recomputed_steps >= 0


def test_another_schedule_may_go_on(spool: unspool.Spool, tmp_path: Path) -> None:
    for calls in (7, 30):
        broken = Kept(N, tmp_path / "run")
        broken.left = calls
        with pytest.raises(Interrupted):
            broken.run(Revolve(N, 2), spool)
        whole = Kept(N, tmp_path / "run")
        whole.run(StoreAll(N), spool, part=True)
        assert same_gradient(whole, REFERENCE)


@pytest.mark.parametrize("form", ["array", "list", "function", "tree"])
def test_what_reverse_steps_change_is_restored_in_place(
    form: str, spool: unspool.Spool, tmp_path: Path
) -> None:
    u, one, two, rng = np.full(4, 0.5), np.zeros(4), np.zeros((2, 4)), np.random.default_rng(5)
    given: Any = {
        "array": two,
        "list": [one, two],
        "function": lambda: {"one": one, "two": two},
        "tree": {"arrays": {"one": one, "more": [two, "text"]}, "rng": rng},
    }[form]
    broken: list[int] = []

    def forward(state: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u[:] = 3.7 * u * (1 - u)

    def reverse(state: Any, step: int) -> None:
        if step in broken:
            broken.remove(step)
            raise Interrupted
        # One array alone is all that a step goes on from.
        one[:] = state if form == "array" else one / 3 + state
        two[:] = two / 2 + one + (rng.random() if form == "tree" else 0)

    options = {"resume": tmp_path / "run", "adjoint_state": given, "every": 1}
    flat.adjoint(Revolve(9, 2), spool, forward, reverse, u, **options)
    expected = two.tobytes()
    u[:], one[:], two[:] = 0.5, 0, 0
    rng.bit_generator.state = np.random.default_rng(5).bit_generator.state
    broken += [6, 4]
    for _ in range(2):
        with pytest.raises(Interrupted):
            flat.adjoint(Revolve(9, 2), spool, forward, reverse, u, **options)
        u[:], one[:], two[:] = 0.5, 7, 7
        rng.random(3)
    flat.adjoint(Revolve(9, 2), spool, forward, reverse, u, **options)
    assert two.tobytes() == expected


def test_arrays_of_jax_are_replaced(spool: unspool.Spool, tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    start, zeros = jax.numpy.linspace(0.1, 0.4, 5), jax.numpy.zeros(5)
    broken: list[int] = []

    def forward(u: Any, first: int, stop: int) -> Any:
        for _ in range(first, stop):
            u = 3.7 * u * (1 - u)
        return u

    def drive(kept: dict[str, Any]) -> bytes:
        def at_end(u: Any) -> None:
            kept["gradient"] = u

        def reverse(u: Any, step: int) -> None:
            if step in broken:
                broken.remove(step)
                raise Interrupted
            kept["gradient"] = kept["gradient"] * 3.7 * (1 - 2 * u)
            kept["more"] = {"a": [kept["more"]["a"][0] + u]}
            kept["count"] += 1

        options = {"resume": tmp_path / "run", "adjoint_state": kept, "every": 1}
        flat.adjoint(Revolve(15, 3), spool, forward, reverse, start, at_end=at_end, **options)
        assert kept["count"] == 15
        return bytes(kept["gradient"].tobytes() + kept["more"]["a"][0].tobytes())

    expected = drive({"gradient": zeros, "more": {"a": [zeros]}, "count": 0})
    broken += [9, 3]
    for _ in range(2):
        with pytest.raises(Interrupted):
            drive({"gradient": zeros, "more": {"a": [zeros]}, "count": 0})
    assert drive({"gradient": zeros + 1, "more": {"a": [zeros + 1]}, "count": 7}) == expected


def test_a_folder_of_another_adjoint_is_refused(spool: unspool.Spool, tmp_path: Path) -> None:
    broken = Kept(N, tmp_path / "run")
    broken.left = 30
    with pytest.raises(Interrupted):
        broken.run(Revolve(N, 2), spool)
    with pytest.raises(errors.OptionError, match="its steps is 40, and this one's 41"):
        Kept(41, tmp_path / "run").run(Revolve(41, 2), spool)
    with pytest.raises(errors.OptionError, match="its first version is 0"):
        Kept(N, tmp_path / "run").run(Revolve(N, 2), spool, first=7)
    fewer = Kept(N, tmp_path / "run")
    with pytest.raises(errors.OptionError, match="its adjoint state is"):
        fewer.run(Revolve(N, 2), spool, adjoint_state={"by_u": fewer.kept["by_u"]})
    whole = Kept(N, tmp_path / "run")
    whole.run(Revolve(N, 2), spool)
    assert same_gradient(whole, REFERENCE)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"adjoint_state": None}, "give `adjoint_state`"),
        ({"adjoint_state": {}}, "nothing in it"),
        ({"adjoint_state": {3: np.zeros(2)}}, "names are texts"),
        ({"adjoint_state": [1.0, 2.0]}, "give a dictionary"),
        ({"adjoint_state": lambda: {"n": 1}}, "give a dictionary"),
        ({"every": "soon"}, "soon"),
        ({"every": 0}, "every"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    options: dict[str, Any], why: str, spool: unspool.Spool, tmp_path: Path
) -> None:
    with pytest.raises(errors.OptionError, match=why):
        Kept(N, tmp_path / "run").run(Revolve(N, 2), spool, **options)
    with pytest.raises(errors.StorageError, match="cannot be made"):
        Kept(N, tmp_path / "run").run(Revolve(N, 2), spool, resume=tmp_path / "x" / "run")
    problem = Kept(N, tmp_path / "run")
    problem.run(Revolve(N, 2), spool)
    assert same_gradient(problem, REFERENCE)


def test_versions_that_are_taken_are_refused_and_stay(tmp_path: Path) -> None:
    history = unspool.Disk(tmp_path / "history", durable=True)
    with unspool.Spool(host_memory="1MiB", disk=history, device="cpu") as spool:
        spool.save(3, np.arange(5))
        for _ in range(2):
            with pytest.raises(errors.VersionExistsError):
                Kept(N, tmp_path / "run").run(Revolve(N, 2), spool)
        assert spool.versions() == [3]


def test_what_a_killed_run_left_in_a_durable_spool_is_discarded(tmp_path: Path) -> None:
    history = unspool.Disk(tmp_path / "history", durable=True)
    with unspool.Spool(host_memory="1MiB", disk=history, device="cpu") as spool:
        broken = Kept(N, tmp_path / "run")
        broken.left = 60
        with pytest.raises(Interrupted):
            broken.run(Revolve(N, 4), spool)
        for version in (0, 20, N, N + 1):
            spool.save(version, np.full(3, version))
        whole = Kept(N, tmp_path / "run")
        whole.run(Revolve(N, 4), spool)
        assert same_gradient(whole, REFERENCE) and spool.versions() == [N + 1]


class Told:
    """A spool that remembers what was announced and restored."""

    def __init__(self, spool: unspool.Spool) -> None:
        self.spool = spool
        self.announced: list[int] = []
        self.restored: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spool, name)

    def expect(self, versions: list[int], **options: Any) -> None:
        """Announces restores."""
        self.announced += versions
        self.spool.expect(versions, **options)

    def restore(self, version: int, *arrays: Any, **options: Any) -> None:
        """Restores."""
        self.restored.append(version)
        self.spool.restore(version, *arrays, **options)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("lookahead", [1, 1024])
def test_what_is_announced_is_what_is_still_to_be_restored(
    schedule: Schedule, lookahead: int, spool: unspool.Spool, tmp_path: Path
) -> None:
    for calls in (30, 60):
        broken = Kept(N, tmp_path / "run")
        broken.left = calls
        with pytest.raises(Interrupted):
            broken.run(schedule, spool)
        told = Told(spool)
        Kept(N, tmp_path / "run").run(schedule, told, lookahead=lookahead)
        assert told.announced == told.restored != []


def test_a_damaged_state_is_left_out_and_the_one_before_it_taken(
    spool: unspool.Spool, tmp_path: Path
) -> None:
    # Frames of this size are files, whose payload is read when it is restored.
    steps, path = 20, tmp_path / "run"
    u, found = np.full(20_000, 0.5), np.zeros(20_000)
    broken = [9]

    def forward(state: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u[:] = 3.7 * u * (1 - u)

    def reverse(state: Any, step: int) -> None:
        if step in broken:
            raise Interrupted
        found[:] = found / 2 + u

    def drive(**options: Any) -> bytes:
        u[:], found[:] = 0.5, 0
        flat.adjoint(Revolve(steps, 3), spool, forward, reverse, u, **options)
        return found.tobytes()

    durable = {"resume": path, "adjoint_state": found, "every": 5}
    with pytest.raises(Interrupted):
        drive(**durable)
    broken.clear()
    expected = drive()
    data = path / "adjoint" / "forward" / "rank-0000-of-0001" / "data"
    # States 0, 5, 10 and 15, in the order in which they were saved.
    frame = sorted(data.glob("frame-*"))[1]
    content = bytearray(frame.read_bytes())
    content[100_000] ^= 1
    frame.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="State 5 is computed again"):
        assert drive(**durable) == expected


class Killed(Kept):
    """A problem whose steps take a while, in a process of its own."""

    def advance(self, start: int, stop: int) -> None:
        """Takes the steps one by one."""
        for step in range(start, stop):
            super().advance(step, step + 1)
            time.sleep(5e-4)

    def reverse(self, state: Any, step: int) -> None:
        """Takes one back."""
        super().reverse(state, step)
        time.sleep(5e-4)


def spool_of(kind: str, folder: Path) -> unspool.Spool:
    if kind == "host":
        return unspool.Spool(host_memory="4MiB", device="cpu")
    if kind == "disk":
        return unspool.Spool(3 * BYTES, 4 * BYTES, folder, device="cpu")
    return unspool.Spool(host_memory="4MiB", disk=unspool.Disk(folder, durable=True), device="cpu")


KILLED = [
    ("host", Revolve(200, 5), False, 7),
    ("disk", StoreAll(200), True, "20ms"),
    ("durable", ZCut(200, length=14), True, 11),
    ("disk", OnlineRevolve(6), False, "30ms"),
]


def work(path: Path, number: int, out: Path) -> None:
    """One attempt; the gradient at its end."""
    kind, schedule, part, every = KILLED[number]
    problem = Killed(200, path / "run", every)
    with spool_of(kind, path) as spool:
        problem.run(schedule, spool, part)
    out.with_suffix(".part").write_bytes(b"".join(one.tobytes() for one in problem.gradient))
    out.with_suffix(".part").replace(out)


@pytest.mark.parametrize("number", range(len(KILLED)), ids=lambda n: str(KILLED[n][1]))
def test_killed_adjoints_go_on_and_end_with_the_same_bits(number: int, tmp_path: Path) -> None:
    seed = 23 + number
    drawn, out = random.Random(seed), tmp_path / "gradient"
    problem = Problem(200)
    with unspool.Spool(host_memory="4MiB", device="cpu") as spool:
        problem.run(StoreAll(200), spool)
    expected = b"".join(one.tobytes() for one in problem.gradient)
    kills = ends = 0
    while kills < KILLS // len(KILLED) or not ends:
        process = CONTEXT.Process(target=work, args=(tmp_path, number, out))
        process.start()
        if kills < KILLS // len(KILLED):
            process.join(drawn.uniform(0.01, 0.2))
            process.kill()
            kills += 1
        (code,) = finish([process])
        assert code in (0, -signal.SIGKILL), f"seed {seed}, kill {kills}"
        if out.exists():
            assert out.read_bytes() == expected, f"seed {seed}, kill {kills}"
            out.unlink()
            ends += 1
