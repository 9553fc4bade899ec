"""Part `shot`: the paper's shot with each way of preparing the host buffer, and with a spool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import unspool
from unspool.stats import size as size_text
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import Warmth, available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.prepare import STRATEGIES, Strategy
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.shot import Blocked, Shot, run_spool, run_strategy

__all__ = ["run", "selected"]

SPOOL = "unspool"

COLUMNS = (
    "way",
    "start s",
    "saves s",
    "start + saves s",
    "restores s",
    "all blocked s",
    "registered after s",
    "forward s",
)

NOTES = (
    "blocked: preparing, and from each call until the copy within the device is done; the paper's "
    "measures are 'start + saves' and 'all blocked'",
    "the paper's strategies have one thread that flushes and one that prefetches; what stays in "
    "the device tier until its restore is never flushed",
    "'registered after' is from the beginning; a strategy may still be preparing when the forward "
    "pass ends",
)


def selected(strategies: Iterable[Strategy], plan: Plan) -> list[Strategy]:
    """Those whose names contain one of the words that were given. Without words: all, the slow
    ones only when everything is asked for.
    """
    words = plan.strategies
    if not words:
        return [one for one in strategies if plan.everything or not one.slow]
    return [one for one in strategies if any(word in one.name for word in words)]


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for each compute interval."""
    for interval in plan.shot_intervals:
        shot = Shot(
            plan.shot_checkpoints, plan.checkpoint, plan.device_tier, interval, plan.touch_threads
        )
        report.show(table_of(cuda, plan, shot, report))


def table_of(cuda: Cuda, plan: Plan, shot: Shot, report: Report) -> Table:
    """One shot in every way."""
    title = (
        f"A shot of {shot.checkpoints} checkpoints of {size_text(shot.size)}, device tier "
        f"{size_text(shot.cache)}, {shot.interval * 1e3:.3g} ms of compute between them, "
        f"{shot.touch_threads} threads touch"
    )
    table = report.begin(Table("shot", title, COLUMNS, notes=list(NOTES)))
    if not fits(shot.total, available_memory()):
        free = size_text(available_memory() or 0)
        table.note(f"left out: it needs {size_text(shot.total)} of host memory, {free} are free")
        return table
    left_out = [one.name for one in STRATEGIES if one.slow]
    if not plan.strategies and not plan.everything:
        table.note(f"with --everything only: {', '.join(left_out)}")
    warmth = Warmth(plan.touch_threads, plan.warm != 0)

    def add(name: str, run: Callable[[], Blocked]) -> None:
        def once() -> Blocked:
            warmth.bring(shot.total)
            return run()

        _add(table, plan, name, once)

    for strategy in selected(STRATEGIES, plan):
        add(strategy.name, partial(run_strategy, cuda, shot, strategy))
    if not plan.strategies or SPOOL in plan.strategies:
        try:
            add(SPOOL, partial(run_spool, cuda, shot))
        except (unspool.Error, TypeError) as error:
            table.note(f"the spool refused: {error}")
    table.note(str(warmth))
    return table


def _add(table: Table, plan: Plan, name: str, run: Callable[[], Blocked]) -> None:
    """A row of several shots: as many as fit into the time that a figure may take."""
    found = [run()]
    while len(found) < min(plan.rounds, 3) and sum(one.forward for one in found) < plan.budget:
        found.append(run())
    wrong = sum(one.wrong for one in found)
    if wrong:
        table.note(f"{name}: {wrong} restores gave other bytes than were saved")

    def sample(figure: Callable[[Blocked], float]) -> Sample:
        return Sample.of(map(figure, found))

    known = [one.registered for one in found if one.registered is not None]
    table.add(
        name,
        sample(lambda one: one.start),
        sample(lambda one: one.saves),
        sample(lambda one: one.checkpointing),
        sample(lambda one: one.restores),
        sample(lambda one: one.total),
        Sample.of(known) if known else None,
        sample(lambda one: one.forward),
    )
