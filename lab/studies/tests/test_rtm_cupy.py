"""`CupyDevice` on a fake CuPy: the calls that it makes, and a job through it."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli, timeline
from unspool_studies.rtm import command, device
from unspool_studies.rtm.device import CupyDevice, count_devices, failures_told
from unspool_studies.rtm.errors import GpuError, MigrationError
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.model import Model

import fake_cupy
import kernel_shim

pytestmark = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

SMALL = ["--shape", "61x41", "--spacing", "15", "--shots", "1", "--steps", "250", "--every", "1"]
SMALL += ["--device-memory", "1MiB", "--host-memory", "2MiB", "--layer", "12", "--gpu"]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def cupy(monkeypatch, kernels):
    return fake_cupy.install(monkeypatch, kernels, devices=2)


def test_a_device_is_made_current_and_names_itself_to_the_spool(cupy):
    opened = CupyDevice(1)
    assert set(fake_cupy.Device.used) == {1}
    assert (opened.name, opened.on) == ("fake 1", "cuda:1")
    assert count_devices() == 2
    assert opened.free_bytes() == (1 << 32) + (1 << 20)
    assert opened.copy_bandwidth() > 0


def test_arrays_go_to_the_device_and_come_back(cupy):
    opened = CupyDevice()
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    loaded = opened.load(values[::-1])
    back = opened.fetch(loaded)
    assert type(back) is np.ndarray
    np.testing.assert_array_equal(back, values[::-1])
    kept, other = opened.pinned((4, 6)), opened.zeros((4, 6))
    opened.download(loaded, kept)
    opened.upload(other, kept)
    np.testing.assert_array_equal(opened.fetch(other), values[::-1])


def test_a_device_without_room_says_so_with_figures(cupy):
    def full(*_):
        raise MemoryError("out of memory")

    opened = CupyDevice()
    cupy.zeros = cupy.asarray = full
    with pytest.raises(MigrationError, match=r"4\.30 GB free, and an array of 4\.00 GB"):
        opened.zeros((10**9,))
    with pytest.raises(MigrationError, match="see who else uses the GPU"):
        opened.load(np.zeros(3, np.float32))


def test_what_cuda_raises_is_told_with_what_to_do():
    class CUDARuntimeError(RuntimeError):
        __module__ = "cupy_backends.cuda.api.runtime"

    with pytest.raises(GpuError, match="failed: cudaErrorBad; `unspool doctor`"), failures_told():
        raise CUDARuntimeError("cudaErrorBad")
    with pytest.raises(RuntimeError, match="another"), failures_told():
        raise RuntimeError("another")


def test_devices_that_were_opened_later_do_not_take_the_work_of_the_first(cupy):
    model = Model(np.full((30, 20), 2000.0, np.float32), (10.0, 10.0), "m")
    fields = []
    for later in ((), (0,), (1, 0), (0, 1)):
        opened = CupyDevice(0)
        for ordinal in later:
            CupyDevice(ordinal)
        propagator = GpuPropagator(model, 1e-3, 4, opened)
        waves, source = propagator.wavefield(), propagator.points([(150.0, 100.0)])
        signal = propagator.load(np.ones(40, np.float32))
        for begin in range(0, 40, 4):
            waves.advance(4, source, signal[begin : begin + 4])
        fields.append(opened.fetch(waves.now))
    assert np.abs(fields[0]).max() > 0
    for field in fields[1:]:
        np.testing.assert_array_equal(field, fields[0])


def test_the_time_of_steps_is_read_also_while_more_are_enqueued(cupy, monkeypatch):
    monkeypatch.setattr(device, "UNREAD", 2)
    opened = CupyDevice()
    for _ in range(5):
        with opened.timed(3):
            pass
    spent = opened.kernel_time()
    assert spent.steps == 15
    assert spent.seconds > 0


def test_spans_are_on_the_clock_of_the_host(cupy):
    opened = CupyDevice()
    with opened.timed(3):
        pass
    opened.keep_spans()
    begin = time.monotonic_ns()
    for steps in (4, 5):
        with opened.timed(steps):
            pass
    early, *spans = opened.spans()
    assert [span.detail for span in spans] == ["4 steps", "5 steps"]
    assert early.begin < early.end <= begin
    ends = [time_ for span in spans for time_ in (span.begin, span.end)]
    assert ends == sorted(ends)
    assert begin - 10**6 < ends[0] and ends[-1] < time.monotonic_ns() + 10**6


def test_a_job_runs_on_it_and_is_checked(cupy, tmp_path, monkeypatch):
    def without_cuda(ordinal):
        opened = CupyDevice(ordinal)
        # The arrays are in plain memory, and so is the spool.
        opened.on = "cpu"
        return opened

    monkeypatch.setattr(command, "CupyDevice", without_cuda)
    places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
    trace = tmp_path / "trace.json"
    assert cli.rtm([*SMALL, *places, "--check", "--quiet", "--trace", str(trace)]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"]["identical"] is True
    assert report["time"]["propagator"] == "CUDA on fake 0"
    assert report["time"]["kernels"]["steps"] == 250 + 249 + 250
    assert report["spool"]["restores"] == 249
    ran = [bar for bar in timeline.read_bars(trace) if bar.name == "compute"]
    assert len(ran) == 250 + 249 + 250, "the image's kernels are not counted"
