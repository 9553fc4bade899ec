"""How a forward function says that the forward pass has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Stop"]


@dataclass(frozen=True, slots=True)
class Stop:
    """What `forward(state, n0, n1)` returns when the forward pass ends, for a schedule whose number
    of steps is not known: the working state is state `step` now, and there are `step` steps.

    Attributes:
        step: from `n0` to `n1`.
        state: the new state, for arrays that never change.
    """

    step: int
    state: Any = None
