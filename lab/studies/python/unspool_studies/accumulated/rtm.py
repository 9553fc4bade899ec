"""Part `accumulated-gpu`: the approaches on the wavefields of a migration, by source frequency.

The forward waves of a shot in space are computed by the kernels of `unspool-rtm --gpu`, and the
newest time level is saved as often as that command does it. Between saves the steps are really
taken, unlike in the runs of equal checkpoints, where the device waits: the kernels of codecs then
share multiprocessors and memory with those of the propagator, as they do in a migration, and every
checkpoint is another one. Sizes are those that the virtual times are made for, so that both tables
can be compared.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from unspool import Bound, Spool
from unspool.errors import Error
from unspool.stats import CodecStats
from unspool.stats import size as size_text
from unspool_studies.accumulated.gpu import ROUNDS, SPOOLS, Drawn
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.virtual import APPROACHES
from unspool_studies.accumulated.waves import (
    COUNT,
    LAYER,
    POINTS,
    SPEEDS,
    checkpoint_bytes,
    layers,
    neighbours,
)
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import open_spool, room_for, wait_until_ready
from unspool_studies.rtm.device import CupyDevice, Device
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.medium import HALO, padded_shape
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.survey import DELAY, Survey, plan, ricker

__all__ = [
    "ALL",
    "BATCH",
    "BOUND",
    "BOUNDED",
    "FAILURES",
    "LIMIT",
    "READY",
    "Forward",
    "NoFigureError",
    "NoRoomError",
    "check_room",
    "options_of",
    "run",
    "runs_of",
    "words_of",
]

#: The bound of the approaches that lose something, and their names.
BOUND = Bound(range=1e-5)
BOUNDED = ("Twine 1e-5 single", "Twine 1e-5 batched")

#: Every approach: what it is called, its codec, whether checkpoints are accumulated.
ALL: tuple[tuple[str, Any, bool], ...] = (
    *((name, *how) for name, how in zip(APPROACHES, SPOOLS, strict=True)),
    *((name, BOUND, accumulates) for name, accumulates in zip(BOUNDED, (False, True), strict=True)),
)

#: Whose ratios are shown.
LOSSLESS_RATIO, BOUNDED_RATIO = "Twine single", "Twine 1e-5 single"

COLUMNS = (
    "frequency", "MB each", "made GB/s", *APPROACHES, *BOUNDED, "together", "smaller: lossless",
    "smaller: 1e-5",
)  # fmt: skip

NOTES = (
    "GB/s of checkpoints over the time of the run, to the end of the last transfer; median of runs",
    "made: the same steps with nothing saved; they are really computed between the saves",
    "1e-5: Bound(range=1e-5), all others without loss; accumulated and batched: by Batched",
    "together: the most checkpoints of one call, of each approach that accumulates",
    "smaller: how many times, of Twine",
)

#: Fields of the propagator: two time levels and the medium; and how many batches of a spool, its
#: codecs' memory included, may be on the device.
FIELDS, BATCHES = 3, 6
#: Bytes of a batch at most, of checkpoints that are smaller.
BATCH = 64 << 20
#: Of the device's free memory, so much may be used.
USABLE = 0.9
#: Seconds after which no further frequency is begun, and those that a spool has to become ready.
LIMIT, READY = 60.0, 30.0

#: What one approach may fail with while the others go on: CuPy's errors are of the last two kinds.
FAILURES = (Error, OSError, RuntimeError, MemoryError)


class NoRoomError(Error, MemoryError):
    """The arrays of a run do not fit."""


class NoFigureError(Error, RuntimeError):
    """Nothing could be measured."""


def check_room(cuda: Cuda, asked: Accumulated) -> None:
    """Whether every frequency fits into the memories.

    Raises:
        NoRoomError: one does not.
    """
    advice = "take lower ones by --accumulated-frequencies, or leave them out: "
    advice += "--accumulated-tables ratio,rate,cache"
    for frequency in asked.frequencies:
        size = 4 * math.prod(padded_shape(*_cells(frequency)))
        device = FIELDS * size + asked.cache + BATCHES * max(BATCH, size)
        host = room_for(COUNT, size)
        for what, wanted, free, enough in (
            ("the GPU", device, cuda.free_memory(), device <= USABLE * cuda.free_memory()),
            ("the host", host, available_memory(), fits(host, available_memory())),
        ):
            if not enough:
                raise NoRoomError(
                    f"a migration at {frequency:g} Hz takes {size_text(wanted)} of the memory of "
                    f"{what}, which has {size_text(free or 0)} free: {advice}"
                )


def run(cuda: Cuda, asked: Accumulated, report: Report, found: dict[str, Drawn]) -> None:
    """The table; what is drawn of it becomes `found["migration"]`.

    Raises:
        NoFigureError: there is none.
    """
    title = f"{COUNT} wavefields of a migration, cache {size_text(asked.cache)}, GB/s"
    table = report.begin(Table("accumulated-gpu-frequency", title, COLUMNS, notes=list(NOTES)))
    device, begin = CupyDevice(cuda.ordinal), time.perf_counter()
    drawn = found["migration"] = []
    for frequency in asked.frequencies:
        if time.perf_counter() - begin > LIMIT:
            table.note(f"{frequency:g} Hz left out: the others took {LIMIT:.0f} s")
            continue
        name = f"{frequency:g} Hz"
        device.give_back()
        try:
            outcomes = _add(table, name, cuda, asked, Forward(device, frequency))
        except FAILURES as why:
            table.note(f"{name} left out: {words_of(why)}")
            continue
        if outcomes:
            drawn.append((name, {name: one.rates.median for name, one in outcomes.items()}))
    report.show(table)
    if not drawn:
        raise NoFigureError("no approach has taken the wavefields: the notes of the table say why")


class Forward:
    """The forward waves of shots side by side: the last `COUNT` saves of each before they have
    crossed the model.
    """

    def __init__(
        self, device: Device, frequency: float, count: int = COUNT, *, shots: int = 1
    ) -> None:
        """Prepares a model whose padded field has the size for this frequency in Hz."""
        cells, layer = _cells(frequency)
        spacing = SPEEDS[0] / frequency / POINTS
        model = Model(layers(cells), (spacing,) * len(cells), "three layers")
        self.survey = _until_across(model, frequency, count)
        self.count, self._device = count, device
        propagator = GpuPropagator(model, self.survey.timing.dt, layer, device)
        self.shape = propagator.shape
        self._waves = propagator.wavefield()
        (source,) = self.survey.sources
        places = neighbours(source, model.extent[0], shots)
        self._sources = [propagator.points([place]) for place in places]
        self._signal = propagator.load(self.survey.wavelet)
        self._tick = device.zeros((1,))

    @property
    def size(self) -> int:
        """Bytes of a checkpoint."""
        return 4 * math.prod(self.shape)

    @property
    def newest(self) -> np.ndarray:
        """The wavefield that was computed last."""
        return self._device.fetch(self._waves.now)

    def once(self, spool: Spool | None = None, shot: int = 0) -> float:
        """Seconds of the steps of a shot whose waves are saved, to the end of the spool's flush."""
        first = self.survey.timing.saves - self.count
        self._waves.reset()
        for group in range(first):
            self._advance(group, shot)
        self._wait()
        begin = time.perf_counter()
        for version in range(self.count):
            self._advance(first + version, shot)
            if spool is not None:
                spool.save(version, self._waves.now)
        self._wait()
        if spool is not None:
            spool.flush()
        return time.perf_counter() - begin

    def _advance(self, group: int, shot: int) -> None:
        every = self.survey.timing.every
        signal = self._signal[group * every : (group + 1) * every]
        self._waves.advance(every, self._sources[shot], signal)

    def _wait(self) -> None:
        """Until the device has done all."""
        self._device.fetch(self._tick)


