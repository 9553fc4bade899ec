"""`unspool.Checkpointer` in one process: what counts, what comes back, and what is told."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors
from unspool._restart.core import RestartCore


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "16MiB", "device": "cpu", "signals": (), **options}
    return flat.checkpointer(path, **options)


def steps(path: Path) -> list[int]:
    found, _ = RestartCore.listed(path)
    return [one["step"] for one in found if one["counts"]]


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    u, rng = np.arange(1000.0), np.random.default_rng(3)
    with opened(tmp_path / "run", every=10) as checkpoints:
        assert checkpoints.restore(u=u, rng=rng) is None
        assert checkpoints.latest() is None and checkpoints.values() == {}
        saved = []
        for step in range(1, 36):
            u += rng.random()
            if checkpoints.step(
                step, u=u, rng=rng, time=step / 10, note="é", info={"a": [1, None]}
            ):
                saved.append((step, u.copy()))
        assert [step for step, _ in saved] == [10, 20, 30]
    assert steps(tmp_path / "run") == [20, 30]
    after = np.random.default_rng(3)
    [after.random() for _ in range(30)]
    again, other = np.zeros(1000), np.random.default_rng(9)
    with opened(tmp_path / "run") as checkpoints:
        assert checkpoints.restore(u=again, rng=other) == 30
        assert checkpoints.values() == {"time": 3.0, "note": "é", "info": {"a": [1, None]}}
        assert (again == saved[-1][1]).all()
        assert other.random() == after.random()
        assert checkpoints.values(20)["time"] == 2.0
        everything = checkpoints.load(20)
        assert (everything["u"] == saved[1][1]).all() and everything["time"] == 2.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.default_rng(1),
        lambda: np.random.Generator(np.random.MT19937(1)),
        lambda: np.random.Generator(np.random.Philox(1)),
        lambda: np.random.Generator(np.random.SFC64(1)),
        lambda: np.random.RandomState(1),
        lambda: random.Random(1),
    ],
)
def test_generators_of_random_numbers_go_on(tmp_path: Path, make: Any) -> None:
    def draw(generator: Any) -> list[float]:
        normal = getattr(generator, "standard_normal", None)
        return [float(normal() if normal else generator.gauss(0, 1)) for _ in range(7)]

    generator = make()
    draw(generator)
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3), rng=generator)
    expected = draw(generator)
    fresh = make()
    with opened(tmp_path / "run") as checkpoints:
        assert checkpoints.restore(rng=fresh) == 1
        wrong = np.random.Generator(np.random.PCG64DXSM(1))
        with pytest.raises(errors.ArrayError, match="rng: a"):
            checkpoints.restore(rng=wrong)
        with pytest.raises(errors.ArrayError, match="other: no random numbers"):
            checkpoints.restore(other=fresh)
    assert draw(fresh) == expected


def test_generators_of_pytorch_go_on(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=torch.ones(3), rng=generator)
    expected, fresh = torch.rand(5, generator=generator), torch.Generator()
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.restore(rng=fresh)
    assert (torch.rand(5, generator=fresh) == expected).all()


def test_arrays_and_keys_of_jax_come_back_as_new_ones(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    key = jax.random.key(3)
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(4, u=jax.numpy.arange(5.0), key=jax.random.key_data(key), rate=0.5)
    with opened(tmp_path / "run") as checkpoints:
        found = checkpoints.load(to="jax")
        assert checkpoints.values() == {"rate": 0.5} and found["rate"] == 0.5
        # A load of the newest one is a restore: what comes after it may be saved.
        with pytest.raises(errors.OptionError, match="increase"):
            checkpoints.save(4, u=found["u"])
        checkpoints.save(5, u=found["u"] + 1)
    assert isinstance(found["u"], jax.Array) and found["u"].tolist() == [0, 1, 2, 3, 4]
    assert (jax.random.key_data(key) == found["key"]).all()
    assert jax.random.wrap_key_data(found["key"]) == key


def test_numbers_and_texts_come_back_as_they_were(tmp_path: Path) -> None:
    values = {
        "whole": 2**70,
        "real": 0.1,
        "yes": True,
        "none": None,
        "text": 'a\n"b" \0 é',
        "list": [1, [2.5, "x"]],
        "dictionary": {"a": {"b": []}},
        "endless": float("inf"),
    }
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(
            1,
            u=np.ones(3),
            **values,
            f=np.float32(0.5),
            i=np.int64(7),
            pair=(1, 2),
            zero=np.ones(()),
        )
        checkpoints.flush()
        assert checkpoints.values() == {**values, "f": 0.5, "i": 7, "pair": [1, 2]}
        assert set(checkpoints.load()) == {*values, "u", "f", "i", "pair", "zero"}


def test_names_of_arrays_may_be_those_of_options(tmp_path: Path) -> None:
    arrays = {
        name: np.full(3, n) for n, name in enumerate(("stream", "codec", "overwrite", "step"))
    }
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, **arrays)
        checkpoints.flush()
        zeros = {name: np.zeros(3, int) for name in arrays}
        assert checkpoints.restore(**zeros) == 1
    assert all((zeros[name] == arrays[name]).all() for name in arrays)


def test_trees_of_arrays_are_saved_as_a_spool_saves_them(tmp_path: Path) -> None:
    model = {"layers": [np.ones(3), np.arange(4)], "rate": 0.5}
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(2), model=model, step_size=0.1)
        checkpoints.flush()
        found = checkpoints.load()
        assert (found["model"]["layers"][1] == np.arange(4)).all()
        assert found["model"]["rate"] == 0.5 and found["step_size"] == 0.1
        blank = {"layers": [np.zeros(3), np.zeros(4, int)], "rate": 0.0}
        checkpoints.restore(u=np.zeros(2), model=blank)
    assert (blank["layers"][1] == np.arange(4)).all() and blank["rate"] == 0.5


def test_what_is_larger_than_a_mebibyte_is_no_small_value(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        with pytest.raises(errors.OptionError, match="save large ones as arrays"):
            checkpoints.save(1, u=np.ones(3), text="x" * (1 << 20))
        checkpoints.save(1, u=np.ones(3))
    assert steps(tmp_path / "run") == [1]


def test_a_first_save_needs_a_restore_where_a_checkpoint_lies(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(7, u=np.ones(3))
    with opened(tmp_path / "run") as checkpoints:
        with pytest.raises(errors.OptionError, match=r"has a checkpoint of step 7.*restore"):
            checkpoints.save(7, u=np.ones(3))
        assert checkpoints.restore() == 7
        with pytest.raises(errors.OptionError, match="increase"):
            checkpoints.save(7, u=np.ones(3))
        checkpoints.save(8, u=np.ones(3))
    assert steps(tmp_path / "run") == [7, 8]


@pytest.mark.parametrize("step", [-1, 1 << 63, 1.5, "x"])
def test_steps_are_integers_that_are_not_negative(tmp_path: Path, step: Any) -> None:
    with opened(tmp_path / "run") as checkpoints, pytest.raises(errors.OptionError, match="step"):
        checkpoints.save(step, u=np.ones(3))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"every": "10m"}, "min"),
        ({"every": 0}, "above 0"),
        ({"every": 1.5}, "write a duration"),
        ({"every": True}, "write a duration"),
        ({"keep": 0}, "at least 1"),
        ({"limit": "soon"}, "limit"),
        ({"mtbf": -1}, "mtbf"),
        ({"share": 1.0}, "share"),
        ({"on_error": "no"}, "on_error"),
        ({"signals": ("SIGNONE",)}, "SIGNONE"),
        ({"ranks": 3}, "ranks=3"),
        ({"timeout": 0}, "time-out"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: Any, told: str) -> None:
    with pytest.raises(errors.OptionError, match=told):
        opened(tmp_path / "run", **options)


def test_arrays_that_do_not_fit_are_told_and_no_older_checkpoint_is_taken(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        checkpoints.save(2, u=np.ones(4))
        checkpoints.flush()
        with pytest.raises(errors.ArrayError, match="shape"):
            checkpoints.restore(u=np.zeros(3))


def damage(path: Path, step: int) -> None:
    """Changes a byte in the middle of the frame of a step, the newest of its directory."""
    frames = (path / "rank-0000-of-0001" / "data").glob("frame-*")
    newest = max(frames, key=lambda frame: int(frame.name.split("-")[1]))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)


def test_damaged_bytes_are_told_and_the_one_before_is_taken(tmp_path: Path) -> None:
    u = np.zeros(100_000)
    with opened(tmp_path / "run") as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, u=u + step)
    damage(tmp_path / "run", 2)
    with opened(tmp_path / "run") as checkpoints:
        with pytest.warns(RuntimeWarning, match=r"Rank 0 could not restore step 2.*frame-"):
            assert checkpoints.restore(u=u) == 1
        assert (u == 1).all()
        checkpoints.save(2, u=u + 1)
    assert steps(tmp_path / "run") == [1, 2]


def test_a_damaged_manifest_is_told_and_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        checkpoints.save(2, u=np.ones(3))
    manifest = tmp_path / "run" / "rank-0000-of-0001" / "step-2.manifest"
    manifest.write_bytes(manifest.read_bytes()[:-3])
    with pytest.warns(RuntimeWarning, match=r"step-2.manifest makes no checkpoint count"):
        checkpoints = opened(tmp_path / "run")
    with checkpoints:
        assert checkpoints.restore(u=np.zeros(3)) == 1
        checkpoints.save(2, u=np.ones(3))
    assert steps(tmp_path / "run") == [1, 2]


def break_manifest(path: Path, step: int) -> Path:
    """Puts a folder where a manifest is to be."""
    place = path / "rank-0000-of-0001" / f"step-{step}.manifest"
    (place / "x").mkdir(parents=True)
    return place


def test_what_fails_after_a_save_is_raised_by_the_next_call(tmp_path: Path) -> None:
    checkpoints = opened(tmp_path / "run")
    checkpoints.save(1, u=np.ones(3))
    place = break_manifest(tmp_path / "run", 2)
    checkpoints.save(2, u=np.ones(3))
    with pytest.raises(errors.StorageError, match=r"step 2 does not count.*step 1; it stays"):
        checkpoints.close()
    (place / "x").rmdir()
    place.rmdir()
    checkpoints.close()
    assert steps(tmp_path / "run") == [1, 2]
    checkpoints.close()
    with pytest.raises(errors.ClosedError):
        checkpoints.save(3, u=np.ones(3))


def test_a_run_that_said_so_goes_on_with_a_warning(tmp_path: Path) -> None:
    checkpoints = opened(tmp_path / "run", on_error="warn")
    checkpoints.save(1, u=np.ones(3))
    break_manifest(tmp_path / "run", 2)
    checkpoints.save(2, u=np.ones(3))
    with pytest.warns(RuntimeWarning, match="step 2 does not count"):
        checkpoints.close()
    assert steps(tmp_path / "run") == [1]


def test_an_exception_of_the_block_is_the_one_that_leaves_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised, opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        break_manifest(tmp_path / "run", 2)
        checkpoints.save(2, u=np.ones(3))
        raise ZeroDivisionError
    assert "step 2 does not count" in raised.value.__notes__[0]
    assert steps(tmp_path / "run") == [1]


def test_a_program_that_closes_nothing_loses_nothing(tmp_path: Path) -> None:
    code = f"""
        import numpy as np, unspool
        c = unspool.Checkpointer({str(tmp_path / "run")!r}, host_memory="16MiB", device="cpu")
        c.save(1, u=np.ones(100_000))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    assert steps(tmp_path / "run") == [1]


