"""The two passes of one shot's migration, group by group: what a schedule drives.

A group is `every` time steps; state `n` is the forward waves before group `n`, both time levels.
The image needs of it the newest level alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unspool.schedules import Stop
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.model import Floats
from unspool_studies.rtm.propagator import Propagator
from unspool_studies.rtm.survey import Survey

__all__ = ["Passes", "Tell"]

#: Called after each group of steps with the phase ("record", "forward" or "backward")
#: and the number of steps.
Tell = Callable[[str, int], None]


class Passes:
    """Advances the source's waves, and takes the receivers' back and adds to the image."""

    def __init__(
        self,
        propagator: Propagator,
        survey: Survey,
        shot: int,
        data: Floats,
        clock: Clock,
        tell: Tell,
    ) -> None:
        """Silence, before the first group.

        Args:
            propagator: of the model to migrate with.
            survey: the survey.
            shot: which shot of it.
            data: what the receivers recorded, float32 (steps, receivers).
            clock: measures what is computed.
            tell: hears of progress.
        """
        self._timing, self._shot = survey.timing, shot
        self._clock, self._tell = clock, tell
        self._source = propagator.points([survey.sources[shot]])
        self._receivers = propagator.points(survey.receivers)
        self._wavelet, self._data = propagator.load(survey.wavelet), propagator.load(data[::-1])
        self._waves, self._back = propagator.wavefield(), propagator.wavefield()
        self._image = propagator.image()

    @property
    def groups(self) -> int:
        """How many groups there are: the steps of a schedule."""
        return self._timing.saves

    def levels(self) -> tuple[Any, Any]:
        """The state: where the forward waves are, and go on from."""
        return self._waves.levels

    def accumulated(self) -> dict[str, Any]:
        """What taking groups back goes on from: the waves of the records, and the image so far."""
        older, newer = self._back.levels
        image, light = self._image.parts
        return {"older": older, "newer": newer, "image": image, "light": light}

    def begun(self) -> dict[str, Any]:
        """The same, and the records, by which an adjoint is as large as it is."""
        return self.accumulated() | {"records": self._data}

    def now(self) -> Any:
        """The newest time level of the forward waves."""
        return self._waves.now

    @staticmethod
    def newest(levels: tuple[Any, Any]) -> Any:
        """The part of a state that `reverse` reads: the newest time level."""
        return levels[1]

    def forward(self, _state: Any, begin: int, end: int) -> Stop | None:
        """Advances the forward waves over the groups from `begin` to before `end`.

        Returns where it ended when the steps are over: news to a schedule that does not know how
        many there are.
        """
        for group in range(begin, min(end, self.groups)):
            signal = self._wavelet[self._rows(group)]
            with self._clock.span("compute", f"forward {self._shot}:{group}"):
                self._waves.advance(len(signal), self._source, signal)
            self._tell("forward", len(signal))
        return Stop(self.groups) if end >= self.groups else None

    def reverse(self, _state: Any, group: int) -> None:
        """Takes the records back over one group and adds their product with the forward waves.

        Groups come last one first; the forward waves are those before this group.
        """
        steps, rows = self._timing.steps, self._rows(group)
        signal = self._data[steps - rows.stop : steps - rows.start]
        with self._clock.span("compute", f"backward {self._shot}:{group}"):
            self._back.advance(len(signal), self._receivers, signal)
        with self._clock.span("compute", f"image {self._shot}:{group}"):
            self._image.add(self._waves.now, self._back.now)
        self._tell("backward", len(signal))

    def result(self) -> tuple[Floats, Floats]:
        """Image and illumination on the model's grid."""
        return self._image.result()

    def _rows(self, group: int) -> slice:
        begin = group * self._timing.every
        return slice(begin, min(begin + self._timing.every, self._timing.steps))
