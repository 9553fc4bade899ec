"""What an adjoint cost, and how far it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..schedules import Schedule
from ..schedules.actions import Action
from ..stats import Stats, plain, size, table, time

if TYPE_CHECKING:
    from ..advice import Plan, WhatIf
    from ..codecs import Bound

__all__ = ["AdjointReport", "Chosen", "Effect", "Fidelity", "FidelityWarning", "Progress"]


@dataclass(slots=True)
class Progress:
    """How far the driver is, after one action.

    Attributes:
        action: the action that was just carried out.
        forward_steps: steps of the forward pass that were computed so far, repeats included.
        reversed_steps: steps that were reversed so far.
        steps: the number of steps, or None while it is not known.
    """

    action: Action
    forward_steps: int
    reversed_steps: int
    steps: int | None


@dataclass(frozen=True, slots=True)
class Effect:
    """How far an array of the gradient is from that of exact states, as a share of it in L2.

    Attributes:
        estimate: with errors of different states that go together as those of the checked ones.
        independent: with errors that have nothing to do with one another.
        worst: with errors that all add.
    """

    estimate: float
    independent: float
    worst: float


class FidelityWarning(UserWarning):
    """A codec with a bound changes a gradient that was checked (`check=n`) by more than 5 %, or by
    more than an `unspool.Gradient` allows; or that has no bound to choose."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a `Gradient` knows of a stretch of time.

    Attributes:
        first: the step that it begins with.
        bound: of its states; None where they stay lossless.
        error: what its states alone do to the gradient, as a share of it in L2.
        raw_bytes: bytes of its states in this adjoint that were encoded; 0 where not known.
        stored_bytes: what they became.
    """

    first: int
    bound: Bound | None
    error: float
    raw_bytes: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What the codec does to a gradient, as `check=n` or an `unspool.Gradient` has estimated it.

    Attributes:
        checked: the steps that were also reversed from exact states; of `unspool.torch.scan`, the
            segments.
        steps: the number of all steps, or of all segments that start from a copy.
        arrays: the effect on each array of the gradient, by its name: of `unspool.adjoint`, all of
            `adjoint_state`; all estimates are 0 where states were lossless.
        target: the error that a `Gradient` allows; None with `check`, as are the fields below.
        bounds: the bounds that it has chosen for later gradients, each with the step from which it
            holds; empty where states stay lossless.
        trials: adjoints that it has run beside this one to choose them.
        raw_bytes: bytes of the states of this adjoint that were encoded.
        stored_bytes: what they became.
        times: the same by time, in two or four stretches, where that was measured: in loops of 16
            steps and more.
    """

    checked: tuple[int, ...]
    steps: int
    arrays: Mapping[str, Effect]
    target: float | None = None
    bounds: tuple[tuple[int, Bound], ...] = ()
    trials: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    times: tuple[Stretch, ...] = ()

    @property
    def estimate(self) -> float:
        """The largest estimate of an array."""
        return max((one.estimate for one in self.arrays.values()), default=0.0)

    @property
    def worst(self) -> float:
        """The largest effect on an array, should all errors add."""
        return max((one.worst for one in self.arrays.values()), default=0.0)

    def __str__(self) -> str:
        if self.target is not None:
            return self._ordered()
        about = f"checked at {len(self.checked)} of {self.steps:,} states: "
        if not self.worst:
            return about + "the codec does not change the gradient"
        return (
            f"{about}the codec changes the gradient by about {100 * self.estimate:.2g} % in L2 "
            f"({100 * self.worst:.2g} % if all errors add)"
        )

    def picture(self) -> str:
        """Error and bytes by time as a table with bars; nothing where `times` is empty."""
        if not self.times:
            return ""
        most = max(one.error for one in self.times) or 1.0
        rows = [("from step", "bound", "error", "", "states", "kept", "")]
        for one in self.times:
            bound = "lossless" if one.bound is None else f"{one.bound.kind}={one.bound.value:.1e}"
            part = one.stored_bytes / one.raw_bytes if one.raw_bytes else 0.0
            bytes_ = size(one.raw_bytes), size(one.stored_bytes), _bar(part)
            error = f"{one.error:.1e}", _bar(one.error / most)
            rows.append((f"{one.first:,}", bound, *error, *bytes_))
        return table(rows)

    def _ordered(self) -> str:
        """What a `Gradient` has done."""
        spent = f"{size(self.stored_bytes)} kept for {size(self.raw_bytes)} of states"
        off = f"off by about {self.estimate:.1e}" if self.estimate else "that of lossless states"
        said = f"gradient to {self.target:g}: {off}; {spent}"
        if not self.bounds:
            return f"{said}; states stay lossless"
        steps = [f"{one.kind}={one.value:.1e} from step {step:,}" for step, one in self.bounds]
        said += f"; bounds: {', '.join(steps)}"
        return f"{said}; {self.trials} trials" if self.trials else said


def _bar(part: float) -> str:
    """A bar of at most 20 signs."""
    return ("#" * max(round(20 * part), 1 if part else 0)).ljust(20)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `unspool.schedules.Auto` has chosen; `print` it for a sentence, and what other sizes of
    the tiers would gain.

    Attributes:
        schedule: the schedule that was followed.
        why: why, in words.
        plan: the plan that it is the best one of, or None where there was nothing to compare.
    """

    schedule: Schedule
    why: str
    plan: Plan | None = None

    def what_if(self) -> tuple[WhatIf, ...]:
        """The best time with half and with twice of each tier in memory, as
        `unspool.advice.what_if` predicts it; nothing without a plan."""
        from ..advice.choosing import what_if

        return () if self.plan is None else what_if(self.plan)

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers."""
        plan = None if self.plan is None else self.plan.to_dict()
        return {"schedule": repr(self.schedule), "why": self.why, "plan": plan}

    def __str__(self) -> str:
        said = [f"chosen: {self.schedule!r}, {self.why}"]
        if self.plan is not None:
            expected = self.plan.best.seconds
            said += [_change(one, expected) for one in self.what_if()]
        return "; ".join(said)