def test_two_processes_cannot_have_the_same_part(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "run"),
        pytest.raises(errors.StorageError, match=r"in use|another"),
    ):
        opened(tmp_path / "run")


def test_the_folder_is_the_one_that_was_meant_at_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with opened(Path("run"), remote="copies", increments=True) as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        checkpoints.flush()
        parts = unspool.Checkpointer.parts("run")
        monkeypatch.chdir(tmp_path / "elsewhere")
        checkpoints.save(2, u=np.ones(3))
    assert (parts[0]["u"] == 1).all()
    assert steps(tmp_path / "run") == [1, 2] and not list((tmp_path / "elsewhere").iterdir())
    assert RestartCore.listed_remote(str(tmp_path / "copies"))[0][-1]["step"] == 2


def test_a_working_directory_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.StorageError, match="working directory is gone"):
        opened(Path("run"))


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    path, place = os.fsencode(tmp_path / "r\udcffn"), os.fsencode(tmp_path / "copies")
    with flat.checkpointer(
        path, every=1, host_memory="4MiB", device="cpu", remote=place
    ) as checkpoints:
        checkpoints.save(1, u=np.ones(3))
    assert unspool.Checkpointer.parts(path)[0].step == 1
    assert unspool.Checkpointer.parts(place)[0].step == 1


