"""Part `plan`: what `unspool.plan` predicts, beside what the same schedules take on a real spool.

The application is the compiled acoustic propagator: a step reads and writes a state of two time
levels, as fast as the memory allows, on all cores. Reversing a step takes one step of another
wavefield and the product of both. Every schedule has to give the same image, bit by bit.
"""

from __future__ import annotations

import statistics
import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import unspool
from unspool.advice import Candidate, predict
from unspool.stats import size as size_text
from unspool_studies._native import Acoustic, largest_stable_step
from unspool_studies.bench.bound import least_of
from unspool_studies.bench.measure import seconds_of
from unspool_studies.bench.options import Plan
from unspool_studies.bench.planned_options import Prediction
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import PLAIN

__all__ = ["Application", "Outcome", "run", "run_candidate"]

COLUMNS = (
    "schedule",
    "tiers",
    "predicted s",
    "measured s",
    "bound s",
    "of bound %",
    "error %",
    "model's %",
    "again",
    "stall pred.",
    "stall meas.",
    "device MiB",
    "host MiB",
    "disk MiB",
    "image",
)

NOTES = (
    "error: of the prediction, made before; model's: with the steps as long as they turned out",
    "bound: the least time of the same steps and copies over these links, with perfect knowledge; "
    "of bound: what of it is reached",
    "again: forward steps beyond one pass; MiB: the most in use; image: all have to be the same",
)

#: Steps by which forward and reverse are timed, and copies that are made in turn before each, as
#: saves do, so that caches are as cold as they will be.
TIMED, COPIES = 15, 6

#: Speed of sound in m/s, metres between cells, cells of the absorbing layer.
SPEED, SPACING, LAYER = 2000.0, 10.0, 20


