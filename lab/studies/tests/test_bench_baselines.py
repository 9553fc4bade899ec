"""What people would use instead of a spool, in part `orders` of `unspool-bench`: all bytes come
back, in every order, and caches hold what they should. Nothing is asserted about time."""

import sys
from functools import partial

import numpy as np
import pytest
from unspool_studies import words
from unspool_studies.bench import command, experiment, options, report, ways
from unspool_studies.bench.adios import AdiosHistory
from unspool_studies.bench.by_hand import LruHistory, NoBaseline, PinnedHistory
from unspool_studies.bench.saved_tensors import SavedTensors, pinned_by_torch
from unspool_studies.bench.sizes import PAGE

from driver_cuda import Copies, DriverCuda
from fake_cuda import FakeCuda

HISTORIES = {
    "pinned": partial(PinnedHistory, disk=True),
    "pinned, no disk": partial(PinnedHistory, disk=False),
    "lru": LruHistory,
    "adios": AdiosHistory,
    "torch": SavedTensors,
}


class Application:
    """Only the state of one, and its stream."""

    def __init__(self, cuda, sizes):
        self.stream, self.state = cuda.stream(), cuda.array(max(sizes))


def one_of(kind, order, directory, count=12, device=4 * PAGE, host=6 * PAGE):
    sizes = (PAGE,) * count
    if kind == "variable":
        sizes = tuple(PAGE * (1 + number % 3) for number in range(count))
    versions = experiment.order_of(order, count)
    return experiment.Experiment(sizes, versions, device, host, directory, 0.0)


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("kind", words.SIZES)
@pytest.mark.parametrize("order", words.ORDERS)
def test_every_baseline_brings_back_every_byte(name, kind, order, tmp_path):
    if name == "adios":
        pytest.importorskip("adios2")
    if name == "torch":
        pytest.importorskip("torch")
        if order != "reverse":
            pytest.skip("autograd has no such order")
    cuda, one = FakeCuda(), one_of(kind, order, tmp_path)
    application = Application(cuda, one.sizes)
    history = HISTORIES[name](cuda, application, one)
    values = np.random.default_rng(1).integers(0, 256, (len(one.sizes), max(one.sizes)), np.uint8)
    for version in range(len(one.sizes)):
        application.state[:] = values[version]
        history.save(version, cuda.address(application.state))
    history.flush()
    history.begin_restores(one.order)
    for version in one.order:
        application.state[:] = 0
        history.restore(version, cuda.address(application.state))
        size = one.sizes[version]
        assert (application.state[:size] == values[version, :size]).all()
    history.close()
    assert cuda.leaked == 0
    assert list(tmp_path.iterdir()) == []


def test_pinned_copies_put_into_the_file_only_what_host_memory_does_not_hold(tmp_path):
    cuda, one = FakeCuda(), one_of("uniform", "reverse", tmp_path)
    application = Application(cuda, one.sizes)
    history = PinnedHistory(cuda, application, one, disk=True)
    (folder,) = tmp_path.iterdir()
    for version in range(12):
        history.save(version, cuda.address(application.state))
    assert (folder / "history").stat().st_size == 6 * PAGE
    history.close()


def test_the_least_recently_used_checkpoint_makes_room(tmp_path):
    cuda, one = FakeCuda(), one_of("uniform", "reverse", tmp_path, count=6, device=3 * PAGE)
    application = Application(cuda, one.sizes)
    history = LruHistory(cuda, application, one)
    for version in range(6):
        history.save(version, cuda.address(application.state))

    def copied(version):
        before = cuda.copied
        history.restore(version, cuda.address(application.state))
        return (cuda.copied - before) // PAGE

    # One copy within the device, and one more where it has to be brought from the host.
    assert [copied(version) for version in (5, 4, 3)] == [1, 1, 1]
    assert copied(5) == 1
    assert copied(0) == 2
    # It took the place of 4, which was used before 3 and 5.
    assert [copied(version) for version in (3, 5, 4)] == [1, 1, 2]
    history.close()
    assert cuda.leaked == 0


