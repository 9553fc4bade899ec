"""Part `orders` of `unspool-bench`: every way brings every checkpoint back, and unified memory
stays within its share of the device. Nothing is asserted about time."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from unspool.accumulate import Profile
from unspool_studies import words
from unspool_studies.bench import (
    command,
    experiment,
    node_shots,
    orders,
    orders_child,
    processes,
    report,
    unified,
    ways,
)
from unspool_studies.bench.managed import NotManaged
from unspool_studies.bench.sizes import SEED, SizesError, sizes_of, traced_sizes

import bench_plans
from bench_plans import column
from fake_cuda import FakeCuda
from fake_managed import FakeManaged

KIB, MIB = 1 << 10, 1 << 20

#: Sizes that take no time: twelve checkpoints, four of them on the device.
TINY = [
    "--checkpoint=1MiB",
    "--device-tier=4MiB",
    "--orders-history=12MiB",
    "--orders-host=6MiB",
    "--orders-compute=1",
    "--rounds=1",
]


#: Baselines that need no package.
PLAIN = [way for way in ways.BASELINES if "PyTorch" not in way.name and "ADIOS2" not in way.name]


@pytest.fixture(autouse=True)
def managed(monkeypatch):
    """Unified memory of the fake device, without other packages; what was made of it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "adios2", None)
    monkeypatch.setattr(FakeManaged, "made", [])
    monkeypatch.setattr(ways, "Managed", FakeManaged)
    return FakeManaged.made


def plan(*arguments):
    return bench_plans.plan(*TINY, *arguments)


def table_of(*arguments):
    device, collected = FakeCuda(), report.Report({})
    assert command.run_parts(["orders"], plan(*arguments), device, collected)
    assert device.leaked == 0, "something was not given back"
    return collected.tables[-1]


def test_every_way_brings_every_checkpoint_back_in_every_order(tmp_path):
    table = table_of(f"--dir={tmp_path}")
    count = len(ways.SPOOL_WAYS) + len(unified.WAYS) + len(PLAIN)
    assert len(table.rows) == 2 * 3 * count, table.notes
    assert any("ADIOS2 BP5: left out: NoBaseline" in note for note in table.notes)
    assert set(column(table, "wrong")) == {0}
    assert list(tmp_path.iterdir()) == []
    served = [column(table, name) for name in ("device", "host", "disk")]
    counts = {sum(row) for row in zip(*served, strict=True) if None not in row}
    assert counts == {12}
    names, bounds = column(table, "way"), column(table, "bound s")
    ours = {way.name for way in ways.SPOOL_WAYS}
    assert {name for name, least in zip(names, bounds, strict=True) if least is not None} == ours


def test_the_bound_of_both_passes_is_what_links_and_compute_leave(tmp_path):
    def bound(order, compute, speeds):
        one = experiment.Experiment((10,) * 10, order, 20, 30, tmp_path, compute)
        return orders.bound_of(one, compute, speeds)

    sequential, reverse = tuple(range(10)), tuple(reversed(range(10)))
    # Eight of ten go down and, after all are saved, come up.
    assert bound(sequential, 0.0, [(10.0, 5.0)]) == 24.0
    # The last one that is saved is still there when it is restored.
    assert bound(reverse, 0.0, [(10.0, 5.0)]) == 21.0
    assert bound(reverse, 5.0, [(10.0, 5.0)]) == 100.0
    # Five of ten go to the disk, one a second, and come back.
    assert bound(sequential, 0.0, [(1e9, 1e9), (10.0, 10.0)]) == 10.0


def test_the_disk_receives_what_no_memory_holds(tmp_path):
    table = table_of(f"--dir={tmp_path}", "--orders=sequential", "--order-sizes=uniform")
    written = dict(zip(column(table, "way"), column(table, "to disk GB"), strict=True))
    assert written["unspool, all hints"] * 1e9 >= 2 * MIB
    assert written["unspool, all hints, no disk"] is None
    assert written["unified, page faults"] is None


