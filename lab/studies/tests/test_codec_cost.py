"""`unspool-codecs --cost`: what a codec costs by the bytes of its input."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from unspool import Bound, codecs
from unspool.accumulate import NVCOMP, TWINE, CodecCost
from unspool.cli import main as unspool_main
from unspool.codecs import NvComp, Zfp
from unspool.errors import Error
from unspool_studies import cli
from unspool_studies.bench.measure import Sample
from unspool_studies.codecs.cost import (
    LEAST,
    Curve,
    OnCpu,
    OnGpu,
    Point,
    generated,
    known_cost,
    measure,
)
from unspool_studies.codecs.source import Source

from codec_arrays import wave
from fake_cuda import FakeCuda
from fake_gpu import CaiArray, Driver

KIB, MIB = 1 << 10, 1 << 20


def source(shape: tuple[int, ...] = (64, 40, 50)) -> Source:
    return Source("wave", wave(shape, "float32"), ())


class Place:
    """Keeps what it is to measure; half of it is stored, and a byte takes a nanosecond."""

    name = "a place"

    def __init__(self, free: int | None = None) -> None:
        self._free = free
        self.seen: list[np.ndarray] = []

    def free(self) -> int | None:
        return self._free

    def run(self, values: np.ndarray, codec: object) -> Point:
        self.seen.append(values)
        return Point(values.nbytes, values.nbytes // 2, Sample.of([values.nbytes * 1e-9]))


def curve(*medians: float, codec: object = "lossless") -> Curve:
    points = [
        Point(LEAST * 4**place, LEAST, Sample.of([seconds, seconds / 2, 2 * seconds]))
        for place, seconds in enumerate(medians)
    ]
    return Curve(codec, "a place", tuple(points))


def test_a_time_that_noise_made_shorter_is_lifted_and_told() -> None:
    found = curve(2e-5, 1e-5, 1.5e-5, 4e-5)
    assert [seconds for _, seconds in found.cost.times] == [2e-5, 2e-5, 2e-5, 4e-5]
    assert found.cost.seconds(256 * KIB) == 2e-5
    assert str(found).count("a smaller input took longer") == 2
    assert "longer" not in str(curve(1e-5, 2e-5))


def test_the_constants_of_the_plan_stand_beside_what_was_measured() -> None:
    assert known_cost("lossless") is TWINE is known_cost(Bound(range=1e-3))
    assert known_cost(NvComp("bitcomp")) is NVCOMP and known_cost(Zfp(rate=8)) is None
    assert "13.4 us" in str(curve(1e-5)) and "116 us" in str(curve(1e-5, codec=NvComp("lz4")))
    assert str(curve(1e-5, codec=Zfp(rate=8))).splitlines()[3].endswith("-")


def test_costs_of_nvcomp_copy_and_those_of_others_do_not() -> None:
    found = curve(1e-5).cost
    assert found.in_place and not found.compacts and found.name == "lossless on a place"
    found = curve(1e-5, codec=NvComp("bitcomp")).cost
    assert found.compacts and not found.in_place


@pytest.mark.parametrize("shape", [(64, 40, 50), (3, 200_000), (500_000,), (1,), ()])
def test_inputs_grow_and_are_parts_of_the_array_or_copies_of_it(shape: tuple[int, ...]) -> None:
    place, whole = Place(), source(shape)
    found = measure(whole, "lossless", 4 * MIB, place)
    sizes = [LEAST * 4**step for step in range(4)]
    for values, size in zip(place.seen, sizes, strict=True):
        assert size / 2 < values.nbytes <= size and values.flags.c_contiguous
        assert set(np.unique(values)) <= set(np.unique(whole.array))
    assert [size for size, _ in found.cost.times] == [values.nbytes for values in place.seen]
    assert any("copies of the array" in note for note in found.notes)


def test_a_large_array_is_not_copied_and_its_form_is_kept() -> None:
    place = Place()
    found = measure(source((64, 100, 100)), "lossless", MIB, place)
    assert [values.shape for values in place.seen] == [(1, 100, 100), (6, 100, 100), (26, 100, 100)]
    assert found.notes == ()


def test_memory_bounds_the_inputs_and_too_little_is_an_error() -> None:
    place = Place(free=6 * MIB)
    found = measure(source(), "lossless", 64 * MIB, place)
    assert place.seen[-1].nbytes <= MIB and any("free memory" in note for note in found.notes)
    with pytest.raises(Error, match="too little free memory"):
        measure(source(), "lossless", 64 * MIB, Place(free=1000))
    with pytest.raises(Error, match="no bytes"):
        measure(Source("empty", np.zeros((3, 0), np.float32), ()), "lossless", MIB, Place())


def test_a_generated_field_is_no_larger_than_asked() -> None:
    assert generated(256 * KIB).array.shape == (16, 4096)
    assert generated(1).array.shape == (1, 4096)
    assert "give a FILE" in generated(1).notes[0]


@pytest.mark.parametrize("codec", ["lossless", Bound(range=1e-3), Zfp(rate=8)])
def test_main_memory_stores_what_encode_does(codec: object) -> None:
    values = wave((100, 100), "float32")
    found = OnCpu().run(values, codec)
    assert (found.raw, found.stored) == (values.nbytes, codecs.encode(values, codec).nbytes)
    assert len(found.seconds.values) >= 3 and found.seconds.low > 0


def test_a_codec_that_the_host_encodes_is_not_measured_on_a_gpu() -> None:
    # Spools of this device are in main memory.
    cuda = FakeCuda()
    with pytest.raises(Error, match="lossless is encoded by the host"):
        OnGpu(cuda).run(wave((100, 100), "float32"), "lossless")
    assert cuda.leaked == 0


class _Bytes(CaiArray):
    """An array of bytes that can be taken for one of another type."""

    def view(self, dtype: np.dtype) -> _Bytes:
        self.dtype = np.dtype(dtype)
        return self

    def reshape(self, shape: tuple[int, ...]) -> _Bytes:
        like = np.empty(shape, self.dtype)
        self.shape, self.strides = like.shape, like.strides
        return self


class _OnDriver(FakeCuda):
    """Arrays and spools on the driver in plain memory."""

    spool_options = {"device": "cuda"}  # noqa: RUF012

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    def array(self, count: int) -> _Bytes:
        return _Bytes(self._driver, np.zeros(count, np.uint8))

    def address(self, array: _Bytes) -> int:
        return array.address

    def up(self, device: int, host: int, count: int, stream: object) -> None:
        source = (ctypes.c_ubyte * count).from_address(host)
        self._driver.write(device, np.frombuffer(source, np.uint8))


@pytest.mark.fake_gpu
@pytest.mark.parametrize("codec", ["lossless", Bound(range=1e-3)])
def test_launches_of_a_spool_store_what_the_host_would(driver: Driver, codec: object) -> None:
    values = wave((100, 100), "float32")
    cuda = _OnDriver(driver)
    found = OnGpu(cuda).run(values, codec)
    assert (found.raw, found.stored) == (values.nbytes, codecs.encode(values, codec).nbytes)
    assert cuda.leaked == 0


def test_the_command_writes_a_file_that_plans_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("wave.npy", wave((64, 40, 50), "float32"))
    options = ["--cost", "cost.json", "--most", "256KiB"]
    assert cli.codecs(["wave.npy", *options, "--codec", "range=1e-3"]) == 0
    shown = capsys.readouterr().out
    assert "range=1e-3 on " in shown and "on an H100" in shown and "ratio" in shown
    found = CodecCost.load_from("cost.json")
    assert [size for size, _ in found.times] == [64_000, 256_000] and found.in_place
    assert cli.codecs([*options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert CodecCost.from_dict(told["cost"]) == CodecCost.load_from("cost.json")
    assert "generated" in told["notes"][0]
    assert [one["raw_bytes"] for one in told["points"]] == [64 * KIB, 256 * KIB]
    assert unspool_main(["accumulate", "--codec", "cost.json", "--checkpoints", "5"]) == 0
    assert "lossless on " in capsys.readouterr().out
    files = ["--accumulated-twine", "cost.json", "--accumulated-checkpoints", "5"]
    assert cli.bench(["--only", "accumulated", *files, "--accumulated-tables", "ratio"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a FILE"),
        (["wave.npy", "--codec", "range=1e-3"], "--codec"),
        (["--cost", "c.json", "--only", "twine"], "--only"),
        (["--cost", "c.json", "-o", "a.png"], "-o"),
        (["--cost", "c.json", "a.npy", "b.npy"], "one FILE"),
        (["--cost", "c.json", "--codec", "auto"], "--codec auto"),
        (["--cost", "c.json", "--codec", "none"], "--codec none"),
        (["--cost", "c.json", "--codec", "nvcomp:bitcomp"], "add --gpu"),
        (["--cost", "nowhere/c.json"], "no such directory"),
        (["--cost", "."], "is a directory"),
        (["--cost", "c.json", "--most", "0"], "--most"),
        (["--cost", "c.json", "nothing.npy"], "there is no file"),
        (["--cost", "c.json", "whole.npy", "--codec", "range=1e-3"], "int32"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("whole.npy", np.arange(100, dtype=np.int32))
    assert cli.codecs(arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1
    assert not Path("c.json").exists()


def test_a_machine_without_cupy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert cli.codecs(["--cost", "c.json", "--gpu"]) == 1
    assert "CuPy" in capsys.readouterr().err and not Path("c.json").exists()
