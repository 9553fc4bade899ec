"""Part `accumulated-gpu`: an ensemble of shots that follows a plan, and what the profile costs.

The first shot of a migration is recorded by `Batched(profile=...)`; what its codec costs on this
machine (the second oracle of HiPC 2023) is measured and put into the profile; spools that follow it
take the other shots, in turn with spools without a codec, with it one by one, and batched. The
steps between two saves are really computed, as in the table of frequencies.

A profile is that of the whole life of a spool, so that each shot has a spool of its own, of every
kind, which is ready before the shot begins. The first spool that follows plans in its first save,
and those after it take the same plan.

A recorded interval is the host's, which only enqueues. `--accumulated-intervals device` replaces
the intervals by those between the states on the device, from events on the application's stream in
a shot without saves.
"""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from unspool import Spool
from unspool.accumulate import Accumulation, Batched, PlanDroppedWarning, Profile, follow
from unspool.accumulate import plan as plan_for
from unspool.codecs import NvComp
from unspool.errors import OptionError
from unspool.stats import size as size_text
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.rtm import (
    BATCH,
    BOUND,
    FAILURES,
    LIMIT,
    READY,
    Forward,
    NoFigureError,
    words_of,
)
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.measure import Sample, gigabytes_per_second
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import room_for, wait_until_ready
from unspool_studies.codecs.cost import Curve, OnGpu, measure
from unspool_studies.codecs.source import Source
from unspool_studies.rtm.clock import Span
from unspool_studies.rtm.device import CupyDevice, Device

__all__ = ["CODECS", "WAYS", "Ensemble", "Found", "Shot", "check_count", "paid_back", "run"]

#: What the profiles are of: a codec each.
CODECS: dict[str, Any] = {
    "nvCOMP": NvComp("bitcomp"),
    "Twine": "lossless",
    "Twine 1e-5": BOUND,
}

#: What is done with a shot, in turn: nothing is saved, or a spool takes it in one of four ways.
MADE, RAW, SINGLE, BATCHED, FOLLOWING = "made", "raw", "single", "batched", "following"
WAYS = (MADE, RAW, SINGLE, BATCHED, FOLLOWING)

#: Seconds of computing before each checkpoint by the device's clock, and what measuring them took;
#: no values: those of the recording, which are the host's.
Intervals = tuple[tuple[float, ...], float]
HOST: Intervals = ((), 0.0)

#: Recordings of the first shot, each beside a run of the same shot that is not recorded.
RECORDINGS = 3

DECISIONS = ("raw", "alone", "hold", "together")

SHOTS = (
    "frequency", "codec", "way", "ms a shot", "GB/s", "blocked ms", "forecast ms", "of forecast",
    *DECISIONS, "kept raw", "launches", "dropped",
)  # fmt: skip
COSTS = (
    "frequency", "codec", "smaller", "us between", "us between, host", "link GB/s", "plain ms",
    "recorded ms", "curve s", "intervals s", "planning ms", "once s",
    *(f"paid back: {way}" for way in (RAW, SINGLE, BATCHED)),
)  # fmt: skip
CURVES = ("frequency", "codec", "input", "us", "ratio")

SHOTS_NOTES = (
    "ms a shot: to the end of the last transfer and of the spool's flush, median of shots (least "
    "and greatest); blocked: what it takes longer than the same shot with nothing saved, made",
    "following: Batched(profile=...), the first of which plans in its first save",
    "forecast: by the model of the plan, for the decisions beside it; of forecast: what was "
    "measured over that; of made: the intervals of the profile",
    "kept raw, launches: what the spools of all shots did",
    "dropped: shots whose plan was dropped on the way, which were compressed one by one from there",
)
COSTS_NOTES = (
    "smaller, us between: of each checkpoint of the first shot; us between: what the plan is made "
    "from; host: as recorded",
    "plain, recorded: the first shot one by one, and the same with the profile recorded, to the "
    "end of the spool; once: what recording adds, the curve, the intervals and planning",
    "paid back: the number of shots that follow after which they have gained what it cost once, "
    "against each of the other ways, by medians",
)


def check_count(asked: Accumulated) -> None:
    """Whether there is a shot to record and one that follows.

    Raises:
        OptionError: there is not.
    """
    if asked.shots < 2:
        raise OptionError(
            f"--accumulated-shots {asked.shots}: one shot is recorded and others follow it: ask "
            "for two or more, or leave them out: --accumulated-tables ratio,rate,cache,frequency"
        )


