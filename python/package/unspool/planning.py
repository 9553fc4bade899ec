"""Which schedule is fastest on a machine, and what it costs: `unspool.plan`, `unspool plan`.

Every candidate is run by the real core of a spool in virtual time, at the speeds of this machine's
links (measured by `measure_links`) or of another one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unspool._plan.compression import Compression
from unspool._plan.links import Link, Links, LinksError, Rate
from unspool._plan.outcome import Candidate, LeftOut, LinkBytes, NoPlanError, Plan, WhatIf
from unspool._plan.problem import Problem, problem_of
from unspool._plan.sizes import Tiers, bytes_of, tiers_of
from unspool.errors import OptionError

__all__ = [
    "Candidate",
    "Compression",
    "LeftOut",
    "Link",
    "LinkBytes",
    "Links",
    "LinksError",
    "NoPlanError",
    "Plan",
    "Rate",
    "Tiers",
    "WhatIf",
    "measure_links",
    "plan",
    "predict",
    "tiers_of",
    "what_if",
]

#: Schedules that take up to so many times as long as the best one may be best with other sizes.
NEAR = 1.1


def plan(
    steps: int,
    state_bytes: int | str,
    step_seconds: float,
    *,
    device: Any = None,
    host: Any = None,
    disk: Any = None,
    on: str = "auto",
    reverse_seconds: float | None = None,
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
        step_seconds: of one forward step, without any save.
        device: the device tier, in bytes or as text such as `"4GiB"`; `"auto"` takes what a `Spool`
            would take now; None for none.
        host: the host tier, likewise. Neither has to fit into this machine.
        disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, a `Disk`, or only
            a size, for a machine that is not this one.
        on: where the device tier is, as in `Spool`.
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
    from unspool._plan.forecasting import make_plan

    problem = problem_of(steps, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device, host, disk, on)
    links = _links_of(links, tiers, problem.state_bytes)
    compressed = _compressed(problem, compression, links)
    return make_plan(compressed, tiers, links, progress=progress)


def predict(
    schedule: Any,
    state_bytes: int | str,
    step_seconds: float,
    *,
    steps: int | None = None,
    device: Any = None,
    host: Any = None,
    disk: Any = None,
    on: str = "auto",
    reverse_seconds: float | None = None,
    reverse_bytes: int | str | None = None,
    links: Links | None = None,
    compression: Compression | None = None,
) -> Candidate:
    """What one schedule costs on a spool with all of these tiers.

    Arguments:
        schedule: a schedule, or whatever `unspool.schedules.as_schedule` makes one of.
        steps: their number, where the schedule does not know it.
        state_bytes, step_seconds, device, host, disk, on, reverse_seconds, reverse_bytes, links,
            compression: as for `plan`.

    Raises:
        OptionError: a figure makes no sense, or the links are those of other tiers.
        Error: the schedule breaks a rule, or the tiers cannot hold what it keeps. A schedule of
            your own has to know its number of steps.
        LinksError, StorageError, DeviceError: as for `plan`.
    """
    from unspool._plan.forecasting import candidate_of
    from unspool.schedules import as_schedule
    from unspool.schedules.base import ending

    chosen = as_schedule(schedule)
    count = ending(chosen, steps)
    problem = problem_of(count, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device, host, disk, on)
    links = _links_of(links, tiers, problem.state_bytes)
    coded = _compressed(problem, compression, links)
    return candidate_of(coded, repr(chosen), chosen, tiers, links)


def _compressed(problem: Problem, given: Any, links: Links) -> Problem:
    """The problem with the codec, now that it is known where the arrays are."""
    if given is None:
        return problem
    if not isinstance(given, Compression):
        raise OptionError(
            f"compression={given!r:.60}: give a Compression, such as "
            "unspool.planning.Compression(ratio=4), or leave it out."
        )
    return replace(problem, compression=given.settled(links.on_gpu))


def measure_links(
    device: Any = None,
    host: Any = None,
    disk: Any = None,
    *,
    on: str = "auto",
    checkpoint_bytes: int | str = 32 << 20,
    limit: float = 2.0,
    work: Callable[[], object] | None = None,
    arrays: int = 1,
) -> Links:
    """Measures how fast this machine moves checkpoints between an application and these tiers.

    The tiers of the probe are small, whatever the sizes given, and nothing stays behind.

    Arguments:
        device: the device tier, as in `Spool`, or None for none.
        host: the host tier.
        disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, or a `Disk`.
        on: where the device tier is, as in `Spool`.
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
    from unspool._plan.measuring import measure

    if work is not None and not callable(work):
        raise OptionError(f"work={work!r:.60}: that is not a function.")
    tiers = tiers_of(device, host, disk, on)
    return measure(tiers, bytes_of("checkpoint_bytes", checkpoint_bytes), limit, work, arrays)


def _links_of(given: Any, tiers: Tiers, checkpoint_bytes: int) -> Links:
    """The links that were given, or those of this machine."""
    from unspool._plan.measuring import measure

    if given is None:
        return measure(tiers, checkpoint_bytes)
    if not isinstance(given, Links):
        raise OptionError(
            f"links={given!r:.60}: give Links, such as Links.load_from(path), or leave it out."
        )
    return given


def what_if(found: Plan) -> tuple[WhatIf, ...]:
    """What the best schedule would cost with half and with twice of each tier in memory.

    Nothing is measured again: the links stay as they are. Only kinds of schedules are predicted
    that are among the best ones of the plan.
    """
    from unspool._plan.forecasting import make_plan

    near = [one for one in found.candidates if one.seconds <= NEAR * found.best.seconds]
    kinds = {type(one.schedule).__name__ for one in near} | {"StoreAll"}
    rows = []
    for name in found.tiers.names:
        for capacity in (found.tiers.capacity[name] // 2, 2 * found.tiers.capacity[name]):
            if name == "disk" or not capacity:
                continue
            try:
                tiers = found.tiers.resized(name, capacity)
                best = make_plan(found.problem, tiers, found.links, kinds).best
            except NoPlanError:
                best = None
            rows.append(WhatIf(name, capacity, best))
    return tuple(rows)
