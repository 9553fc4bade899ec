"""What a codec costs by the bytes of its input, on this machine: `CodecCost` for plans.

The second oracle of Maurya et al., "Towards Efficient I/O Pipelines using Accumulated Compression"
(HiPC 2023, section III-A1). In main memory it is the time of encoding with all cores, on a GPU that
of a spool's launches on the application's stream.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from unspool.accumulate import NVCOMP, TWINE, CodecCost
from unspool.codecs import NvComp, Zfp
from unspool.codecs.coding import encode_into, room_for
from unspool.errors import DeviceError, Error
from unspool.stats import size as size_text
from unspool.stats import table
from unspool.stats import time as time_text
from unspool_studies.bench.cuda import Cuda, NoCuda
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.tiers import open_spool, wait_until_ready
from unspool_studies.bench.tiers import room_for as tier_room
from unspool_studies.bench.wavefields import ROW, field
from unspool_studies.codecs.source import Source
from unspool_studies.rtm.codec import name_of_codec

__all__ = [
    "LEAST",
    "Curve",
    "OnCpu",
    "OnGpu",
    "Place",
    "Point",
    "generated",
    "known_cost",
    "measure",
]

#: The smallest input in bytes, and the step from one to the next.
LEAST, FACTOR = 64 << 10, 4

#: Memory that is needed to measure, in bytes for each of the input.
NEEDED = 4

#: Seconds that the runs of one size may take, after one that does not count; how many there are.
PATIENCE, FEWEST, MOST = 1.0, 3, 25

#: Launches between two events, and the most bytes that they read.
SERIES, SERIES_BYTES = 16, 64 << 20

#: Seconds for which the device is kept busy before a series, for each of its launches: the host
#: enqueues them meanwhile, so that its calls are not part of the times.
AHEAD = 500e-6

#: Rows of the generated field: 64 MiB.
ROWS = 4096

#: A field of `unspool_studies.bench.wavefields` whose waves have gone through about half of it.
FIELD = 4


@dataclass(frozen=True, slots=True)
class Point:
    """One size.

    Attributes:
        raw: bytes of the input.
        stored: bytes that the codec made of them.
        seconds: of one call, a reading for each run.
    """

    raw: int
    stored: int
    seconds: Sample

    @property
    def ratio(self) -> float:
        """How many times smaller the input became."""
        return self.raw / max(1, self.stored)


class Place(Protocol):
    """Where a codec is measured."""

    @property
    def name(self) -> str:
        """For people: the device, or how many cores."""

    def free(self) -> int | None:
        """Bytes of memory that may be taken; None where nobody says."""

    def run(self, values: Any, codec: Any) -> Point:
        """Measures one array.

        Raises:
            Error: the codec does not take it, or there is too little memory.
        """


@dataclass(frozen=True, slots=True)
class Curve:
    """What was measured.

    Attributes:
        codec: as `Spool` takes it.
        place: where, in words.
        points: by ascending bytes.
        notes: what else there is to say.
    """

    codec: Any
    place: str
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def cost(self) -> CodecCost:
        """The medians; one that is below that of a smaller input is lifted to it, since more bytes
        do not take less time: it is noise.
        """
        times, highest = [], 0.0
        for point in self.points:
            highest = max(highest, point.seconds.median)
            times.append((point.raw, highest))
        like = NVCOMP if isinstance(self.codec, NvComp) else TWINE
        name = f"{name_of_codec(self.codec)} on {self.place}"
        return replace(like, name=name, times=tuple(times))

    def to_dict(self) -> dict[str, Any]:
        """All figures, ready for `json.dump`."""
        points = [
            {"raw_bytes": one.raw, "stored_bytes": one.stored, "seconds": list(one.seconds.values)}
            for one in self.points
        ]
        return {"cost": self.cost.to_dict(), "points": points, "notes": list(self.notes)}

    def __str__(self) -> str:
        """The table, with the times of the plan's constants beside."""
        known, cost = known_cost(self.codec), self.cost
        head = ("input", "time", "least", "most", "GB/s", "ratio", "on an H100")
        rows = [head, *(_row(one, known) for one in self.points)]
        lifted = [
            f"{size_text(size)}: a smaller input took longer than {time_text(one.seconds.median)}; "
            f"written: {time_text(seconds)}"
            for one, (size, seconds) in zip(self.points, cost.times, strict=True)
            if seconds > one.seconds.median
        ]
        return "\n".join((f"{cost.name}, median of runs\n", table(rows), *lifted, *self.notes))


