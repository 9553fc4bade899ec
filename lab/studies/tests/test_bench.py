"""`unspool-bench`: tables are made, from the right quantities. Nothing is asserted about time."""

import argparse
import json
import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from unspool_studies import cli
from unspool_studies.bench import (
    beside,
    child,
    command,
    copies,
    machine,
    node,
    options,
    programs,
    raw,
    report,
    start,
    sweep,
)
from unspool_studies.bench.libraries import Library
from unspool_studies.bench.machine import Warmth
from unspool_studies.bench.measure import (
    Sample,
    gigabytes_per_second,
    lost_share,
    ratio,
    repeat,
    share,
)
from unspool_studies.bench.memory import HUGE_PAGE, Mapping, in_parallel, write_all, write_pages
from unspool_studies.bench.prepare import Toucher
from unspool_studies.bench.processes import ProcessError

from bench_plans import column, plan
from fake_cuda import FakeCuda

MIB, GIB = 1 << 20, 1 << 30

#: Sizes that take no time.
TINY = [
    "--sizes=64KiB,1MiB",
    "--copies-room=4MiB",
    "--history=12MB",
    "--checkpoint=1MiB",
    "--device-tier=4MiB",
    "--intervals=0,1",
    "--arenas=64MiB,1000TiB",
    "--raw-buffer=8MiB",
    "--shot-checkpoints=10",
    "--rounds=2",
    "--touch-threads=2",
    "--disk-history=8MiB",
]


@pytest.fixture(autouse=True)
def one_library(monkeypatch):
    """PyTorch would use a real GPU, where there is one, on streams of the fake device."""
    monkeypatch.setattr(
        copies, "libraries", lambda cuda: [Library("CuPy", cuda.array, cuda.current)]
    )


def tables_of(part, *arguments):
    """The tables of one part on the fake device."""
    device, collected = FakeCuda(), report.Report({})
    assert command.run_parts([part], plan(*TINY, *arguments), device, collected)
    assert device.leaked == 0, "something was not given back"
    return {table.name: table for table in collected.tables}


# Figures.


def test_a_sample_knows_its_middle_and_its_ends():
    sample = Sample.of([5.0, 1.0, 3.0])
    assert (sample.median, sample.low, sample.high) == (3.0, 1.0, 5.0)
    assert Sample.of(range(1, 11)).p90 == 9
    assert Sample.of([7.0]).p90 == 7.0
    with pytest.raises(ValueError, match="at least one"):
        Sample.of([])


def test_rates_are_bytes_over_time_and_ratios_those_of_medians():
    rates = gigabytes_per_second(2 * 10**9, Sample.of([1.0, 4.0]))
    assert rates.values == (2.0, 0.5)
    assert ratio(Sample.of([3.0, 3.0]), Sample.of([4.0])) == 0.75
    assert np.isnan(ratio(Sample.of([3.0]), Sample.of([0.0])))


def test_what_is_lost_is_the_time_beyond_the_computation_alone():
    assert lost_share(10.0, 8.0) == 20.0
    assert lost_share(8.0, 10.0) == 0.0
    assert share(1.0, 0.0) == 0.0


def test_readings_end_with_the_rounds_or_with_the_budget():
    assert len(repeat(lambda: 1.0, 4).values) == 4
    assert len(repeat(lambda: 1.0, 4, budget=-1.0).values) == 1


def test_copies_are_held_up_by_what_they_take_beyond_the_usual():
    held = beside.held_up([1.0, 1.5, 0.5, 3.0], usual=1.0)
    assert (held.copies, held.longest, held.lost) == (4, 3.0, 2.5)
    assert beside.held_up([], usual=1.0) == beside.HeldUp(0, 0.0, 0.0)


# Options.