def test_a_load_where_nothing_counts_raises(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        for step in (None, 3):
            with pytest.raises(LookupError) as raised:
                checkpoints.load(step)
            assert isinstance(raised.value, errors.UnknownVersionError)
        assert checkpoints.restore(u=np.zeros(3)) is None and checkpoints.values() == {}


@pytest.mark.parametrize("increments", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("way", ["load", "restore"])
def test_a_run_that_went_wrong_goes_on_from_an_older_step(
    way: str, again: bool, increments: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"keep": 9, "increments": increments}
    checkpoints = opened(tmp_path / "run", **options)
    for step in range(1, 6):
        checkpoints.save(step, u=np.full(3, float(step) if step < 4 else np.nan))
    if again:
        checkpoints.close()
        checkpoints = opened(tmp_path / "run", **options)
    else:
        checkpoints.flush()
    with checkpoints:
        u = np.zeros(3)
        if way == "load":
            u = checkpoints.load(3)["u"]
        else:
            assert checkpoints.restore(3, u=u) == 3
        assert (u == 3).all()
        checkpoints.save(4, u=u + 1)
    assert steps(tmp_path / "run") == [1, 2, 3, 4]
    with opened(tmp_path / "run", **options) as checkpoints:
        assert checkpoints.latest() == 4 and (checkpoints.load()["u"] == 4).all()


def test_a_look_at_an_older_step_deletes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "run", keep=9) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, u=np.full(3, step))
        checkpoints.flush()
        assert checkpoints.load(2)["u"][0] == 2
        for step in (1, 2):
            with pytest.raises(errors.OptionError, match="load the checkpoint to go on from"):
                checkpoints.save(step, u=np.ones(3))
        checkpoints.save(6, u=np.full(3, 6))
        with pytest.raises(errors.OptionError):
            checkpoints.save(3, u=np.ones(3))
    assert steps(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


def test_a_step_that_is_named_is_restored_or_nothing_is(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, u=np.full(100_000, step))
    damage(tmp_path / "run", 2)
    with opened(tmp_path / "run") as checkpoints:
        u = np.zeros(100_000, int)
        with pytest.raises(errors.CorruptCheckpointError, match="frame-"):
            checkpoints.restore(2, u=u)
        with pytest.raises(errors.UnknownVersionError):
            checkpoints.restore(7, u=u)
        with pytest.raises(errors.ArrayError):
            checkpoints.restore(1, v=u)
        assert checkpoints.restore(1, u=u) == 1 and (u == 1).all()


class Silent:
    """Two ranks, of which the other one stops to answer."""

    rank, size, left = 0, 2, 10**9

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        self.left -= 1
        return [message, bytes(message) if self.left >= 0 else None]


@pytest.mark.parametrize(("step", "answers"), [((), 0), ((), 1), ((1,), 0)])
def test_a_rank_that_does_not_answer_a_restore_is_a_wait_that_was_too_long(
    step: tuple[int, ...], answers: int, tmp_path: Path
) -> None:
    ranks = Silent()
    checkpoints = opened(tmp_path / "run", ranks=ranks, timeout=1)
    checkpoints.save(1, u=np.ones(3))
    checkpoints.flush()
    ranks.left = answers
    with pytest.raises(errors.WaitTimeoutError, match="rank 1"):
        checkpoints.restore(*step, u=np.zeros(3))
    checkpoints._give_up()


def test_a_second_opening_says_that_this_process_has_the_folder(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "run"),
        pytest.raises(errors.StorageError, match=r"in use by this process.*checkpointer"),
    ):
        opened(tmp_path / "run")
    opened(tmp_path / "run").close()


