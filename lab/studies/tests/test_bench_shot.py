"""Part `shot` of `unspool-bench`: every way of preparing memory brings every checkpoint back, of
every size, in every process. Nothing is asserted about time."""

import gc
import json
import sys
from pathlib import Path

import pytest
from unspool_studies import cli
from unspool_studies.bench import (
    command,
    machine,
    paper,
    report,
    shot,
    shot_plot,
)
from unspool_studies.bench.driver import Driver, DriverError
from unspool_studies.bench.layout import layout_of
from unspool_studies.bench.mapped import MappedMemory
from unspool_studies.bench.prepare import DEVICE_STRATEGIES, STRATEGIES, Host, Strategy
from unspool_studies.bench.shot import Blocked, Shot, run_spool, run_strategy
from unspool_studies.bench.shot_process import SPOOL, Task, small, work
from unspool_studies.bench.sizes import shot_sizes

import bench_plans
from bench_plans import column
from fake_cuda import FakeCuda
from fake_managed import FakeManaged

KIB, MIB = 1 << 10, 1 << 20

#: Sizes that take no time: ten checkpoints, four of them in the device tier.
TINY = [
    "--checkpoint=1MiB",
    "--device-tier=4MiB",
    "--shot-checkpoints=10",
    "--shot-intervals=0",
    "--rounds=2",
    "--touch-threads=2",
]

#: Sizes of which no two neighbours are alike.
UNEVEN = tuple(MIB * (1 + k % 3) + 4 * KIB * k for k in range(12))

CHILD = """
import sys
sys.path[:0] = sys.argv[1:3]
from unspool_studies.bench import shot, shot_process
from {module} import {cuda}
from fake_managed import FakeManaged

shot.Managed = FakeManaged
shot_process.serve({cuda}, sys.argv[3])
"""


def started_with(module, cuda):
    """A command whose processes have such a device."""
    here = Path(__file__).parent
    folders = (str(here), str(here.parents[2] / "tests" / "python"))
    return (sys.executable, "-c", CHILD.format(module=module, cuda=cuda), *folders)


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    monkeypatch.setattr(shot, "Managed", FakeManaged)
    monkeypatch.setattr(paper, "COMMAND", started_with("fake_cuda", "FakeCuda"))


def plan(*arguments):
    return bench_plans.plan(*TINY, *arguments)


def tables_of(*arguments, cuda=None, file=None):
    """The tables of the part on the fake device, or on another one."""
    collected = report.Report({}, file)
    assert command.run_parts(["shot"], plan(*arguments), cuda or FakeCuda(), collected)
    return [table for table in collected.tables if table.name == "shot"]


def shot_of(sizes=UNEVEN, cache=6 * MIB):
    return Shot(sizes, cache, interval=0.0, touch_threads=2)


# Sizes and places.


def test_sizes_are_alike_drawn_anew_for_each_process_or_those_of_a_trace(tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("# two processes\n1MiB 4096\n\n5000 8192  # uneven\n")
    assert shot_sizes("uniform", 3, 5000) == (8192,) * 3
    drawn = [shot_sizes("variable", 20, MIB, process) for process in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert len(set(drawn[0])) > 10
    columns = [shot_sizes(str(trace), 99, MIB, process) for process in (0, 1, 2)]
    assert columns == [(MIB, 8192), (4096, 8192), (MIB, 8192)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "at least two"), ("1MiB 2MiB\n1MiB\n", "as many sizes"), ("1MiB\nmuch\n", "not a size")],
)
def test_a_trace_of_something_else_is_refused_before_anything_is_measured(
    text, reason, tmp_path, capsys
):
    trace = tmp_path / "trace.txt"
    trace.write_text(text)
    for kind, why in ((str(trace), reason), (str(tmp_path / "none"), "none of uniform, variable")):
        with pytest.raises(SystemExit) as ended:
            cli.bench(["--only=shot", f"--shot-sizes={kind}"])
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["uniform", "variable"])
@pytest.mark.parametrize("room", [3, 4, 7.5, 40])
def test_no_two_checkpoints_have_the_same_bytes_at_the_same_time(kind, room):
    sizes, count = shot_sizes(kind, 24, MIB), int(room * MIB)
    layout = layout_of(sizes, count)
    ends = [place + size for place, size in zip(layout.places, sizes, strict=True)]
    assert max(ends) <= count

    def share(j, k):
        return layout.places[j] < ends[k] and layout.places[k] < ends[j]

    for k in range(24):
        earlier = [j for j in range(k) if share(j, k)]
        later = [j for j in range(k + 1, 24) if share(j, k)]
        assert layout.before[k] == max(earlier, default=-1)
        assert layout.after[k] == min(later, default=24)
        # What has to be gone before a save is flushed at all.
        assert set(earlier) <= set(layout.flushed)
    assert (layout.flushed == ()) == (room == 40)


