"""Which schedule is fastest on a machine, and what it costs: `unspool.plan`, `unspool plan`.

Every candidate is run by the real core of a spool in virtual time, at the speeds of this machine's
links (measured by `measure_links`) or of another one's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from typing import Any

from .. import schedules
from .._adjoint.options import LOOKAHEAD
from .._unspool import forecast as forecast_of
from ..errors import Error, OptionError
from ..schedules.base import Native, ending
from ..stats import size, time
from .coding import Compression
from .links import Links
from .plans import Candidate, LeftOut, LinkBytes, NoPlanError, Plan, Problem, WhatIf, figures
from .proposals import KINDS, Proposal, proposals
from .sizes import Tiers, bytes_of, count_of, duration_of, tiers_of

#: Saves, restores and reverse steps in all that are forecast before what can only be slower is left
#: out: a few seconds of work.
WORK = 1_000_000

#: Steps of a schedule that stands for one with too many actions, and the most actions of one.
SAMPLE, MOST = 30_000, 1 << 20

#: Schedules that take up to so many times as long as the best one may be best with other sizes.
NEAR = 1.1


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is forecast, in saves, restores and reverse steps.

    Attributes:
        most: after so many, only what may be faster than the best.
        all: after so many, nothing more, whatever it may be.
    """

    most: float
    all: float

    def reason(self, least: float, best: float, work: float) -> str | None:
        """Why a schedule is left out that takes `least` seconds or more, if it is."""
        if least > best and work > self.most:
            return f"takes at least {time(least)}: slower than the best"
        if best < math.inf and work > self.all:
            return "was not looked at: a plan is to take a small part of the run"
        return None


def plan(
    steps: int,
    state_bytes: int | str,
    step_seconds: float | str,
    *,
    device_memory: Any = None,
    host_memory: Any = None,
    disk: Any = None,
    device: str = "auto",
    reverse_seconds: float | str | None = None,
    reverse_bytes: int | str | None = None,
    links: Links | None = None,
    compression: Compression | None = None,
    progress: Callable[[str], object] | None = None,
) -> Plan:
    """Compares schedules for an adjoint computation: which is fastest, and what each one costs.

    `print` the result for a table; `.best.schedule` goes into `unspool.adjoint`, and
    `Spool(**plan.best.options)` opens the spool that it is for.

    Arguments:
        steps: of the forward pass.
        state_bytes: of one state, as an integer or as text such as `"256MiB"`.
        step_seconds: of one forward step, without any save; or text such as `"3ms"`.
        device_memory: the size of the device tier, in bytes or as text such as `"4GiB"`; `"auto"`
            takes what a `Spool` would take now; None for none.
        host_memory: that of the host tier, likewise. Neither has to fit into this machine.
        disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, a `Disk`, or only
            a size, for a machine that is not this one.
        device: the place of the device tier, as in `Spool`.
        reverse_seconds: of one reverse step; as `step_seconds` without it.
        reverse_bytes: of the part of a state that a reverse step reads; the whole without it.
        links: the speeds of the machine, from `measure_links` or a file; None measures this one,
            for about two seconds.
        compression: what is known of the codec of the spool: `Compression(ratio=4)`, or
            `Compression.of(codec, sample)`, which tries it. Without it states are kept as they are.
        progress: is called with the name of each schedule that is looked at: with very many steps
            one takes minutes.

    Raises:
        OptionError: a figure makes no sense, or the links are those of other tiers.
        NoPlanError: no schedule fits into these tiers.
        LinksError: the links could not be measured in time.
        StorageError, DeviceError: no spool can be opened to measure them.
    """
    problem = problem_of(steps, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device_memory, host_memory, disk, device)
    problem, links = _settled(problem, tiers, links, compression)
    return make_plan(problem, tiers, links, progress=progress)


