"""Predicts proposals: each schedule is run by the real core of a spool, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from unspool._adjoint import LOOKAHEAD
from unspool._plan.links import Links, Rate
from unspool._plan.outcome import Candidate, LeftOut, LinkBytes, NoPlanError, Plan
from unspool._plan.problem import Problem
from unspool._plan.proposals import KINDS, Proposal, proposals
from unspool._plan.sizes import Tiers
from unspool.errors import Error
from unspool.stats import size as size_text
from unspool.stats import time as time_text

__all__ = ["candidate_of", "forecast", "make_plan"]

T = TypeVar("T")

#: Saves, restores and reverse steps in all that are forecast before what can only be slower is left
#: out: a few seconds of work.
WORK = 1_000_000

#: Steps of a schedule that stands for one with too many actions, and the most actions of one.
SAMPLE, MOST = 30_000, 1 << 20


def forecast(schedule: Any, job: dict[str, Any], sample: Any = None) -> Mapping[str, Any]:
    """The extension's forecast of a schedule.

    Where it has too many actions, that is made from `sample`: the same for fewer steps.
    """
    from unspool import _unspool
    from unspool.schedules import Listed
    from unspool.schedules.base import Native

    drawn = schedule if isinstance(schedule, Native) else Listed(schedule)
    core = None if sample is None else sample.core
    found: Mapping[str, Any] = _unspool.forecast(drawn.core, job, core)
    return found


@dataclass(frozen=True, slots=True)
class _Ready:
    """A proposal with its schedule, and what that costs at least."""

    proposal: Proposal
    schedule: Any
    sample: Any
    work: int
    least: float


def make_plan(
    problem: Problem,
    tiers: Tiers,
    links: Links,
    kinds: Container[str] = KINDS,
    progress: Callable[[str], object] | None = None,
) -> Plan:
    """Predicts everything of these kinds that is worth it; tells `progress` of each schedule.

    Raises:
        NoPlanError: nothing fits.
        OptionError: the links are those of other tiers.
    """
    links = links.of(tiers.names)
    ready: list[_Ready] = []
    left_out: list[LeftOut] = []
    for proposal in proposals(problem, tiers, links, kinds):
        if proposal.fits:
            if progress is not None:
                progress(proposal.name)
            _put(_ready(problem, proposal, links), ready, left_out)
        else:
            left_out.append(LeftOut(proposal.name, _too_large(problem, proposal)))
    found = _predict_all(problem, links, ready, left_out, progress)
    if not found:
        raise NoPlanError(_nothing(problem, tiers, left_out))
    found.sort(key=lambda candidate: candidate.seconds)
    return Plan(problem, tiers, links, tuple(found), tuple(left_out))


def _put(one: T | LeftOut, kept: list[T], left_out: list[LeftOut]) -> None:
    if isinstance(one, LeftOut):
        left_out.append(one)
    else:
        kept.append(one)


def _predict_all(
    problem: Problem,
    links: Links,
    ready: Iterable[_Ready],
    left_out: list[LeftOut],
    progress: Callable[[str], object] | None,
) -> list[Candidate]:
    """Forecasts, those first that may be the fastest; with much work done, only those."""
    found: list[Candidate] = []
    work, best = 0, math.inf
    for one in sorted(ready, key=lambda one: one.least):
        if one.least > best and work + one.work > WORK:
            reason = f"takes at least {time_text(one.least)}: slower than the best"
            left_out.append(LeftOut(one.proposal.name, reason))
            continue
        work += one.work
        if progress is not None:
            progress(one.proposal.name)
        _put(_predicted(problem, one, links), found, left_out)
        best = min((candidate.seconds for candidate in found), default=math.inf)
    return found


def _ready(problem: Problem, proposal: Proposal, links: Links) -> _Ready | LeftOut:
    try:
        schedule = proposal.make(problem.steps)
        counts = schedule.counts()
        short = problem.steps <= SAMPLE or proposal.need.states >= SAMPLE
        sample = None if short else proposal.make(SAMPLE)
    except Error as error:
        return LeftOut(proposal.name, str(error))
    size = problem.reverse_bytes
    saving, restoring = problem.save_seconds(links, size), problem.restore_seconds(links, size)
    copies = counts.saves * saving + counts.restores * restoring
    least = problem.least_seconds(counts.advances) + copies
    work = min(counts.saves + counts.restores + problem.steps, MOST)
    return _Ready(proposal, schedule, sample, work, least)


def _predicted(problem: Problem, one: _Ready, links: Links) -> Candidate | LeftOut:
    name, tiers = one.proposal.name, one.proposal.tiers
    try:
        return candidate_of(problem, name, one.schedule, tiers, links, one.sample)
    except Error as error:
        return LeftOut(name, str(error))


def candidate_of(
    problem: Problem, name: str, schedule: Any, tiers: Tiers, links: Links, sample: Any = None
) -> Candidate:
    """Predicts one schedule on a spool with these tiers; `sample` is as for `forecast`.

    Raises:
        Error: it cannot be carried out with them.
    """
    found = forecast(schedule, job_of(problem, tiers, links), sample)
    counts = found["counts"]
    return Candidate(
        name=name,
        schedule=schedule,
        tiers=tiers.names,
        options=tiers.options() | _codec(problem),
        seconds=found["seconds"],
        compute_seconds=found["compute_seconds"],
        copy_seconds=found["copy_seconds"],
        save_stall_seconds=found["save_stall_seconds"],
        restore_stall_seconds=found["restore_stall_seconds"],
        forward_steps=counts["advances"],
        recomputed_steps=max(0, counts["advances"] - (problem.steps - 1)),
        saves=counts["saves"],
        restores=counts["restores"],
        peak_copies=counts["peak"],
        peak_bytes=dict(found["peak_bytes"]),
        links=_moved(tiers.names, found["link_bytes"]),
        lead=None if found["lead"] is None else int(found["lead"][1]),
    )


def _codec(problem: Problem) -> dict[str, Any]:
    """The keyword of a spool for its codec, if it was named."""
    compression = problem.compression
    named = compression is not None and compression.codec is not None
    return {"codec": compression.codec} if compression and named else {}


def _moved(names: tuple[str, ...], moved: Any) -> tuple[LinkBytes, ...]:
    pairs = zip(names, names[1:], moved, strict=False)
    return tuple(LinkBytes(fast, slow, down, up) for fast, slow, (down, up) in pairs)


def job_of(problem: Problem, tiers: Tiers, links: Links) -> dict[str, Any]:
    """What the extension's forecast is asked; sizes in bytes, times in seconds."""
    chosen = links.of(tiers.names)
    return {
        "tiers": list(tiers.capacity.items()),
        "links": [
            {
                "flush_rate": link.flush.bytes_per_second,
                "flush_latency": link.flush.latency,
                "prefetch_rate": link.prefetch.bytes_per_second,
                "prefetch_latency": link.prefetch.latency,
                "contention": link.contention,
            }
            for link in chosen.links
        ],
        "steps": problem.steps,
        "state_bytes": problem.state_bytes,
        "reverse_bytes": problem.reverse_bytes,
        "step_seconds": problem.step_seconds,
        "reverse_seconds": problem.reverse_seconds,
        "save": _pair(chosen.save),
        "restore": _pair(chosen.restore),
        "first_touch": chosen.first_touch,
        "lookahead": LOOKAHEAD,
        "on_gpu": chosen.on_gpu,
        "compression": _coded(problem),
    }


