"""Measures a case of the part `shapes`: a save, a restore, and every value that came back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import unspool
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.shapes_cases import Case
from unspool_studies.bench.shapes_check import wrong_values
from unspool_studies.bench.shapes_data import arrays_of, blank
from unspool_studies.bench.shapes_options import LARGEST, SMALL, Shapes
from unspool_studies.bench.shapes_place import OnCpu, OnGpu, Place, Reading, reading
from unspool_studies.bench.tiers import wait_until_ready
from unspool_studies.rtm.codec import codec_of

__all__ = ["WAYS", "Bench", "Figures", "Pair", "opened"]

#: What is measured of a case.
WAYS = ("save", "restore")

#: Calls before the first reading.
WARM = 2

#: Readings of a figure, and the seconds after which no further one is taken.
ROUNDS, BUDGET = 5, 0.03

#: Bytes of the tier for each of the largest case, and beside them.
ROOM, BESIDE = 4, 128 << 20

#: Bytes of memory that a case may take for each of its own, with all that its data are made of.
NEEDED = 40

#: The least that the largest case may have.
LEAST = 128 << 10


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one case.

    Attributes:
        case: the case.
        stored: bytes that were kept of it.
        readings: the seconds of each of `WAYS`.
        wrong: values that broke what the codec promises; None where it promises nothing.
    """

    case: Case
    stored: int
    readings: dict[str, Reading]
    wrong: int | None

    def rate(self, way: str) -> float:
        """GB/s of the arrays, by the time of the device."""
        return self._rate(self.readings[way].device)

    def whole_rate(self, way: str) -> float:
        """GB/s of the arrays, from the call until its work is done."""
        return self._rate(self.readings[way].whole)

    def _rate(self, seconds: Sample) -> float:
        return self.case.nbytes / max(seconds.median, 1e-9) / 1e9


@dataclass(frozen=True, slots=True)
class Pair:
    """A case that was drawn, and the friendly one.

    Attributes:
        number: of the draw.
        case: what was drawn.
        friend: beside it.
    """

    number: int
    case: Figures
    friend: Figures

    def ratio(self, way: str) -> float:
        """The rate of the case, in parts of the friendly one's."""
        return self.case.rate(way) / self.friend.rate(way)


class Bench:
    """A spool in which cases are measured, one after the other.

    Attributes:
        most: bytes of the largest case.
    """

    def __init__(self, place: Place, spool: unspool.Spool, most: int) -> None:
        self._place, self._spool, self.most = place, spool, most

    def measured(self, case: Case, values: Any = None) -> Figures:
        """Saves and restores a case several times; with `values`, an array of NumPy in place of
        its data.

        Raises:
            Error: the codec does not take it, or something failed: nothing of it is left.
        """
        try:
            xp = self._place.xp
            return self._measured(
                case, arrays_of(xp, case) if values is None else [xp.asarray(values)]
            )
        finally:
            self._spool.clear()
            self._place.tidy()

    def _measured(self, case: Case, arrays: list[Any]) -> Figures:
        place, spool, codec = self._place, self._spool, codec_of(case.mode)
        targets = blank(place.xp, case)
        sources = [place.given(array, case.dtype) for array in arrays]
        sinks = [place.given(array, case.dtype) for array in targets]

        def save() -> None:
            spool.save(0, *sources, codec=codec, stream=place.stream)

        def restore() -> None:
            spool.restore(0, *sinks, stream=place.stream)

        # The first calls load or compile kernels: the second of a guessed bound has others.
        for _ in range(WARM):
            save()
            restore()
            wait_until_ready(spool)
            spool.discard(0)
        saves = reading(place, save, lambda: spool.discard(0), ROUNDS, BUDGET)
        save()
        restores = reading(place, restore, lambda: None, ROUNDS, BUDGET)
        stored = sum(one.stored_bytes for one in spool.achieved(0).values())
        again = [place.back(*pair) for pair in zip(sinks, targets, strict=True)]
        wrong = wrong_values(place.xp, arrays, again, case.dtype, codec)
        return Figures(case, stored, dict(zip(WAYS, (saves, restores), strict=True)), wrong)


@contextlib.contextmanager
def opened(cuda: Cuda | None, wishes: Shapes) -> Iterator[Bench]:
    """Measures on the GPU, or in main memory where there is none."""
    with contextlib.ExitStack() as stack:
        place: Place = OnCpu()
        if cuda is not None:
            gpu = stack.enter_context(contextlib.closing(place_on(cuda)))
            stack.enter_context(gpu.current())
            place = gpu
        asked = wishes.most or (SMALL if cuda is None else LARGEST)
        most = max(LEAST, min(asked, place.free() // NEEDED))
        spool = stack.enter_context(place.open(ROOM * most + BESIDE))
        wait_until_ready(spool)
        yield Bench(place, spool, most)


def place_on(cuda: Cuda) -> OnGpu:
    """The place of a device. Tests put arrays of their own there."""
    return OnGpu(cuda)
