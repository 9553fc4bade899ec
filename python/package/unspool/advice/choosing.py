"""Which schedule an adjoint goes on by, from what its first steps have shown:
`unspool.schedules.Auto`.

The plan is that of `unspool.plan`, for the room and the links of the spool as its statistics have
them. Nothing is done here but the measurement of links, where a long run has moved nothing yet.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from ..errors import Error
from ..schedules import Forward, Revolve, Save, Schedule, StoreAll
from ..stats import Stats, TierStats, size, time
from .coding import ON_CPU, ON_GPU, Settled
from .links import Link, Links, Rate
from .planning import Limits, candidate_of, make_plan, resized
from .plans import Candidate, NoPlanError, Plan, Problem, WhatIf
from .proposals import KINDS
from .sizes import Tiers

__all__ = ["Seen", "choose", "room_of", "what_if"]

#: The share of the expected time that links may be measured for, and the least that is worth it.
MEASURING, WORTH_MEASURING = 0.02, 2.0

#: By how much computing is taken to be slowed down beside a busy link in main memory.
CONTENTION = 0.2

#: The share of the expected time that a plan may take; seconds of an action that is forecast, and
#: of a multi-level schedule, whose making grows with the square of the steps.
PLANNING, ACTION, LEVELS = 0.02, 2e-6, 2.5e-7

#: How much of what the codec made of the first states is counted on: later ones are larger or
#: smaller, and leave holes that the next one does not fit.
TRUSTED = 0.9

#: Where the figures of a codec come from.
SOURCE = "seen in the first steps"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the first steps of an adjoint have shown.

    Attributes:
        steps: of the whole computation.
        state_bytes: of a state, as its arrays have them.
        reverse_bytes: of the part of it that a reverse step reads.
        step_seconds: of a forward step, without a save.
        first_seconds: of a save into memory that was not used before.
        save_seconds: of another save.
        ratio: bytes of a state for each byte that is stored; None without a codec.
        device: the place of the spool's fastest tier, as `Spool.device` says it.
        before: the statistics of the spool before the run.
        now: those after the first steps.
        reserved: bytes of copies that no schedule counts.
        spare: bytes that the first copies have more than those of a schedule that keeps only what
            reverse steps read.
        taken: the steps that were taken.
        there: the states before them that are saved: no other one can be any more.
    """

    steps: int
    state_bytes: int
    reverse_bytes: int
    step_seconds: float
    first_seconds: float
    save_seconds: float
    ratio: float | None
    device: str
    before: Stats
    now: Stats
    reserved: int
    spare: int = 0
    taken: int = 0
    there: frozenset[int] = frozenset()

    @property
    def on_gpu(self) -> bool:
        """Whether the fastest tier is on a GPU."""
        return self.device.startswith("cuda")

    @property
    def expected_seconds(self) -> float:
        """Of the run, at least."""
        return self.steps * 2 * (self.step_seconds + self.save_seconds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of schedules that there is time to make."""
        quick = LEVELS * self.steps**2 <= PLANNING * self.expected_seconds
        return KINDS if quick else tuple(kind for kind in KINDS if kind != "MultiLevel")

    @property
    def limits(self) -> Limits:
        """What there is time to forecast."""
        actions = PLANNING * self.expected_seconds / ACTION
        return Limits(actions / 4, actions)


def choose(seen: Seen) -> tuple[Schedule, str, Plan | None]:
    """The schedule, why, and the plan that says so, if there was something to plan.

    Raises:
        NoPlanError: nothing fits.
    """
    if seen.steps == 1:
        return StoreAll(1), "there is one step", None
    tiers = room_of(seen.before, seen.reserved + seen.spare)
    if max(tiers.capacity.values()) < seen.state_bytes:
        tiers = room_of(seen.before, seen.reserved)
    name, copying = tiers.names[0], 2 * seen.save_seconds
    room = tiers.slots(name, seen.reverse_bytes, seen.on_gpu)
    is_quick = seen.steps - 1 <= room and copying <= seen.step_seconds
    if is_quick and _can_follow(StoreAll(seen.steps), seen):
        why = f"every state fits the {name} tier and is copied faster than computed"
        return StoreAll(seen.steps), why, None
    if max(tiers.capacity.values()) < seen.state_bytes:
        raise NoPlanError(
            f"{seen.steps:,} steps need room for a state of {size(seen.state_bytes)}. What is free "
            f"in the spool is for copies besides, of `at_end` and `check`: {size(seen.reserved)} "
            "together. Make a tier larger."
        )
    plan = _plan(seen, tiers)
    return plan.best.schedule, _why(seen, plan), plan


def _plan(seen: Seen, tiers: Tiers) -> Plan:
    """The plan, of schedules that can be followed from here; with room for one state less where all
    of it is for none that can be carried out, as copies begin at round addresses."""
    problem, links = _problem(seen), _links(seen, tiers)
    try:
        plan = make_plan(problem, tiers, links, seen.kinds, limits=seen.limits)
    except NoPlanError:
        less = room_of(seen.before, seen.reserved + seen.state_bytes)
        plan = make_plan(problem, less, links, seen.kinds, limits=seen.limits)
    found = [one for one in plan.candidates if _can_follow(one.schedule, seen)]
    return replace(plan, candidates=tuple(found or [_sparse(seen, plan)]))


def _sparse(seen: Seen, plan: Plan) -> Candidate:
    """A schedule that saves no state that was passed: of fewer and fewer slots, down to one."""
    slots = max(one.peak_copies for one in plan.candidates)
    while True:
        schedule = Revolve(seen.steps, min(slots, seen.steps - 1))
        if slots <= 1 or _can_follow(schedule, seen):
            try:
                return candidate_of(plan.problem, repr(schedule), schedule, plan.tiers, plan.links)
            except Error:
                if slots <= 1:
                    raise
        slots //= 2


def _can_follow(schedule: Schedule, seen: Seen) -> bool:
    """Whether all states that a schedule saves of those that were passed already are saved."""
    sweep = takewhile(lambda one: isinstance(one, Save | Forward), schedule)
    early = takewhile(lambda one: not (isinstance(one, Save) and one.step >= seen.taken), sweep)
    first = islice(early, 2 * seen.taken)
    return all(one.step in seen.there for one in first if isinstance(one, Save))


def room_of(stats: Stats, reserved: int = 0) -> Tiers:
    """The tiers of a spool with what is free of them; what is reserved comes off the slowest ones.

    What others keep there may move to slower tiers, so that it takes the room of one copy.
    """
    capacity = {tier.name: _capacity(tier) for tier in stats.tiers}
    reserved += max(tier.used for tier in stats.tiers)
    for name in reversed(capacity):
        taken = min(capacity[name], reserved)
        capacity[name] -= taken
        reserved -= taken
    kept = {name: room for name, room in capacity.items() if room}
    return Tiers(kept or {stats.tiers[0].name: 1}, _directory(stats))


def _capacity(tier: TierStats) -> int:
    """What a tier may hold; of a disk without a limit, what is free there now."""
    if tier.capacity is not None:
        return tier.capacity
    return shutil.disk_usage(tier.location).free + tier.used


def _directory(stats: Stats) -> str | None:
    return next((tier.location for tier in stats.tiers if tier.name == "disk"), None)


def _problem(seen: Seen) -> Problem:
    """The computation; a reverse step is taken to be as long as a forward step."""
    step = seen.step_seconds
    whole, part = seen.state_bytes, seen.reverse_bytes
    return Problem(seen.steps, whole, part, step, step, _compression(seen))


def _compression(seen: Seen) -> Settled | None:
    """The codec: its encoder as it was seen, its decoder faster by as much as Twine's is."""
    if seen.ratio is None:
        return None
    encode, decode = ON_GPU if seen.on_gpu else ON_CPU
    rate = seen.state_bytes / seen.save_seconds
    faster = rate * decode.bytes_per_second / encode.bytes_per_second
    sources = SOURCE, SOURCE, "assumed from the encoder"
    ratio = max(1.0, TRUSTED * seen.ratio)
    return Settled(ratio, Rate(max(rate, 1.0)), Rate(max(faster, 1.0)), sources, None)


def _links(seen: Seen, tiers: Tiers) -> Links:
    """The links as the spool knows them; measured where a long run begins and it knows nothing."""
    limit = MEASURING * seen.expected_seconds
    moved = all(link.flush.transfers for link in seen.now.links)
    if not moved and limit >= WORTH_MEASURING:
        with suppress(Error):
            return _measured(seen, tiers, WORTH_MEASURING / 2)
    rate = max(seen.state_bytes / seen.save_seconds, 1.0)
    colder = max(0.0, seen.first_seconds - seen.save_seconds) / seen.state_bytes
    slows = 0.0 if seen.on_gpu else CONTENTION
    links = tuple(
        Link(
            one.fast,
            one.slow,
            Rate(one.flush.bytes_per_second),
            Rate(one.prefetch.bytes_per_second),
            slows,
        )
        for one in seen.now.links
    )
    names = tuple(tier.name for tier in seen.now.tiers)
    first_touch = 0.0 if seen.on_gpu or names[0] == "disk" else min(colder, 1.0)
    return Links(seen.device, names, Rate(rate), Rate(rate), links, first_touch)


#: The links that were measured in this process, by their tiers and places.
_known: dict[tuple[str, ...], Links] = {}


def _measured(seen: Seen, tiers: Tiers, limit: float) -> Links:
    """Those of a small spool with the same tiers, once in a process."""
    from .measuring import measure

    names = tuple(tier.name for tier in seen.now.tiers)
    key = (seen.device, tiers.directory or "", *names)
    if key not in _known:
        probed = replace(tiers, capacity=dict.fromkeys(names, 1), device=seen.device)
        _known[key] = measure(probed, seen.state_bytes, limit)
    return _known[key]


def what_if(plan: Plan) -> tuple[WhatIf, ...]:
    """As `unspool.advice.what_if`, in a small part of the time that the plan is for."""
    actions = PLANNING * plan.best.seconds / ACTION
    return resized(plan, Limits(actions / 4, actions))


def _why(seen: Seen, plan: Plan) -> str:
    stored = "" if seen.ratio is None else f", stored in {size(plan.problem.state_held)}"
    return (
        f"the fastest of {len(plan.candidates)} schedules, about {time(plan.best.seconds)}, for "
        f"steps of {time(seen.step_seconds)} and states of {size(seen.state_bytes)}{stored}"
    )