def test_runs_take_turns_and_a_row_has_all_of_them(tmp_path, monkeypatch):
    ran, through = [], ways.through

    def watched(cuda, one, way):
        ran.append(way.name)
        if way.name.startswith("pinned copies, no") and ran.count(way.name) == 2:
            raise OSError("no memory")
        outcome = through(cuda, one, way)
        return replace(outcome, forward=outcome.forward + ran.count(way.name))

    monkeypatch.setattr(orders, "through", watched)
    asked = "--orders=reverse", "--order-sizes=uniform", "--strategies=hints,pinned", "--rounds=3"
    table = table_of(f"--dir={tmp_path}", *asked)
    count = len(table.rows)
    assert ran[:count] == ran[count : 2 * count] == column(table, "way")
    assert len(ran) == 3 * count - 1
    seconds = dict(zip(column(table, "way"), column(table, "forward s"), strict=True))
    # What failed is left out, and so is its third turn.
    assert isinstance(seconds.pop("pinned copies, no disk"), float)
    assert {len(one.values) for one in seconds.values()} == {3}
    assert {round(one.high - one.low) for one in seconds.values()} == {2}
    assert set(column(table, "wrong")) == {0}


def test_no_round_begins_after_the_limit(tmp_path, monkeypatch):
    clock = SimpleNamespace(perf_counter=partial(next, iter(range(0, 1000, 10))))
    monkeypatch.setattr(orders, "time", clock)
    asked = "--orders=reverse", "--order-sizes=uniform", "--strategies=no hints", "--rounds=3"
    table = table_of(f"--dir={tmp_path}", *asked, "--orders-limit=25")
    assert "uniform, reverse: time for 2 of 3 runs" in table.notes


def test_a_picture_has_the_rates_of_all_cells(tmp_path):
    file = tmp_path / "rates.png"
    options = f"--dir={tmp_path}", "--orders=sequential", "--strategies=hints,pinned"
    table_of(*options, "--order-sizes=uniform", f"--orders-bars={file}")
    drawn = file.with_suffix(".svg").read_text()
    assert file.read_bytes().startswith(b"\x89PNG")
    for text in ("unspool, all hints", "pinned copies, no disk", "uniform, sequential"):
        assert text in drawn


def test_with_a_codec_wavefields_come_back_and_less_goes_to_the_disk(tmp_path):
    options = f"--dir={tmp_path}", "--orders=sequential", "--strategies=hints,pinned"
    plain, coded = table_of(*options), table_of(*options, "--codec=lossless")
    assert set(column(coded, "wrong")) == {0}
    assert len(coded.rows) == len(plain.rows)
    assert set(column(coded, "bound s")) == {None}
    written = [sum(filter(None, column(table, "to disk GB"))) for table in (plain, coded)]
    assert written[1] < 0.95 * written[0]
    assert "codec lossless" in coded.title


