"""`unspool.types.Shard`: arrays that another number of ranks restores, or in other pieces."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unspool import errors
from unspool._restart.core import RestartCore
from unspool._restart.gathered import Gathered
from unspool._restart.parts import Part
from unspool.types import Shard

from rank_processes import Pipes, finish, start, tell

#: The jobs that are killed; UNSPOOL_TEST_KILLS=500 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "3"))

FIELD = np.random.default_rng(1).normal(size=(23, 11))


def opened(path: Path, ranks: Any, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "8MiB", "device": "cpu", "timeout": 30.0, **options}
    return unspool.Checkpointer(path, ranks=ranks, **options)


def piece(ranks: Any, field: np.ndarray = FIELD, axis: int = 0) -> Shard:
    """The piece of a rank, along an axis."""
    length, offset = field.shape[axis], [0, 0]
    offset[axis] = length * ranks.rank // ranks.size
    end = length * (ranks.rank + 1) // ranks.size
    array = np.take(field, range(offset[axis], end), axis)
    return Shard(array, field.shape, offset)


def counting(path: Path) -> list[tuple[int, int]]:
    found, damaged = RestartCore.listed(path)
    assert damaged == []
    return [(one["step"], one["ranks"]) for one in found if one["counts"]]


def work(ranks: Pipes, path: Path, steps: int, options: dict[str, Any]) -> None:
    """A run that goes on from where another number of ranks was, checks that, and saves."""
    u, v = piece(ranks, FIELD * 0), np.zeros(4)
    mine = piece(ranks).array
    with opened(path, ranks, u=u, v=v, **options) as checkpoints:
        first = checkpoints.restore() or 0
        assert checkpoints.latest() == (first or None)
        assert np.array_equal(u.array, mine * first) and (v == first).all()
        if first:
            assert checkpoints.values() == {"t": first}
            assert np.array_equal(checkpoints.load(first, "u"), FIELD * first)
            some = np.s_[3:20:3, ::-1]
            assert np.array_equal(checkpoints.load(first, "u", region=some), (FIELD * first)[some])
            found = checkpoints.load(first, like={"u": u})
            assert found["u"].array is not u.array and found["t"] == first
            assert np.array_equal(found["u"].array, u.array) and (found["v"] == first).all()
        for step in range(first + 1, first + steps + 1):
            u.array[...], v[...] = mine * step, step
            checkpoints.save(step, t=step)


@pytest.mark.parametrize("options", [{}, {"increments": 3}, {"codec": "lossless"}], ids=str)
def test_any_number_of_ranks_goes_on_from_any_other(
    options: dict[str, Any], tmp_path: Path
) -> None:
    last = 0
    for size in (4, 3, 8, 1, 4, 4) if not options else (4, 3, 5):
        assert finish(start(size, work, tmp_path / "run", 3, options)) == [0] * size
        last += 3
        assert counting(tmp_path / "run") == [(last - 1, size), (last, size)]


def across(ranks: Pipes, path: Path) -> None:
    """The same number of ranks, with pieces along the other axis."""
    u, v = piece(ranks, FIELD * 0, axis=1), np.zeros(4)
    with opened(path, ranks) as checkpoints:
        assert checkpoints.restore(u=u, v=v) == 2 and (v == 2).all()
        u.array[...] = 0
        assert checkpoints.restore(u=u) == 2
        assert np.array_equal(u.array, piece(ranks, FIELD * 2, axis=1).array)
        checkpoints.save(3, u=u, v=np.zeros(1))
        assert np.array_equal(checkpoints.load(3)["u"].array, u.array)


def test_the_same_number_of_ranks_takes_other_pieces(tmp_path: Path) -> None:
    assert finish(start(3, work, tmp_path / "run", 2, {})) == [0] * 3
    assert finish(start(3, across, tmp_path / "run")) == [0] * 3


def only_opened(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks) as checkpoints:
        assert checkpoints.steps() == [1, 2]
        with pytest.raises(errors.OptionError, match="step 2 does not come after it"):
            checkpoints.save(2, u=piece(ranks))


def gone_back(ranks: Pipes, path: Path) -> None:
    u = piece(ranks)
    with opened(path, ranks, keep=9) as checkpoints:
        assert checkpoints.restore(1, u=u) == 1
        checkpoints.save(2, u=u, v=np.zeros(1))


def test_a_run_that_only_looks_changes_nothing_and_one_may_go_back(tmp_path: Path) -> None:
    assert finish(start(2, work, tmp_path / "run", 2, {})) == [0] * 2
    assert finish(start(3, only_opened, tmp_path / "run")) == [0] * 3
    assert counting(tmp_path / "run") == [(1, 2), (2, 2)]
    assert finish(start(3, gone_back, tmp_path / "run")) == [0] * 3
    # Step 2 of the two ranks went before that of the three; step 1 stays until nine count.
    assert counting(tmp_path / "run") == [(1, 2), (2, 3)]
    assert finish(start(2, gone_back, tmp_path / "run")) == [0] * 2
    assert counting(tmp_path / "run") == [(1, 2), (2, 2)]


def taken(ranks: Pipes, path: Path) -> None:
    with pytest.raises(errors.StorageError, match="could not open its part"):
        opened(path, ranks)


def test_what_another_process_has_open_is_not_taken(tmp_path: Path) -> None:
    with opened(tmp_path / "run", None) as checkpoints:
        checkpoints.save(1, u=Shard(FIELD, FIELD.shape, (0, 0)))
        checkpoints.flush()
        assert finish(start(2, taken, tmp_path / "run")) == [0] * 2
        checkpoints.save(2, u=Shard(FIELD, FIELD.shape, (0, 0)))


def saved_by_two(ranks: Pipes, path: Path, state: list[dict[str, Any]]) -> None:
    with opened(path, ranks) as checkpoints:
        checkpoints.save(1, **state[ranks.rank])


def half(rank: int, **more: Any) -> dict[str, Any]:
    return {"u": Shard(FIELD[:4] + rank, (8, 11), (4 * rank, 0)), **more}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ([half(0), half(0)], r"u: \[0:4, 0:11\] of rank 0 and \[0:4, 0:11\] of rank 1 overlap"),
        (
            [half(0), {"u": Shard(FIELD[:3], (8, 11), (4, 0))}],
            r"u: 11 items of \(8, 11\) are in no piece",
        ),
        (
            [half(0), {"u": Shard(FIELD[:4].astype("f4"), (8, 11), (4, 0))}],
            "u: its dtype is float64 on rank 0, and float32 on rank 1",
        ),
        (
            [half(0), {"u": Shard(FIELD[:4], (9, 11), (4, 0))}],
            r"u: its shape is \(8, 11\) on rank 0, and \(9, 11\) on rank 1",
        ),
        ([half(0), {}], "u: rank 1 has saved nothing by this name"),
    ],
)
def test_pieces_that_are_no_array_are_refused(
    state: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    assert finish(start(2, saved_by_two, tmp_path / "run", state)) == [0] * 2
    u = Shard(np.zeros((8, 11)), (8, 11), (0, 0))
    with opened(tmp_path / "run", None) as checkpoints:
        with pytest.raises(errors.ArrayError, match=told):
            checkpoints.restore(u=u)
        assert not u.array.any()


def test_what_is_in_no_pieces_has_to_be_the_same_on_all_ranks(tmp_path: Path) -> None:
    same = {"v": np.ones(3), "w": {"a": np.ones(2), "of": [half(0)["u"]], "n": 3}, "t": 5}
    state = [
        half(0, **same, x=np.zeros(2), y=1, z={"a": [np.zeros(1), 1]}),
        half(1, **same, x=np.ones(2), y=2, z={"a": [np.zeros(1), 2]}),
    ]
    state[1]["w"] = {**same["w"], "of": [half(1)["u"]]}
    assert finish(start(2, saved_by_two, tmp_path / "run", state)) == [0] * 2
    whole = np.concatenate([FIELD[:4], FIELD[:4] + 1])
    with opened(tmp_path / "run", None) as checkpoints:
        u, v = Shard(np.zeros((8, 11)), (8, 11), (0, 0)), np.zeros(3)
        w = {"a": np.zeros(2), "of": [Shard(np.zeros((8, 11)), (8, 11), (0, 0))], "n": 0}
        for name, one in [("x", np.zeros(2)), ("z", {"a": [np.zeros(1), 0]})]:
            told = f"{name}: what rank 0 has saved differs from that of rank 1"
            with pytest.raises(errors.ArrayError, match=told):
                checkpoints.restore(**{name: one})
            with pytest.raises(errors.ArrayError, match=told):
                checkpoints.load(1, name)
        for call in (checkpoints.values, lambda: checkpoints.load(1, "y")):
            with pytest.raises(errors.ArrayError, match="y: the value that rank 0"):
                call()
        assert checkpoints.restore(u=u, v=v, w=w) == 1
        assert np.array_equal(u.array, whole) and np.array_equal(w["of"][0].array, whole)
        assert (v == 1).all() and w["n"] == 3 and (w["a"] == 1).all()
        assert checkpoints.load(1, "t") == 5
        assert np.array_equal(checkpoints.load(1, "w/of/0"), whole)
        with pytest.raises(errors.ArrayError, match=r"w/of/0 is an array of \(8, 11\) of which"):
            checkpoints.load(1, "w")


def test_a_part_that_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run"
    large = np.random.default_rng(2).normal(size=(4, 40_000))

    def save(ranks: Pipes) -> None:
        with opened(path, ranks) as checkpoints:
            for step in (1, 2):
                checkpoints.save(step, u=piece(ranks, large * step))

    assert finish(start(2, save)) == [0] * 2
    frames = (path / "rank-0001-of-0002" / "data").glob("frame-*")
    newest = max(frames, key=lambda frame: int(frame.name.split("-")[1]))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    u = Shard(np.zeros_like(large), large.shape, (0, 0))
    with opened(path, None) as checkpoints:
        with pytest.raises(errors.LostCheckpointError, match=r"part of rank 1 of 2 of step 2, in"):
            checkpoints.restore(2, u=u)
        assert np.array_equal(checkpoints.load(2, "u", region=np.s_[0]), large[0] * 2)
        with pytest.warns(RuntimeWarning, match="The part of rank 1 of 2 of step 2"):
            assert checkpoints.restore(u=u) == 1
        assert np.array_equal(u.array, large)
    shutil.rmtree(path / "rank-0001-of-0002")
    with pytest.raises(errors.StorageError, match="checkpoints of 2 ranks, of none of which all"):
        opened(path, None)


def test_older_checkpoints_of_the_same_number_of_ranks_do_not_stand_for_newer_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    assert finish(start(2, work, path, 2, {})) == [0] * 2
    assert finish(start(3, work, path, 1, {})) == [0] * 3
    assert counting(path) == [(1, 2), (2, 2), (3, 3)]
    assert finish(start(2, work, path, 1, {})) == [0] * 2
    assert counting(path) == [(2, 2), (3, 3), (4, 2)]


def emptied(ranks: Pipes, path: Path) -> None:
    u = piece(ranks)
    with opened(path, ranks, keep=1) as checkpoints:
        assert checkpoints.restore(u=u) == 3
        for step in (4, 5):
            checkpoints.save(step, u=u)


def test_a_deletion_that_was_interrupted_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert finish(start(2, work, path, 2, {})) == [0] * 2
    assert finish(start(3, work, path, 1, {})) == [0] * 3
    assert counting(path) == [(1, 2), (2, 2), (3, 3)]
    (path / "rank-0001-of-0002" / "step-2.manifest").unlink()
    assert finish(start(3, emptied, path)) == [0] * 3
    assert {one["ranks"] for one in RestartCore.listed(path)[0]} == {3}
    assert not list(path.glob("rank-*-of-0002/data/frame-*"))


def test_a_shard_that_is_none_is_refused() -> None:
    for shape, offset in [((4, 11), (1, 0)), ((23,), (0,)), ((23, 11), (-1, 0))]:
        with pytest.raises(errors.ArrayError, match="does not lie in an array"):
            Shard(FIELD, shape, offset)


def test_a_spool_gives_a_shard_back_as_it_was(tmp_path: Path) -> None:
    u = Shard(np.zeros((2, 3)), (4, 3), (2, 0))
    with unspool.Spool(host_memory="1MiB") as spool:
        spool.save(1, {"u": Shard(np.ones((2, 3)), (4, 3), (2, 0)), "n": 1})
        found = spool.load(1)["u"]
        assert (found.shape, found.offset) == ((4, 3), (2, 0)) and (found.array == 1).all()
        spool.restore(1, {"u": u, "n": 0})
        assert (u.array == 1).all()
        with pytest.raises(errors.ArrayError, match="another piece"):
            spool.restore(1, {"u": Shard(np.zeros((2, 3)), (4, 3), (0, 0)), "n": 0})


# Kills.


def endless(ranks: Pipes, path: Path, told: Path, options: dict[str, Any]) -> None:
    """A run that goes on from where any number of ranks was, checks that, and tells what counts."""
    u, v = piece(ranks, FIELD * 0, axis=ranks.size % 2), np.zeros(4)
    mine = piece(ranks, axis=ranks.size % 2).array
    with opened(path, ranks, u=u, v=v, **options) as checkpoints:
        before = int(told.read_text()) if told.exists() else 0
        first = checkpoints.restore() or 0
        if (
            first < before
            or not np.array_equal(u.array, mine * first)
            or not (v == first).all()
            or checkpoints.values() != ({"t": first} if first else {})
        ):
            told.with_suffix(".wrong").write_text(f"{ranks.rank} of {ranks.size}: {first}")
            raise AssertionError
        for step in range(first + 1, first + 10_000):
            u.array[...], v[...] = mine * step, step
            checkpoints.save(step, t=step)
            if step % 3 == 0:
                latest = checkpoints.latest()
                if ranks.rank == 0 and latest is not None:
                    tell(told, latest)


@pytest.mark.parametrize("options", [{}, {"increments": 3}], ids=str)
def test_killed_jobs_of_any_number_of_ranks_lose_nothing_that_counted(
    options: dict[str, Any], tmp_path: Path
) -> None:
    seed = int(os.environ.get("UNSPOOL_TEST_SEED", "5"))
    drawn, path, told = random.Random(seed), tmp_path / "run", tmp_path / "told"
    assert finish(start(2, work, path, 1, options)) == [0] * 2
    restored: set[int] = set()
    for kill in range(KILLS):
        size = drawn.randint(1, 5)
        job = start(size, endless, path, told, options)
        time.sleep(drawn.uniform(0.05, 0.8))
        for process in drawn.sample(job, size):
            process.kill()
        finish(job)
        assert not told.with_suffix(".wrong").exists(), f"seed {seed}, job {kill}"
        found = [step for step, _ in counting(path)] if path.exists() else []
        acknowledged = int(told.read_text()) if told.exists() else 0
        assert max(found, default=0) >= acknowledged, f"seed {seed}, job {kill}"
        restored.add(max(found, default=0))
    assert finish(start(3, work, path, 2, options)) == [0] * 3
    assert len(restored) > 1 or KILLS < 10


# Random decompositions.


@st.composite
def decompositions(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Boxes that cover an array once."""
    boxes = [tuple(slice(0, length) for length in shape)]
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(boxes) - 1))
        axis = draw(st.integers(0, len(shape) - 1))
        box = list(boxes.pop(at))
        middle = draw(st.integers(box[axis].start, box[axis].stop))
        for part in (slice(box[axis].start, middle), slice(middle, box[axis].stop)):
            boxes.append((*box[:axis], part, *box[axis + 1 :]))
    return boxes


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, list[Any], list[Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["f8", "f4", "i2", "c16", "?"]))
    array = np.random.default_rng(3).integers(0, 2**15, shape).astype(dtype)
    return array, draw(decompositions(shape)), draw(decompositions(shape))


@given(case=cases())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_decompositions_are_slices_of_the_array(case: Any, tmp_path: Path) -> None:
    array, saved, wanted = case
    shutil.rmtree(tmp_path / "parts", ignore_errors=True)
    (tmp_path / "parts").mkdir()
    places = [tmp_path / "parts" / str(at) for at in range(len(saved))]
    for place, box in zip(places, saved, strict=True):
        disk = unspool.Disk(place, durable=True)
        with unspool.Spool(host_memory="1MiB", disk=disk) as spool:
            offset = [each.start for each in box]
            spool.save(1, {"u": Shard(array[box].copy(), array.shape, offset)})
    with Gathered([Part(place, 1, None) for place in places], 0, same=False) as source:
        for box in wanted:
            into = np.zeros_like(array[box])
            offset = [each.start for each in box]
            source.restore(1, {"u": Shard(into, array.shape, offset)})
            assert np.array_equal(into, array[box])
            assert np.array_equal(source.named(["u"], box, "numpy", None)["u"], array[box])
