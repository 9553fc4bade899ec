"""Counters of energy, and what `Spool.stats()` says of them."""

import ctypes
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import unspool
from unspool import _energy
from unspool._energy import Counter, Counters, total
from unspool.stats import EnergyStats


class Reading:
    """A counter's reading that a test sets, in joules."""

    def __init__(self, joules=0.0):
        self.joules = joules

    def __call__(self):
        return self.joules


class Nvml:
    """NVML with two GPUs, of which the second one does not count its energy."""

    def __init__(self, answers=True):
        self.answers, self.millijoules, self.begun = answers, 1_000_000, 0

    def nvmlInit_v2(self):
        self.begun += 1
        return 0 if self.answers else 9

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, place, handle):
        handle._obj.value = 1 + place
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, address, handle):
        known = {b"0000:3B:00.0": 1, b"0000:5E:00.0": 2}
        handle._obj.value = known.get(address)
        return 0 if address in known else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):
        assert isinstance(millijoules._obj, ctypes.c_ulonglong)
        if handle.value != 1 or self.millijoules is None:
            return 3
        millijoules._obj.value = self.millijoules
        return 0


@pytest.fixture
def nvml(monkeypatch):
    made = Nvml()
    monkeypatch.setattr(_energy.ctypes, "CDLL", lambda name: made)
    monkeypatch.setattr(_energy, "REST", 0.0)
    return made


