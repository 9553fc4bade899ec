"""Options of `advise` that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from .jobs import Prices
from .power import Power

__all__ = ["Costs", "Failures", "Waits"]


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a job fails, and what is left then.

    Attributes:
        mtbf: the mean time between two failures of the whole job.
        rank_mtbf: that of one rank: the job fails `ranks` times as often. Without both it is what
            `Checkpointer` assumes: five years for a rank, and at most a day for a job.
        healed: the share of failures after which `disk` is still there; only with `remote`.
    """

    mtbf: float | str | None = None
    rank_mtbf: float | str | None = None
    healed: float = 0.9


@dataclass(frozen=True, slots=True)
class Waits:
    """For how long a job waits besides writing and reading.

    Attributes:
        blocking: whether a save returns only when it is durable. A `Checkpointer` does not block.
        blocked: the time for which a save makes the application wait otherwise; without it, that of
            a copy of the arrays.
        restart: from a failure to where the restart begins to read: to notice, queue and start.
    """

    blocking: bool = False
    blocked: float | str | None = None
    restart: float | str = "60s"


@dataclass(frozen=True, slots=True)
class Costs:
    """What a job costs beside time.

    Attributes:
        endurance: bytes that may be written to the disk, such as `"600TB"` from its data sheet, or
            `"auto"` to ask the drive for its wear.
        power: of a rank, for the energy.
        prices: of a node, for the work that a price buys.
    """

    endurance: int | str | None = None
    power: Power | None = None
    prices: Prices | None = None
