"""Migrations that go on after they were killed: the image has the same bits."""

import dataclasses
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from unspool.schedules import OnlineRevolve, Revolve

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli
from unspool_studies.rtm.crew import run_crew
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job, run
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.processes import Processes
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.resume import Resume
from unspool_studies.rtm.seat import Order
from unspool_studies.rtm.survey import plan

from helpers import children

SHOTS, STEPS = 3, 220
FORK = multiprocessing.get_context("fork")

#: The processes that are killed; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "12"))

SMALL = ["--shape", "71x41", "--spacing", "15", "--shots", "3", "--steps", "220", "--every", "2"]
SMALL += ["--device-memory", "1MiB", "--host-memory", "1MiB", "--layer", "12", "--quiet"]


@pytest.fixture
def job(tmp_path):
    model = generated_model(71, 41, 15.0)
    memory = Memory("1MiB", "1MiB", tmp_path)
    survey = plan(model, shots=SHOTS, steps=STEPS, every=2)
    resume = Resume(tmp_path / "resume", 10)
    return Job(model, smooth(model, 60.0), survey, 12, 1, memory, resume=resume)


class Slow(Silence):
    """Has a job take its time, and ends it after so many groups of steps."""

    def __init__(self, groups=None, seconds=0.0):
        self.left, self.seconds, self.shots = groups, seconds, []

    def stepped(self, shot, phase, steps):
        self.shots.append((shot, phase))
        time.sleep(self.seconds)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def same(one, other):
    arrays = ((one.image, other.image), (one.illumination, other.illumination))
    return one.digests == other.digests and all(a.tobytes() == b.tobytes() for a, b in arrays)


@pytest.mark.parametrize("schedule", [None, Revolve(110, 6), OnlineRevolve(6)], ids=repr)
def test_a_migration_goes_on_where_it_was_interrupted(job, schedule, tmp_path):
    plain = dataclasses.replace(job, schedule=schedule, resume=None)
    expected = run(plain, Silence()).migrated
    job = dataclasses.replace(job, schedule=schedule)
    groups = STEPS // 2
    # The records of the second shot, and most of its forward pass.
    with pytest.raises(KeyboardInterrupt):
        run(job, Slow(3 * groups + 2 * groups - 10) if schedule is None else Slow(7 * groups))
    done = run(job, (watch := Slow()))
    assert same(done.migrated, expected)
    assert done.before >= 1 and done.followed.saves < 2 * groups
    assert not any(shot < done.before for shot, _ in watch.shots)
    if schedule is None:
        # Neither the records nor what was kept of the forward pass are computed again.
        of_it = [phase for shot, phase in watch.shots if shot == 1]
        assert "record" not in of_it and of_it.count("forward") < 2 * groups
    assert children(tmp_path / "resume") == ["stack"]
    job.resume.remove()
    assert children(tmp_path) == []


def work(job, out):
    """One attempt; the image at its end."""
    migrated = run(job, Slow(seconds=2e-4)).migrated
    part = out.with_suffix(".part")
    part.write_bytes(migrated.image.tobytes() + migrated.illumination.tobytes())
    part.replace(out)
    job.resume.remove()


@pytest.mark.parametrize("schedule", [None, Revolve(110, 6)], ids=repr)
def test_killed_migrations_go_on_and_make_the_same_image(job, schedule, tmp_path):
    seed = 31
    drawn, out = random.Random(seed), tmp_path / "image"
    job = dataclasses.replace(job, schedule=schedule)
    plain = run(dataclasses.replace(job, resume=None), Silence()).migrated
    expected = plain.image.tobytes() + plain.illumination.tobytes()
    kills = ends = 0
    while kills < KILLS // 2 or not ends:
        process = FORK.Process(target=work, args=(job, out))
        process.start()
        if kills < KILLS // 2:
            process.join(drawn.uniform(0.02, 0.4))
            process.kill()
            kills += 1
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL), f"seed {seed}, kill {kills}"
        if out.exists():
            assert out.read_bytes() == expected, f"seed {seed}, kill {kills}"
            out.unlink()
            ends += 1


def test_several_processes_go_on_as_well(job):
    expected = run(dataclasses.replace(job, resume=None), Silence()).migrated
    with pytest.raises(KeyboardInterrupt):
        run(job, Slow(4 * STEPS // 2))
    order = Order(job, None, check=False)
    two = run_crew(order, Processes(2), Silence())
    assert same(two.outcome.migrated, expected) and two.outcome.before == 1
    # All shots are done, and only the files were missing.
    again = run_crew(order, Processes(2), Silence())
    assert same(again.outcome.migrated, expected) and again.outcome.before == SHOTS
    job.resume.remove()


def test_a_shot_whose_process_is_killed_is_gone_on_with(job):
    expected = run(dataclasses.replace(job, resume=None), Silence()).migrated
    killer = Killer()
    found = run_crew(Order(job, None, check=False), Processes(2), killer)
    assert killer.killed and same(found.outcome.migrated, expected)
    assert children(job.resume.folder) == ["stack"]


class Killer(Silence):
    """Kills one process when there is progress."""

    killed = False

    def stepped(self, shot, phase, steps):
        for process in multiprocessing.active_children()[:1]:
            if steps and not self.killed:
                self.killed = True
                process.kill()


def test_a_folder_of_another_job_is_refused(job, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(job, Slow(10))
    with pytest.raises(MigrationError, match="another job lies in the folder"):
        run(dataclasses.replace(job, layer=13), Silence())
    # Shots that nobody knows the job of are not gone on with.
    stack = tmp_path / "resume" / "stack"
    stack.rename(tmp_path / "elsewhere")
    other = run(dataclasses.replace(job, layer=13), Silence()).migrated
    expected = run(dataclasses.replace(job, layer=13, resume=None), Silence()).migrated
    assert same(other, expected)


def command(tmp_path, *options):
    (tmp_path / "disk").mkdir(exist_ok=True)
    places = ["--disk-dir", tmp_path / "disk", "--resume-every", "10", *options]
    return list(map(str, [*SMALL, *places]))


@pytest.mark.parametrize("more", [[], ["--jobs", "2"]], ids=["alone", "two"])
def test_the_command_goes_on_after_a_kill_and_leaves_nothing(tmp_path, capsys, more):
    assert cli.rtm(command(tmp_path, "--out", tmp_path / "whole")) == 0
    there = ["--out", tmp_path / "out", "--resume", tmp_path / "resume", *more]
    code = "import sys; from unspool_studies import cli; cli.rtm(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, *command(tmp_path, *there)], start_new_session=True
    ) as process:
        # The first shot is at work.
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("resume/shot-*/adjoint")) and process.poll() is None:
            assert time.monotonic() < limit
        os.killpg(process.pid, signal.SIGKILL)
    assert children(tmp_path / "out") in ([], ["image.npy", "image.png", "report.json"])
    assert cli.rtm(command(tmp_path, *there)) == 0
    assert not (tmp_path / "resume").exists()
    whole, again = (np.load(tmp_path / name / "image.npy") for name in ("whole", "out"))
    assert whole.tobytes() == again.tobytes()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["time"]["shots_done_before"] in range(SHOTS + 1)
    assert cli.rtm(command(tmp_path, *there, "--check")) == 2
    assert "--check is of a whole run" in capsys.readouterr().err
