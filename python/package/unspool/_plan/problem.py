"""What a plan is asked: the computation, and the tiers that there are for it."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from unspool._plan.compression import Settled
from unspool._plan.links import Links
from unspool._plan.sizes import Tiers, bytes_of
from unspool.errors import OptionError

__all__ = ["Problem", "problem_of", "seconds_of"]


@dataclass(frozen=True, slots=True)
class Problem:
    """An adjoint computation.

    Attributes:
        steps: of the forward pass.
        state_bytes: of a state.
        reverse_bytes: of a copy that is only restored in order to reverse a step.
        step_seconds: of a forward step, without any save.
        reverse_seconds: of a reverse step.
        compression: the codec of the spool, or None.
    """

    steps: int
    state_bytes: int
    reverse_bytes: int
    step_seconds: float
    reverse_seconds: float
    compression: Settled | None = None

    @property
    def state_held(self) -> int:
        """What is stored of a state."""
        return self._held(self.state_bytes)

    @property
    def reverse_held(self) -> int:
        """What is stored of a copy that is only restored in order to reverse a step."""
        return self._held(self.reverse_bytes)

    @property
    def margin(self) -> int:
        """What a save takes of the fastest tier besides, until the state is encoded."""
        return self.state_bytes - self.state_held

    def _held(self, count: int) -> int:
        return count if self.compression is None else self.compression.held(count)

    def slots(self, tiers: Tiers, links: Links) -> int:
        """How many states these tiers hold together: none has to be in two of them."""
        return sum(self.slots_in(name, tiers, links) for name in tiers.names)

    def slots_in(self, name: str, tiers: Tiers, links: Links) -> int:
        """How many states one of them holds."""
        return self.left_in(name, tiers) // tiers.room(name, self.state_held, links.on_gpu)

    def left_in(self, name: str, tiers: Tiers) -> int:
        """What there is of a tier for states that are stored."""
        margin = self.margin if name == tiers.names[0] else 0
        return max(0, tiers.capacity[name] - margin)

    def save_seconds(self, links: Links, count: int) -> float:
        """The time of `count` bytes from the application to the fastest tier."""
        return (self.compression.encode if self.compression else links.save).seconds(count)

    def restore_seconds(self, links: Links, count: int) -> float:
        """The time of `count` bytes from the fastest tier to the application."""
        return (self.compression.decode if self.compression else links.restore).seconds(count)

    def write_seconds(self, links: Links, tier: str) -> float:
        """How long a state takes from the application to a tier, if it waits for it."""
        moved = links.write_seconds(tier, self.state_held) - links.save.seconds(self.state_held)
        return self.save_seconds(links, self.state_bytes) + moved

    def read_seconds(self, links: Links, tier: str) -> float:
        """How long a state takes from a tier to the application."""
        moved = links.read_seconds(tier, self.state_held) - links.restore.seconds(self.state_held)
        return self.restore_seconds(links, self.state_bytes) + moved

    def least_seconds(self, advances: int) -> float:
        """The computing of a schedule with so many forward steps."""
        return advances * self.step_seconds + self.steps * self.reverse_seconds


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
    forward = seconds_of("step_seconds", step_seconds)
    reverse = forward
    if reverse_seconds is not None:
        reverse = seconds_of("reverse_seconds", reverse_seconds)
    return Problem(_count("steps", steps), state, part, forward, reverse)


def _count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError as error:
        raise OptionError(f"{name}={value!r} is not a whole number.") from error
    if not 1 <= count < 2**53:
        raise OptionError(f"{name}={value!r}: write a number of steps from 1 to 2**53 - 1.")
    return count


def seconds_of(name: str, value: Any) -> float:
    """A duration in seconds, 0 included.

    Raises:
        OptionError: it is none.
    """
    try:
        seconds = float(value)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name}={value!r} is not a number of seconds.") from error
    if not (math.isfinite(seconds) and seconds >= 0):
        raise OptionError(f"{name}={value!r}: seconds from 0 are needed.")
    return seconds