def predict(
    schedule: Any,
    state_bytes: int | str,
    step_seconds: float | str,
    *,
    steps: int | None = None,
    device_memory: Any = None,
    host_memory: Any = None,
    disk: Any = None,
    device: str = "auto",
    reverse_seconds: float | str | None = None,
    reverse_bytes: int | str | None = None,
    links: Links | None = None,
    compression: Compression | None = None,
) -> Candidate:
    """What one schedule costs on a spool with all of these tiers.

    Arguments:
        schedule: a schedule, or whatever `unspool.schedules.as_schedule` makes one of.
        steps: their number, where the schedule does not know it.
        state_bytes, step_seconds, device_memory, host_memory, disk, device, reverse_seconds,
            reverse_bytes, links, compression: as for `plan`.

    Raises:
        OptionError: a figure makes no sense, or the links are those of other tiers.
        Error: the schedule breaks a rule, or the tiers cannot hold what it keeps. A schedule of
            your own has to know its number of steps.
        LinksError, StorageError, DeviceError: as for `plan`.
    """
    chosen = schedules.as_schedule(schedule)
    count = ending(chosen, steps)
    problem = problem_of(count, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device_memory, host_memory, disk, device)
    problem, links = _settled(problem, tiers, links, compression)
    return candidate_of(problem, repr(chosen), chosen, tiers, links)


def measure_links(
    device_memory: Any = None,
    host_memory: Any = None,
    disk: Any = None,
    *,
    device: str = "auto",
    checkpoint_bytes: int | str = 32 << 20,
    limit: float = 2.0,
    work: Callable[[], object] | None = None,
    arrays: int = 1,
) -> Links:
    """Measures how fast this machine moves checkpoints between an application and these tiers.

    The tiers of the probe are small, whatever the sizes given, and nothing stays behind.

    Arguments:
        device_memory: the size of the device tier, as in `Spool`, or None for none.
        host_memory: that of the host tier.
        disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, or a `Disk`.
        device: the place of the device tier, as in `Spool`.
        checkpoint_bytes: of the application; larger checkpoints than 32 MiB are as fast as those.
        limit: about how long the probe takes at most, in seconds; a GPU takes a second more.
        work: does a little of the application's own computing, such as one step, 20 ms at most: it
            shows by how much moving bytes slows computing. Without it, one thread copies memory.
        arrays: of a checkpoint, of about equal size: the CPU copies many small ones more slowly.

    Raises:
        OptionError: an option makes no sense, or the disk tier has no directory.
        LinksError: the tiers are so slow that nothing was moved within `limit`.
        StorageError, DeviceError: no such spool can be opened.
    """
    from .measuring import measure

    if work is not None and not callable(work):
        raise OptionError(f"work={work!r:.60}: that is not a function.")
    tiers = tiers_of(device_memory, host_memory, disk, device)
    return measure(tiers, bytes_of("checkpoint_bytes", checkpoint_bytes), limit, work, arrays)


def problem_of(
    steps: Any,
    state_bytes: Any,
    step_seconds: Any,
    reverse_seconds: Any = None,
    reverse_bytes: Any = None,
) -> Problem:
    """The computation as people give it.

    Raises:
        OptionError: a figure makes no sense.
    """
    state = bytes_of("state_bytes", state_bytes)
    part = state if reverse_bytes is None else bytes_of("reverse_bytes", reverse_bytes)
    if part > state:
        raise OptionError(
            f"reverse_bytes={reverse_bytes!r} is more than state_bytes={state_bytes!r}: what a "
            "reverse step reads is a part of the state."
        )
    forward = duration_of("step_seconds", step_seconds)
    reverse = forward
    if reverse_seconds is not None:
        reverse = duration_of("reverse_seconds", reverse_seconds)
    return Problem(count_of("steps", steps, 2**53 - 1), state, part, forward, reverse)


def _settled(problem: Problem, tiers: Tiers, links: Any, codec: Any) -> tuple[Problem, Links]:
    """The links that were given, or those of this machine; the problem with the codec, now that it
    is known where the arrays are."""
    from .measuring import measure

    if links is None:
        links = measure(tiers, problem.state_bytes)
    if not isinstance(links, Links):
        raise OptionError(
            f"links={links!r:.60}: give Links, such as Links.load_from(path), or leave it out."
        )
    if codec is None:
        return problem, links
    if not isinstance(codec, Compression):
        raise OptionError(
            f"compression={codec!r:.60}: give a Compression, such as "
            "unspool.advice.Compression(ratio=4), or leave it out."
        )
    return replace(problem, compression=codec.settled(links.on_gpu)), links


