"""What a plan is asked: the computation, and the tiers that there are for it."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from unspool.errors import OptionError
from unspool.planning.links import Links
from unspool.planning.sizes import Tiers, bytes_of

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
    """

    steps: int
    state_bytes: int
    reverse_bytes: int
    step_seconds: float
    reverse_seconds: float

    def slots(self, tiers: Tiers, links: Links) -> int:
        """How many states these tiers hold together: none has to be in two of them."""
        return sum(tiers.slots(name, self.state_bytes, links.on_gpu) for name in tiers.names)

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
        raise OptionError(f"{name}={value!r} is no whole number.") from error
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
        raise OptionError(f"{name}={value!r} is no number of seconds.") from error
    if not (math.isfinite(seconds) and seconds >= 0):
        raise OptionError(f"{name}={value!r}: seconds from 0 are needed.")
    return seconds
