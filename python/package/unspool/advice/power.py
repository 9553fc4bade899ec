"""What a program takes in each of its phases, measured by counters of energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from .._energy import counters, total
from ..errors import MissingLibraryError, OptionError
from .sizes import number

PHASES = ("app", "save", "restore")


@dataclass(frozen=True, slots=True)
class Power:
    """Mean electric power of one rank with its share of the machine, in watts.

    Attributes:
        app: while the application computes.
        save: while it waits for a checkpoint; as `app` without it.
        restore: while it is restored; as `app` without it.
        encode: what a codec takes besides, for as long as it works.
    """

    app: float
    save: float | None = None
    restore: float | None = None
    encode: float = 0.0

    def __post_init__(self) -> None:
        for name in ("app", "save", "restore", "encode"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name))

    @classmethod
    def now(cls, seconds: float = 1.0) -> Power:
        """What the GPUs and processors of this machine take now, by their own counters of energy:
        call it while the application computes.

        Raises:
            MissingLibraryError: no counter can be read; the text says why.
        """
        seconds, meter = number("seconds", seconds, 0.1, 600.0), Meter()
        with meter.during("app"):
            time.sleep(seconds)
        return meter.power

    def joules(
        self, app: float, save: float = 0.0, restore: float = 0.0, encode: float = 0.0
    ) -> float:
        """The energy of so many seconds of each, of which those of `encode` lie within the others:
        equations 5.5 to 5.8 of D. Ibtesham, "Improving Large Scale Application Performance via Data
        Movement Reduction", University of New Mexico, 2017.
        """
        joules = app * self.app + encode * self.encode
        joules += save * (self.app if self.save is None else self.save)
        return joules + restore * (self.app if self.restore is None else self.restore)


class Meter:
    """Measures the mean power of a program while it computes, saves and restores.

        meter = Meter()
        with meter.during("app"):
            advance(u)
        with meter.during("save"):
            checkpoints.save(step, u=u)
            checkpoints.flush()
        unspool.advise(..., power=meter.power)

    Each phase may be measured several times. What a GPU was given is to be done when its block
    ends: synchronise there. Counters move on in steps of up to a tenth of a second, so that phases
    take a second or more.

    Arguments:
        joules: says the joules that were taken since some moment, such as
            `lambda: spool.stats().energy.gpu`. Without it, those of all GPUs and processors of this
            machine that count them, whoever uses them.

    Attributes:
        seconds: how long each phase was measured, by its name.
        joules: what it took meanwhile.

    Raises:
        MissingLibraryError: no counter can be read; the text says why.
    """

    def __init__(self, joules: Callable[[], float | None] | None = None) -> None:
        self._read = joules or _all_counters()
        self.seconds: dict[str, float] = {}
        self.joules: dict[str, float] = {}
        self._now()

    @contextmanager
    def during(self, phase: Literal["app", "save", "restore"]) -> Iterator[None]:
        """A block in which the program is in this phase; one that raises does not count.

        Raises:
            OptionError: there is no such phase.
            MissingLibraryError: the counter has stopped.
        """
        if phase not in PHASES:
            raise OptionError(f'during({phase!r:.40}): write "app", "save" or "restore".')
        begun, before = time.perf_counter(), self._now()
        yield
        taken, seconds = self._now() - before, time.perf_counter() - begun
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        self.joules[phase] = self.joules.get(phase, 0.0) + taken

    @property
    def power(self) -> Power:
        """The mean power of each phase that was measured.

        Raises:
            OptionError: `"app"` was not measured.
        """
        watts = {name: self.joules[name] / self.seconds[name] for name in self.seconds}
        if "app" not in watts:
            raise OptionError('Meter.power: measure the computing first, with during("app").')
        return Power(**watts)

    def _now(self) -> float:
        joules = self._read()
        if joules is None:
            raise MissingLibraryError(
                "the energy cannot be measured any more: a counter has stopped, or there is none "
                "of the device. Give powers as unspool.advice.Power(watts)."
            )
        return joules


def _all_counters() -> Callable[[], float | None]:
    known = counters()
    parts = [*known.gpus(), *known.processors]
    if not parts:
        raise MissingLibraryError(
            f"the power of this machine cannot be measured: {'; '.join(known.why)}. Give it as "
            "unspool.advice.Power(watts)."
        )
    return lambda: total(parts)
