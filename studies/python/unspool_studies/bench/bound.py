"""The shortest that both passes of a sweep could take: the same transfers over the measured link,
by somebody who knows the order, moves nothing in vain and loses no time between two moves.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds of a forward and of a reverse pass.

    Attributes:
        checkpoints: how many there are.
        slots: how many of them the device tier holds.
        compute: seconds of a step.
        down: seconds that one takes over the link out of the device.
        up: the same, back.
    """

    checkpoints: int
    slots: int
    compute: float
    down: float
    up: float

    def forward(self) -> float:
        """A step ends when it is computed and a slot is free; the last ones stay in the device."""
        now = link = 0.0
        left: list[float] = []
        for step in range(self.checkpoints):
            now += self.compute
            if step >= self.slots:
                now = max(now, left[step - self.slots])
            link = max(link, now) + self.down
            left.append(link)
        return now

    def reverse(self) -> float:
        """A step begins when its checkpoint is there; one that is used makes room for another."""
        now = link = 0.0
        there = [0.0] * min(self.slots, self.checkpoints)
        for step in range(self.checkpoints):
            now = max(now, there[step])
            if len(there) < self.checkpoints:
                link = max(link, now) + self.up
                there.append(link)
            now += self.compute
        return now