def _change(one: WhatIf, expected: float) -> str:
    """What another size of a tier would do to the time."""
    place = f"with {size(one.capacity)} of {one.tier}"
    if one.best is None:
        return f"{place} nothing fits"
    return f"{place} {one.best.seconds / expected - 1:+.0%}"


@dataclass(frozen=True, slots=True)
class AdjointReport:
    """What `unspool.adjoint` did and how long it took; `print` it for a table.

    Bytes and stalls are those of the spool between the beginning and the end, so that they include
    what others did with it meanwhile. Times of functions that enqueue work on a GPU are those of
    the calls alone.

    Attributes:
        steps: the number of steps.
        forward_steps: steps that `forward` took, repeats included.
        recomputed_steps: those among them that it had taken before, in this call or in one that
            was killed.
        reversed_steps: steps that `reverse` took back in this call.
        saves: copies saved.
        restores: copies restored.
        peak_copies: the most copies that the schedule kept at a time; `at_end` keeps one more.
        saved_bytes: bytes that were saved.
        restored_bytes: bytes that were restored.
        seconds: the time of the whole run.
        forward_seconds: the time in `forward`.
        reverse_seconds: the time in `reverse`.
        at_end_seconds: the time in `at_end`.
        save_seconds: the time in `Spool.save`.
        restore_seconds: the time in `Spool.restore`.
        save_stall_seconds: the time that saves waited for room.
        restore_stall_seconds: the time that restores waited for their data.
        tiers: the most bytes that were in use in each tier at once, since the spool was opened.
        links: the bytes that were moved, by their way, such as `"device -> host"`.
        fidelity: what the codec does to the gradient, with `check`; else None.
        choice: what `schedules.Auto` has chosen; else None.
    """

    steps: int
    forward_steps: int
    recomputed_steps: int
    reversed_steps: int
    saves: int
    restores: int
    peak_copies: int
    saved_bytes: int
    restored_bytes: int
    seconds: float
    forward_seconds: float
    reverse_seconds: float
    at_end_seconds: float
    save_seconds: float
    restore_seconds: float
    save_stall_seconds: float
    restore_stall_seconds: float
    tiers: Mapping[str, int]
    links: Mapping[str, int]
    fidelity: Fidelity | None = None
    choice: Chosen | None = None

    def to_dict(self) -> dict[str, Any]:
        """All figures as dictionaries and numbers, ready for `json.dump`: None for what is not
        finite, as the effect of a codec on a gradient that is zero without it."""
        chosen = None if self.choice is None else self.choice.to_dict()
        plainly = dataclasses.asdict(dataclasses.replace(self, choice=None))
        return plain({**plainly, "choice": chosen})

    def __str__(self) -> str:
        blocks = [self._head(), self._calls(), table([("tier", "peak"), *_sizes(self.tiers)])]
        if self.links:
            blocks.append(table([("movement", "bytes"), *_sizes(self.links)]))
        if self.fidelity is not None:
            blocks += [text for text in (str(self.fidelity), self.fidelity.picture()) if text]
        if self.choice is not None:
            blocks.append(str(self.choice))
        return "\n\n".join(blocks)

    def _head(self) -> str:
        again = f"{self.recomputed_steps:,} computed again"
        return (
            f"{self.steps:,} steps in {time(self.seconds)}: {self.forward_steps:,} forward steps, "
            f"{again}; at most {self.peak_copies:,} copies"
        )

    def _calls(self) -> str:
        moved, stalls = size(self.saved_bytes), time(self.save_stall_seconds)
        back, waits = size(self.restored_bytes), time(self.restore_stall_seconds)
        rows = [
            ("calls", "count", "time", "bytes", "stall"),
            ("forward", f"{self.forward_steps:,}", time(self.forward_seconds), "-", "-"),
            ("reverse", f"{self.reversed_steps:,}", time(self.reverse_seconds), "-", "-"),
            ("save", f"{self.saves:,}", time(self.save_seconds), moved, stalls),
            ("restore", f"{self.restores:,}", time(self.restore_seconds), back, waits),
        ]
        return table(rows)


def _sizes(sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, size(count)) for name, count in sizes.items()]


def moved(before: Stats, after: Stats) -> dict[str, Any]:
    """The fields of the report that the spool's own figures say."""
    fields = (
        "saved_bytes",
        "restored_bytes",
        "save_stall_seconds",
        "restore_stall_seconds",
    )
    found: dict[str, Any] = {name: getattr(after, name) - getattr(before, name) for name in fields}
    found["tiers"] = {tier.name: tier.peak for tier in after.tiers}
    links: dict[str, int] = {}
    for old, new in zip(before.links, after.links, strict=True):
        links[f"{new.fast} -> {new.slow}"] = new.flush.bytes - old.flush.bytes
        links[f"{new.slow} -> {new.fast}"] = new.prefetch.bytes - old.prefetch.bytes
    found["links"] = links
    return found