def _cells(frequency: float) -> tuple[tuple[int, ...], int]:
    """The cells of a cube, and of the layer around it, whose field has the size of a checkpoint."""
    side = round((checkpoint_bytes(frequency) / 4) ** (1 / 3))
    layer = min(LAYER, side // 8)
    return (side - 2 * (layer + HALO),) * 3, layer


def _until_across(model: Model, frequency: float, count: int) -> Survey:
    """One shot, until its waves are at the bottom; a whole number of groups, `count` at least."""
    downwards = float((model.spacing[-1] / model.velocity[0, 0]).sum())
    survey = plan(model, shots=1, frequency=frequency, time=downwards + 2 * DELAY / frequency)
    timing = survey.timing
    timing = replace(timing, steps=max(timing.saves, count) * timing.every)
    return replace(survey, timing=timing, wavelet=ricker(timing))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an approach gave.

    Attributes:
        rates: GB/s of the runs that count.
        codec: what its spool says of codecs.
    """

    rates: Sample
    codec: CodecStats


def _add(
    table: Table, name: str, cuda: Cuda, asked: Accumulated, forward: Forward
) -> dict[str, Outcome]:
    """Measures a row; outcomes by approach, without those that failed."""
    whole = forward.count * forward.size
    alone = [forward.once() for _ in range(ROUNDS + 1)]
    outcomes: dict[str, Outcome] = {}
    for approach, codec, accumulates in ALL:
        options = options_of(asked.cache, asked.together, forward, codec, accumulates)
        seconds, stats, why = runs_of(cuda, forward, options)
        if why:
            # The cell is empty then, and the reason mostly the same for all frequencies.
            place = f" at {name}" if seconds else ""
            table.note(f"{approach}{place} {why}")
        if seconds:
            outcomes[approach] = Outcome(_rates(whole, seconds), stats)
    made = _rates(whole, alone[1:])
    table.add(name, forward.size / 1e6, made, *_cells_of(outcomes))
    return outcomes


def words_of(why: BaseException) -> str:
    """What went wrong, with its kind."""
    return f"{type(why).__name__}: {why}"


def _rates(whole: int, seconds: list[float]) -> Sample:
    return Sample.of(whole / one / 1e9 for one in seconds)


def _cells_of(outcomes: dict[str, Outcome]) -> list[Cell]:
    """The cells that follow what is known without a spool."""
    known = [outcomes.get(approach) for approach, _, _ in ALL]
    rates: list[Cell] = [None if one is None else one.rates for one in known]
    most = (outcomes.get(approach) for approach, _, accumulates in ALL if accumulates)
    together = "/".join("-" if one is None else str(one.codec.most_together) for one in most)
    ratios = (outcomes.get(approach) for approach in (LOSSLESS_RATIO, BOUNDED_RATIO))
    return [*rates, together, *(None if one is None else one.codec.ratio for one in ratios)]


def options_of(
    cache: int, together: int, forward: Forward, codec: Any, accumulates: bool
) -> dict[str, Any]:
    """What a spool is opened with."""
    host = room_for(forward.count, forward.size)
    given = {"device_memory": cache, "host_memory": host, "codec": codec}
    return given | {"together": together} if accumulates else given


def runs_of(
    cuda: Cuda, forward: Forward, options: dict[str, Any]
) -> tuple[list[float], CodecStats, str]:
    """Seconds of the runs that count: fewer where one fails, and then why."""
    seconds: list[float] = []
    stats, problem = CodecStats(), ""
    try:
        with open_spool(cuda, **options) as spool:
            wait_until_ready(spool, READY)
            for _ in range(ROUNDS + 1):
                seconds.append(forward.once(spool))
                stats = spool.stats().codec
                # What the first run has made it compile, before the next one.
                wait_until_ready(spool, READY)
                for version in spool.versions():
                    spool.discard(version)
    except FAILURES as why:
        done = (
            f"stopped after run {len(seconds)} of {ROUNDS + 1}" if seconds[1:] else "cannot be had"
        )
        problem = f"{done}: {words_of(why)}"
    return seconds[1:], stats, problem
