"""Part `rates`: how fast three applications make checkpoints, and how small these become.

They are those of the paper on accumulated compression (HiPC 2023): quantum optimal control, a phase
field and reverse time migration. Its figure 1 has the sizes and rates of their checkpoints; its
figure 5 the ratio and the interval of each of the 66 checkpoints of 20 shots of the migration. The
first two are programs of `examples/`, whose loops are run here; the third is that of `unspool-rtm`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from unspool import Bound, codecs
from unspool.errors import Error
from unspool.stats import size as size_text
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.rtm import NoRoomError
from unspool_studies.accumulated.waves import neighbours
from unspool_studies.bench.cuda import Cuda, NoCuda
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample, gigabytes_per_second
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.rtm.device import CupyDevice, Device
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.propagator import CompiledPropagator, Propagator
from unspool_studies.rtm.survey import Survey, plan, ricker

__all__ = ["CODECS", "COUNT", "NoExampleError", "Recorder", "run", "shots_of"]

#: The number of checkpoints of a run. Of a run with more, this many are encoded.
COUNT = 66
#: Steps of the phase field: it takes the first third of them to separate.
SEPARATED = 198
#: Arrays as large as a checkpoint that a step of each example has at once: matrices beside the five
#: for each spin, and fields.
MATRICES, FIELDS = 12, 16
#: What encodes each checkpoint: the codec, and what its bytes go through afterwards.
BOUND = Bound(range=1e-5)
CODECS: dict[str, tuple[Any, Any]] = {
    "Twine": ("lossless", None),
    "zstd": (None, "zstd"),
    "Twine 1e-5": (BOUND, None),
    "Twine 1e-5, zstd": (BOUND, "zstd"),
}
#: Parts of a run.
PARTS = ("first third", "middle", "last third")

#: The generated model: metres along the surface and down, the speed of its water in m/s, and cells
#: for a wavelength there at the peak frequency; cells of the absorbing layer.
EXTENT, WATER, POINTS, LAYER = (9000.0, 3000.0), 1500.0, 8, 20

NOTES = (
    "median of a third of the run (least and greatest); Twine, zstd: how many times smaller",
    "1e-5: Bound(range=1e-5), the others without loss; ms: computing only, checkpoints are encoded "
    "between the intervals",
)


class NoExampleError(Error, OSError):
    """A program of `examples/` is not where it was looked for."""


@dataclass(frozen=True)
class Place:
    """Where applications compute.

    Attributes:
        name: for people.
        arrays: NumPy or CuPy.
        device: the GPU, or None for the CPU.
        wait: returns when all that was enqueued is done.
    """

    name: str
    arrays: Any
    device: Device | None
    wait: Callable[[], object]


class Recorder:
    """Takes the place of a spool: notes when checkpoints come, and how small each becomes.

    Attributes:
        size: bytes of a checkpoint.
        intervals: seconds of computing before each.
        ratios: of those that were encoded, by codec: how many times smaller.
    """

    def __init__(self, wait: Callable[[], object], count: int = COUNT) -> None:
        """Begins the first interval of a run of `count` checkpoints."""
        self.size = 0
        self.intervals: list[float] = []
        self.ratios: dict[str, list[float]] = {name: [] for name in CODECS}
        self._wait, self._every = wait, -(-count // COUNT)
        self._begin = self._now()

    def save(self, array: Any) -> None:
        """Ends an interval, and begins the next one when the checkpoint is encoded."""
        self.intervals.append(self._now() - self._begin)
        self.size = array.nbytes
        if (len(self.intervals) - 1) % self._every == 0:
            for name, (codec, outer) in CODECS.items():
                self.ratios[name].append(codecs.encode(array, codec, outer=outer).ratio)
        self._begin = self._now()

    def _now(self) -> float:
        self._wait()
        return time.perf_counter()


def run(plan: Plan, report: Report) -> None:
    """A table of the three applications and one of shots, and a plot where one is wanted.

    Raises:
        NoExampleError: a program is not there; nothing was measured.
        NoRoomError: main memory is too small for one; nothing was measured.
    """
    asked = plan.accumulated
    _check_room(asked)
    examples = {name: _example(asked.examples, name) for name in ("quantum_control", "phase_field")}
    places, why = _places(plan.device)
    columns = ("application", "on", "part", "MB each", "ms between", "GB/s", *CODECS)
    title = f"Checkpoints of three applications, at least {COUNT} of a run"
    table = report.begin(Table("rates", title, columns, notes=[*NOTES, *why]))
    for place in places:
        for name, record in _applications(asked, examples, place):
            for row in _rows(record()):
                table.add(name, place.name, *row)
    report.show(table)
    frequency = asked.frequencies[0]
    shots = shots_of(frequency, asked.shots, places[-1])
    report.show(_shots_table(frequency, places[-1], shots))
    if asked.plot is not None:
        from unspool_studies.accumulated.plot import draw_shots

        file = asked.plot.with_stem(f"{asked.plot.stem}-shots")
        draw_shots([one.intervals for one in shots], [one.ratios for one in shots], file)
        print(f"written: {file}")


def _check_room(asked: Accumulated) -> None:
    # Powers of more than 40 spins are not computed: 40 are too many for any memory.
    needed = {f"{n} spins take": 16 * 4 ** min(n, 40) * (5 * n + MATRICES) for n in asked.spins}
    needed |= {f"{n} cubed cells take": 8 * n**3 * FIELDS for n in asked.cells}
    for what, count in needed.items():
        free = available_memory()
        if not fits(count, free):
            raise NoRoomError(
                f"{what} about {size_text(count)} of main memory, which has {size_text(free or 0)} "
                "free: ask for fewer by --accumulated-spins and --accumulated-cells"
            )


def _example(folder: Path, name: str) -> ModuleType:
    """A program as a module."""
    file = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise NoExampleError(
            f"there is no {file}: name the folder of the project's examples by "
            "--accumulated-examples, or begin the command in the folder above it"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _places(ordinal: int) -> tuple[list[Place], list[str]]:
    """The CPU, and a GPU where there is one: else a note that says why not."""
    places = [Place("CPU", np, None, lambda: None)]
    try:
        Cuda(ordinal)
    except NoCuda as why:
        return places, [f"on the CPU alone: {why}"]
    import cupy

    device, wait = CupyDevice(ordinal), cupy.cuda.Device(ordinal).synchronize
    return [*places, Place(device.name, cupy, device, wait)], []


def _applications(
    asked: Accumulated, examples: dict[str, ModuleType], place: Place
) -> Iterator[tuple[str, Callable[[], Recorder]]]:
    """What runs, by its name for people."""
    for spins in asked.spins:
        name = f"quantum control, {spins} spins"
        yield name, partial(_quantum_control, examples["quantum_control"], spins, place)
    for cells in asked.cells:
        name = f"phase field, {cells} cubed"
        yield name, partial(_phase_field, examples["phase_field"], cells, place)
    for frequency in asked.frequencies:
        name = f"migration, {frequency:g} Hz"
        yield name, partial(_migration, frequency, place)


def _quantum_control(example: ModuleType, spins: int, place: Place) -> Recorder:
    """The propagators of one pulse."""
    chain = example.Spins(spins, COUNT, duration=10.0, xp=place.arrays)
    return _steps(chain, chain.start(), COUNT, place)


def _phase_field(example: ModuleType, cells: int, place: Place) -> Recorder:
    """The states of a box, in float64, until its phases are apart."""
    field = example.PhaseField((cells,) * 3, xp=place.arrays)
    return _steps(field, field.mixed(), SEPARATED, place)


def _migration(frequency: float, place: Place) -> Recorder:
    """The forward waves of a shot."""
    (recorder,) = shots_of(frequency, 1, place)
    return recorder


def _steps(loop: Any, state: Any, count: int, place: Place) -> Recorder:
    """A checkpoint after every step of an example, of which the first one is taken twice: it
    loads what computes.
    """
    loop.forward(state.copy(), 0, 1)
    recorder = Recorder(place.wait, count)
    for step in range(count):
        loop.forward(state, step, step + 1)
        recorder.save(state)
    return recorder


def shots_of(frequency: float, count: int, place: Place) -> list[Recorder]:
    """The forward waves of neighbouring shots over the generated model, `COUNT` wavefields each.

    Args:
        frequency: of the source in Hz; the grid is as fine as it needs.
        count: how many shots.
        place: where they are computed.
    """
    spacing = WATER / frequency / POINTS
    model = generated_model(*(round(metres / spacing) for metres in EXTENT), spacing)
    survey = _survey(model, frequency, count)
    propagator = _propagator(model, survey.timing.dt, place)
    return [_shot(propagator, survey, shot, place) for shot in range(count)]


def _survey(model: Model, frequency: float, shots: int) -> Survey:
    """Shots side by side around the middle, of `COUNT` groups of steps."""
    survey = plan(model, shots=1, frequency=frequency)
    every = max(1, survey.timing.steps // COUNT)
    timing = replace(survey.timing, every=every, steps=COUNT * every)
    (source,) = survey.sources
    sources = neighbours(source, model.extent[0], shots)
    return replace(survey, timing=timing, sources=sources, wavelet=ricker(timing))


def _propagator(model: Model, dt: float, place: Place) -> Propagator:
    if place.device is None:
        return CompiledPropagator(model, dt, LAYER)
    return GpuPropagator(model, dt, LAYER, place.device)


def _shot(propagator: Propagator, survey: Survey, shot: int, place: Place) -> Recorder:
    every, waves = survey.timing.every, propagator.wavefield()
    source = propagator.points([survey.sources[shot]])
    signal = propagator.load(survey.wavelet)
    waves.advance(every, source, signal[:every])
    waves.reset()
    recorder = Recorder(place.wait)
    for group in range(COUNT):
        waves.advance(every, source, signal[group * every : (group + 1) * every])
        recorder.save(waves.now)
    return recorder


def _rows(recorder: Recorder) -> Iterator[list[Cell]]:
    """A row for each third of a run."""
    for number, part in enumerate(PARTS):
        seconds = Sample.of(_third(recorder.intervals, number))
        ratios = [Sample.of(_third(values, number)) for values in recorder.ratios.values()]
        rate = gigabytes_per_second(recorder.size, seconds)
        yield [part, recorder.size / 1e6, seconds.map(lambda one: 1e3 * one), rate, *ratios]


def _third(values: list[float], number: int) -> list[float]:
    return values[number * len(values) // 3 : (number + 1) * len(values) // 3]


def _shots_table(frequency: float, place: Place, shots: list[Recorder]) -> Table:
    """A row for each checkpoint, with the median over the shots and both ends."""
    size = shots[0].size / 1e6
    title = f"{len(shots)} shots at {frequency:g} Hz, checkpoints of {size:.3g} MB, {place.name}"
    table = Table("rates-shots", title, ("checkpoint", "ms before", *CODECS))
    for number in range(COUNT):
        milliseconds = Sample.of(1e3 * one.intervals[number] for one in shots)
        ratios = (Sample.of(one.ratios[name][number] for one in shots) for name in CODECS)
        table.add(number, milliseconds, *ratios)
    for at, name in enumerate(CODECS, 2):
        cells = [row[at] for row in table.rows]
        most = 100 * max(_spread(cell) for cell in cells if isinstance(cell, Sample))
        table.note(f"{name}: a checkpoint's ratio differs by up to {most:.0f} % among shots")
    return table


def _spread(sample: Sample) -> float:
    """From the least to the greatest, over the median."""
    return (sample.high - sample.low) / sample.median