def loop() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


WRONG: dict[str, Any] = {
    "a large integer": 10**6000,
    "a negative one": -(10**6000),
    "nan": float("nan"),
    "a text": "x",
    "nothing": "",
    "bytes": b"x",
    "an object": object(),
    "a loop": loop(),
    "an array": np.ones(3),
    "a zero byte": "a\0b",
    "no Unicode": "\udcff",
}

OPTIONS = """path every keep codec increments device_memory host_memory device ranks copies stop
timeout mtbf share limit signals on_error remote remote_every partner""".split()


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_given_is_taken_or_refused_by_an_error_of_ours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, refused = WRONG[name], 0
    for option in OPTIONS:
        given = {"path": tmp_path / f"run-{option}", "timeout": 5, option: wrong}
        try:
            opened(given.pop("path"), **given).close()
        except unspool.Error as error:
            refused += len(str(error)) > 10
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        calls = [
            lambda: checkpoints.due(wrong),
            lambda: checkpoints.save(wrong, u=np.ones(3)),
            lambda: checkpoints.load(wrong),
            lambda: checkpoints.load(to=wrong),
            lambda: checkpoints.values(wrong),
            lambda: checkpoints.restore(u=wrong),
            lambda: checkpoints.flush(timeout=wrong),
            lambda: unspool.Checkpointer.parts(tmp_path / "run", wrong),
            lambda: checkpoints.save(2, a=wrong),
            lambda: checkpoints.save(3, a=[wrong]),
            lambda: checkpoints.save(4, a={"b": wrong}),
            lambda: checkpoints.close(timeout=wrong),
        ]
        for call in calls:
            try:
                call()
            except unspool.Error as error:
                refused += len(str(error)) > 10
    assert refused > 15