@pytest.mark.parametrize("way", unified.WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("kind", words.SIZES)
@pytest.mark.parametrize("order", words.ORDERS)
def test_unified_memory_stays_within_its_share_of_the_device(way, kind, order, managed, tmp_path):
    sizes = sizes_of(kind, 24 * MIB, MIB)
    versions = experiment.order_of(order, len(sizes))
    one = experiment.Experiment(sizes, versions, 9 * MIB, MIB, tmp_path, 0.0)
    outcome = ways.through(FakeCuda(), one, way)
    assert outcome.wrong == 0
    # What the device reads across the link is not there.
    assert way.in_place or max(sizes) < managed[0].peak <= one.device


def test_unified_memory_is_refused_when_the_card_has_less_free(tmp_path):
    sizes = sizes_of("uniform", 24 * MIB, MIB)
    one = experiment.Experiment(sizes, range(24), 9 * MIB, MIB, tmp_path, 0.0)
    device = FakeCuda()
    device.free_memory = lambda: 23 * MIB
    with pytest.raises(NotManaged, match="more than is free"):
        ways.through(device, one, unified.WAYS[0])
    assert device.leaked == 0


def test_a_way_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise NotManaged("this driver has no such call")

    monkeypatch.setattr(FakeManaged, "discard", refuse)
    table = table_of(f"--dir={tmp_path}", "--orders=reverse", "--order-sizes=uniform")
    assert len(table.rows) == len(ways.SPOOL_WAYS) + len(unified.WAYS) - 1 + len(PLAIN)
    assert any("discards: left out: NotManaged" in note for note in table.notes)


def test_orders_for_which_no_time_is_left_are_named():
    table = table_of("--orders-limit=-1")
    assert table.rows == []
    assert any("no time was left for: variable, irregular" in note for note in table.notes)


def test_sizes_and_orders_are_the_same_in_every_run():
    variable = sizes_of("variable", 48 * MIB, MIB)
    assert variable == sizes_of("variable", 48 * MIB, MIB)
    assert len(variable) == 48
    assert sum(variable) == pytest.approx(48 * MIB, rel=0.01)
    assert min(variable) < 0.3 * MIB < 1.2 * MIB < max(variable)
    irregular = experiment.order_of("irregular", 48)
    assert irregular == experiment.order_of("irregular", 48)
    assert sorted(irregular) == list(range(48))
    assert experiment.order_of("reverse", 3) == (2, 1, 0)
    assert experiment.order_of("sequential", 3) == (0, 1, 2)


def test_throughput_is_bytes_over_the_time_beyond_the_compute(tmp_path):
    one = experiment.Experiment((10**9,) * 4, range(4), 1, 1, tmp_path, 1.0)
    ours = ways.Outcome(6.0, 4.5, (1.0, 0.25), (1, 2, 1), (3.0, 2.0), 0)
    theirs = ways.Outcome(5.0, 8.0, None, None, None, 0, flush=7.0)
    found = {"unspool, all hints": ours, unified.WAYS[0].name: theirs}
    rows = [
        dict(zip(orders.COLUMNS[4:], orders.row_of(one, name, [way], 4.0, 1.0), strict=True))
        for name, way in found.items()
    ]
    assert (rows[0]["save GB/s"], rows[0]["restore GB/s"], rows[0]["x unified"]) == (2.0, 8.0, 8.0)
    assert (rows[1]["restore GB/s"], rows[1]["x unified"], rows[1]["both s"]) == (1.0, 1.0, 13.0)
    assert rows[0]["restore stall s"] == 0.25
    assert (rows[0]["flush s"], rows[1]["flush s"]) == (None, 7.0)
    assert rows[1]["disk"] is None


def test_the_compute_that_is_left_out_is_that_of_all_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(orders, "_compute_seconds", lambda cuda, compute: 0.002)
    table = table_of(f"--dir={tmp_path}", "--orders=reverse", "--order-sizes=uniform")
    # Twelve steps in each of both passes.
    assert column(table, "compute s") == [pytest.approx(2 * 12 * 0.002)] * len(table.rows)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--orders=random", "there is no 'random'"),
        ("--order-sizes=big", "choose from uniform, variable"),
        ("--orders-wait=maybe", "choose from no, yes"),
        ("--orders-cell-limit=0", "seconds above 0"),
        ("--orders-cell-limit=nan", "seconds above 0"),
        ("--orders-device=0", "at least one byte"),
        ("--orders-compute=10,-1", "milliseconds from 0"),
    ],
)
def test_orders_and_sizes_that_do_not_exist_are_refused(argument, reason, capsys):
    with pytest.raises(SystemExit):
        plan(argument)
    assert reason in capsys.readouterr().err


# The figures of the paper.


def test_restores_wait_until_everything_is_flushed_where_that_is_asked_for(tmp_path):
    table = table_of(
        f"--dir={tmp_path}", "--orders=reverse", "--order-sizes=uniform", "--orders-wait=no,yes"
    )
    count = len(ways.SPOOL_WAYS) + len(unified.WAYS) + len(PLAIN)
    waits = [seconds is not None for seconds in column(table, "flush s")]
    assert waits == [False] * count + [True] * count
    assert set(column(table, "wrong")) == {0}
    rows = list(zip(column(table, "way"), column(table, "to disk GB"), strict=True))[count:]
    for name, written in rows:
        if name in ("unspool, all hints", "unspool, one hint", "unspool, no hints"):
            assert written * 1e9 == pytest.approx(12 * MIB)
    assert set(column(table, "bound s")[count:]) == {None}


