"""`unspool.Checkpointer(increments=...)`: chains, what is told of them, and kills."""

from __future__ import annotations

import json
import os
import random
import time
import warnings
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import cli, errors
from unspool._restart.core import RestartCore

from rank_processes import Pipes, finish, start, tell

SIZE = 3

#: The jobs that are killed; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "30"))

#: Items of the array of a test, of which a chunk has 8,192.
ITEMS = 100_000


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    options = {
        "every": 1,
        "host_memory": "16MiB",
        "device": "cpu",
        "signals": (),
        "increments": True,
        **options,
    }
    return flat.checkpointer(path, **options)


def listed(path: Path) -> list[dict[str, Any]]:
    found, damaged = RestartCore.listed(path)
    assert damaged == []
    return list(found)


def stored(path: Path) -> list[tuple[int, list[int]]]:
    return [(one["step"], one["increment_to"]) for one in listed(path)]


def state(step: int, rank: int = 0) -> np.ndarray:
    """Each step changes some items of one chunk."""
    u = np.arange(ITEMS, dtype=np.float64) + rank
    for earlier in range(1, step + 1):
        u[earlier * 9_973 % ITEMS] = earlier + rank / 8
    return u


def write(path: Path, steps: range, **options: Any) -> None:
    with opened(path, **options) as checkpoints:
        checkpoints.restore()
        for step in steps:
            checkpoints.save(step, u=state(step), frozen=np.ones((300, 400)), note=step)
            checkpoints.flush()