# Strategies.


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
@pytest.mark.parametrize("sizes", [(3 * 2 * MIB,) * 9, UNEVEN], ids=["uniform", "uneven"])
def test_every_strategy_brings_every_checkpoint_back(strategy, sizes):
    device = FakeCuda()
    blocked = run_strategy(
        device, shot_of(sizes, 18 * MIB if len(sizes) == 9 else 6 * MIB), strategy
    )
    assert blocked.wrong == 0
    assert (blocked.registered is None) == (strategy.host is Host.UNIFIED)
    assert blocked.checkpointing == blocked.start + blocked.saves
    assert blocked.total == blocked.checkpointing + blocked.restores
    assert blocked.forward >= blocked.checkpointing
    assert device.leaked == 0


@pytest.mark.parametrize("strategy", DEVICE_STRATEGIES, ids=lambda one: one.name)
def test_a_device_tier_that_holds_everything_needs_no_host_buffer(strategy):
    device, one = FakeCuda(), shot_of(cache=sum(UNEVEN))
    blocked = run_strategy(device, one, strategy)
    assert blocked.wrong == 0
    assert blocked.registered is not None
    assert device.copied == 2 * sum(UNEVEN) + len(UNEVEN)
    assert device.leaked == 0
    with pytest.raises(RuntimeError, match="does not hold the history"):
        run_strategy(device, shot_of(), strategy)
    assert device.leaked == 0


@pytest.mark.parametrize("cache", [MIB, 6 * MIB, 40 * MIB])
def test_a_shot_goes_through_a_spool_as_well(cache):
    device = FakeCuda()
    assert run_spool(device, shot_of(cache=cache)).wrong == 0
    assert device.leaked == 0


def test_memory_that_cannot_be_mapped_ends_the_shot_with_the_drivers_reason(monkeypatch):
    device = FakeCuda()
    ready = device.mapped

    def mapped(*arguments):
        memory = ready(*arguments)

        def refuse():
            raise DriverError("cuMemCreate failed with 2: out of memory")

        memory.grow = refuse
        return memory

    monkeypatch.setattr(device, "mapped", mapped)
    for strategy in (Strategy("node", Host.NODE), Strategy("mapped", Host.PIN, mapped=True)):
        with pytest.raises(DriverError, match="out of memory"):
            run_strategy(device, shot_of(), strategy)
        assert device.leaked == 0


def test_strategies_are_chosen_by_words_and_parallel_ones_need_several_processes():
    def names(*arguments, processes=2):
        return [one.name for one in paper.selected(STRATEGIES, plan(*arguments), processes)]

    assert names("--strategies=pin,memset") == ["direct pin", "incremental memset, 4 KiB"]
    assert names("--everything") == [one.name for one in STRATEGIES]
    assert set(names("--everything")) - set(names()) == {one.name for one in STRATEGIES if one.slow}
    parallel = {one.name for one in STRATEGIES if one.parallel}
    assert set(names("--everything")) - set(names("--everything", processes=1)) == parallel
    # Touch, pages and pinning are crossed.
    crossed = {(one.sequential, one.huge, one.parallel) for one in STRATEGIES}
    assert len(crossed) == 8


# Tables.


def test_every_way_has_a_row_and_stands_beside_the_spool(tmp_path):
    file = tmp_path / "shot.json"
    (table,) = tables_of("--strategies=direct,unified,unspool", file=file)
    assert column(table, "way") == ["direct pin", "unified memory", "unspool"], table.notes
    assert set(column(table, "memory")) == {machine.TOUCHED}
    assert not any("other bytes" in note for note in table.notes)
    assert any(note.startswith("all blocked, times that of unspool") for note in table.notes)
    written = json.loads(file.read_text())["tables"][-1]["rows"]
    assert [len(row["all blocked s"]["values"]) for row in written] == [2, 2, 2]