def run(cuda: Cuda, asked: Accumulated, report: Report) -> None:
    """The tables of shots, of what the profiles cost, and of the codecs' curves.

    Raises:
        NoFigureError: there is none.
    """
    title = f"{asked.shots - 1} shots that follow a recorded one, cache {size_text(asked.cache)}"
    kinds = (
        ("shots", title, SHOTS, SHOTS_NOTES),
        ("profiles", "What a profile costs, and when that is paid back", COSTS, COSTS_NOTES),
        ("curves", "What a call of each codec costs on this machine", CURVES, ()),
    )
    tables = [
        report.begin(Table(f"accumulated-gpu-{name}", about, columns, notes=list(notes)))
        for name, about, columns, notes in kinds
    ]
    device, begin = CupyDevice(cuda.ordinal), time.perf_counter()
    for frequency in asked.frequencies:
        name = f"{frequency:g} Hz"
        if time.perf_counter() - begin > LIMIT:
            tables[0].note(f"{name} left out: the others took {LIMIT:.0f} s")
            continue
        device.give_back()
        try:
            intervals = _intervals(cuda, asked, frequency, tables[1])
            forward = Forward(device, frequency, shots=asked.shots)
        except FAILURES as why:
            tables[0].note(f"{name} left out: {words_of(why)}")
            continue
        for codec_name, codec in CODECS.items():
            ensemble = Ensemble(cuda, asked, forward, codec, intervals)
            try:
                found = ensemble.measured()
            except FAILURES as why:
                tables[0].note(f"{name}, {codec_name} left out: {words_of(why)}")
                continue
            _add(tables, name, codec_name, found)
    for table in tables:
        report.show(table)
    if not tables[0].rows:
        raise NoFigureError("no codec's plan was followed: the notes of the table say why")


def _intervals(cuda: Cuda, asked: Accumulated, frequency: float, table: Table) -> Intervals:
    """What is asked for, with a note that says what is used."""
    found, why = HOST, "--accumulated-intervals host"
    if asked.intervals == "device":
        found, why = _by_device(CupyDevice(cuda.ordinal), frequency), "the device tells none"
    table.note(
        "plans are made from the intervals of the device, by events in a shot without saves"
        if found != HOST
        else f"plans are made from the intervals of the host, as recorded: {why}"
    )
    return found


def _by_device(device: Device, frequency: float) -> Intervals:
    """Measured on a device object of its own: from then on it marks whatever it enqueues."""
    forward = Forward(device, frequency)
    # What is enqueued time and again is captured first.
    forward.once()
    device.keep_spans()
    begin = time.perf_counter()
    forward.once()
    found = _between(device.spans(), forward.count)
    return (found, time.perf_counter() - begin) if found else HOST


def _between(spans: Sequence[Span], count: int) -> tuple[float, ...]:
    """Seconds from each state to the next one, of the last `count`; nothing of fewer spans."""
    if len(spans) < count:
        return ()
    last = spans[-count:]
    marks = [last[0].begin, *(span.end for span in last)]
    return tuple(max(0, end - begin) / 1e9 for begin, end in pairwise(marks))


@dataclass(frozen=True, slots=True)
class Shot:
    """One shot.

    Attributes:
        seconds: to the end of the spool's flush.
        closing: seconds of closing the spool afterwards.
        kept: checkpoints that the spool kept as they are.
        launches: of the codec, on a GPU.
        together: the most checkpoints of one of them.
        dropped: how the shot differs from the profile, where its plan was dropped.
    """

    seconds: float
    closing: float = 0.0
    kept: int = 0
    launches: int = 0
    together: int = 1
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What an ensemble gave.

    Attributes:
        recorded: the profile as its spool wrote it.
        profile: the same as the shots followed it.
        plan: what they carried out.
        curve: of the codec.
        plain: the first shot, not recorded.
        recordings: the first shot, recorded.
        took: seconds of measuring the curve, of measuring intervals, and of planning.
        shots: the others, by `WAYS`.
    """

    recorded: Profile
    profile: Profile
    plan: Accumulation
    curve: Curve
    plain: list[Shot]
    recordings: list[Shot]
    took: tuple[float, float, float]
    shots: dict[str, list[Shot]]

    @property
    def once(self) -> float:
        """Seconds that the profile has cost before it was followed."""
        more = _whole(self.recordings).median - _whole(self.plain).median
        return max(0.0, more) + sum(self.took)

    def seconds(self, way: str) -> Sample:
        """Of each shot that was taken in this way."""
        return Sample.of(shot.seconds for shot in self.shots[way])

    def decisions(self, way: str) -> tuple[str, ...]:
        """What is decided for each checkpoint; nothing where nothing is saved."""
        count = len(self.profile.checkpoints)
        return {
            MADE: (),
            RAW: ("raw",) * count,
            SINGLE: ("alone",) * count,
            BATCHED: _batches(count, max(shot.together for shot in self.shots[BATCHED])),
            FOLLOWING: self.plan.best.decisions,
        }[way]

    def forecast(self, way: str) -> float | None:
        """Seconds of a shot by the plan's model; None where its cache is too small for this way."""
        if way == MADE:
            return self.profile.seconds
        try:
            return follow(self.profile, self.decisions(way), codec=self.plan.codec).seconds
        except OptionError:
            return None