class Packages:
    """A folder as the kernel's, with a counter for each package."""

    def __init__(self, root):
        self.root = root

    def write(self, name, microjoules, wraps=262_143_328_850):
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "max_energy_range_uj").write_text(f"{wraps}\n")
        (folder / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    # The thread that reads them again and again has a test of its own.
    monkeypatch.setattr(Counters, "_keep_up", lambda self: None)
    return Packages(tmp_path)


def test_a_counter_that_begins_again_goes_on():
    reading = Reading(990.0)
    counter = Counter(reading, wraps=1000.0)
    assert counter.joules() == 0.0
    for raw, joules in ((999.0, 9.0), (4.0, 14.0), (4.0, 14.0), (900.0, 910.0), (0.0, 1010.0)):
        reading.joules = raw
        assert counter.joules() == joules


def test_a_counter_that_vanishes_or_goes_back_is_not_believed_again():
    for lost in (None, 1.0):
        reading = Reading(5.0)
        counter = Counter(reading)
        reading.joules = lost
        assert counter.joules() is None
        reading.joules = 9.0
        assert counter.joules() is None
    assert Counter(Reading(None)).joules() is None


def test_a_counter_that_rests_is_not_read_again_until_then(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_energy, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reading = Reading(5.0)
    counter = Counter(reading, rest=0.1)
    reading.joules = 9.0
    for later, joules in ((100.05, 0.0), (100.11, 4.0)):
        now[0] = later
        assert counter.joules() == joules
    reading.joules = None
    now[0] = 100.2
    assert counter.joules() == 4.0, "read less than a tenth of a second ago"
    now[0] = 100.22
    assert counter.joules() is None
    now[0] = 100.23
    assert counter.joules() is None, "it is not believed again"


def test_parts_are_summed_if_all_of_them_count():
    readings = [Reading(), Reading()]
    parts = [Counter(reading) for reading in readings]
    readings[0].joules, readings[1].joules = 3.0, 4.0
    assert total(parts) == 7.0
    readings[1].joules = None
    assert total(parts) is None and total([]) is None


def test_packages_are_counted_and_not_what_is_in_them(packages):
    packages.write("intel-rapl:0", 5_000_000)
    packages.write("intel-rapl:1", 7_000_000)
    packages.write("intel-rapl:0:0", 4_000_000)
    (packages.root / "intel-rapl:2").mkdir()
    counters = Counters(packages.root, "no such library")
    packages.write("intel-rapl:0", 6_500_000)
    packages.write("intel-rapl:1", 2_000_000)
    packages.write("intel-rapl:0:0", 9_000_000)
    # The second package went around.
    assert total(counters.processors) == pytest.approx(1.5 + 262_143.32885 - 5.0)
    (packages.root / "intel-rapl:1" / "energy_uj").unlink()
    assert total(counters.processors) is None


def test_counters_for_root_alone_are_left_out(packages, monkeypatch):
    packages.write("intel-rapl:0", 5)

    def refused(path):
        assert path.name == "energy_uj"
        raise PermissionError

    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path: (read if "max" in path.name else refused)(path)
    )
    counters = Counters(packages.root, "no such library")
    assert counters.processors == [] and "only for root" in counters.why[0]


def test_processors_are_read_again_before_they_can_go_around_twice(packages, monkeypatch):
    monkeypatch.undo()
    begun = []
    monkeypatch.setattr(_energy.threading.Thread, "start", lambda thread: begun.append(thread))
    Counters(packages.root, "no such library")
    assert not begun, "nothing is to be read"
    packages.write("intel-rapl:0", 0, wraps=60_000_000_000)
    packages.write("intel-rapl:1", 0, wraps=90_000_000_000)
    Counters(packages.root, "no such library")
    (thread,) = begun
    assert thread.daemon and thread._target.args[1] == 30.0


def test_reading_on_ends_when_no_counter_answers(monkeypatch):
    readings, waits = [Reading(0.0), Reading(0.0)], []
    parts = [Counter(reading, wraps=10.0) for reading in readings]

    class Pause:
        def wait(self, seconds):
            waits.append(seconds)
            if len(waits) < 3:
                readings[0].joules = (readings[0].joules + 8.0) % 10.0
            else:
                readings[0].joules = readings[1].joules = None

    monkeypatch.setattr(_energy.threading, "Event", Pause)
    _energy._read_on(parts, 12.5)
    assert waits == [12.5] * 3
    assert parts[0].joules() is None


def test_a_gpu_is_found_by_its_address(nvml, packages):
    counters = Counters(packages.root)
    assert nvml.begun == 0, "NVML is loaded when it is needed"
    gpu = counters.gpu("0000:3B:00.0")
    assert gpu is counters.gpu("0000:3B:00.0") and nvml.begun == 1
    nvml.millijoules += 2_500
    assert gpu.joules() == 2.5
    assert counters.gpu("0000:5E:00.0") is None, "it does not count"
    assert counters.gpu("0000:99:00.0") is None, "there is no such one"
    assert len(counters.gpus()) == 1
    nvml.millijoules = None
    assert gpu.joules() is None


def test_a_counter_that_takes_long_to_find_holds_nobody_up(nvml, packages, monkeypatch):
    counters, may_answer = Counters(packages.root), threading.Event()
    find, begun = nvml.nvmlInit_v2, []
    nvml.nvmlInit_v2 = lambda: find() if may_answer.wait(60.0) else 1
    thread = threading.Thread
    note = lambda **how: begun.append(thread(**how)) or begun[-1]  # noqa: E731
    monkeypatch.setattr(_energy, "counters", lambda: counters)
    monkeypatch.setattr(_energy, "LONGEST", 0.0)
    monkeypatch.setattr(_energy.threading, "Thread", note)
    taken = _energy.since_now("0000:3B:00.0")
    assert taken().gpu is None
    may_answer.set()
    begun[0].join(60.0)
    assert taken().gpu == 0.0
    nvml.millijoules += 3_000
    assert taken().gpu == 3.0
    assert _energy.since_now("0000:3B:00.0")().gpu == 0.0 and len(begun) == 1, "it is known now"


def test_a_gpu_is_asked_ten_times_a_second_at_most(nvml, packages, monkeypatch):
    monkeypatch.setattr(_energy, "REST", 1000.0)
    counter = Counters(packages.root).gpu("0000:3B:00.0")
    nvml.millijoules += 5_000
    assert counter.joules() == 0.0
    counters = Counters(packages.root)
    (again,) = counters.gpus()
    nvml.millijoules += 5_000
    assert again.joules() == 0.0


def test_a_library_that_is_missing_old_or_fails_is_no_error(packages, monkeypatch):
    assert Counters(packages.root, "no such library").gpu("0000:3B:00.0") is None
    for library in (object(), Nvml(answers=False)):
        monkeypatch.setattr(_energy.ctypes, "CDLL", lambda name, library=library: library)
        counters = Counters(packages.root)
        assert counters.gpu("0000:3B:00.0") is None and counters.gpus() == []
        assert "NVML" in counters.why[-1]


def test_statistics_have_what_was_taken_since_the_opening(packages, monkeypatch):
    packages.write("intel-rapl:0", 5_000_000)
    counters = Counters(packages.root, "no such library")
    monkeypatch.setattr(_energy, "counters", lambda: counters)
    packages.write("intel-rapl:0", 6_000_000)
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        spool.save(0, np.zeros(3))
        before = spool.stats()
        packages.write("intel-rapl:0", 8_000_000_000)
        after = spool.stats()
        assert before.energy == EnergyStats(gpu=None, processors=0.0)
        assert after.energy == EnergyStats(gpu=None, processors=7994.0)
        assert before == after, "energy is that of the machine"
        assert "energy: 7,994 J of the processors" in str(after)
        assert json.loads(json.dumps(after.to_dict()))["energy"]["processors"] == 7994.0
        with unspool.Spool(host_memory="1MiB", device="cpu") as later:
            assert later.stats().energy.processors == 0.0
        (packages.root / "intel-rapl:0" / "energy_uj").unlink()
        lost = spool.stats()
    assert lost.energy == EnergyStats() and "energy" not in str(lost)


@pytest.mark.fake_gpu
def test_statistics_of_a_spool_on_a_gpu_have_what_that_took(nvml, packages, monkeypatch):
    counters = Counters(packages.root)
    monkeypatch.setattr(_energy, "counters", lambda: counters)
    asked = []

    def found(address, handle):
        asked.append(address.decode())
        handle._obj.value = 1
        return 0

    nvml.nvmlDeviceGetHandleByPciBusId_v2 = found
    with unspool.Spool(device_memory="1MiB", device="cuda:1") as spool:
        assert spool.stats().energy == EnergyStats(gpu=0.0), "the counter was waited for"
        nvml.millijoules += 12_000
        assert spool.stats().energy == EnergyStats(gpu=12.0)
    assert asked == [unspool.doctor().devices[1].pci]