def test_there_is_a_table_for_each_history_number_of_processes_and_interval(tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("".join(f"{size} {size // 2}\n" for size in UNEVEN))
    kinds = f"--shot-sizes=variable,{trace}"
    axes = ("--shot-checkpoints=6,8", "--shot-processes=2,3")
    asked = plan(kinds, *axes, "--shot-intervals=0,1")
    assert len(set(paper._settings(asked))) == (2 + 1) * 2 * 2
    tables = tables_of(kinds, *axes, "--strategies=direct")
    assert len(tables) == (2 + 1) * 2
    for table in tables:
        left_out = "3 process" in table.title
        assert len(table.rows) == (0 if left_out else 1), table.notes
        assert any("need as many GPUs, here are 2" in note for note in table.notes) == left_out
    assert sum("12 checkpoints" in table.title for table in tables) == 2


def test_a_history_that_fits_the_device_tier_is_compared_there():
    (table,) = tables_of("--device-tier=16MiB")
    ways = [one.name for one in DEVICE_STRATEGIES] + [SPOOL]
    assert column(table, "way") == ways, table.notes
    assert set(column(table, "memory")) == {paper.NO_HOST}


def test_the_first_use_of_memory_stands_apart_where_it_was_not_touched():
    (table,) = tables_of("--warm=0", "--strategies=direct,unspool")
    ways = list(zip(column(table, "way"), column(table, "memory"), strict=True))
    first, later = machine.FIRST, machine.USED
    assert ways == [("direct pin", first), ("direct pin", later), ("unspool", later)]
    assert any("may have been cold" in note for note in table.notes)


def test_a_way_that_fails_costs_its_row_alone_and_the_file_has_the_others(
    tmp_path, monkeypatch, capsys
):
    file = tmp_path / "shot.json"
    code = "import sys; raise SystemExit('no such driver')"
    usual = paper._commands

    def commands(one, setting, way, turn):
        if way == "unified memory":
            # The rows so far are in the file before the table is.
            rows = json.loads(file.read_text())["tables"][-1]["rows"]
            assert [row["way"] for row in rows] == ["direct pin"]
            return [(sys.executable, "-c", code)]
        return usual(one, setting, way, turn)

    monkeypatch.setattr(paper, "_commands", commands)
    (table,) = tables_of("--strategies=direct,unified,unspool", file=file)
    assert column(table, "way") == ["direct pin", "unspool"]
    assert "unified memory: a process failed with 1: no such driver" in table.notes


def test_a_shot_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(paper, "LIMIT", 0.0)
    code = "import time; print('ready', flush=True); input(); time.sleep(3600)"
    monkeypatch.setattr(paper, "_commands", lambda *arguments: [(sys.executable, "-c", code)])
    (table,) = tables_of("--strategies=direct")
    assert table.rows == []
    assert "direct pin: a process did not answer within 0 s" in table.notes


def test_several_processes_give_their_mean_and_the_last_that_was_ready():
    said = [Blocked(1.0, 2.0, 0.5, 3.0, 4.0, 5.0, 1), Blocked(3.0, 4.0, 0.1, 5.0, 6.0, None, 2)]
    assert paper._together(said) == Blocked(2.0, 3.0, 0.5, 4.0, 5.0, 5.0, 3)


@pytest.mark.parametrize("cache", [6 * MIB, 40 * MIB])
def test_a_small_shot_comes_first_and_is_of_the_same_kind(cache):
    one = shot_of(cache=cache)
    assert small(one).total < one.total
    assert small(one).fits == one.fits
    strategies = DEVICE_STRATEGIES if one.fits else STRATEGIES
    assert all(run_strategy(FakeCuda(), small(one), way).wrong == 0 for way in strategies)


def test_a_process_does_nothing_but_shots():
    task = Task("direct pin", 0, 0, "uniform", 4, MIB, 2 * MIB, 0.0, 2, "")
    said = []
    work(FakeCuda(), task, ["shot", "shot"], said.append)
    assert [one["wrong"] for one in said] == [0, 0]
    with pytest.raises(ValueError, match="no phase 'dance'"):
        work(FakeCuda(), task, ["dance"], said.append)


def test_the_picture_is_written_twice_and_is_the_same_for_the_same_figures(tmp_path):
    rows = [
        paper.Row(
            paper.Setting("uniform", 10, 1, interval),
            10 * MIB,
            way,
            memory,
            (Blocked(0.1, 0.2, 0.1, 0.3, 1.0, None, 0), Blocked(0.1, 0.3, 0.1, 0.3, 1.0, None, 0)),
        )
        for interval in (0.005, 0.05)
        for way in ("direct pin", SPOOL)
        for memory in (machine.FIRST, machine.USED)
    ]
    pictures = []
    for name in ("one.png", "other.png"):
        files = shot_plot.draw(rows, tmp_path / name)
        assert [file.suffix for file in files] == [".png", ".svg"]
        pictures.append([file.read_bytes() for file in files])
    assert pictures[0] == pictures[1]
    assert b"direct pin (first use)" in pictures[0][1]


# On the driver of the tests.


@pytest.fixture
def device(driver):
    from driver_cuda import DriverCuda

    # Memory of an earlier test that is collected later would be taken for this one's.
    gc.collect()
    return DriverCuda()


@pytest.mark.fake_gpu
@pytest.mark.parametrize(
    "strategy",
    [one for one in (*STRATEGIES, *DEVICE_STRATEGIES) if one.host not in (Host.NODE, Host.UNIFIED)],
    ids=lambda one: one.name,
)
def test_every_strategy_works_on_the_driver(device, strategy):
    fits = strategy.host is Host.NONE
    one = shot_of(cache=sum(UNEVEN) if fits else 6 * MIB)
    free = device.free_memory()
    assert run_strategy(device, one, strategy).wrong == 0
    assert device.held == 0
    assert device.free_memory() == free


@pytest.mark.fake_gpu
@pytest.mark.parametrize("cache", [6 * MIB, 40 * MIB])
def test_the_spool_works_on_the_driver(device, cache):
    blocked = run_spool(device, shot_of(cache=cache))
    assert blocked.wrong == 0
    assert device.held == 0


@pytest.mark.fake_gpu
def test_memory_is_backed_piece_by_piece_and_all_given_back(device, driver):
    free = device.free_memory()
    memory = MappedMemory(0, 5 * MIB, 2 * MIB)
    found = []
    while memory.grow():
        found.append(memory.mapped)
    assert found == [2 * MIB, 4 * MIB, 6 * MIB]
    assert memory.count == 6 * MIB
    driver.fill(memory.address, 7, memory.count, device.used.ptr)
    device.wait(device.used)
    assert driver.read(memory.address + 5 * MIB, 2) == b"\x07\x07"
    assert device.free_memory() == free - 6 * MIB
    memory.close()
    assert device.free_memory() == free


@pytest.mark.fake_gpu
def test_a_driver_that_refuses_says_which_function_and_why(device):
    with pytest.raises(DriverError, match=r"cuDeviceGetAttribute|cuMemGetAllocationGranularity"):
        run_strategy(device, shot_of(), Strategy("node", Host.NODE))
    assert device.held == 0
    with pytest.raises(DriverError, match="this driver has no cuNothing"):
        Driver().call("cuNothing")


def test_a_driver_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_CUDA_DRIVER", str(tmp_path / "none.so"))
    with pytest.raises(DriverError, match="cannot be loaded"):
        Driver()


@pytest.mark.fake_gpu
def test_processes_on_two_devices_register_in_turn_and_bring_everything_back(device, monkeypatch):
    monkeypatch.setattr(paper, "COMMAND", started_with("driver_cuda", "DriverCuda"))
    if device.devices() < 2:
        pytest.skip("FAKECUDA_DEVICES=2 makes two devices")
    words = "--strategies=sequential touch,node,unspool"
    (table,) = tables_of("--shot-processes=2", "--shot-sizes=variable", words, cuda=device)
    ways = [
        "sequential touch, huge",
        "sequential touch, huge, parallel",
        "sequential touch, huge, mapped device tier",
        SPOOL,
    ]
    assert [
        way for way in column(table, "way") if "4 KiB" not in way and "1 thr" not in way
    ] == ways
    assert any(note.startswith("host NUMA node: a process failed") for note in table.notes)
    assert not any("other bytes" in note for note in table.notes)