def _whole(shots: Sequence[Shot]) -> Sample:
    """Seconds to the end of the spool."""
    return Sample.of(one.seconds + one.closing for one in shots)


def _batches(count: int, together: int) -> tuple[str, ...]:
    """The decisions for batches of `together` checkpoints; the last batch may have fewer."""
    found: list[str] = []
    while len(found) < count:
        batch = min(max(1, together), count - len(found))
        found += ["hold"] * (batch - 1) + ["alone" if batch == 1 else "together"]
    return tuple(found)


def paid_back(once: float, gain: float) -> int | None:
    """Shots after which `once` seconds are gained, `gain` seconds a shot; None: that never is."""
    return math.ceil(once / gain) if gain > 0 else None


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Shots of one frequency with one codec."""

    cuda: Cuda
    asked: Accumulated
    forward: Forward
    codec: Any
    intervals: Intervals = HOST

    def measured(self) -> Found:
        """Records the first shot, measures the codec, and takes the other shots in all ways.

        Raises:
            Error: the codec is not installed here or refuses the arrays; or the profile cannot be
                planned, as where a checkpoint is larger than the cache.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.json"
            # The first one loads the kernels.
            self._shot(0, codec=self.codec)
            plain, recordings = [], []
            for _ in range(RECORDINGS):
                plain.append(self._shot(0, codec=self.codec))
                file.unlink(missing_ok=True)
                recordings.append(self._shot(0, codec=self.codec, front={"profile": file}))
            recorded = Profile.load_from(file)
            curve, measuring = self._curve()
            profile = self._completed(recorded, curve)
            profile.save_to(file)
            begin = time.perf_counter()
            plan = self._plan(profile)
            took = measuring, self.intervals[1], time.perf_counter() - begin
            shots = self._shots(file)
        return Found(recorded, profile, plan, curve, plain, recordings, took, shots)

    def _curve(self) -> tuple[Curve, float]:
        """The codec on the wavefield that was computed last, up to the most that it gets at once;
        and the seconds of measuring it.
        """
        begin = time.perf_counter()
        source = Source("the last wavefield of the first shot", self.forward.newest, ())
        curve = measure(source, self.codec, max(BATCH, self.forward.size), OnGpu(self.cuda))
        return curve, time.perf_counter() - begin

    def _completed(self, recorded: Profile, curve: Curve) -> Profile:
        """With the curve, and the intervals of the device where they are known."""
        rows = recorded.checkpoints
        if self.intervals[0]:
            pairs = zip(rows, self.intervals[0], strict=True)
            rows = tuple(replace(row, interval=seconds) for row, seconds in pairs)
        return replace(recorded, cost=curve.cost, checkpoints=rows)

    def _plan(self, profile: Profile) -> Accumulation:
        """What a `Batched` with `profile=` plans: on a GPU it holds 64 MiB at most."""
        assert profile.cost is not None
        on_gpu = profile.device.startswith("cuda")
        together = max(1, BATCH // self.forward.size) if on_gpu else 1
        return plan_for(profile, codec=profile.cost, most_together=together)

    def _shots(self, file: Path) -> dict[str, list[Shot]]:
        """All but the first one, each in every way, of which another one begins each time."""
        options = {
            RAW: {"codec": None},
            SINGLE: {"codec": self.codec},
            BATCHED: {"codec": self.codec, "front": {"together": self.asked.together}},
            FOLLOWING: {"codec": self.codec, "front": {"profile": file}},
        }
        found: dict[str, list[Shot]] = {way: [] for way in WAYS}
        for number in range(1, self.asked.shots):
            # The steps of this shot are captured by a run that does not count.
            self.forward.once(shot=number)
            turn = number % len(WAYS)
            for way in (*WAYS[turn:], *WAYS[:turn]):
                shot = (
                    Shot(self.forward.once(shot=number))
                    if way == MADE
                    else self._shot(number, **options[way])
                )
                found[way].append(shot)
        return found

    def _shot(self, number: int, front: dict[str, Any] | None = None, **options: Any) -> Shot:
        """One shot through a spool of its own, with a `Batched` in front of it that has these
        options."""
        count = self.forward.count
        host = room_for(count, self.forward.size)
        options |= {
            "device_memory": self.asked.cache,
            "host_memory": host,
            **self.cuda.spool_options,
        }
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", PlanDroppedWarning)
            opened = Spool(**options)
            with Batched(opened, **front) if front else opened as spool:
                wait_until_ready(opened, READY)
                seconds = self.forward.once(spool, number)
                codec = spool.stats().codec
                kept = sum(_is_raw(spool, version) for version in range(count))
                begin = time.perf_counter()
            closing = time.perf_counter() - begin
        dropped = [one for one in told if issubclass(one.category, PlanDroppedWarning)]
        difference = _difference(str(dropped[0].message)) if dropped else ""
        return Shot(seconds, closing, kept, codec.launches, codec.most_together, difference)


def _is_raw(spool: Spool | Batched, version: int) -> bool:
    return all(one.codec == "raw" for one in spool.achieved(version).values())


def _difference(text: str) -> str:
    """What a `PlanDroppedWarning` says of the run, without the file and the advice."""
    return text.partition(" is dropped: ")[2].partition(". Delete the file")[0] or text


def _add(tables: Sequence[Table], frequency: str, codec: str, found: Found) -> None:
    """A row for each way, one for the profile, and those of the curve."""
    shots, costs, curves = tables
    for way in WAYS:
        shots.add(frequency, codec, way, *_cells_of(found, way))
    place = f"{frequency}, {codec}"
    shots.note(f"{place}: {_in_runs(found.plan.best.decisions)}")
    dropped = [
        f"shot {number}: {shot.dropped}"
        for number, shot in enumerate(found.shots[FOLLOWING], 1)
        if shot.dropped
    ]
    if dropped:
        others = f" (and {len(dropped) - 1} more)" if dropped[1:] else ""
        shots.note(f"{place}: plan dropped in {dropped[0]}{others}")
    costs.add(frequency, codec, *_costs(found))
    for point in found.curve.points:
        microseconds = point.seconds.map(lambda one: 1e6 * one)
        curves.add(frequency, codec, size_text(point.raw), microseconds, point.ratio)
    for note in found.curve.notes:
        curves.note(f"{place}: {note}")


def _cells_of(found: Found, way: str) -> list[Cell]:
    seconds, shots = found.seconds(way), found.shots[way]
    rate = gigabytes_per_second(found.profile.raw_bytes, seconds)
    alone = found.seconds(MADE)
    pairs = zip(seconds.values, alone.values, strict=True)
    blocked = Sample.of(1e3 * (one - made) for one, made in pairs)
    forecast = found.forecast(way)
    of_forecast = seconds.map(lambda one: one / forecast) if forecast else None
    cells: list[Cell] = [_milliseconds(seconds), rate, None if way == MADE else blocked]
    cells += [None if forecast is None else 1e3 * forecast, of_forecast]
    if way == MADE:
        return [*cells, *[None] * (len(DECISIONS) + 3)]
    decisions = found.decisions(way)
    cells += [decisions.count(decision) for decision in DECISIONS]
    cells += [_span([shot.kept for shot in shots]), _span([shot.launches for shot in shots])]
    return [*cells, sum(bool(shot.dropped) for shot in shots) if way == FOLLOWING else None]


def _costs(found: Found) -> list[Cell]:
    following = found.seconds(FOLLOWING).median
    gains = {way: found.seconds(way).median - following for way in (RAW, SINGLE, BATCHED)}
    after = [paid_back(found.once, gain) for gain in gains.values()]
    measuring, intervals, planning = found.took
    link, rows = found.profile.link, found.profile.checkpoints
    return [
        Sample.of(row.raw / max(1, row.stored) for row in rows),
        Sample.of(1e6 * row.interval for row in rows),
        Sample.of(1e6 * row.interval for row in found.recorded.checkpoints),
        None if link is None else link.bytes_per_second / 1e9,
        _milliseconds(_whole(found.plain)),
        _milliseconds(_whole(found.recordings)),
        measuring,
        intervals,
        1e3 * planning,
        found.once,
        *("never" if shots is None else shots for shots in after),
    ]


def _milliseconds(seconds: Sample) -> Sample:
    return seconds.map(lambda one: 1e3 * one)


def _span(counts: Sequence[int]) -> str:
    """The number, or the least and the greatest."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def _in_runs(decisions: Sequence[str]) -> str:
    """All of them, equal ones in a row with their number."""
    runs = ((decision, len(list(same))) for decision, same in groupby(decisions))
    return ", ".join(decision if count == 1 else f"{count} {decision}" for decision, count in runs)
