"""Which schedule is fastest on a machine, and what it costs: `unspool.plan`, `unspool plan`.

Every candidate is run by the real core of a spool in virtual time, at the speeds of this machine's
links (measured by `measure_links`) or of another one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unspool.errors import OptionError
from unspool.planning.compression import Compression, Wish, wish_of
from unspool.planning.links import Link, Links, LinksError, Rate
from unspool.planning.outcome import Candidate, LeftOut, LinkBytes, NoPlanError, Plan, WhatIf
from unspool.planning.problem import Problem, problem_of
from unspool.planning.sizes import Tiers, bytes_of, tiers_of

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
    "WhatIf",
    "measure_links",
    "plan",
    "predict",
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
    reverse_seconds: float | None = None,
    reverse_bytes: int | str | None = None,
    links: Links | None = None,
    on: str = "auto",
    work: Callable[[], object] | None = None,
    arrays: int = 1,
    ratio: float | None = None,
    encode: float | str | Rate | None = None,
    decode: float | str | Rate | None = None,
    codec: Any = None,
    sample: Any = None,
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
        reverse_seconds: of one reverse step; as `step_seconds` without it.
        reverse_bytes: of the part of a state that a reverse step reads; the whole without it.
        links: the speeds of the machine; None measures this one, for about two seconds.
        on: where the device tier is, as in `Spool`.
        work: does a little of the application's own computing, for the measurement: see
            `measure_links`.
        arrays: of a state, for the measurement.
        ratio: what is saved is compressed: bytes of a state for each byte that is stored.
        encode: how fast, in bytes of the arrays per second, as text such as `"500 GB/s"`, or as a
            `Rate` with the time of a call; without it that of Twine as we have measured it: on one
            H100 without loss where the arrays are on a GPU, else on four cores.
        decode: how fast it is undone, likewise.
        codec: the codec, as in `Spool`: it is among the options of the candidates.
        sample: an array like one of the state, on which `codec` is tried in place of a `ratio`:
            for about ten seconds at most, with all cores. The speeds are measured as well, but not
            those of a GPU.

    Raises:
        OptionError: a figure makes no sense, the links are those of other tiers, or the codec does
            not take the sample.
        NoPlanError: no schedule fits into these tiers.
        LinksError: the links could not be measured in time.
        StorageError, NoDeviceError, DeviceError: no spool can be opened to measure them.
    """
    from unspool.planning.forecasting import make_plan

    wish = wish_of(ratio, encode, decode, codec, sample)
    problem = problem_of(steps, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device, host, disk, on)
    links = _links_of(links, tiers, problem.state_bytes, work, arrays)
    return make_plan(_compressed(problem, wish, links), tiers, links)


def predict(
    schedule: Any,
    state_bytes: int | str,
    step_seconds: float,
    *,
    steps: int | None = None,
    device: Any = None,
    host: Any = None,
    disk: Any = None,
    reverse_seconds: float | None = None,
    reverse_bytes: int | str | None = None,
    links: Links | None = None,
    on: str = "auto",
    work: Callable[[], object] | None = None,
    arrays: int = 1,
    ratio: float | None = None,
    encode: float | str | Rate | None = None,
    decode: float | str | Rate | None = None,
    codec: Any = None,
    sample: Any = None,
) -> Candidate:
    """What one schedule costs on a spool with all of these tiers.

    Arguments:
        schedule: a schedule, or whatever `unspool.schedules.as_schedule` makes one of.
        steps: their number, where the schedule does not know it.
        state_bytes, step_seconds, device, host, disk, reverse_seconds, reverse_bytes, links, on,
            work, arrays, ratio, encode, decode, codec, sample: as for `plan`.

    Raises:
        OptionError: a figure makes no sense, or the links are those of other tiers.
        Error: the schedule breaks a rule, or the tiers cannot hold what it keeps. A schedule of
            your own has to know its number of steps.
        LinksError, StorageError, NoDeviceError, DeviceError: as for `plan`.
    """
    from unspool.planning.forecasting import candidate_of
    from unspool.schedules import as_schedule
    from unspool.schedules.base import ending

    chosen = as_schedule(schedule)
    wish = wish_of(ratio, encode, decode, codec, sample)
    count = ending(chosen, steps)
    problem = problem_of(count, state_bytes, step_seconds, reverse_seconds, reverse_bytes)
    tiers = tiers_of(device, host, disk, on)
    links = _links_of(links, tiers, problem.state_bytes, work, arrays)
    return candidate_of(_compressed(problem, wish, links), repr(chosen), chosen, tiers, links)


def _compressed(problem: Problem, wish: Wish | None, links: Links) -> Problem:
    """The problem with the codec, now that it is known where the arrays are."""
    return problem if wish is None else replace(problem, compression=wish.settled(links.on_gpu))


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
        StorageError, NoDeviceError, DeviceError: no such spool can be opened.
    """
    from unspool.planning.measuring import measure

    _check_work(work)
    tiers = tiers_of(device, host, disk, on)
    return measure(tiers, bytes_of("checkpoint_bytes", checkpoint_bytes), limit, work, arrays)


def _links_of(given: Any, tiers: Tiers, checkpoint_bytes: int, work: Any, arrays: int) -> Links:
    """The links that were given, or those of this machine."""
    from unspool.planning.measuring import measure

    _check_work(work)
    if given is None:
        return measure(tiers, checkpoint_bytes, work=work, arrays=arrays)
    if not isinstance(given, Links):
        raise OptionError(
            f"links={given!r:.60}: give Links, such as Links.load_from(path), or leave it out."
        )
    return given


def _check_work(work: Any) -> None:
    if work is not None and not callable(work):
        raise OptionError(f"work={work!r:.60}: that is no function.")


def what_if(found: Plan) -> tuple[WhatIf, ...]:
    """What the best schedule would cost with half and with twice of each tier in memory.

    Nothing is measured again: the links stay as they are. Only kinds of schedules are predicted
    that are among the best ones of the plan.
    """
    from unspool.planning.forecasting import make_plan

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
