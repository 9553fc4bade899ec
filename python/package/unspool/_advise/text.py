"""An advice as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from unspool._advise.choosing import Choice
from unspool._advise.line import duration
from unspool._advise.model import Level, efficiency
from unspool._advise.outcome import Advice
from unspool._advise.problem import Place, Problem
from unspool.stats import size, table, time

__all__ = ["report", "sentence"]


def report(advice: Advice) -> str:
    """Everything: what was given and measured, the table, what is left out, and what to do."""
    blocks = [_head(advice.problem), _choices(advice)]
    if advice.left_out:
        blocks.append("\n".join(f"left out: {one.name}: {one.reason}" for one in advice.left_out))
    if advice.notes:
        blocks.append("\n".join(f"note: {one}" for one in advice.notes))
    return "\n\n".join([*blocks, sentence(advice)])


def _head(problem: Problem) -> str:
    return "\n".join(_facts(problem))


def _facts(problem: Problem) -> Iterator[str]:
    ranks = f"{problem.ranks:,} rank{'s' if problem.ranks > 1 else ''}"
    yield (
        f"{ranks} with {size(problem.checkpoint_bytes)} each; the job computes for "
        f"{_long(problem.work)} and fails every {_long(problem.mtbf)} ({problem.mtbf_source})"
    )
    yield _place("disk", problem.disk)
    if problem.remote is not None:
        lost = 1.0 - problem.healed
        yield f"{_place('remote', problem.remote)}; needed after {lost:.0%} of the failures"
    for one in problem.codecs:
        yield (
            f"{one.name}: ratio {one.ratio:.3g}, encodes {_rate(one.encode)}, decodes "
            f"{_rate(one.decode)} ({one.source})"
        )


def _place(name: str, place: Place) -> str:
    where = "" if place.path is None else f" {place.path}"
    source = "given"
    if place.writers:
        source = f"measured with {place.writers} writer{'s' if place.writers > 1 else ''}"
    speeds = f"{_rate(place.write)} written and synced, {_rate(place.read)} read"
    return f"{name}{where}: {speeds}, by one rank ({source})"


def _choices(advice: Advice) -> str:
    """The table: columns of which nothing is known are not there."""
    known = [
        column for column in COLUMNS if any(column[1](one) is not None for one in advice.choices)
    ]
    rows = [tuple(column[1](one) or "-" for column in known) for one in advice.choices]
    return table([tuple(name for name, _ in known), *rows])


def _where(choice: Choice) -> str:
    if choice.copied is None:
        return choice.place
    return f"disk, {'each' if choice.copied == 1 else f'1 in {choice.copied}'} remote"


def _rate(rate: float) -> str:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if rate >= factor:
            return f"{rate / factor:.3g} {unit}/s"
    return f"{rate / 1e3:.3g} kB/s"


def _long(seconds: float) -> str:
    return duration(seconds) if seconds >= 60 else time(seconds)


def _some(value: float | None, text: str) -> str | None:
    return None if value is None else text.format(value)


COLUMNS = (
    ("codec", lambda one: one.name),
    ("where", _where),
    ("every", lambda one: _long(one.interval)),
    ("blocked", lambda one: time(one.blocked)),
    ("durable after", lambda one: time(one.durable)),
    ("efficiency", lambda one: f"{one.efficiency:.2%}"),
    ("whole job", lambda one: _long(one.seconds)),
    ("a week on disk", lambda one: size(round(one.weekly_bytes)) if one.weekly_bytes else None),
    ("drive lasts", lambda one: _weeks(one.drive_weeks)),
    ("work a price", lambda one: _some(one.work_per_price, "{:.4g} h")),
    ("energy", lambda one: _some(one.joules and one.joules / 3.6e6, "{:,.1f} kWh")),
    ("pays below", lambda one: None if one.break_even is None else _rate(one.break_even)),
)


def _weeks(weeks: float | None) -> str | None:
    if weeks is None or weeks == float("inf"):
        return None
    return f"{weeks:,.0f} weeks" if weeks < 520 else f"{weeks / 52.18:,.0f} years"


def sentence(advice: Advice) -> str:
    """What to do, and why."""
    best = advice.best
    words = [
        f"{'Take' if best.line else 'Best'}: {best.line or best.name}",
        f"It computes for {_long(best.interval)} between two checkpoints, and "
        f"{best.efficiency:.1%} of the time is work: {_long(best.seconds)} for the job, with "
        f"{best.failures:.3g} failures.",
    ]
    words += [*_why(advice), *_wear(advice)]
    return "\n".join(words)


def _why(advice: Advice) -> Iterator[str]:
    """The bandwidth below which each codec pays, against that of the place."""
    problem, seen = advice.problem, set()
    plain = {one.place: one.efficiency for one in advice.choices if one.name == "none"}
    for one in advice.choices:
        if one.break_even is None or one.name in seen or "increments" in one.name:
            continue
        seen.add(one.name)
        place = problem.place(one.place)
        name = "the remote place" if one.place == "remote" else "the disk"
        gain = one.efficiency - plain.get(one.place, 0.0)
        pays = "pays" if place.write < one.break_even else "does not pay"
        yield (
            f"{one.name} {pays} here: compressing pays where a rank writes less than "
            f"{_rate(one.break_even)}, and to {name} it writes {_rate(place.write)} "
            f"({100.0 * gain:+.2f} points of efficiency)."
        )


def _wear(advice: Advice) -> Iterator[str]:
    """How seldom checkpoints have to be for a drive that would not last."""
    best, problem = advice.best, advice.problem
    weeks = 260.0 if problem.prices is None else problem.prices.weeks
    if best.drive_weeks is None or best.drive_weeks >= weeks:
        return
    interval = (best.interval + best.blocked) * weeks / best.drive_weeks
    level = Level(best.blocked, best.durable, best.restart)
    share = efficiency(interval, level, problem.mtbf)
    yield (
        f"The drive would be worn out after {_weeks(best.drive_weeks)}. With "
        f'every="{duration(interval)}" it lasts {_weeks(weeks)}, and {share:.1%} of the time is '
        "work."
    )
