"""`unspool.Checkpointer` over ranks: what they agree on, and what is left when they are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors
from unspool._restart.core import RestartCore

from rank_processes import Pipes, finish, start, tell

SIZE = 4

#: The jobs that are killed in `test_killed_jobs_...`; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "30"))


def opened(path: Path, ranks: Any, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "4MiB", "device": "cpu", "timeout": 30.0, **options}
    return flat.checkpointer(path, ranks=ranks, **options)


def advance(u: np.ndarray, rank: int) -> None:
    """A step that mixes bits, so that every state differs from every other one."""
    u *= np.uint64(6364136223846793005)
    u += np.uint64(2 * rank + 1)


def state(step: int, rank: int) -> np.ndarray:
    u = np.arange(500, dtype=np.uint64)
    for _ in range(step):
        advance(u, rank)
    return u


def counting(path: Path) -> list[int]:
    found, damaged = RestartCore.listed(path)
    assert damaged == []
    return [one["step"] for one in found if one["counts"]]


def work(ranks: Pipes, path: Path, steps: int, told: Path) -> None:
    """A run that goes on from where it was, checks that, and tells which step counted."""
    u = np.arange(500, dtype=np.uint64)
    with opened(path, ranks) as checkpoints:
        before = int(told.read_text()) if told.exists() else 0
        first = checkpoints.restore(u=u) or 0
        whole = (u == state(first, ranks.rank)).all() and first >= before
        if not whole or checkpoints.values() != ({"step": first} if first else {}):
            told.with_suffix(".wrong").write_text(f"{ranks.rank}: {first} of {before}")
            raise AssertionError
        for step in range(first + 1, first + steps + 1):
            advance(u, ranks.rank)
            checkpoints.step(step, u=u, step=step)
            if step % 5 == 0:
                latest = checkpoints.latest()
                if ranks.rank == 0 and latest is not None:
                    tell(told, latest)


def test_ranks_agree_on_what_counts(tmp_path: Path) -> None:
    told = tmp_path / "told"
    for end in (12, 24):
        assert finish(start(SIZE, work, tmp_path / "run", 12, told)) == [0] * SIZE
        assert counting(tmp_path / "run") == [end - 1, end]
    for part in unspool.Checkpointer.parts(tmp_path / "run"):
        assert (part.step, part.ranks) == (24, SIZE) and part.small == {"step": 24}
        assert list(part) == ["u"] and (part["u"] == state(24, part.rank)).all()
    before = unspool.Checkpointer.parts(tmp_path / "run", 23)
    assert [part.rank for part in before] == list(range(SIZE))
    with pytest.raises(errors.UnknownVersionError, match="all parts of step 7"):
        unspool.Checkpointer.parts(tmp_path / "run", 7)


def test_killed_jobs_go_on_from_the_last_checkpoint_that_all_ranks_have(tmp_path: Path) -> None:
    seed = 17
    drawn = random.Random(seed)
    path, told = tmp_path / "run", tmp_path / "told"
    acknowledged = reached = 0
    for kill in range(KILLS):
        job = start(SIZE, work, path, 10_000, told)
        time.sleep(drawn.uniform(0.02, 0.35))
        victims = drawn.sample(job, drawn.randint(1, SIZE))
        for victim in victims:
            victim.kill()
        # The others go on until they wait for those; a batch system ends them then.
        time.sleep(drawn.uniform(0, 0.02))
        for process in job:
            process.kill()
        finish(job)
        acknowledged = max(acknowledged, int(told.read_text()) if told.exists() else 0)
        found = counting(path) if path.exists() else []
        newest = max(found, default=0)
        assert not told.with_suffix(".wrong").exists(), f"seed {seed}, job {kill}"
        assert newest >= acknowledged, f"seed {seed}, job {kill}: {newest} of {acknowledged}"
        reached = max(reached, newest)
    # The last one checks, as each one before, that what it restores is bit for bit what was saved.
    assert finish(start(SIZE, work, path, 3, told)) == [0] * SIZE
    assert reached > KILLS and max(counting(path)) >= reached + 3


def test_a_part_that_one_rank_lacks_does_not_count_and_goes(tmp_path: Path) -> None:
    assert finish(start(2, work, tmp_path / "run", 4, tmp_path / "told")) == [0, 0]
    (tmp_path / "run" / "rank-0001-of-0002" / "step-4.manifest").unlink()
    assert counting(tmp_path / "run") == [3]
    assert finish(start(2, work, tmp_path / "run", 1, tmp_path / "told")) == [0, 0]
    assert counting(tmp_path / "run") == [3, 4]


def test_a_rank_whose_folder_is_gone_is_no_reason_to_take_what_is_not_whole(tmp_path: Path) -> None:
    assert finish(start(2, work, tmp_path / "run", 4, tmp_path / "told")) == [0, 0]
    shutil.rmtree(tmp_path / "run" / "rank-0001-of-0002")
    assert counting(tmp_path / "run") == []
    assert finish(start(2, work, tmp_path / "run", 2, tmp_path / "again")) == [0, 0]
    assert counting(tmp_path / "run") == [1, 2]


def test_all_ranks_go_back_when_the_bytes_of_one_are_damaged(tmp_path: Path) -> None:
    assert finish(start(3, work, tmp_path / "run", 4, tmp_path / "told")) == [0] * 3
    data = tmp_path / "run" / "rank-0001-of-0003" / "data"
    wanted = state(4, 1).tobytes()[:64]
    (pack,) = (pack for pack in data.glob("pack-*") if wanted in pack.read_bytes())
    content = bytearray(pack.read_bytes())
    content[content.index(wanted)] ^= 1
    pack.write_bytes(content)
    assert finish(start(3, restore_lost, tmp_path / "run")) == [0] * 3


def restore_lost(ranks: Pipes, path: Path) -> None:
    # A small frame is checked as a whole when its directory is opened.
    u = np.zeros(500, np.uint64)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        checkpoints = opened(path, ranks)
    texts = [str(one.message) for one in told]
    assert any("Step 4 does not count" in text for text in texts) == (ranks.rank == 1), texts
    with checkpoints:
        assert checkpoints.restore(u=u) == 3
        assert (u == state(3, ranks.rank)).all()


def restore_wrong(ranks: Pipes, path: Path) -> None:
    target = np.zeros(500 if ranks.rank else 3, np.uint64)
    with opened(path, ranks) as checkpoints:
        why = "Rank 0 could not restore step 2" if ranks.rank else "shape"
        with pytest.raises(errors.ArrayError, match=why):
            checkpoints.restore(u=target)


def test_arrays_that_do_not_fit_on_one_rank_are_an_error_on_all(tmp_path: Path) -> None:
    assert finish(start(2, work, tmp_path / "run", 2, tmp_path / "told")) == [0, 0]
    assert finish(start(2, restore_wrong, tmp_path / "run")) == [0, 0]


def refused(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks) as checkpoints:
        told = "u: what rank 0 has saved differs from that of rank 1"
        with pytest.raises(errors.ArrayError, match=told):
            checkpoints.restore(u=np.zeros(500, np.uint64))


def test_what_ranks_have_each_for_itself_is_refused_with_another_number_of_them(
    tmp_path: Path,
) -> None:
    assert finish(start(2, work, tmp_path / "run", 2, tmp_path / "told")) == [0, 0]
    assert finish(start(3, refused, tmp_path / "run")) == [0] * 3


def unanswered(ranks: Pipes, path: Path) -> None:
    checkpoints = opened(path, ranks, timeout=1.0 if ranks.rank else 30.0)
    checkpoints.save(1, u=np.ones(3))
    checkpoints.flush()
    if ranks.rank == 2:
        # It never saves again, and does not end before the others have: its pipes stay open.
        while not (path / "done").exists():
            time.sleep(0.01)
        os._exit(0)
    begun = time.monotonic()
    with pytest.raises(errors.WaitTimeoutError, match=r"rank 2 has not answered.*saves step 2"):
        checkpoints.save(2, u=np.ones(3))
    assert time.monotonic() - begun < 20
    with pytest.raises(errors.WaitTimeoutError, match="do not agree any more"):
        checkpoints.latest()
    checkpoints.close()
    (path / "done").touch()


def test_a_rank_that_never_answers_is_named(tmp_path: Path) -> None:
    assert finish(start(3, unanswered, tmp_path / "run")) == [0] * 3
    assert counting(tmp_path / "run") == [1]


def signalled(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks, every=None) as checkpoints:
        step = 0
        while not checkpoints.stopping:
            step += 1
            if ranks.rank == 1 and step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            saved = checkpoints.step(step, u=np.ones(3), step=step)
            assert saved == checkpoints.stopping
            assert step < 1_000_000


def test_a_signal_on_one_rank_stops_all_at_the_same_step(tmp_path: Path) -> None:
    assert finish(start(3, signalled, tmp_path / "run")) == [0] * 3
    found = counting(tmp_path / "run")
    assert len(found) == 1 and found[0] >= 5


def timed(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks, every="100ms") as checkpoints:
        step, saved = 0, 0
        while saved < 3:
            step += 1
            saved += checkpoints.step(step, u=np.ones(3))


def test_time_decides_alike_on_all_ranks(tmp_path: Path) -> None:
    assert finish(start(3, timed, tmp_path / "run")) == [0] * 3
    assert len(counting(tmp_path / "run")) == 2


@pytest.mark.parametrize(
    ("text", "small"),
    [("", {}), ("step 3", {"values": "step 3"}), ('{"values": 3}', {"values": '{"values": 3}'})],
)
def test_what_a_program_in_c_has_saved_is_read(
    tmp_path: Path, text: str, small: dict[str, str]
) -> None:
    u, path = np.zeros(3), tmp_path / "run"
    with flat.checkpointer(path, host_memory="1MiB", device="cpu", signals=()) as checkpoints:
        # As `unspool_checkpointer_save` does.
        checkpoints._core.begin(1, text)
        checkpoints._spool.save(1, {"u": np.arange(3.0)})
        checkpoints._core.commit()
    (part,) = unspool.Checkpointer.parts(path)
    assert part.small == small and part["u"].tolist() == [0, 1, 2]
    with flat.checkpointer(path, host_memory="1MiB", device="cpu", signals=()) as checkpoints:
        assert checkpoints.values() == small
        assert checkpoints.restore(u=u) == 1 and u.tolist() == [0, 1, 2]
        assert checkpoints.load(1).keys() == {"u", *small}


def back(ranks: Pipes, path: Path, way: str) -> None:
    with opened(path, ranks, keep=9) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, u=state(step, ranks.rank))
        checkpoints.flush()
        u = np.zeros(500, np.uint64)
        if way == "load":
            u = checkpoints.load(3)["u"]
        else:
            assert checkpoints.restore(3, u=u) == 3
        assert (u == state(3, ranks.rank)).all()
        checkpoints.save(4, u=u)


@pytest.mark.parametrize("way", ["load", "restore"])
def test_all_ranks_go_back_to_an_older_step(way: str, tmp_path: Path) -> None:
    assert finish(start(3, back, tmp_path / "run", way)) == [0] * 3
    assert counting(tmp_path / "run") == [1, 2, 3, 4]
    for part in unspool.Checkpointer.parts(tmp_path / "run"):
        assert part.step == 4 and (part["u"] == state(3, part.rank)).all()


def named(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks) as checkpoints:
        u = np.zeros(500, np.uint64)
        error, told = (
            (errors.LostCheckpointError, "Rank 0 could not restore step 2")
            if ranks.rank
            else (errors.CorruptCheckpointError, "frame-")
        )
        with pytest.raises(error, match=told):
            checkpoints.restore(2, u=u)
        assert checkpoints.restore(1, u=u) == 1


def saved_twice(ranks: Pipes, path: Path) -> None:
    with opened(path, ranks) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, u=np.full(500, step, np.uint64), more=np.zeros(100_000))


def alone(_: Pipes, path: Path) -> None:
    with opened(path, None) as checkpoints:
        checkpoints.save(1, u=np.ones(3))


def test_processes_that_were_forked_are_different_runs(tmp_path: Path) -> None:
    # This process has drawn numbers by now, as its children would draw them.
    with opened(tmp_path / "own", None) as checkpoints:
        checkpoints.save(1, u=np.ones(3))
    for name in ("one", "other"):
        assert finish(start(1, alone, tmp_path / name)) == [0]
    texts = [one.read_text() for one in tmp_path.glob("*/rank-0000-of-0001/step-1.manifest")]
    runs = {line for text in texts for line in text.splitlines() if line.startswith("run ")}
    assert len(texts) == len(runs) == 3, texts


def test_a_step_that_one_rank_cannot_restore_is_refused_on_all(tmp_path: Path) -> None:
    assert finish(start(2, saved_twice, tmp_path / "run")) == [0, 0]
    frames = (tmp_path / "run" / "rank-0000-of-0002" / "data").glob("frame-*")
    newest = max(frames, key=lambda frame: int(frame.name.split("-")[1]))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert finish(start(2, named, tmp_path / "run")) == [0, 0]
