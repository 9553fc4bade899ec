"""Part `accumulated-gpu`: the synthetic ensemble of accumulated compression (HiPC 2023) on a GPU.

Hand-made pipelines with the cache as one arena: every step waits as long as computing would, copies
the checkpoint into the cache, compresses with nvCOMP where the schedule says so, and a second
stream carries the results into pinned memory. The cache's room is kept by events: a step waits on
the device for the transfers that make its room. These pipelines are there for their time: bytes
that are on their way may be overwritten by later checkpoints, which are all equal.

Beside them spools with the same device tier, which save and flush: the approaches of the paper,
each a codec and whether checkpoints are accumulated. The same spools then take the wavefields of a
migration: `accumulated_rtm`. Spools that follow a plan are those of `accumulated_shots`.
"""

from __future__ import annotations

import random
import time
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.accumulate import CodecCost
from unspool.accumulate import plan as plan_for
from unspool.advice import Rate
from unspool.codecs import NvComp
from unspool.errors import ArrayError, OptionError
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.virtual import APPROACHES, Case, cases_of, costs_of
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import FRAME, open_spool, wait_until_ready

__all__ = ["ROUNDS", "SPOOLS", "Drawn", "NvCompPacker", "Pipeline", "run"]

#: What is drawn: for each case its name, and the GB/s of each approach.
Drawn = list[tuple[str, dict[str, float]]]

NOTES = (
    "GB/s of checkpoints over the time of a run, to the end of the last transfer; median of runs",
    "Spool(device_memory=cache, host_memory=...), saves and a flush, all codecs without loss; "
    "accumulated and batched: by unspool.accumulate.Batched",
    "together: the most checkpoints of one call of nvCOMP, and of one launch of Twine",
    "by hand: nvCOMP through its Python package, which waits for every call, in a pipeline with "
    "the best schedule; model: what that schedule should give",
)

#: What spools do, in the order of `APPROACHES`: the codec, and whether checkpoints are accumulated.
SPOOLS: tuple[tuple[Any, bool], ...] = (
    (None, False),
    (NvComp("bitcomp"), False),
    (NvComp("bitcomp"), True),
    ("lossless", False),
    ("lossless", True),
)

