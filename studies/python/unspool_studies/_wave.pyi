"""The extension module: the acoustic propagator of the crate `unspool-wave`."""

from collections.abc import Sequence
from typing import Any, Self, final

#: The order of the stencil in space.
SPACE_ORDER: int

def largest_stable_step(velocity: float, dx: float, dz: float) -> float:
    """The largest stable time step in seconds, for a speed in m/s and spacings in metres."""

@final
class Points:
    """Sources or receivers, placed on the grid of one propagator."""

    def __len__(self) -> int: ...

@final
class Acoustic:
    """The acoustic propagator of one model and one time step.

    Arrays are contiguous float32 buffers; `unspool_studies.rtm.propagator` says what they hold.
    """

    def __new__(
        cls,
        velocity: Any,
        spacing: tuple[float, float],
        dt: float,
        layer: int,
        threads: int = 0,
        portable: bool = False,
    ) -> Self: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def pad(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def instructions(self) -> str: ...
    def points(self, positions: Sequence[tuple[float, float]]) -> Points: ...
    def advance(
        self,
        older: Any,
        newer: Any,
        steps: int,
        sources: Points | None = None,
        signal: Any = None,
        receivers: Points | None = None,
        record: Any = None,
    ) -> None: ...
    def correlate(self, image: Any, illumination: Any, forward: Any, backward: Any) -> None: ...
