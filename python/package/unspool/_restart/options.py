"""Options of a `Checkpointer` that belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .._files import AnyPath

__all__ = ["Auto", "Copies", "Keep", "Stop"]


@dataclass(frozen=True, slots=True)
class Auto:
    """The interval that loses least by what a checkpoint costs (Daly 2006, equation 20):
    `Checkpointer(path, every=Auto(mtbf="12h"))`. `every="auto"` is `Auto()`.

    Attributes:
        mtbf: the mean time between two failures of the job. Without it, five years divided by the
            number of ranks, and at most a day.
        share: the largest share of the run time for which saves may make the job wait.
    """

    mtbf: str | float | None = None
    share: float = 0.05


@dataclass(frozen=True, slots=True)
class Keep:
    """Which checkpoints stay: `Checkpointer(path, keep=Keep(3, best=2, monitor="loss"))`. `keep=3`
    is `Keep(3)`.

    Attributes:
        last: the number of the newest checkpoints that stay, at least 1.
        best: the number of those with the best value of `monitor` that stay besides.
        monitor: the name of a number that each `save` is given, such as a loss, on rank 0; None or
            NaN for a checkpoint that is none of the best.
        mode: whether the least or the greatest value is the best one.
        every: a number of steps: the first checkpoint at or after each multiple of it stays for
            good.
    """

    last: int = 2
    best: int = 0
    monitor: str | None = None
    mode: Literal["min", "max"] = "min"
    every: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """What ends a run before it is done: `Checkpointer(path, stop=Stop(limit="23h50min"))`.

    Attributes:
        limit: the time after which the run is asked to stop, such as `"23h50min"`.
        signals: the signals that ask the run to stop, by name. Handlers that were there before are
            called too, and come back at `close`. Only the main thread can install handlers: a
            Checkpointer that is opened in another one hears of signals while one of the main thread
            with the same signals is open.
        requeue: `"slurm"` has `close` ask Slurm for another run of the job when this one was asked
            to stop, on rank 0, by `scontrol requeue`: not after SIGTERM alone, which `scancel` and
            preemption send. Outside of a job of Slurm it does nothing.
        on_error: `"raise"` raises what went wrong after an earlier `save`; `"warn"` makes it a
            `RuntimeWarning`, and the run goes on.
    """

    limit: str | float | None = None
    signals: Iterable[str] = ("SIGTERM", "SIGUSR1")
    on_error: Literal["raise", "warn"] = "raise"
    requeue: Literal["slurm"] | None = None


@dataclass(frozen=True, slots=True)
class Copies:
    """Where checkpoints are kept besides: `Checkpointer(path, copies=Copies("s3://bucket/run"))`.

    Attributes:
        remote: a place beyond the machine where checkpoints are copied to after they count, in the
            background: `"s3://bucket/prefix"`, `"gs://bucket/prefix"`, `"az://container/prefix"`,
            or another directory, such as one of a parallel file system. A restart takes the newest
            checkpoint that each rank can get from its folder or from there. Credentials are those
            of the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`).
        every: which checkpoints are copied there: `"auto"` is each one for which the place has
            time, a duration or a number of steps as for a `Checkpointer`, and None the last one, at
            `close`, which is copied in any case.
        partner: which checkpoints another rank keeps as well, on another machine where there is
            one: `"auto"`, a duration or a number of steps. A save gives the newest one that counts
            away and waits for that.
    """

    remote: AnyPath | None = None
    every: int | str | None = "auto"
    partner: int | str | None = None