def test_a_run_goes_on_from_increments(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write(path, range(1, 6))
    assert stored(path) == [(1, []), (2, [1]), (3, [2]), (4, [3]), (5, [4])]
    full, *others = listed(path)
    assert full["stored"] is None and full["nbytes"] == 8 * ITEMS + 960_000
    assert all(one["stored"] < 150_000 and one["nbytes"] == full["nbytes"] for one in others)
    u, frozen = np.zeros(ITEMS), np.zeros((300, 400))
    with opened(path) as checkpoints:
        assert checkpoints.restore(u=u, frozen=frozen) == 5
        assert (u == state(5)).all() and (frozen == 1).all()
        assert checkpoints.values() == {"note": 5}
        assert (checkpoints.load(3)["u"] == state(3)).all()
        checkpoints.save(6, u=state(6), frozen=frozen)
    # A new chain begins with each process; the one before stays, should a frame be damaged.
    assert stored(path)[-2:] == [(5, [4]), (6, [])]
    write(path, range(7, 9))
    assert stored(path) == [(6, []), (7, []), (8, [7])]


def test_one_that_writes_no_increments_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    write(path, range(1, 4))
    with opened(path, increments=False) as checkpoints:
        u = np.zeros(ITEMS)
        assert checkpoints.restore(u=u) == 3 and (u == state(3)).all()
        assert (checkpoints.load()["u"] == state(3)).all()
    (part,) = unspool.Checkpointer.parts(path)
    assert (part["u"] == state(3)).all() and part.small == {"note": 3}


def test_one_in_so_many_is_full(tmp_path: Path) -> None:
    write(tmp_path / "run", range(1, 8), increments=3, keep=9)
    expected = [(1, []), (2, [1]), (3, [2]), (4, []), (5, [4]), (6, [5]), (7, [])]
    assert stored(tmp_path / "run") == expected


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes"])
def test_what_is_no_number_of_checkpoints_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(errors.OptionError, match="increments"):
        opened(tmp_path / "run", increments=value)
    with pytest.raises(errors.OptionError, match="need a host tier"):
        opened(tmp_path / "other", host_memory=None, device_memory="4MiB")


def test_random_states_come_back_as_full_checkpoints_have_them(tmp_path: Path) -> None:
    drawn = np.random.default_rng(5)
    sizes = [0, 1, 8_191, 8_192, 8_193, 30_000]
    dtypes = ["float64", "int64", "complex128", "uint8"]
    arrays: dict[str, np.ndarray] = {"a": np.zeros(9)}
    saved = {}
    with opened(tmp_path / "run", keep=40, codec={"lossy": unspool.Bound(abs=1e-3)}) as checkpoints:
        for step in range(1, 31):
            kind = drawn.integers(6)
            name = str(drawn.choice(["a", "b", "c"]))
            if kind == 0 and len(arrays) > 1:
                arrays.pop(name, None)
            elif kind <= 2:
                dtype = str(drawn.choice(dtypes))
                arrays[name] = drawn.integers(0, 9, int(drawn.choice(sizes))).astype(dtype)
            elif kind <= 4:
                for array in arrays.values():
                    array[array.size // 2 :][:3] = drawn.integers(0, 9)
            if kind == 5:
                # Strided arrays and trees are taken as by a Spool.
                arrays["tree"] = np.asfortranarray(drawn.random((50, 300)))
            lossy = np.sin(np.arange(20_000) / 100 + step // 4).astype("float32")
            checkpoints.save(step, lossy=lossy, of={**arrays})
            checkpoints.flush()
            saved[step] = {name: array.copy() for name, array in arrays.items()}, lossy
    assert any(parents for _, parents in stored(tmp_path / "run"))
    with opened(tmp_path / "run") as checkpoints:
        for step, (expected, lossy) in saved.items():
            found = checkpoints.load(step)
            assert np.abs(found["lossy"] - lossy).max() <= 1e-3
            assert found["of"].keys() == expected.keys()
            for name, array in expected.items():
                other = found["of"][name]
                assert other.dtype == array.dtype and (other == array).all(), (step, name)


def test_saves_wait_for_room_and_take_what_is_twice_as_large(tmp_path: Path) -> None:
    with opened(tmp_path / "run", host_memory="4MiB", keep=100) as checkpoints:
        for step in range(1, 40):
            checkpoints.save(step, u=state(step), more=np.full(step * 3_000, step))
    assert [step for step, _ in stored(tmp_path / "run")] == list(range(1, 40))


def test_commands_know_chains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    write(path, range(1, 5), keep=9)
    assert cli.main(["ls", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("counts") and lines[2].endswith("stored as an increment to 1")
    assert cli.main(["verify", str(path)]) == 0
    assert "4 parts of 4 steps read, 0 damaged" in capsys.readouterr().out
    assert cli.main(["rm", str(path), "2"]) != 0
    assert "step 3 is an increment to step 2" in capsys.readouterr().err
    assert cli.main(["export", str(path), "3", "-o", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        assert (file["u"] == state(3)).all()
    assert cli.main(["copy", str(path), "3", str(tmp_path / "copy")]) == 0
    assert stored(tmp_path / "copy") == [(3, [])]
    u = np.zeros(ITEMS)
    with opened(tmp_path / "copy") as checkpoints:
        assert checkpoints.restore(u=u) == 3 and (u == state(3)).all()
    capsys.readouterr()
    assert cli.main(["rm", str(path), "3:"]) == 0
    assert stored(path) == [(1, []), (2, [1])]
    assert cli.main(["ls", "--json", str(path)]) == 0
    listing = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert listing["checkpoints"][1]["increment_to"] == [1]


def test_a_damaged_parent_is_told_with_its_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    write(path, range(1, 7), increments=3, keep=9)
    frames = sorted((path / "rank-0000-of-0001" / "data").glob("frame-*"))
    content = bytearray(frames[3].read_bytes())
    assert len(content) > 8 * ITEMS
    content[-100_000] ^= 1
    frames[3].write_bytes(content)
    assert cli.main(["verify", str(path)]) == 1
    told = capsys.readouterr().out
    assert "6 parts of 6 steps read, 3 damaged or missing" in told
    assert "step 5: " in told and "Step 5 is an increment to step 4, which cannot be read" in told
    u = np.zeros(ITEMS)
    with opened(path) as checkpoints, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert checkpoints.restore(u=u) == 3
        assert (u == state(3)).all()
    texts = [str(one.message) for one in caught]
    assert len(texts) == 3 and "increment to step 4, which cannot be read" in texts[0]
    # A parent that is gone makes its children count no more, and that is told.
    frames[0].unlink()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened(path).close()
    texts = " ".join(str(one.message) for one in caught)
    assert "Step 2 in" in texts and "an increment to step 1, which does not count" in texts


def work(ranks: Pipes, path: Path, steps: int, told: Path) -> None:
    """Goes on with a run, checks what it restores, and writes which step counts."""
    before = int(told.read_text()) if told.exists() else 0
    u = np.zeros(ITEMS)
    options = {"timeout": 30.0, "increments": 7}
    with opened(path, ranks=ranks, **options) as checkpoints:
        first = checkpoints.restore(u=u) or 0
        if first < before or (first and (u != state(first, ranks.rank)).any()):
            told.with_suffix(".wrong").write_text(f"{ranks.rank}: {first} of {before}")
            raise AssertionError
        u = state(first, ranks.rank)
        for step in range(first + 1, first + steps + 1):
            u[step * 9_973 % ITEMS] = step + ranks.rank / 8
            checkpoints.step(step, u=u)
            if step % 5 == 0:
                latest = checkpoints.latest()
                if ranks.rank == 0 and latest is not None:
                    tell(told, latest)


def test_killed_jobs_go_on_from_the_last_checkpoint_that_all_ranks_have(tmp_path: Path) -> None:
    seed = 23
    drawn = random.Random(seed)
    path, told = tmp_path / "run", tmp_path / "told"
    acknowledged = 0
    for kill in range(KILLS):
        job = start(SIZE, work, path, 10_000, told)
        time.sleep(drawn.uniform(0.05, 0.5))
        for victim in drawn.sample(job, drawn.randint(1, SIZE)):
            victim.kill()
        time.sleep(drawn.uniform(0, 0.02))
        for process in job:
            process.kill()
        finish(job)
        acknowledged = max(acknowledged, int(told.read_text()) if told.exists() else 0)
        found = [one for one in RestartCore.listed(path)[0] if one["counts"]] if kill else []
        newest = max((one["step"] for one in found), default=0)
        assert not told.with_suffix(".wrong").exists(), f"seed {seed}, job {kill}"
        assert not kill or newest >= acknowledged, f"seed {seed}, job {kill}: {newest}"
    assert finish(start(SIZE, work, path, 12, told)) == [0] * SIZE
    assert acknowledged > KILLS // 3
    assert any(one["increment_to"] for one in listed(path))