def _coded(problem: Problem) -> dict[str, Any] | None:
    """The codec as the extension's forecast takes it."""
    found = problem.compression
    if found is None:
        return None
    return {"ratio": found.ratio, "encode": _pair(found.encode), "decode": _pair(found.decode)}


def _pair(rate: Rate) -> tuple[float, float]:
    return rate.bytes_per_second, rate.latency


def _too_large(problem: Problem, proposal: Proposal) -> str:
    """What is needed, and what there is."""
    needed, there = proposal.need.room(problem), sum(proposal.tiers.capacity.values())
    names = " and ".join(proposal.tiers.names)
    have = "has" if len(proposal.tiers.names) == 1 else "together have"
    return (
        f"does not fit: it keeps up to {size_text(needed)}, and {names} {have} {size_text(there)}"
    )


def _nothing(problem: Problem, tiers: Tiers, left_out: list[LeftOut]) -> str:
    """Why there is no plan, and what to do."""
    largest = max(tiers.capacity.values())
    if largest < problem.state_bytes:
        return (
            f"No schedule can do with these tiers: one state has {size_text(problem.state_bytes)}, "
            f"and the largest tier {size_text(largest)}. Make a tier larger than one state."
        )
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in left_out[:3])
    return f"No schedule can do with these tiers ({reasons}). Make a tier larger."