class Application:
    """Waves in a square of uniform speed, and the adjoint that reads them."""

    def __init__(self, cells: int) -> None:
        dt = 0.8 * largest_stable_step(SPEED, SPACING, SPACING)
        velocity = np.full((cells, cells), SPEED, np.float32)
        self._core = Acoustic(velocity, (SPACING, SPACING), dt, LAYER, 0)
        middle = 0.5 * (cells - 1) * SPACING
        self._points = self._core.points([(middle, middle)])
        self._signal = np.ones((1, 1), np.float32)
        self._waves, self._adjoint = self._fields(), self._fields()
        self._image, self._light = self._fields()
        self.reset()

    def _fields(self) -> list[Any]:
        return [np.zeros(self._core.shape, np.float32) for _ in range(2)]

    @property
    def state_bytes(self) -> int:
        """Bytes of a state."""
        return sum(field.nbytes for field in self._waves)

    def reset(self) -> None:
        """The state before the first step, and nothing in the image."""
        for number, field in enumerate(self._waves):
            noise = np.random.default_rng(number).random(field.shape[1], np.float32)
            field[:] = noise
        for field in (*self._adjoint, self._image, self._light):
            field.fill(0.0)

    def state(self) -> tuple[Any, ...]:
        """The arrays of the state: the two levels change places with every step."""
        return tuple(self._waves)

    def forward(self, _state: object, first: int, last: int) -> None:
        """Advances the state over the steps `first` to `last` - 1."""
        for _ in range(first, last):
            self._step(self._waves)

    def reverse(self, _state: object, _step: int) -> None:
        """Takes the adjoint back over a step."""
        self._step(self._adjoint)
        self._core.correlate(self._image, self._light, self._waves[1], self._adjoint[1])

    def _step(self, fields: list[Any]) -> None:
        self._core.advance(fields[0], fields[1], 1, self._points, self._signal, None, None)
        fields.reverse()

    def image(self) -> int:
        """A checksum of the image."""
        return zlib.crc32(self._image)

    def step_seconds(self) -> tuple[float, float]:
        """The usual time of a forward and of a reverse step, each after a copy of the state."""
        copies = [np.empty_like(field) for field in self._waves * COPIES]
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(TIMED + COPIES):
            for level, field in enumerate(self._waves):
                np.copyto(copies[2 * (number % COPIES) + level], field)
            calls = (lambda: self.forward(None, 0, 1), lambda: self.reverse(None, 0))
            for readings, call in zip(times, calls, strict=True):
                readings.append(seconds_of(call))
        forward, reverse = (statistics.median(readings[COPIES:]) for readings in times)
        return forward, reverse


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule took.

    Attributes:
        seconds: of the whole adjoint.
        forward: of one forward step, on average.
        reverse: of one reverse step, on average.
        stall: seconds for which saves and restores waited.
        peak: bytes by tier.
        again: forward steps beyond one pass.
        image: checksum of the result.
    """

    seconds: float
    forward: float
    reverse: float
    stall: float
    peak: dict[str, int]
    again: int
    image: int


def run(plan: Plan, report: Report) -> None:
    """One table."""
    asked = plan.prediction
    application = Application(asked.cells)
    forward, reverse = application.step_seconds()
    disk = (str(plan.directory), asked.disk)
    tiers: dict[str, Any] = {
        "device_memory": asked.device,
        "host_memory": asked.host,
        "disk": disk,
        **PLAIN,
    }
    links = unspool.advice.measure_links(
        **tiers,
        checkpoint_bytes=application.state_bytes,
        work=lambda: application.forward(None, 0, 1),
        arrays=len(application.state()),
    )
    found = unspool.plan(
        asked.steps,
        application.state_bytes,
        forward,
        reverse_seconds=reverse,
        links=links,
        **tiers,
    )
    title = (
        f"Adjoints of {asked.steps} steps, states of {size_text(application.state_bytes)}, "
        f"{forward * 1e3:.1f} ms forward, {reverse * 1e3:.1f} ms in reverse"
    )
    table = report.begin(Table("plan", title, COLUMNS))
    for note in NOTES:
        table.note(note)
    for line in str(links).splitlines():
        table.note(line)
    _rows(table, asked, application, found)
    report.show(table)


def _rows(
    table: Table, asked: Prediction, application: Application, found: unspool.advice.Plan
) -> None:
    first: int | None = None
    for candidate in found.candidates:
        if asked.names and not any(word in candidate.name for word in asked.names):
            continue
        if candidate.seconds > asked.limit:
            table.note(f"{candidate.name} is left out: {candidate.seconds:.0f} s are predicted")
            continue
        outcome = run_candidate(application, candidate)
        first = outcome.image if first is None else first
        table.add(*_cells(found, candidate, outcome, outcome.image == first))


def run_candidate(application: Application, candidate: Candidate) -> Outcome:
    """Runs one schedule on the spool that it was predicted for."""
    application.reset()
    with unspool.Spool(**candidate.options) as spool:
        begin = time.perf_counter()
        done = unspool.adjoint(
            candidate.schedule, spool, application.forward, application.reverse, application.state
        )
        seconds = time.perf_counter() - begin
        stats = spool.stats()
    return Outcome(
        seconds=seconds,
        forward=done.forward_seconds / max(1, done.forward_steps),
        reverse=done.reverse_seconds / done.steps,
        stall=stats.save_stall_seconds + stats.restore_stall_seconds,
        peak={tier.name: tier.peak for tier in stats.tiers},
        again=done.recomputed_steps,
        image=application.image(),
    )


def _model(found: unspool.advice.Plan, candidate: Candidate, outcome: Outcome) -> float:
    """What would have been predicted for steps as long as they turned out to be."""
    # What was measured is slowed by transfers already: the prediction slows steps again.
    plain = found.problem.least_seconds(candidate.forward_steps)
    slowed = candidate.compute_seconds / plain if plain > 0 else 1.0
    return predict(
        candidate.schedule,
        found.problem.state_bytes,
        outcome.forward / slowed,
        reverse_seconds=outcome.reverse / slowed,
        reverse_bytes=found.problem.reverse_bytes,
        links=found.links,
        **candidate.options,
    ).seconds


def _cells(
    found: unspool.advice.Plan, candidate: Candidate, outcome: Outcome, same: bool
) -> list[Cell]:
    def error(predicted: float) -> float:
        return 100 * (predicted / outcome.seconds - 1)

    problem = found.problem
    steps = problem.step_seconds, problem.reverse_seconds
    sizes = problem.state_bytes, problem.reverse_bytes
    least = least_of(candidate, found.links, steps, sizes, problem.steps)
    peaks = [outcome.peak.get(name) for name in ("device", "host", "disk")]
    return [
        candidate.name,
        "+".join(candidate.tiers),
        candidate.seconds,
        outcome.seconds,
        least,
        100 * least / outcome.seconds,
        error(candidate.seconds),
        error(_model(found, candidate, outcome)),
        outcome.again,
        candidate.stall_seconds,
        outcome.stall,
        *(None if peak is None else peak / 2**20 for peak in peaks),
        "same" if same else "WRONG",
    ]
