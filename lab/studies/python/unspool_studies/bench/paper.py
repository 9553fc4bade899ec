"""Part `shot`: the paper's shot with each way of preparing memory, and with a spool.

Every way is measured in processes of its own, one for each device that takes part: they begin
together, and one that fails or takes too long costs its own row alone.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from unspool.stats import size as size_text
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import MEMORY_NOTE, Warmth, available_memory, fits
from unspool_studies.bench.measure import Sample, ratio
from unspool_studies.bench.options import Plan
from unspool_studies.bench.prepare import DEVICE_STRATEGIES, STRATEGIES, Strategy
from unspool_studies.bench.processes import LIMIT, ProcessError, phase, started
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.shot import Blocked
from unspool_studies.bench.shot_process import SPOOL, Task
from unspool_studies.bench.sizes import shot_sizes
from unspool_studies.words import SIZES

__all__ = ["Row", "Setting", "run", "selected"]

COLUMNS = (
    "way",
    "memory",
    "start s",
    "saves s",
    "longest save ms",
    "start + saves s",
    "restores s",
    "all blocked s",
    "ready after s",
    "forward s",
)

NOTES = (
    "blocked: preparing, and from each call until the copy within the device is done; the paper's "
    "measures are 'start + saves' and 'all blocked'; of several processes the mean, as there",
    "the paper's strategies have one thread that flushes and one that prefetches; what stays in "
    "the device tier until its restore is never flushed",
    "'ready after' is from the beginning until all host memory is registered, or all of a device "
    "tier that holds the history is allocated; a strategy may still be preparing when the forward "
    "pass ends; of several processes the last, as 'longest save' is the longest of all",
    MEMORY_NOTE,
)

#: What the memory of a shot was that uses none of the host.
NO_HOST = "device"

COMMAND = (sys.executable, "-m", "unspool_studies.bench.shot_process")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rows of a table have in common.

    Attributes:
        kind: of sizes, for `shot_sizes`.
        checkpoints: of each process, where the sizes do not say.
        processes: how many, each on a device of its own.
        interval: seconds of compute before each save and each restore.
    """

    kind: str
    checkpoints: int
    processes: int
    interval: float

    def histories(self, plan: Plan) -> list[tuple[int, ...]]:
        """Sizes of the checkpoints of each process."""
        return [
            shot_sizes(self.kind, self.checkpoints, plan.checkpoint, process)
            for process in range(self.processes)
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one way.

    Attributes:
        setting: of its table.
        total: bytes of the history of a process; the mean of several.
        way: `SPOOL`, or the name of a strategy.
        memory: what `Warmth` said of it.
        found: a reading each; of several processes the mean time, the longest save, the last that
            was ready, and all wrong restores.
    """

    setting: Setting
    total: int
    way: str
    memory: str
    found: tuple[Blocked, ...]

    def sample(self, figure: Callable[[Blocked], float]) -> Sample:
        """A figure of each reading."""
        return Sample.of(map(figure, self.found))


def selected(strategies: Iterable[Strategy], plan: Plan, processes: int = 1) -> list[Strategy]:
    """Those whose names contain one of the words that were given. Without words: all, the slow
    ones only when everything is asked for.
    """
    words, found = plan.strategies, _possible(strategies, processes)
    if not words:
        return [one for one in found if plan.everything or not one.slow]
    return [one for one in found if any(word in one.name for word in words)]


def _possible(strategies: Iterable[Strategy], processes: int) -> list[Strategy]:
    """One process alone has nobody to register in parallel with."""
    return [one for one in strategies if processes > 1 or not one.parallel]


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for each compute interval of each history and number of processes."""
    rows: list[Row] = []
    warmth = Warmth(plan.touch_threads, plan.warm != 0)
    for setting in _settings(plan):
        table = report.begin(Table("shot", "", COLUMNS, notes=list(NOTES)))
        rows += _measured(cuda, plan, setting, table, warmth)
        report.show(table)
        if plan.shot_plot is not None and rows:
            # It needs Matplotlib, as the part does not.
            from unspool_studies.bench.shot_plot import draw

            draw(rows, plan.shot_plot)


def _settings(plan: Plan) -> Iterator[Setting]:
    for kind in plan.shot_sizes:
        # A trace has its own number.
        counts = plan.shot_checkpoints if kind in SIZES else (0,)
        for rest in itertools.product(counts, plan.shot_processes, plan.shot_intervals):
            yield Setting(kind, *rest)


def _measured(cuda: Cuda, plan: Plan, setting: Setting, table: Table, warmth: Warmth) -> list[Row]:
    """One shot in every way: fills the table."""
    histories = setting.histories(plan)
    totals = [sum(sizes) for sizes in histories]
    processes, largest = setting.processes, max(max(sizes) for sizes in histories)
    table.title = (
        f"A shot of {_counted(histories)} checkpoints, {setting.kind}, {size_text(max(totals))}, "
        f"the largest {size_text(largest)}, device tier {size_text(plan.device_tier)}, "
        f"{setting.interval * 1e3:.3g} ms of compute between them, {processes} process"
        f"{'es, each on its GPU' if processes > 1 else ''}, {plan.touch_threads} threads touch"
    )
    alone = max(totals) <= max(plan.device_tier, largest)
    needed = 0 if alone else sum(totals)
    if processes > cuda.devices():
        table.note(f"left out: {processes} processes need as many GPUs, here are {cuda.devices()}")
        return []
    if not fits(needed, available_memory()):
        free = size_text(available_memory() or 0)
        table.note(f"left out: it needs {size_text(needed)} of host memory, {free} are free")
        return []
    strategies = DEVICE_STRATEGIES if alone else STRATEGIES
    chosen = selected(strategies, plan, processes)
    left_out = [one.name for one in _possible(strategies, processes) if one not in chosen]
    if left_out and not plan.strategies:
        table.note(f"with --everything only: {', '.join(left_out)}")
    ways = [one.name for one in chosen]
    if not plan.strategies or SPOOL in plan.strategies:
        ways.append(SPOOL)
    rows: list[Row] = []
    for way in ways:
        for memory, found in _readings(plan, setting, way, needed, warmth, table).items():
            rows.append(Row(setting, sum(totals) // processes, way, memory, tuple(found)))
            _add(table, rows[-1])
    _compare(table, rows)
    if needed:
        table.note(str(warmth))
    return rows


def _counted(histories: list[tuple[int, ...]]) -> str:
    counts = sorted({len(sizes) for sizes in histories})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _readings(
    plan: Plan, setting: Setting, way: str, needed: int, warmth: Warmth, table: Table
) -> dict[str, list[Blocked]]:
    """Several shots, as many as fit into the time that a figure may take, by what their memory was.
    What fails is noted.
    """
    found: dict[str, list[Blocked]] = {}
    spent = 0.0
    with tempfile.NamedTemporaryFile(prefix="unspool-turn-") as turn:
        commands = _commands(plan, setting, way, Path(turn.name))
        longest = max(len(sizes) for sizes in setting.histories(plan))
        limit = LIMIT + 2 * longest * setting.interval
        try:
            with started(commands, {}) as processes:
                warmth.begin()
                for _ in range(min(plan.rounds, 3)):
                    memory = warmth.bring(needed) if needed else NO_HOST
                    said = [Blocked(**one) for one in phase(processes, "shot", limit)]
                    found.setdefault(memory, []).append(_together(said))
                    spent += max(one.forward for one in said)
                    if spent >= plan.budget:
                        break
        except ProcessError as error:
            table.note(f"{way}: {error}")
    return found


def _commands(plan: Plan, setting: Setting, way: str, turn: Path) -> list[tuple[str, ...]]:
    return [
        (
            *COMMAND,
            Task(
                way,
                plan.device if setting.processes == 1 else process,
                process,
                setting.kind,
                setting.checkpoints,
                plan.checkpoint,
                plan.device_tier,
                setting.interval,
                plan.touch_threads,
                str(turn),
            ).text(),
        )
        for process in range(setting.processes)
    ]


def _together(said: list[Blocked]) -> Blocked:
    """Mean times of processes, the longest save, the last that was ready, all wrong restores."""

    def mean(figure: Callable[[Blocked], float]) -> float:
        return sum(map(figure, said)) / len(said)

    ready = [one.registered for one in said if one.registered is not None]
    return Blocked(
        mean(lambda one: one.start),
        mean(lambda one: one.saves),
        max(one.longest for one in said),
        mean(lambda one: one.restores),
        mean(lambda one: one.forward),
        max(ready, default=None),
        sum(one.wrong for one in said),
    )


def _add(table: Table, row: Row) -> None:
    wrong = sum(one.wrong for one in row.found)
    if wrong:
        table.note(f"{row.way}: {wrong} restores gave other bytes than were saved")
    known = [one.registered for one in row.found if one.registered is not None]
    table.add(
        row.way,
        row.memory,
        row.sample(lambda one: one.start),
        row.sample(lambda one: one.saves),
        row.sample(lambda one: one.longest * 1e3),
        row.sample(lambda one: one.checkpointing),
        row.sample(lambda one: one.restores),
        row.sample(lambda one: one.total),
        Sample.of(known) if known else None,
        row.sample(lambda one: one.forward),
    )


def _compare(table: Table, rows: list[Row]) -> None:
    """Notes how many times as long as the spool each way blocked, with memory as the spool had."""
    for ours in (row for row in rows if row.way == SPOOL):
        base = ours.sample(lambda one: one.total)
        others = [
            f"{row.way} {ratio(row.sample(lambda one: one.total), base):.3g}"
            for row in rows
            if row.way != SPOOL and row.memory == ours.memory
        ]
        if others:
            table.note(f"all blocked, times that of {SPOOL} ({ours.memory}): {', '.join(others)}")
