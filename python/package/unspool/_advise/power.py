"""What a program takes in each of its phases, measured by counters of energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from unspool._advise.problem import Power
from unspool._energy import counters, total
from unspool.errors import MissingLibraryError, OptionError

__all__ = ["Meter"]

PHASES = ("app", "save", "restore")


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
                "of the device. Give powers as unspool.advising.Power(watts)."
            )
        return joules


def _all_counters() -> Callable[[], float | None]:
    known = counters()
    parts = [*known.gpus(), *known.processors]
    if not parts:
        raise MissingLibraryError(
            f"the power of this machine cannot be measured: {'; '.join(known.why)}. Give it as "
            "unspool.advising.Power(watts)."
        )
    return lambda: total(parts)