def test_computes_and_device_tiers_make_a_table_of_rates(tmp_path):
    asked = ("--orders=irregular", "--order-sizes=variable", "--strategies=no hints,page faults")
    device, collected = FakeCuda(), report.Report({})
    varied = plan(f"--dir={tmp_path}", *asked, "--orders-compute=1,2", "--orders-device=3MiB,6MiB")
    assert command.run_parts(["orders"], varied, device, collected)
    table, grid = collected.tables[-2:]
    assert (table.name, grid.name) == ("orders", "orders-grid")
    assert len(table.rows) == 2 * 2 * 3
    assert len(grid.rows) == 2 * 3
    assert list(grid.columns[5:7]) == ["save at 1 ms", "save at 2 ms"]
    assert {row[4] for row in grid.rows} == {"3.00 MiB", "6.00 MiB"}
    assert None not in {cell for row in grid.rows for cell in row}


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_each_restore_is_in_the_file_and_drawn(suffix, tmp_path):
    asked = ("--orders=sequential", "--order-sizes=uniform", "--strategies=unspool,pinned")
    file, picture = tmp_path / "found.json", tmp_path / f"found.{suffix}"
    device, collected = FakeCuda(), report.Report({}, file)
    drawn = plan(f"--dir={tmp_path}", *asked, f"--orders-plot={picture}")
    assert command.run_parts(["orders"], drawn, device, collected)
    assert picture.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    rows = json.loads(file.read_text())["tables"][-1]["rows"]
    by_way = {}
    for row in rows:
        by_way.setdefault(row["way"], []).append(row)
    assert by_way.keys() == {way.name for way in ways.SPOOL_WAYS} | {
        "pinned copies", "pinned copies, no disk"
    }  # fmt: skip
    for name, found in by_way.items():
        assert sum(len(row["GB/s"]["values"]) for row in found) == 12
        known = sum(len(row["distance"]["values"]) for row in found if row["distance"])
        assert known == (12 if "all hints" in name else 11 if "one hint" in name else 0)
        served = [row[tier] for row in found for tier in ways.TIERS]
        assert sum(served) == 12 if "unspool" in name else set(served) == {None}
    assert device.leaked == 0


def test_without_a_plot_no_restore_is_timed(tmp_path):
    sizes = sizes_of("uniform", 12 * MIB, MIB)
    one = experiment.Experiment(sizes, range(12), 4 * MIB, 6 * MIB, tmp_path, 0.0)
    outcome = ways.through(FakeCuda(), one, ways.SPOOL_WAYS[0])
    assert (outcome.saves, outcome.restores, outcome.seen) == ((), (), ())


def test_sizes_are_read_from_a_file(tmp_path):
    lines, profile = tmp_path / "sizes.txt", tmp_path / "run.json"
    lines.write_text("# a shot\n1MiB\n\n5000  # bytes\n4096\n")
    assert traced_sizes(lines) == (MIB, 8192, 4096)
    Profile.of([MIB, MIB, 3 * MIB], ratio=[2.0, 4.0, 1.0]).save_to(profile)
    assert traced_sizes(profile) == (MIB // 2, MIB // 4, 3 * MIB)
    asked = (f"--dir={tmp_path}", "--orders=reverse", "--strategies=all hints")
    table = table_of(*asked, f"--orders-traces={lines},{profile}")
    assert set(column(table, "sizes")) == {"sizes.txt"}
    assert set(column(table, "wrong")) == {0}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("sizes.txt", "1MiB\nmany\n", "many"),
        ("sizes.txt", "4096\n", "1 sizes of checkpoints, at least two"),
        ("sizes.txt", "0\n4096\n", "at least one byte"),
        ("sizes.txt", None, "No such file"),
        ("run.json", "{}", "gives no sizes"),
    ],
)
def test_a_file_without_sizes_is_refused(name, text, reason, tmp_path, capsys):
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(SizesError, match=reason):
        traced_sizes(file)
    device, collected = FakeCuda(), report.Report({})
    assert not command.run_parts(["orders"], plan(f"--orders-traces={file}"), device, collected)
    assert "orders failed: SizesError" in capsys.readouterr().out


def test_a_way_that_takes_too_long_is_given_up_and_named(tmp_path):
    asked = ("--orders=reverse", "--order-sizes=uniform", "--strategies=pinned,page faults,unspool")
    table = table_of(f"--dir={tmp_path}", *asked, "--orders-cell-limit=1e-9")
    assert table.rows == []
    given_up = [note for note in table.notes if "given up after 1e-09 s" in note]
    assert len(given_up) == len(ways.SPOOL_WAYS) + 3
    assert list(tmp_path.iterdir()) == []


def test_rows_are_in_the_file_before_the_part_ends(tmp_path, monkeypatch):
    done = []

    def interrupted(cuda, one, way, through=ways.through):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(way.name)
        return through(cuda, one, way)

    monkeypatch.setattr(orders, "through", interrupted)
    file = tmp_path / "found.json"
    with pytest.raises(KeyboardInterrupt):
        command.run_parts(
            ["orders"], plan(f"--dir={tmp_path}"), FakeCuda(), report.Report({}, file)
        )
    table = json.loads(file.read_text())["tables"][-1]
    assert [row["way"] for row in table["rows"]] == done