@pytest.mark.parametrize(
    ("text", "count"), [("4096", 4096), ("1.5GB", 1_500_000_000), ("2 MiB", 2 * MIB), (".5kB", 500)]
)
def test_sizes_are_those_of_a_spool_or_numbers_of_bytes(text, count):
    assert options.size_of(text) == count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1k", "write KiB"),
        ("0", "at least one byte"),
        ("0.1B", "at least one"),
        ("-1GB", "not a size"),
    ],
)
def test_what_is_no_size_is_refused(text, why):
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        options.size_of(text)


def test_options_win_over_quick_and_quick_over_the_defaults():
    assert plan().history == 40 * 10**9
    assert plan("--quick").history == options.QUICK["history"]
    assert plan("--quick", "--history", "1GB").history == 10**9
    assert plan("--warm", "0").warm == 0
    assert plan("--intervals", "0,2.5").intervals == (0.0, 0.0025)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--only", "copies,nothing"], "there is no part 'nothing'"),
        (["--history", "much"], "is not a size"),
        (["--intervals", "1,-2"], "milliseconds from 0"),
        (["--processes", "0"], "whole numbers from 1"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_reason(arguments, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.bench([*arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_machine_without_a_gpu_measures_the_parts_that_need_none():
    assert command.parts_of(plan(), False, "no driver") == options.DEFAULT_PLAIN_PARTS
    assert "sweep" in command.parts_of(plan(), True, "")
    assert "raw" not in command.parts_of(plan(), True, "")
    with pytest.raises(command.BenchError, match="copies cannot be measured here: no driver"):
        command.parts_of(plan("--only", "copies"), False, "no driver")


# Reports.


def test_tables_show_medians_with_spread_and_files_hold_all_readings(tmp_path, capsys):
    file = tmp_path / "figures.json"
    collected = report.Report({"device": None}, file)
    table = report.Table("t", "A table", ("way", "GB/s", "count"))
    table.add("this", Sample.of([1.0, 2.0, 4.0]), 12345)
    table.add("that", None, 1)
    table.note("a note")
    table.note("a note")
    collected.show(table)
    shown = capsys.readouterr().out
    assert "2.00 (1.00-4.00)" in shown
    assert "12,345" in shown
    assert shown.count("a note") == 1
    content = json.loads(file.read_text())
    row = content["tables"][0]["rows"][0]
    assert row["GB/s"] == {"median": 2.0, "low": 1.0, "high": 4.0, "values": [1.0, 2.0, 4.0]}
    assert content["tables"][0]["rows"][1]["GB/s"] is None


def test_rows_that_take_long_are_shown_as_they_come(capsys):
    table = report.Report({}).begin(report.Table("t", "A table", ("way", "s")))
    table.add("this", 2.0)
    assert capsys.readouterr().err == "  t: way this, s 2.00\n"


def test_rows_of_a_table_that_is_not_done_are_in_the_file(tmp_path):
    file = tmp_path / "figures.json"
    collected = report.Report({}, file)
    table = collected.begin(report.Table("t", "A table", ("way", "s")))
    table.add("this", 2.0)
    table.add("that", math.inf)
    rows = [{"way": "this", "s": 2.0}, {"way": "that", "s": None}]
    assert json.loads(file.read_text())["tables"][0]["rows"] == rows
    collected.show(table)
    assert [one["rows"] for one in json.loads(file.read_text())["tables"]] == [rows]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, capsys):
    file = tmp_path / "nowhere" / "figures.json"
    for option in ("--json", "--shot-plot"):
        assert cli.bench(["--only", "memory", option, str(file)]) == 2
        shown = capsys.readouterr()
        assert "no such directory" in shown.err
        assert shown.out == ""


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        report.Table("t", "A table", ("a", "b")).add("x")


# Host memory.


@pytest.mark.parametrize("touch", [write_pages, write_all])
@pytest.mark.parametrize("huge", [False, True])
def test_every_byte_of_a_mapping_can_be_touched_by_several_threads(touch, huge):
    mapping = Mapping(3 * HUGE_PAGE + 5, huge)
    assert mapping.address % HUGE_PAGE == 0
    mapping.bytes[:] = 9
    in_parallel(mapping, touch, threads=3, piece=HUGE_PAGE)
    kept = np.count_nonzero(mapping.bytes)
    pages = -(-mapping.count // mapping.page)
    assert kept == (0 if touch is write_all else mapping.count - pages)
    mapping.close()


def test_pieces_are_touched_in_order_and_the_prefix_ends_at_the_first_that_is_under_way():
    toucher = Toucher(25, piece=10)
    assert [toucher.take() for _ in range(3)] == [(0, 10), (10, 20), (20, 25)]
    assert toucher.take() is None
    toucher.done(10)
    assert toucher.prefix() == 0
    toucher.done(0)
    assert toucher.prefix() == 20
    toucher.done(20)
    toucher.wait_for(25)
    assert toucher.prefix() == 25


def test_nothing_is_touched_during_a_flush_and_what_it_wrote_never_again():
    toucher, taken = Toucher(40, piece=10), []
    first = toucher.take()
    toucher.done(first[0])
    with toucher.paused(25):
        thread = threading.Thread(target=lambda: taken.append(toucher.take()))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert taken == []
    thread.join(10)
    assert taken == [(25, 35)]


# Parts, on the fake device.


def test_the_raw_operations_fill_three_tables():
    tables = tables_of("raw")
    assert column(tables["raw-device"], "MiB") == [0.0625, 0.0625, 1.0, 1.0]
    assert len(tables["raw-links"].rows) == 3
    names = column(tables["raw-host"], "operation")
    assert "cudaHostAlloc" in names
    assert "copy down, not registered, huge pages, touched" in names


def test_copies_stand_beside_those_of_the_device():
    tables = tables_of("copies")
    # On the fake device copies take no time, and the waiting kernel ends before the first event.
    assert column(tables["copies"], "save/raw %") == [100.0, 100.0]
    assert column(tables["calls"], "arrays")[0] == "CuPy"
    assert all(micros > 0 for micros in column(tables["calls"], "restore us"))


def test_saves_are_compared_with_copies_to_many_places_and_restores_with_copies_back():
    def calls(seconds):
        return raw.Calls(Sample.of([seconds]), Sample.of([1e-6]))

    plain, ours = copies.Both(calls(1.0), calls(2.0)), copies.Both(calls(2.0), calls(2.5))
    cells = copies.device_cells(10**9, plain, ours)
    assert [cells[0].median, cells[1].median, cells[2]] == [1.0, 0.5, 50.0]
    assert [cells[3].median, cells[4].median, cells[5]] == [0.5, 0.4, 80.0]


def test_device_time_is_what_passes_between_the_first_call_and_the_last():
    device = FakeCuda()
    stream = device.stream()
    seconds, hosts = raw.device_seconds(device, stream, [lambda: device.spin(2e-3, stream)] * 3)
    assert seconds == pytest.approx(6e-3)
    assert len(hosts) == 3


def test_a_sweep_moves_what_the_device_tier_cannot_hold():
    table = tables_of("sweep")["sweep"]
    passes = ["forward", "reverse"] * 2 + ["forward, kept", "reverse, kept"]
    assert column(table, "pass") == passes
    assert column(table, "compute ms") == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    alone = column(table, "compute alone s")
    assert alone[0] == 0.0
    assert alone[2] == pytest.approx(12 * 1e-3)
    bounds = column(table, "bound s")
    assert all(least > 0 for least in bounds)
    assert all(least >= 0.999 * part for least, part in zip(bounds, alone, strict=True))
    served = [column(table, f"from {name}")[1] for name in ("device", "host")]
    assert sum(served) == 12


def test_the_figures_of_a_pass_are_shares_of_its_own_time():
    one = sweep.Sweep(checkpoints=10, size=10**9, device=1, host=1, compute=0.0)
    links = raw.Links(10**9, *(Sample.of([0.5]) for _ in range(3)))
    passes = [sweep.Pass(seconds=10.0, stall=1.0, moved=9 * 10**9, hits=(4, 6))]
    bounds = sweep.bound_of(one, 8.0, links, 1.0)
    # All but one of ten have to move, at half a second each; computing takes longer.
    assert bounds == (pytest.approx(8.0), pytest.approx(8.0))
    assert sweep.bound_of(one, 0.0, links, 2.0) == (pytest.approx(2.25), pytest.approx(2.25))
    cells = sweep.cells_of(one, passes, 8.0, links, "forward", bounds[0])
    seconds, alone, least, reached, stall, stall_share, lost, link, of_pinned, history = cells
    assert (least, reached.median) == (pytest.approx(8.0), pytest.approx(80.0))
    assert (seconds.median, alone, stall.median) == (10.0, 8.0, 1.0)
    assert (stall_share.median, lost.median) == (10.0, 20.0)
    assert (link.median, history.median) == (0.9, 1.0)
    assert of_pinned == pytest.approx(45.0)
    slow = sweep.Sweep(checkpoints=10, size=10**9, device=1, host=1, compute=1.0)
    assert sweep.cells_of(slow, passes, 8.0, links, "forward", bounds[0])[8] is None


def test_a_sweep_has_as_many_checkpoints_as_its_history_needs():
    found = sweep.sweep_of(plan(), 0.0)
    assert found.checkpoints == 299
    assert found.checkpoints * found.size >= 40 * 10**9
    assert found.host > found.checkpoints * found.size
    assert found.device >= 4 * GIB


def test_arenas_that_do_not_fit_are_named_with_the_reason():
    table = tables_of("start")["start"]
    assert set(column(table, "arena")) == {"64.00 MiB"}
    assert len(table.rows) == 2 + len(start.WAYS)
    assert any(note.startswith("1000.00 TiB: left out") for note in table.notes)
    assert set(column(table, "memory")) == {machine.TOUCHED}


def test_a_program_runs_beside_everything_that_moves_checkpoints(monkeypatch):
    monkeypatch.setattr(programs, "ALONE", 0.01)
    monkeypatch.setattr(programs, "SETTLED", 0.0)
    table = tables_of("beside")["beside"]
    assert column(table, "beside") == list(programs.WAYS)
    assert all(share.median > 0 for share in column(table, "of alone %"))


def test_launches_are_counted_until_it_is_over():
    device, seen = FakeCuda(), []
    stream = device.stream()
    found = programs.launched(device, stream, lambda gone: seen.append(gone) or len(seen) == 3)
    assert found.count == 3 * programs.AHEAD * programs.TOGETHER
    assert 0 < found.longest <= found.seconds
    assert device.leaked == 0


def test_a_start_with_cold_memory_stands_apart():
    table = tables_of("start", "--warm=0")["start"]
    assert column(table, "memory") == [machine.FIRST] + [machine.USED] * (2 + len(start.WAYS))
    assert column(table, "longest ms")[0] is None


def test_the_figures_of_a_start_count_from_their_own_beginning():
    found = [start.Start(first=0.5, opened=0.2, ready=2.0)]
    cells = start.cells_of(4 * 10**9, found, beside.HeldUp(3, 0.25, 0.5))
    first, after, ready, rate, held, longest = cells
    assert (first.median, ready.median, rate.median) == (500.0, 2000.0, 2.0)
    assert after.median == pytest.approx(300.0)
    assert (held, longest) == (500.0, 250.0)
    unknown = start.cells_of(1, [start.Start(0.5, None, None)], beside.HeldUp(0, 0.0, 0.0))
    assert unknown[1:4] == [None, None, None]


@pytest.mark.parametrize("part", options.DEFAULT_PLAIN_PARTS)
def test_the_parts_without_a_gpu_measure_memory_and_disk(part, tmp_path, capsys):
    file = tmp_path / "figures.json"
    arguments = [*TINY, "--only", part, "--dir", tmp_path, "--json", file]
    assert cli.bench([*map(str, arguments)]) == 0
    assert "all in" in capsys.readouterr().out
    table = json.loads(file.read_text())["tables"][0]
    assert table["name"] == part
    assert len(table["rows"]) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_a_part_that_fails_is_named_and_the_next_one_still_runs(tmp_path, capsys):
    nowhere = tmp_path / "nowhere"
    collected = report.Report({})
    done = command.run_parts(["disk", "memory"], plan(*TINY, f"--dir={nowhere}"), None, collected)
    assert not done
    assert [table.name for table in collected.tables] == ["memory"]
    assert "disk failed" in capsys.readouterr().out


def test_host_memory_is_warmed_as_far_as_the_parts_use_it():
    asked = plan(*TINY)
    assert command.host_memory_needed("shot", asked) == 10 * MIB
    assert command.host_memory_needed("shot", plan(*TINY, "--shot-processes=1,4")) == 40 * MIB
    assert command.host_memory_needed("copies", asked) == 0
    device, collected = FakeCuda(), report.Report({})
    assert command.run_parts(["copies"], plan(*TINY, "--warm=4MiB"), device, collected)
    assert [table.name for table in collected.tables] == ["warm", "copies", "calls"]


def test_memory_is_touched_before_a_reading_unless_that_is_not_wanted():
    warmth = Warmth(threads=2)
    assert "may have been cold" in str(warmth)
    assert warmth.bring(4 * MIB) == machine.TOUCHED
    assert "touched and freed: at" in str(warmth)
    cold = Warmth(threads=2, warm=False)
    found = [cold.bring(count * MIB) for count in (4, 4, 2, 8)]
    assert found == [machine.FIRST, machine.USED, machine.USED, machine.FIRST]
    assert "may have been cold" in str(cold)


# Processes.

CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from fake_cuda import FakeCuda
from unspool_studies.bench import child

job = child.Job(**json.loads(sys.argv[2]))
print("ready", flush=True)
device = FakeCuda()
words = (line.strip() for line in iter(sys.stdin.readline, ""))
child.work(device, job, words, lambda found: print(json.dumps(found), flush=True))
"""


@pytest.mark.parametrize("way", ["spool", "pinned"])
def test_processes_begin_together_and_say_what_they_measured(way):
    job = child.Job(way, 0, 4 * MIB, 16 * MIB, MIB, 6)
    here = str(Path(__file__).parent)
    found = node.together(2, [sys.executable, "-c", CHILD, here, job.text()], {})
    assert len(found) == 2
    assert all(one.first > 0 and one.forward > 0 and one.reverse > 0 for one in found)
    cells = node.cells_of(job, found)
    slowest = max(one.forward for one in found)
    assert cells[5] == pytest.approx(2 * 6 * MIB / slowest / 1e9)


def test_a_process_that_fails_is_told_with_its_last_words():
    code = "print('ready', flush=True); input(); raise SystemExit('no memory left')"
    with pytest.raises(ProcessError, match="failed with 1: no memory left"):
        node.together(2, [sys.executable, "-c", code], {})
    with pytest.raises(ProcessError, match="'hello' instead of being ready"):
        node.together(1, [sys.executable, "-c", "print('hello')"], {})


def test_processes_share_memory_and_never_sweep_more_than_they_hold():
    for processes in (1, 2, 4, 8):
        job = node.job_of(plan(), processes, "spool")
        assert job.host * processes <= plan().share
        assert job.checkpoints * job.size <= job.host
        assert job.device < job.checkpoints * job.size / 3
    assert node.job_of(plan("--node-history=1GB"), 1, "spool").checkpoints == 8


def test_an_array_of_bytes_of_one_process_alone_is_measured_without_the_others():
    device, said = FakeCuda(), []
    job = child.Job("pinned", 0, MIB, 4 * MIB, MIB, 3)
    child.work(device, job, ["start", "sweep"], said.append)
    assert said[0].keys() == {"first", "ready"}
    assert said[1].keys() == {"forward", "reverse"}
    assert device.copied == (1 + 2 * 3) * MIB
    assert device.leaked == 0
    with pytest.raises(ValueError, match="no phase 'dance'"):
        child.work(device, job, ["dance"], said.append)
