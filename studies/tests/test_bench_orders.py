"""Part `orders` of `unspool-bench`: every way brings every checkpoint back, and unified memory
stays within its share of the device. Nothing is asserted about time."""

import argparse
import ctypes

import pytest
from unspool_studies import words
from unspool_studies.bench import command, experiment, options, orders, report, unified, ways
from unspool_studies.bench.managed import NotManaged

from fake_cuda import FakeCuda

KIB, MIB = 1 << 10, 1 << 20

#: Sizes that take no time: twelve checkpoints, four of them on the device.
TINY = [
    "--checkpoint=1MiB",
    "--device-tier=4MiB",
    "--orders-history=12MiB",
    "--orders-host=6MiB",
    "--orders-compute=1",
]


class FakeManaged:
    """Unified memory in plain memory: what is enqueued takes effect at once."""

    def __init__(self, cuda):
        self._cuda = cuda
        self._here, self._range, self.peak = {}, (0, 0), 0
        self.made.append(self)

    made: list["FakeManaged"] = []  # noqa: RUF012

    def allocate(self, count):
        if count > self._cuda.free_memory():
            raise NotManaged("more than is free")
        address = self._cuda.malloc(count)
        self._range = (address, address + count)
        return address

    def free(self, address):
        self._cuda.free(address)

    def copy(self, to, source, count, stream):
        ctypes.memmove(to, source, count)
        for place in (to, source):
            if self._range[0] <= place < self._range[1]:
                self._bring(place, count)

    def wait_for(self, stream, event):
        self._cuda.wait_event(event)

    def to_device(self, address, count, stream):
        self._bring(address, count)

    def to_host(self, address, count, stream):
        assert self._here.pop(address) == count

    def discard(self, address, count, stream):
        assert self._here.pop(address) == count
        ctypes.memset(address, 0xEE, count)

    def read_in_place(self, address, count):
        assert address not in self._here

    def _bring(self, address, count):
        self._here[address] = count
        self.peak = max(self.peak, sum(self._here.values()))


@pytest.fixture(autouse=True)
def managed(monkeypatch):
    """Unified memory of the fake device; what was made of it."""
    monkeypatch.setattr(FakeManaged, "made", [])
    monkeypatch.setattr(ways, "Managed", FakeManaged)
    return FakeManaged.made


def plan(*arguments):
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    return options.plan_of(parser.parse_args([*TINY, *arguments]))


def table_of(*arguments):
    device, collected = FakeCuda(), report.Report({})
    assert command.run_parts(["orders"], plan(*arguments), device, collected)
    assert device.leaked == 0, "something was not given back"
    return collected.tables[-1]


def column(table, name):
    place = list(table.columns).index(name)
    return [row[place] for row in table.rows]


def test_every_way_brings_every_checkpoint_back_in_every_order(tmp_path):
    table = table_of(f"--dir={tmp_path}")
    ways = len(orders.SPOOL_WAYS) + len(unified.WAYS)
    assert len(table.rows) == 2 * 3 * ways, table.notes
    assert set(column(table, "wrong")) == {0}
    assert list(tmp_path.iterdir()) == []
    served = [column(table, name) for name in ("device", "host", "disk")]
    counts = {sum(row) for row in zip(*served, strict=True) if None not in row}
    assert counts == {12}
    names, bounds = column(table, "way"), column(table, "bound s")
    ours = {way.name for way in orders.SPOOL_WAYS}
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


@pytest.mark.parametrize("way", unified.WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("kind", words.SIZES)
@pytest.mark.parametrize("order", words.ORDERS)
def test_unified_memory_stays_within_its_share_of_the_device(way, kind, order, managed, tmp_path):
    sizes = experiment.sizes_of(kind, 24 * MIB, MIB)
    versions = experiment.order_of(order, len(sizes))
    one = experiment.Experiment(sizes, versions, 9 * MIB, MIB, tmp_path, 0.0)
    outcome = ways.through(FakeCuda(), one, way)
    assert outcome.wrong == 0
    # What the device reads across the link is not there.
    assert way.in_place or max(sizes) < managed[0].peak <= one.device


def test_unified_memory_is_refused_when_the_card_has_less_free(tmp_path):
    sizes = experiment.sizes_of("uniform", 24 * MIB, MIB)
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
    assert len(table.rows) == len(orders.SPOOL_WAYS) + len(unified.WAYS) - 1
    assert any("discards: left out: NotManaged" in note for note in table.notes)


def test_orders_for_which_no_time_is_left_are_named():
    table = table_of("--orders-limit=-1")
    assert table.rows == []
    assert any("no time was left for: variable, irregular" in note for note in table.notes)


def test_sizes_and_orders_are_the_same_in_every_run():
    variable = experiment.sizes_of("variable", 48 * MIB, MIB)
    assert variable == experiment.sizes_of("variable", 48 * MIB, MIB)
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
    ours = orders.Outcome(6.0, 4.5, (1.0, 0.25), (1, 2, 1), (3.0, 2.0), 0)
    theirs = orders.Outcome(5.0, 8.0, None, None, None, 0)
    found = {"unspool, all hints": ours, unified.WAYS[0].name: theirs}
    rows = [
        dict(zip(orders.COLUMNS[2:], row, strict=True)) for row in orders.rows_of(one, found, 4.0)
    ]
    assert (rows[0]["save GB/s"], rows[0]["restore GB/s"], rows[0]["x unified"]) == (2.0, 8.0, 8.0)
    assert (rows[1]["restore GB/s"], rows[1]["x unified"], rows[1]["both s"]) == (1.0, 1.0, 13.0)
    assert rows[0]["restore stall s"] == 0.25
    assert rows[1]["disk"] is None


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--orders=random", "there is no 'random'"),
        ("--order-sizes=big", "choose from uniform, variable"),
    ],
)
def test_orders_and_sizes_that_do_not_exist_are_refused(argument, reason, capsys):
    with pytest.raises(SystemExit):
        plan(argument)
    assert reason in capsys.readouterr().err