#: Runs of each figure, besides one that is not counted.
ROUNDS = 3


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for ratios, for rates and for caches, one for frequencies of a migration, and tables
    of shots that follow a plan, and one of several processes.

    Raises:
        OptionError: there are too few shots; nothing was measured.
        NoRoomError: the migration does not fit; nothing was measured.
        NoFigureError: none of the approaches could take its wavefields.
    """
    # It takes the approaches from here.
    from unspool_studies.accumulated import rtm as accumulated_rtm
    from unspool_studies.accumulated import shots as accumulated_shots
    from unspool_studies.accumulated import weak as accumulated_weak

    asked = plan.accumulated
    migrates, follows = "frequency" in asked.tables, "shots" in asked.tables
    scales = "processes" in asked.tables
    if follows:
        accumulated_shots.check_count(asked)
    if migrates or follows or scales:
        accumulated_rtm.check_room(cuda, asked)
    found: dict[str, Drawn] = {}
    try:
        _synthetic(cuda, asked, report, found)
        if migrates:
            accumulated_rtm.run(cuda, asked, report, found)
        if follows:
            accumulated_shots.run(cuda, asked, report)
        if scales:
            accumulated_weak.run(cuda, asked, report)
    finally:
        _draw(found, asked.plot)


def _synthetic(cuda: Cuda, asked: Accumulated, report: Report, found: dict[str, Drawn]) -> None:
    experiments = cases_of(asked)
    if not experiments:
        return
    link, cost = Rate(_link(cuda, asked.size)), costs_of(asked)[0]
    app = cuda.stream()
    bench = Pipeline(cuda, asked, app, NvCompPacker(app))
    with closing(bench):
        for name, cases in experiments.items():
            table, found[name] = _table(bench, name, cases, (link, cost), report)
            table.note(_words_of_cost(cost, asked.nvcomp))
            report.show(table)


def _words_of_cost(cost: CodecCost, file: Path | None) -> str:
    """Where the plan of the pipelines has the cost of nvCOMP from."""
    if file is not None:
        return f"by hand and model: planned with {cost.name}, of {file}"
    return (
        f"by hand and model: planned with {cost.name} as on an H100, through its Python package; "
        "--accumulated-nvcomp FILE takes what was measured"
    )


def _draw(found: dict[str, Drawn], plot: Path | None) -> None:
    drawn = {name: cases for name, cases in found.items() if cases}
    if plot is None or not drawn:
        return
    from unspool_studies.accumulated.plot import draw

    file = plot.with_stem(f"{plot.stem}-gpu")
    draw(drawn, file)
    print(f"written: {file}")


def _table(
    bench: Pipeline, name: str, cases: Sequence[Case], known: tuple[Rate, CodecCost], report: Report
) -> tuple[Table, Drawn]:
    """The table, and what is drawn of it: for each case the figure of each approach. Pipelines by
    hand follow the plan for this link and this cost of nvCOMP.
    """
    link, cost = known
    one = cases[0].profile
    size, count = one.checkpoints[0].raw, len(one.checkpoints)
    title = f"{count} checkpoints of {size:,} bytes, GB/s"
    columns = (
        name, *APPROACHES, "together", "by hand: raw", "by hand: single", "by hand: accumulated",
        "model", "schedule",
    )  # fmt: skip
    table = report.begin(Table(f"accumulated-gpu-{name}", title, columns, notes=list(NOTES)))
    table.note(f"pinned copies of this size: {link.bytes_per_second / 1e9:.1f} GB/s")
    if bench.packer.problem:
        table.note(f"no nvCOMP here: {bench.packer.problem}")
    drawn = []
    for case in cases:
        bench.fill(case.profile.ratio)
        cells, together = _spools(bench, case, table)
        table.add(case.name, *cells, together, *_by_hand(bench, case, link, cost))
        told = zip(APPROACHES, cells, strict=True)
        drawn.append((case.name, {name: one.median for name, one in told if one is not None}))
    return table, drawn


def _spools(bench: Pipeline, case: Case, table: Table) -> tuple[list[Sample | None], str]:
    """A figure for each approach, and how many checkpoints were encoded together."""
    cells: list[Sample | None] = []
    together = []
    for codec, accumulates in SPOOLS:
        try:
            seconds, most = bench.spool(case, codec, accumulates)
        except (ArrayError, OptionError) as why:
            table.note(f"{codec!r} cannot be had here: {why}")
            cells.append(None)
            continue
        cells.append(_rate(case, seconds))
        together += [str(most)] if accumulates else []
    return cells, "/".join(together)


def _rate(case: Case, seconds: Sequence[float]) -> Sample:
    return Sample.of(case.profile.raw_bytes / one / 1e9 for one in seconds[1:])


def _link(cuda: Cuda, size: int) -> float:
    """Bytes a second of copies to the host of this size, one after the other."""
    stream = cuda.stream()
    device, host = cuda.malloc(size), cuda.host_alloc(size)
    try:
        for count in (2, 32):
            begin = time.perf_counter()
            for _ in range(count):
                cuda.down(host, device, size, stream)
            cuda.wait(stream)
        return 32 * size / (time.perf_counter() - begin)
    finally:
        cuda.free(device)
        cuda.free_host(host)


def _by_hand(bench: Pipeline, case: Case, link: Rate, cost: CodecCost) -> list[Cell]:
    count = len(case.profile.checkpoints)

    def rate(decisions: Sequence[str]) -> Sample:
        return _rate(case, [bench.follow(case, decisions) for _ in range(ROUNDS + 1)])

    found = plan_for(case.profile, codec=cost, cache=case.cache, link=link)
    cells: list[Cell] = [rate(["raw"] * count)]
    if bench.packer.problem:
        cells += [None, None]
    else:
        cells += [rate(decisions) for decisions in (["alone"] * count, found.best.decisions)]
    return [*cells, found.best.throughput / 1e9, _counts(found.best.counts)]


def _counts(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


class NvCompPacker:
    """nvCOMP's Bitcomp through its Python package.

    Attributes:
        problem: why it cannot be used; "" where it can.
    """

    def __init__(self, stream: Stream) -> None:
        self.problem, self._codec = "", None
        try:
            from nvidia import nvcomp

            self._as_array = nvcomp.as_array
            self._codec = nvcomp.Codec(algorithm="Bitcomp", cuda_stream=stream.ptr)
        except Exception as why:  # The package may be there and its library not.
            self.problem = f"{type(why).__name__}: {why}"

    def pack(self, source: Any) -> tuple[int, int, Any]:
        """Address and bytes of what an array of bytes becomes, and what owns that memory."""
        assert self._codec is not None
        packed = self._codec.encode(self._as_array(source))
        address = packed.__cuda_array_interface__["data"][0]
        return int(address), int(getattr(packed, "buffer_size", packed.size)), packed


@dataclass(frozen=True, slots=True)
class _Sent:
    """Something that is on its way: its bytes, what marks its end, and what owns its memory."""

    size: int
    event: int
    owner: Any


class Pipeline:
    """Follows schedules by hand."""

    def __init__(self, cuda: Cuda, asked: Accumulated, app: Stream, packer: Any) -> None:
        """Takes the memory that it needs.

        Args:
            cuda: the device.
            asked: the sizes.
            app: the application's stream.
            packer: compresses on it, as `NvCompPacker` does.
        """
        self._cuda, self._asked, self._app, self.packer = cuda, asked, app, packer
        self._copies = cuda.stream()
        self._state = cuda.array(asked.size)
        self._arena = cuda.array(max(asked.cache, *asked.caches))
        self._pinned = cuda.host_alloc(asked.size * asked.checkpoints)
        self._events = [cuda.event() for _ in range(2 * asked.checkpoints)]
        self._sent: deque[_Sent] = deque()
        self._used = self._held = self._down = self._marks = 0

    def close(self) -> None:
        """Gives the memory back."""
        self._cuda.free_host(self._pinned)
        for event in self._events:
            self._cuda.destroy_event(event)

    def fill(self, ratio: float) -> None:
        """Makes the checkpoint: one value in `ratio` is random, the rest are zeros."""
        words = array("f", bytes(self._asked.size))
        dice = random.Random(1)
        for place in range(max(1, int(len(words) / ratio))):
            words[place] = dice.random()
        place = self._cuda.address(self._state)
        self._cuda.up(place, words.buffer_info()[0], self._asked.size, self._app)
        self._cuda.wait(self._app)

    def follow(self, case: Case, decisions: Sequence[str]) -> float:
        """Seconds of a run."""
        self._sent.clear()
        self._used = self._held = self._down = self._marks = 0
        with self._cuda.current(self._app):
            self._cuda.wait(self._app)
            begin = time.perf_counter()
            for one, decision in zip(case.profile.checkpoints, decisions, strict=True):
                self._cuda.spin(one.interval, self._app)
                self._step(decision, one.raw, case.cache)
            self._cuda.wait(self._app)
            self._cuda.wait(self._copies)
            return time.perf_counter() - begin

    def _step(self, decision: str, size: int, cache: int) -> None:
        base, state = self._cuda.address(self._arena), self._cuda.address(self._state)
        if decision == "raw":
            place = base + self._room(size, cache)
            self._cuda.within(place, state, size, self._app)
            return self._send(place, size, None)
        # Held checkpoints lie one after the other at the arena's start: they are one input.
        total = self._held + size
        self._room(size if decision == "hold" else size + total + total // 300 + 4096, cache)
        self._cuda.within(base + self._held, state, size, self._app)
        self._held = total
        if decision == "hold":
            return None
        address, packed, owner = self.packer.pack(self._arena[:total])
        self._held = 0
        return self._send(address, packed, owner)

    def _room(self, needed: int, cache: int) -> int:
        """Lets the application wait, on the device, for the transfers that make room; a place."""
        while self._sent and self._used + self._held + needed > cache:
            oldest = self._sent.popleft()
            self._used -= oldest.size
            self._cuda.hold(self._app, oldest.event)
        # Where the bytes lie does not matter to the time; they must not leave the arena.
        return max(0, min(self._used + self._held, len(self._arena) - needed)) // 256 * 256

    def _send(self, address: int, size: int, owner: Any) -> None:
        ready, done = self._events[self._marks : self._marks + 2]
        self._marks += 2
        self._cuda.record(ready, self._app)
        self._cuda.hold(self._copies, ready)
        self._cuda.down(self._pinned + self._down, address, size, self._copies)
        self._cuda.record(done, self._copies)
        self._down += size
        self._used += size
        self._sent.append(_Sent(size, done, owner))

    def spool(self, case: Case, codec: Any, accumulates: bool) -> tuple[list[float], int]:
        """Seconds of the same runs with a spool, to the end of its flush, and the most checkpoints
        that it has encoded together.
        """
        host = len(case.profile.checkpoints) * (self._asked.size + FRAME)
        together = self._asked.together if accumulates else None
        options = {
            "device_memory": case.cache,
            "host_memory": host,
            "codec": codec,
            "together": together,
        }
        with open_spool(self._cuda, **options) as spool, self._cuda.current(self._app):
            wait_until_ready(spool)
            seconds = [self._one_run(spool, case)]
            # The kernels for its launches are compiled meanwhile.
            wait_until_ready(spool)
            seconds += [self._one_run(spool, case) for _ in range(ROUNDS)]
            return seconds, spool.stats().codec.most_together

    def _one_run(self, spool: Any, case: Case) -> float:
        values = self._state.view("float32")
        self._cuda.wait(self._app)
        begin = time.perf_counter()
        for version, one in enumerate(case.profile.checkpoints):
            self._cuda.spin(one.interval, self._app)
            spool.save(version, values)
        self._cuda.wait(self._app)
        spool.flush()
        seconds = time.perf_counter() - begin
        for version in spool.versions():
            spool.discard(version)
        return seconds
