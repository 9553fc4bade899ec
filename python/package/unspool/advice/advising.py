"""Which checkpoints pay on a machine, before the run: `unspool.advise`, `unspool advise`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._types import record_of
from .._unspool import automatic_rule
from ..errors import OptionError
from ..stats import plain, size, table, time
from .coding import coded, copy_rate, is_on_gpu, sample_of
from .figure import draw
from .jobs import Choice, Prices, Problem, choices_of, duration
from .model import Level, efficiency
from .options import Costs, Failures, Waits
from .places import Place, directory_of, endurance_of
from .plans import LeftOut
from .power import Power
from .sizes import bytes_of, count_of, duration_of, number

#: A way that loses so much more of the time is as good, if it is simpler.
AS_GOOD = 0.001

#: The most ranks.
MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Advice:
    """Ways of keeping the checkpoints of a job, the most efficient first; `print` it for a table.

    Attributes:
        problem: what was given and measured.
        choices: what was compared, at least one.
        left_out: what cannot work, and why.
        notes: what was not measured, and why.
    """

    problem: Problem
    choices: tuple[Choice, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Choice:
        """The one to take: the most efficient one, or one without a codec or without a loss that is
        as good to a thousandth. Its `line` is None where that is to be done by hand."""
        least = self.choices[0].efficiency - AS_GOOD
        near = [one for one in self.choices if one.efficiency >= least]
        order = {"none": 0, "lossless": 1}
        return min(near, key=lambda one: (order.get(one.name, 2), -one.efficiency))

    @property
    def sentence(self) -> str:
        """What to do, why, and the line to copy."""
        return "\n".join(_sentence(self))

    def to_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`; None for
        what is not finite."""
        problem = asdict(self.problem)
        problem["codecs"] = [
            {**one, "codec": None if one["codec"] is None else str(given.codec)}
            for one, given in zip(problem["codecs"], self.problem.codecs, strict=True)
        ]
        told: dict[str, Any] = plain(
            {
                "problem": problem,
                "best": self.best.line,
                "sentence": self.sentence,
                "choices": [asdict(one) for one in self.choices],
                "left_out": [asdict(one) for one in self.left_out],
                "notes": self.notes,
            }
        )
        return told

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture: efficiency against the time between failures and against the bandwidth
        of the disk, for every choice, with this machine marked.

        Arguments:
            path: PNG or SVG, by its ending.

        Raises:
            MissingLibraryError: Matplotlib is not installed.
            OSError: the file cannot be written.
        """
        draw(self.problem, path)

    def __str__(self) -> str:
        """What was given and measured, the table, what is left out, and what to do."""
        blocks = ["\n".join(_facts(self.problem)), _choices(self)]
        if self.left_out:
            blocks.append("\n".join(f"left out: {one.name}: {one.reason}" for one in self.left_out))
        if self.notes:
            blocks.append("\n".join(f"note: {one}" for one in self.notes))
        return "\n\n".join([*blocks, self.sentence])


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


def _sentence(advice: Advice) -> Iterator[str]:
    """What to do, and why."""
    best = advice.best
    by_hand = f"by hand, as no option does it: {best.name}, to {_where(best)}"
    yield f"Take: {best.line or by_hand}"
    yield (
        f"It computes for {_long(best.interval)} between two checkpoints, and "
        f"{best.efficiency:.1%} of the time is work: {_long(best.seconds)} for the job, with "
        f"{best.failures:.3g} failures."
    )
    yield from _why(advice)
    yield from _wear(advice)


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


def advise(
    checkpoint: Any,
    disk: Any,
    *,
    remote: Any = None,
    ranks: int = 1,
    failures: Failures | None = None,
    work: float | str = "7d",
    waits: Waits | None = None,
    codecs: Sequence[Any] | None = None,
    increments: float | None = None,
    on_gpu: bool | None = None,
    writers: int = 1,
    costs: Costs | None = None,
) -> Advice:
    """Says how a long job should keep its checkpoints: how often, where, with which codec, and what
    each way costs in time, wear, money and energy.

    `print` the result for a table and a line to copy. What is given is not measured: with sizes and
    speeds alone it is arithmetic, for any machine.

    Arguments:
        checkpoint: the bytes of one rank's checkpoint, such as `"80GB"`, or its arrays (one, or a
            dictionary, or lists of them), on which the codecs are tried.
        disk: the directory where checkpoints go, which is measured with files that vanish, or
            `Place(write, read)`.
        remote: a second place, which survives the loss of the first, likewise.
        ranks: processes of the job, usually one a GPU; every one writes such a checkpoint.
        failures: how often the job fails, an `unspool.advice.Failures`.
        work: the time that the job computes, without checkpoints and failures.
        waits: for how long it waits besides, an `unspool.advice.Waits`.
        codecs: what to try on the arrays: `"lossless"`, a `Bound`, ... or
            `unspool.advice.Compression` with its figures. Without it, `"lossless"` where there
            are arrays.
        increments: the share of a checkpoint that changes until the next one, 0.2 for a fifth, to
            see what writing only that would bring.
        on_gpu: whether the arrays are on a GPU; without it, where they are now.
        writers: ranks of a node, which write to the same disk at the same time.
        costs: what it costs beside time, an `unspool.advice.Costs`.

    Raises:
        OptionError: a figure makes no sense, or every way takes longer to save a checkpoint than
            the job goes on between two failures.
        StorageError: a directory cannot be measured; the text says why.
        ArrayError, MissingLibraryError: the arrays cannot be encoded.
    """
    notes: list[str] = []
    # What costs no time is checked before anything is measured.
    failures = record_of("failures", failures, Failures)
    waits, costs = record_of("waits", waits, Waits), record_of("costs", costs, Costs)
    ranks, writers = count_of("ranks", ranks, MOST), count_of("writers", writers, MOST)
    every, source = _mtbf(failures.mtbf, failures.rank_mtbf, ranks)
    arrays = sample_of(checkpoint)
    whole = sum(one.nbytes for one in arrays or ()) or bytes_of("checkpoint", checkpoint)
    there = is_on_gpu(arrays or []) if on_gpu is None else bool(on_gpu)
    healed, work = number("healed", failures.healed, 0.0, 1.0), duration_of("work", work, 1e-3)
    restart = duration_of("restart", waits.restart)
    if increments is not None:
        increments = number("increments", increments, 1e-6, 1.0)
    _check_kind("power", costs.power, Power)
    _check_kind("prices", costs.prices, Prices)
    _check_place("disk", disk)
    _check_place("remote", remote)
    copy = _copy(waits.blocked, whole, there, bool(waits.blocking))
    tried = tuple(coded(one, arrays, there) for one in _codecs(codecs, arrays, notes))
    disk = _measured(disk, writers)
    problem = Problem(
        checkpoint_bytes=whole,
        ranks=ranks,
        mtbf=every,
        mtbf_source=source,
        disk=disk,
        remote=None if remote is None else _measured(remote, writers),
        healed=healed,
        work=work,
        blocking=bool(waits.blocking),
        copy=copy,
        restart=restart,
        codecs=tried,
        increments=increments,
        on_gpu=there,
        writers=writers,
        endurance=_endurance(costs.endurance, disk, notes),
        power=costs.power,
        prices=costs.prices,
    )
    choices, left_out = choices_of(problem)
    if not choices:
        raise OptionError(f"No way of keeping checkpoints works: {left_out[0].reason}")
    return Advice(problem, choices, left_out, tuple(notes))


def _mtbf(job: Any, rank: Any, ranks: int) -> tuple[float, str]:
    """The mean time between two failures of the job, and who says so."""
    if job is not None and rank is not None:
        raise OptionError("mtbf= is that of the job and rank_mtbf= that of one rank: give one.")
    if job is not None:
        return duration_of("mtbf", job, 1e-3), "given"
    if rank is not None:
        one = duration_of("rank_mtbf", rank, 1e-3)
        return one / ranks, f"given for one of {ranks:,} ranks"
    return automatic_rule(ranks)[0], "assumed: five years a rank, at most a day a job"


def _codecs(given: Any, arrays: Any, notes: list[str]) -> list[Any]:
    if given is None:
        if arrays is None:
            notes.append(
                "codecs were not tried: give arrays in place of a size, or codecs= with their "
                "figures"
            )
        return [] if arrays is None else ["lossless"]
    return [given] if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)


def _copy(blocked: Any, count: int, on_gpu: bool, blocking: bool) -> float:
    """Bytes per second at which a save takes the arrays away."""
    if blocked is None:
        return 8e9 if blocking else copy_rate(on_gpu)
    seconds = duration_of("blocked", blocked)
    return count / seconds if seconds else float("inf")


def _endurance(given: Any, disk: Place, notes: list[str]) -> float | None:
    if given != "auto":
        return None if given is None else float(bytes_of("endurance", given))
    if disk.path is None:
        raise OptionError('endurance="auto" asks the drive of a directory: name one as disk=.')
    found, why = endurance_of(disk.path)
    if found is None:
        notes.append(f'endurance: {why}; give it, such as endurance="600TB"')
    return found


def _check_place(name: str, given: Any) -> None:
    if given is None and name == "disk":
        raise OptionError("disk=: name a directory, or give its speeds as Place(write, read).")
    if given is not None and not isinstance(given, Place):
        directory_of(given)


def _measured(given: Any, writers: int) -> Place:
    return given if isinstance(given, Place) else Place.measured(given, writers=writers)


def _check_kind(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise OptionError(f"{name}={value!r:.60}: give unspool.advice.{kind.__name__}(...).")
