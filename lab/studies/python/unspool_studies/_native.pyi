"""The extension module: the acoustic propagator of the crate `unspool-wave`, and the core of a
spool for each GPU of a node in virtual time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, final

#: The order of the stencil in space.
SPACE_ORDER: int

def largest_stable_step(velocity: float, dx: float, dz: float) -> float:
    """The largest stable time step in seconds, for a speed in m/s and spacings in metres."""

def simulate(asked: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[float, float]]]:
    """What each process takes, and bytes and most bytes a second of each shared link.

    `unspool_studies.scaling.simulate` says what is asked.

    Raises:
        ValueError: it makes no sense, or does not fit into the slowest tier.
    """

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