def _row(point: Point, known: CodecCost | None) -> tuple[str, ...]:
    times = (point.seconds.median, point.seconds.low, point.seconds.high)
    rate = point.raw / max(point.seconds.median, 1e-9) / 1e9
    assumed = "-" if known is None else time_text(known.seconds(point.raw))
    return (
        size_text(point.raw),
        *map(time_text, times),
        f"{rate:.3g}",
        f"{point.ratio:.2f}",
        assumed,
    )


def known_cost(codec: Any) -> CodecCost | None:
    """What a plan takes without measuring: the costs of an H100; None for a codec without any."""
    if isinstance(codec, Zfp):
        return None
    return NVCOMP if isinstance(codec, NvComp) else TWINE


def generated(most: int) -> Source:
    """A field of float32 with at most `most` bytes (at least one row) where no array is given."""
    rows = max(1, min(ROWS, most // (4 * ROW)))
    note = f"a generated wavefield of {rows} x {ROW} float32: give a FILE of your own for its times"
    return Source("generated", field(np, (rows, ROW), FIELD), (note,))


def measure(source: Source, codec: Any, most: int, place: Place) -> Curve:
    """Measures a codec on parts of an array, from `LEAST` bytes on by factors of four.

    Arguments:
        source: the array; where inputs are larger than it, they are copies of it in a row.
        codec: as `Spool` takes it.
        most: bytes of the largest input.
        place: where.

    Raises:
        Error: the array has no bytes, the codec does not take it, or there is too little memory.
    """
    values = source.array
    if not values.nbytes:
        raise Error(f"{source.name} has no bytes: nothing of it can be encoded")
    wanted = _sizes(most)
    sizes = [size for size in wanted if fits(NEEDED * size, place.free())]
    if not sizes:
        raise Error(
            f"there is too little free memory to measure a codec: {size_text(NEEDED * wanted[0])} "
            "are needed. Close other programs, or measure on another machine."
        )
    notes = list(source.notes)
    if len(sizes) < len(wanted):
        notes.append(f"the free memory allows inputs up to {size_text(sizes[-1])}")
    if values.nbytes < sizes[-1]:
        notes.append(f"inputs above {size_text(values.nbytes)} are copies of the array in a row")
    points = [place.run(_part(values, size), codec) for size in sizes]
    return Curve(codec, place.name, tuple(points), tuple(notes))


def _sizes(most: int) -> list[int]:
    """From `LEAST` to at most `most`; that alone where it is less."""
    sizes = [min(LEAST, most)]
    while sizes[-1] * FACTOR <= most:
        sizes.append(sizes[-1] * FACTOR)
    return sizes


def _part(values: Any, size: int) -> Any:
    """The middle of an array, or copies of it in a row: of at most `size` bytes, more than half of
    that, and at least one item.
    """
    values = values.reshape(-1) if values.ndim == 0 else values
    while values.ndim > 1 and values[0].nbytes > size:
        values = values[len(values) // 2]
    rows = max(1, size // values[0].nbytes)
    if rows > len(values):
        return np.resize(values, (rows, *values.shape[1:]))
    first = (len(values) - rows) // 2
    return values[first : first + rows].copy()


def _readings(run: Callable[[], float]) -> Sample:
    """Seconds of several runs, after one that does not count."""
    run()
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < FEWEST or (len(found) < MOST and time.perf_counter() - begin < PATIENCE):
        found.append(run())
    return Sample.of(found)


class OnCpu:
    """Encodes in main memory, with all cores."""

    @property
    def name(self) -> str:
        """How many cores there are."""
        return f"{len(os.sched_getaffinity(0))} cores"

    def free(self) -> int | None:
        """See `Place`."""
        return available_memory()

    def run(self, values: Any, codec: Any) -> Point:
        """See `Place`."""
        room = np.empty(room_for(values, codec, None), "u1")
        # What is written for the first time costs the system's time, not the codec's.
        room.fill(0)
        stored = 0

        def run() -> float:
            nonlocal stored
            begin = time.perf_counter()
            stored, _, _ = encode_into(room, values, codec, None)
            return time.perf_counter() - begin

        seconds = _readings(run)
        return Point(values.nbytes, stored, seconds)


class OnGpu:
    """Encodes by a spool on a GPU; times are those of the application's stream, by events.

    Raises:
        DeviceError: there is no CuPy, no driver or no GPU.
    """

    def __init__(self, cuda: Cuda | None = None) -> None:
        try:
            self._cuda = Cuda() if cuda is None else cuda
        except NoCuda as cause:
            raise DeviceError(f"--gpu: {cause}; `unspool doctor` says what is missing") from cause
        self._stream = self._cuda.stream()

    @property
    def name(self) -> str:
        """The device."""
        return self._cuda.name

    def free(self) -> int | None:
        """See `Place`."""
        return self._cuda.free_memory()

    def run(self, values: Any, codec: Any) -> Point:
        """See `Place`."""
        count = max(1, min(SERIES, SERIES_BYTES // values.nbytes))
        with self._cuda.current(self._stream), closing(_Series(self._cuda, self._stream)) as series:
            try:
                array = self._array(values)
            except (TypeError, ValueError) as cause:
                raise Error(f"CuPy cannot hold these values: {cause}") from cause
            # Room for the worst case of every launch.
            room = tier_room(count + 1, values.nbytes + values.nbytes // 64)
            with open_spool(self._cuda, device_memory=room, codec=codec) as spool:
                # The first call asks for kernels, the best of which are compiled meanwhile.
                series.run(spool, array, 1)
                wait_until_ready(spool)
                seconds = _readings(lambda: series.run(spool, array, count))
                if not spool.stats().codec.launches:
                    raise Error(
                        f"{name_of_codec(codec)} is encoded by the host, and not on {self.name}: "
                        "measure it without --gpu; `unspool doctor` says what is missing"
                    )
        return Point(values.nbytes, series.stored, seconds)

    def _array(self, values: Any) -> Any:
        """The values on the device."""
        array = self._cuda.array(values.nbytes)
        target = self._cuda.address(array)
        self._cuda.up(target, values.ctypes.data, values.nbytes, self._stream)
        self._cuda.wait(self._stream)
        return array.view(values.dtype).reshape(values.shape)


class _Series:
    """Saves of one array between two events.

    Attributes:
        stored: bytes of the last one.
    """

    def __init__(self, cuda: Cuda, stream: Any) -> None:
        self._cuda, self._stream, self.stored = cuda, stream, 0
        self._begin, self._end = cuda.event(), cuda.event()

    def run(self, spool: Any, array: Any, count: int) -> float:
        """Seconds of the stream for each save."""
        cuda, stream = self._cuda, self._stream
        cuda.spin(count * AHEAD, stream)
        cuda.record(self._begin, stream)
        for version in range(count):
            spool.save(version, array)
        cuda.record(self._end, stream)
        seconds = cuda.elapsed(self._begin, self._end) / count
        self.stored = sum(one.stored_bytes for one in spool.achieved(count - 1).values())
        for version in range(count):
            spool.discard(version)
        return seconds

    def close(self) -> None:
        """Gives the events back."""
        for event in (self._begin, self._end):
            self._cuda.destroy_event(event)