def test_a_baseline_without_its_package_says_what_to_install(monkeypatch, tmp_path):
    cuda = FakeCuda()
    one = one_of("uniform", "reverse", tmp_path)
    for package, history in (("torch", SavedTensors), ("adios2", AdiosHistory)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(NoBaseline, match=f"pip install {package}"):
            history(cuda, Application(cuda, one.sizes), one)
    with pytest.raises(NoBaseline, match="no order but the reverse one"):
        SavedTensors(cuda, Application(cuda, one.sizes), one_of("uniform", "irregular", tmp_path))
    assert cuda.leaked == 0


@pytest.mark.parametrize("history", [LruHistory, partial(PinnedHistory, disk=False)])
def test_a_history_larger_than_free_memory_is_refused(history, monkeypatch, tmp_path):
    monkeypatch.setattr("unspool_studies.bench.machine.available_memory", lambda: 12 * PAGE)
    cuda, one = FakeCuda(), one_of("uniform", "reverse", tmp_path)
    with pytest.raises(OSError, match=r"48\.00 KiB of host memory are free"):
        history(cuda, Application(cuda, one.sizes), one)
    assert cuda.leaked == 0


def test_a_disk_without_room_for_the_history_is_refused(tmp_path):
    cuda = FakeCuda()
    sizes = (1 << 60,) * 2
    one = experiment.Experiment(sizes, (1, 0), PAGE, PAGE, tmp_path, 0.0)
    with pytest.raises(OSError, match="free, 2"):
        ways.require_disk(one.directory, one.total)
    assert cuda.leaked == 0


def test_pytorch_pins_powers_of_two():
    assert pinned_by_torch((1, 4096, 4097)) == 1 + 4096 + 8192


# On a driver that executes what is enqueued in any order that streams and events allow.


@pytest.mark.fake_gpu
@pytest.mark.parametrize("kind", words.SIZES)
@pytest.mark.parametrize("order", words.ORDERS)
@pytest.mark.parametrize("name", ["pinned copies", "pinned copies, no disk", "least recently"])
def test_streams_of_a_baseline_are_in_order(name, kind, order, driver, monkeypatch, tmp_path):
    monkeypatch.setattr(ways, "Managed", Copies)
    (way,) = [way for way in ways.BASELINES if way.name.startswith(name)][:1]
    cuda = DriverCuda()
    outcome = ways.through(cuda, one_of(kind, order, tmp_path, count=24), way)
    assert outcome.wrong == 0
    assert cuda.leaked == 0


@pytest.mark.fake_gpu
@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("way", ways.SPOOL_WAYS, ids=lambda way: way.name)
def test_a_spool_on_a_device_says_of_each_restore_where_it_came_from(
    way, wait, driver, monkeypatch, tmp_path
):
    monkeypatch.setattr(ways, "Managed", Copies)
    size = 256 * PAGE
    order = experiment.order_of("irregular", 12)
    one = experiment.Experiment(
        (size,) * 12, order, 3 * size, 6 * size, tmp_path, 0.0, wait=wait, timed=True
    )
    cuda = DriverCuda()
    outcome = ways.through(cuda, one, way)
    assert outcome.wrong == 0
    assert [len(outcome.saves), len(outcome.restores), len(outcome.seen)] == [12, 12, 12]
    served = [seen.tier for seen in outcome.seen]
    assert tuple(served.count(name) for name in ways.TIERS) == outcome.served
    distances = [seen.distance for seen in outcome.seen]
    if way.ahead == 0:
        assert set(distances) == {None}
    elif way.ahead == 1:
        # The first restore was not announced, and nothing comes after the one hint.
        assert distances[0] is None
        assert all(0 <= far <= 1 for far in distances[1:])
    else:
        # The last one has none after it; no more than the tier holds are there.
        assert distances[-1] == 0
        assert all(0 <= far <= 3 for far in distances)
    assert (outcome.flush is None) is not wait
    if wait and way.disk:
        # Everything went to the disk before the first restore.
        assert outcome.disk[0] * 1e9 == pytest.approx(12 * size)
    assert cuda.leaked == 0


@pytest.mark.fake_gpu
def test_the_part_measures_all_figures_on_a_device(driver, monkeypatch, tmp_path):
    monkeypatch.setattr(ways, "Managed", Copies)
    cuda, collected = DriverCuda(), report.Report({}, tmp_path / "found.json")
    mib = 1 << 20
    asked = options.Plan(
        checkpoint=mib, device_tier=4 * mib, directory=tmp_path, warm=0,
        orders_history=12 * mib, orders_host=6 * mib, orders_compute=(0.0,),
        orders_wait=("no", "yes"), orders_device=(3 * mib, 6 * mib),
        orders_plot=tmp_path / "found.png",
        strategies=("unspool", "pinned", "least recently"), orders=("irregular",),
    )  # fmt: skip
    assert command.run_parts(["orders"], asked, cuda, collected)
    names = [table.name for table in collected.tables]
    assert names == ["orders", "orders-grid", "orders-restores"]
    table = collected.tables[0]
    assert len(table.rows) == 2 * 2 * 2 * 9, table.notes
    assert {row[-1] for row in table.rows} == {0}
    assert (tmp_path / "found.png").stat().st_size > 0
    assert cuda.leaked == 0
