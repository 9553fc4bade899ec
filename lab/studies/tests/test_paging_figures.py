"""Part `paging` of `unspool-bench`: the model, the programs, and all of it on small arrays. What
pages is skipped, with the kernel's reason, where this process may not answer page faults."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest
import unspool
from unspool_studies.bench import options
from unspool_studies.bench.command import run_parts
from unspool_studies.bench.report import Report
from unspool_studies.paging import measure, study
from unspool_studies.paging.model import Counts, Speeds, access_seconds, memory_saved, predicted
from unspool_studies.paging.programs import PROGRAMS, Program, timed
from unspool_studies.paging.thesis import DRAMS, SIZES, STANDS_FOR, WORKING_SETS

CHUNK = 16 << 10

SPEEDS = Speeds(alpha=0.5, encode=1e8, decode=2e8, memory=1e10)


@pytest.fixture
def faults():
    try:
        unspool.paged(16 * CHUNK, np.uint8, 8 * CHUNK, chunk=CHUNK)
    except unspool.errors.RefusedError as why:
        pytest.skip(str(why))


def plan_of(*words):
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    return options.plan_of(parser.parse_args(("--only", "paging", *words)))


def small_plan(tmp_path, *words):
    return plan_of(
        "--quick", "--paging-scale", "1", "--rounds", "1", "--dir", str(tmp_path), *words
    )


def filled(name, mib=1):
    program = PROGRAMS[name](mib)
    array = np.zeros(program.shape, program.dtype)
    program.fill(array)
    return program, array


def test_equation_3_1_adds_the_codec_and_what_is_left():
    assert access_seconds(0.9, 4096, 1e8, 1e10) == pytest.approx(40.96e-6 + 0.04096e-6)
    counts = Counts(loads=4, decoded=4e6, encoded=1e6)
    seconds = predicted(1.0, counts, SPEEDS, 0.5)
    assert seconds == pytest.approx(1 + 4e6 / 2e8 + 1e6 / 1e8 + 0.5 * 5e6 / 1e10)


def test_a_better_or_faster_codec_is_never_predicted_to_be_slower():
    counts = Counts(loads=4, decoded=4e6, encoded=1e6)
    by_factor = [predicted(1.0, counts, SPEEDS, alpha) for alpha in (0.9, 0.8, 0.7, 0.6)]
    by_speed = [predicted(1.0, counts, SPEEDS, 0.5, times) for times in (10, 1, 0.1)]
    assert by_factor == sorted(by_factor) and by_speed == sorted(by_speed)
    nothing = Counts(0, 0, 0)
    assert predicted(1.0, nothing, SPEEDS, 0.6, 0.1) == 1.0


@pytest.mark.parametrize(
    ("program", "size", "dram", "percent"),
    [("HPCCG", "8x", 4096, 20.29), ("miniFE", "1x", 2048, 45.48), ("LAMMPS", "8x", 1024, 78.97)],
)
def test_cells_of_tables_3_4_to_3_6_come_out(program, size, dram, percent):
    saved = 100 * memory_saved(0.9, WORKING_SETS[program][size], dram << 10)
    assert saved == pytest.approx(percent, abs=0.01)
    assert memory_saved(0.9, 100, 200) == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_on_paged_memory(name, faults):
    program, array = filled(name, 2)
    assert array.nbytes == program.nbytes
    paged = unspool.paged(program.shape, program.dtype, program.nbytes // 2, chunk=CHUNK)
    program.fill(paged)
    assert timed(program, paged, 1)[2] == timed(program, array, 1)[2]
    assert paged.paging().loads > 0


@pytest.mark.parametrize("name", STANDS_FOR)
def test_reads_and_writes_of_a_plain_program_are_timed(name):
    outcome, array = measure.plain_runs(PROGRAMS[name](1), 1)
    assert outcome.latencies.read > 0 and outcome.latencies.write > 0
    assert outcome.result == PROGRAMS[name](1).run(array)


def test_what_a_codec_saves_is_that_of_the_bytes_of_the_program():
    random = np.random.default_rng(1).integers(0, 1 << 63, 1 << 17)
    assert measure.codec_speeds(random, 1e10).alpha == pytest.approx(0, abs=0.02)
    program, array = filled("lj")
    speeds = measure.codec_speeds(array, 1e10)
    assert program.dtype is np.int32 and 0.2 < speeds.alpha < 1
    assert speeds.encode > 0 < speeds.decode and speeds.memory == 1e10


def test_single_faults_are_of_chunks_that_are_loaded(faults):
    array = unspool.paged(64 * CHUNK, np.uint8, 32 * CHUNK, chunk=CHUNK)
    array[:] = np.arange(64 * CHUNK) % 251
    found = measure.faults_of(array)
    assert found.read > 0 and found.write > 0
    cells = np.arange(64 * CHUNK) % 251
    cells[::CHUNK] = 1
    np.testing.assert_array_equal(array, cells)
    fits = unspool.paged(8 * CHUNK, np.uint8, 8 * CHUNK)
    with pytest.raises(measure.PagingStudyError, match="nothing faults"):
        measure.faults_of(fits)


@pytest.mark.parametrize("store", measure.STORES)
def test_what_is_put_aside_is_where_it_should_be(store, tmp_path, faults):
    program = PROGRAMS["lj"](1)
    resident = program.nbytes // 2
    outcome, array = measure.paged_runs(program, resident, store, tmp_path, CHUNK, 2)
    stats = array.paging()
    in_memory, on_disk = stats.stored_in_memory > 0, stats.stored_on_disk > 0
    assert (in_memory, on_disk) == (store == "compressed", store == "disk")
    # Three sweeps a run, half of it is out: no fewer than that half, and not the whole three times.
    chunks = program.nbytes / CHUNK
    assert 3 * chunks / 2 - 6 <= outcome.counts.loads <= 3 * chunks
    assert outcome.counts.decoded == pytest.approx(outcome.counts.loads * CHUNK, rel=0.05)
    assert outcome.alpha > 0.2 if store == "compressed" else abs(outcome.alpha) < 0.01
    assert 0 < outcome.saved < 0.6
    del array
    assert not any(tmp_path.iterdir())


def test_a_disk_without_room_is_told(tmp_path, faults):
    program = PROGRAMS["lj"](1)
    full = unspool.Disk(tmp_path, capacity="64KiB")
    with pytest.raises(measure.PagingStudyError, match="could not be put aside"):
        measure.paged_runs(program, program.nbytes // 2, "disk", full, CHUNK, 1)


def test_all_tables_and_both_pictures_are_made(tmp_path, faults):
    words = ("--paging-plots", str(tmp_path / "plots"), "--paging-sizes", "1x")
    plan = small_plan(tmp_path, *words)
    file = tmp_path / "found.json"
    assert run_parts(plan.parts, plan, None, Report({}, file))
    tables = {table["name"]: table["rows"] for table in json.loads(file.read_text())["tables"]}
    of_programs = ("latencies", "times", "saved")
    assert {name: len(rows) for name, rows in tables.items()} == {
        "paging-faults": 2 * len(STANDS_FOR),
        "paging-factors": len(STANDS_FOR),
        "paging-speeds": len(STANDS_FOR),
        **{
            f"paging-{name}-{program}": len(DRAMS) for name in of_programs for program in STANDS_FOR
        },
    }
    last = tables["paging-saved-lj"][-1]
    assert (last["problem"], last["KiB in print"]) == ("1x", 1024)
    assert last["in print"] == pytest.approx(67.87, abs=0.01)
    assert last["in memory %"] == pytest.approx(100 * 1048576 / 4264960)
    for row in tables["paging-times-cg"]:
        assert row["loads, compressed"] > 0 < row["loads, disk"]
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "paging-latencies.png",
        "paging-latencies.svg",
        "paging-times.png",
        "paging-times.svg",
    ]


def test_a_kernel_that_refuses_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    def refuse(*arguments, **named):
        raise unspool.errors.RefusedError("userfaultfd is not allowed here")

    monkeypatch.setattr(unspool, "paged", refuse)
    monkeypatch.setattr(study, "plain_runs", lambda *arguments: pytest.fail("it was run"))
    plan = small_plan(tmp_path)
    assert not run_parts(plan.parts, plan, None, Report({}))
    assert "userfaultfd is not allowed here" in capsys.readouterr().out


def test_missing_room_and_other_results_are_told(tmp_path, monkeypatch, faults):
    plan = small_plan(tmp_path, "--paging-programs", "cg", "--paging-sizes", "1x")
    with pytest.raises(measure.PagingStudyError, match="not a directory"):
        study.run(replace(plan, directory=tmp_path / "none"), Report({}))
    with monkeypatch.context() as patch:
        patch.setattr(study, "available_memory", lambda: 1 << 20)
        with pytest.raises(measure.PagingStudyError, match="smaller --paging-scale"):
            study.run(plan, Report({}))
    with monkeypatch.context() as patch:
        patch.setattr(study.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
        with pytest.raises(measure.PagingStudyError, match="has no room"):
            study.run(plan, Report({}))
    results = iter((1.0, 2.0))

    def other(program: Program, array, rounds):
        return 1.0, 1.0, next(results)

    monkeypatch.setattr(measure, "timed", other)
    with pytest.raises(measure.PagingStudyError, match="report this"):
        study.run(plan, Report({}))


def test_sizes_are_taken_from_the_smallest_to_the_largest():
    assert plan_of("--paging-sizes", "8x,1x").paging.sizes == ("1x", "8x")
    assert plan_of().paging.sizes == SIZES


@pytest.mark.parametrize("scale", [1, 4, 16])
def test_the_least_memory_has_sixteen_chunks_or_more(scale):
    asked = plan_of("--paging-scale", str(scale)).paging
    assert min(DRAMS) * 1024 * scale >= 16 * asked.chunk


@pytest.mark.parametrize(
    "words",
    [("--paging-sizes", "3x"), ("--paging-programs", "hpccg"), ("--paging-scale", "0")],
)
def test_options_that_make_no_sense_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        plan_of(*words)
    assert words[0] in capsys.readouterr().err