def what_if(found: Plan) -> tuple[WhatIf, ...]:
    """What the best schedule would cost with half and with twice of each tier in memory.

    Nothing is measured again: the links stay as they are. Only kinds of schedules are predicted
    that are among the best ones of the plan.
    """
    return resized(found)


def resized(found: Plan, limits: Limits | None = None) -> tuple[WhatIf, ...]:
    """See `what_if`; with limits to the work of each plan."""
    near = [one for one in found.candidates if one.seconds <= NEAR * found.best.seconds]
    kinds = {type(one.schedule).__name__ for one in near} | {"StoreAll"}
    rows = []
    for name in found.tiers.names:
        for capacity in (found.tiers.capacity[name] // 2, 2 * found.tiers.capacity[name]):
            if name == "disk" or not capacity:
                continue
            try:
                tiers = found.tiers.resized(name, capacity)
                best = make_plan(found.problem, tiers, found.links, kinds, limits=limits).best
            except NoPlanError:
                best = None
            rows.append(WhatIf(name, capacity, best))
    return tuple(rows)


def forecast(schedule: Any, job: dict[str, Any], sample: Any = None) -> Mapping[str, Any]:
    """The extension's forecast of a schedule.

    Where it has too many actions, that is made from `sample`: the same for fewer steps.
    """
    drawn = schedule if isinstance(schedule, Native) else schedules.Listed(schedule)
    return forecast_of(drawn.core, job, None if sample is None else sample.core)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A proposal with its schedule, and what that costs at least, and with its transfers."""

    proposal: Proposal
    schedule: Any
    sample: Any
    work: int
    least: float
    likely: float


def make_plan(
    problem: Problem,
    tiers: Tiers,
    links: Links,
    kinds: Container[str] = KINDS,
    progress: Callable[[str], object] | None = None,
    limits: Limits | None = None,
) -> Plan:
    """Predicts everything of these kinds that is worth it; tells `progress` of each schedule.

    Raises:
        NoPlanError: nothing fits.
        OptionError: the links are those of other tiers.
    """
    links, told = links.of(tiers.names), progress or (lambda _: None)
    limits = limits or Limits(WORK, math.inf)
    ready: list[_Ready] = []
    found: list[Candidate] = []
    left_out: list[LeftOut] = []
    for proposal in proposals(problem, tiers, links, kinds):
        if not proposal.fits:
            left_out.append(LeftOut(proposal.name, _too_large(problem, proposal)))
            continue
        told(proposal.name)
        with _leaving_out(proposal.name, left_out):
            ready.append(_ready(problem, proposal, links))
    work, best = 0, math.inf
    # Those first that are likely to be the fastest; with much work done, only what may be faster
    # than these, and at last none.
    for one in sorted(ready, key=lambda one: one.likely):
        name = one.proposal.name
        reason = limits.reason(one.least, best, work + one.work)
        if reason is not None:
            left_out.append(LeftOut(name, reason))
            continue
        work += one.work
        told(name)
        with _leaving_out(name, left_out):
            used = one.proposal.tiers
            found.append(candidate_of(problem, name, one.schedule, used, links, one.sample))
            best = min(best, found[-1].seconds)
    if not found:
        raise NoPlanError(_nothing(problem, tiers, left_out))
    found.sort(key=lambda candidate: candidate.seconds)
    return Plan(problem, tiers, links, tuple(found), tuple(left_out))


@contextmanager
def _leaving_out(name: str, left_out: list[LeftOut]) -> Iterator[None]:
    """Leaves a schedule out where it cannot be made or carried out."""
    try:
        yield
    except Error as error:
        left_out.append(LeftOut(name, str(error)))


def _ready(problem: Problem, proposal: Proposal, links: Links) -> _Ready:
    schedule = proposal.make(problem.steps)
    counts, count = schedule.counts(), problem.reverse_bytes
    short = problem.steps <= SAMPLE or proposal.need.states >= SAMPLE
    sample = None if short else proposal.make(SAMPLE)
    least = problem.least_seconds(counts.advances)
    least += counts.saves * problem.save_seconds(links, count)
    least += counts.restores * problem.restore_seconds(links, count)
    work = min(counts.saves + counts.restores + problem.steps, MOST)
    likely = max(least, _transfer_seconds(problem, proposal, links))
    return _Ready(proposal, schedule, sample, work, least, likely)


def _transfer_seconds(problem: Problem, proposal: Proposal, links: Links) -> float:
    """How long the slowest link takes to carry what the faster tiers do not hold, and back."""
    names, rooms = proposal.tiers.names, proposal.tiers.capacity
    if len(names) == 1 or proposal.kind == "MultiLevel":
        # The latter is made for what each tier costs.
        return 0.0
    over = proposal.need.room(problem) - sum(rooms[name] for name in names[:-1])
    link = links.links[len(names) - 2]
    return max(0, over) * (1 / link.flush.bytes_per_second + 1 / link.prefetch.bytes_per_second)


def candidate_of(
    problem: Problem, name: str, schedule: Any, tiers: Tiers, links: Links, sample: Any = None
) -> Candidate:
    """Predicts one schedule on a spool with these tiers; `sample` is as for `forecast`.

    Raises:
        Error: it cannot be carried out with them.
    """
    found = forecast(schedule, job_of(problem, tiers, links), sample)
    counts, lead, codec = found["counts"], found["lead"], problem.compression
    stalls = ("save_stall_seconds", "restore_stall_seconds")
    times = ("seconds", "compute_seconds", "copy_seconds", *stalls)
    moved = zip(pairwise(tiers.names), found["link_bytes"], strict=False)
    return Candidate(
        name=name,
        schedule=schedule,
        tiers=tiers.names,
        options=tiers.options() | ({"codec": codec.codec} if codec and codec.codec else {}),
        **{name: found[name] for name in times},
        forward_steps=counts["advances"],
        recomputed_steps=max(0, counts["advances"] - (problem.steps - 1)),
        saves=counts["saves"],
        restores=counts["restores"],
        peak_copies=counts["peak"],
        peak_bytes=dict(found["peak_bytes"]),
        links=tuple(LinkBytes(*pair, *both) for pair, both in moved),
        lead=None if lead is None else int(lead[1]),
    )


def job_of(problem: Problem, tiers: Tiers, links: Links) -> dict[str, Any]:
    """What the extension's forecast is asked; sizes in bytes, times in seconds."""
    chosen, codec = links.of(tiers.names), problem.compression
    ways = ("flush", "prefetch")
    return {
        **figures(problem),
        "tiers": list(tiers.capacity.items()),
        "links": [
            {f"{way}_rate": getattr(link, way).bytes_per_second for way in ways}
            | {f"{way}_latency": getattr(link, way).latency for way in ways}
            | {"contention": link.contention}
            for link in chosen.links
        ],
        "save": astuple(chosen.save),
        "restore": astuple(chosen.restore),
        "first_touch": chosen.first_touch,
        "lookahead": LOOKAHEAD,
        "on_gpu": chosen.on_gpu,
        "compression": codec
        and {
            "ratio": codec.ratio,
            "encode": astuple(codec.encode),
            "decode": astuple(codec.decode),
        },
    }


def _too_large(problem: Problem, proposal: Proposal) -> str:
    """What is needed, and what there is."""
    needed, there = proposal.need.room(problem), sum(proposal.tiers.capacity.values())
    names = " and ".join(proposal.tiers.names)
    have = "has" if len(proposal.tiers.names) == 1 else "together have"
    return f"does not fit: it keeps up to {size(needed)}, and {names} {have} {size(there)}"


def _nothing(problem: Problem, tiers: Tiers, left_out: list[LeftOut]) -> str:
    """Why there is no plan, and what to do."""
    largest = max(tiers.capacity.values())
    if largest < problem.state_bytes:
        return (
            f"No schedule can do with these tiers: one state has {size(problem.state_bytes)}, "
            f"and the largest tier {size(largest)}. Make a tier larger than one state."
        )
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in left_out[:3])
    return f"No schedule can do with these tiers ({reasons}). Make a tier larger."