def test_a_signal_makes_the_next_step_save_and_calls_who_was_there_before(tmp_path: Path) -> None:
    called = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    try:
        options = {"every": None, "signals": ("SIGTERM", "SIGUSR1")}
        with opened(tmp_path / "run", **options) as checkpoints:
            assert not checkpoints.step(1, u=np.ones(3)) and not checkpoints.stopping
            os.kill(os.getpid(), signal.SIGUSR1)
            assert called == [signal.SIGUSR1]
            assert checkpoints.step(2, u=np.ones(3)) and checkpoints.stopping
            assert not checkpoints.step(3, u=np.ones(3))
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(called) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert steps(tmp_path / "run") == [2]


def test_other_threads_install_no_handlers(tmp_path: Path) -> None:
    def work() -> None:
        with opened(tmp_path / "run", signals=("SIGTERM",)) as checkpoints:
            seen.append(signal.getsignal(signal.SIGTERM))
            checkpoints.stop()
            seen.append(checkpoints.due(1))

    seen: list[Any] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert seen == [signal.SIG_DFL, True]


def test_a_limit_asks_the_run_to_stop(tmp_path: Path) -> None:
    with opened(tmp_path / "run", every=None, limit="1ms") as checkpoints:
        step = 1
        while not checkpoints.step(step, u=np.ones(3)):
            assert not checkpoints.stopping
            step += 1
        assert checkpoints.stopping
    assert steps(tmp_path / "run") == [step]


def test_time_and_costs_set_the_interval(tmp_path: Path) -> None:
    with opened(tmp_path / "a", every="1h30min") as checkpoints:
        assert checkpoints.interval == 5400 and not checkpoints.due(1)
    with opened(tmp_path / "b", every="auto", mtbf="1h") as checkpoints:
        # As if a save blocked for one second: sqrt(2 * 3600).
        assert 80 < (checkpoints.interval or 0) < 90
        checkpoints.save(1, u=np.ones(3))
        checkpoints.flush()
        assert not checkpoints.due(2)
        assert (checkpoints.interval or 0) < 80, "a save that was measured is faster"
    with opened(tmp_path / "c", every=3) as checkpoints:
        assert checkpoints.interval is None


def test_a_forked_child_has_no_checkpointer(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
        if (child := os.fork()) == 0:
            try:
                checkpoints.save(2, u=np.ones(3))
            except errors.ClosedError:
                checkpoints.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        checkpoints.save(2, u=np.ones(3))
    assert steps(tmp_path / "run") == [1, 2]


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as checkpoints:
        checkpoints.save(1, u=np.ones(3))
    for path in (tmp_path / "run").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