# Several processes.

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from fake_cuda import FakeCuda
from test_bench_orders import FakeManaged
from unspool_studies.bench import orders_child, ways

ways.Managed = FakeManaged
sys.modules["adios2"] = None
def say(text):
    print(text, flush=True)
say("ready")
orders_child.work(FakeCuda(), sys.stdin.readline(), say, sys.stdin.readline)
"""

COMMAND = (sys.executable, "-c", CHILD, str(Path(__file__).parent))


def jobs(directory, coupled, counts=(12, 12), way=ways.SPOOL_WAYS[0]):
    found = []
    for number, count in enumerate(counts):
        own = directory / str(number)
        own.mkdir()
        sizes = sizes_of("variable", count * MIB, MIB, SEED + number)
        order = experiment.order_of("irregular", count, SEED + number)
        one = experiment.Experiment(sizes, order, 4 * MIB, 6 * MIB, directory, 1e-3, limit=60.0)
        found.append(node_shots.job_of(orders.Case("", "", one), way, own, coupled))
    return found


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("counts", [(12, 12), (6, 12)])
def test_processes_do_shots_in_step_or_not(coupled, counts, tmp_path):
    asked = jobs(tmp_path, coupled, counts)
    found = node_shots.shots([COMMAND] * 2, asked)
    assert [one.bytes for one in found] == [sum(job.sizes) for job in asked]
    assert [one.wrong for one in found] == [0, 0]
    cells = dict(zip(node_shots.COLUMNS[6:], node_shots.cells_of(found), strict=True))
    assert cells["all save GB/s"] == pytest.approx(sum(cells["save GB/s"].values))
    assert cells["wrong"] == 0


def test_processes_in_step_meet_before_every_step_and_others_only_before_the_first(tmp_path):
    for coupled, meetings in ((True, 24), (False, 1)):
        said = []
        (tmp_path / str(coupled)).mkdir()
        (job,) = jobs(tmp_path / str(coupled), coupled, (12,))
        orders_child.work(FakeCuda(), job.text(), said.append, lambda: "on")
        assert said[:-1] == [orders_child.STEP] * meetings
        assert json.loads(said[-1])["wrong"] == 0


def test_a_process_whose_starter_is_gone_ends(tmp_path):
    (job,) = jobs(tmp_path, True, (12,))
    with pytest.raises(EOFError):
        orders_child.work(FakeCuda(), job.text(), lambda text: None, lambda: "")


def test_a_process_that_fails_is_told_and_the_others_are_ended(tmp_path):
    failing = (sys.executable, "-c", "print('ready', flush=True); raise SystemExit('no GPU left')")
    with pytest.raises(processes.ProcessError, match="no GPU left"):
        node_shots.shots([COMMAND, failing], jobs(tmp_path, True))


def test_the_part_has_a_row_for_each_way_in_step_and_not(tmp_path, monkeypatch):
    monkeypatch.setattr(node_shots, "COMMAND", COMMAND)
    asked = ("--node-shots", "--processes=1,2", "--orders=irregular", "--order-sizes=variable")
    collected = report.Report({})
    only = plan(f"--dir={tmp_path}", *asked, "--strategies=least recently,ADIOS2")
    assert command.run_parts(["node"], only, FakeCuda(), collected)
    table = collected.tables[-1]
    assert column(table, "processes") == [1, 2, 2]
    assert column(table, "in step") == ["no", "no", "yes"]
    assert set(column(table, "wrong")) == {0}
    left_out = [note for note in table.notes if "ADIOS2" in note]
    assert len(left_out) == 3
    assert all("pip install adios2" in note for note in left_out)
    assert list(tmp_path.iterdir()) == []


def test_shots_that_do_not_fit_into_memory_together_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(node_shots, "available_memory", lambda: 20 * MIB)
    asked = ("--node-shots", "--processes=2", "--orders=reverse", "--order-sizes=uniform")
    collected = report.Report({})
    only = plan(f"--dir={tmp_path}", *asked, "--strategies=least recently")
    assert command.run_parts(["node"], only, FakeCuda(), collected)
    assert collected.tables[-1].rows == []
    assert any("24.00 MiB are needed" in note for note in collected.tables[-1].notes)
