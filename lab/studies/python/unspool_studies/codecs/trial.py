"""One codec on one array: how small, how fast, how exact."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from unspool.codecs.coding import Encoded, Outer, decode, encode_into, room_for
from unspool.codecs.host import is_lossy_dtype, name_of
from unspool.codecs.values import Bound, NvComp, Zfp
from unspool_studies.codecs.quality import Quality, limit_of, quality

__all__ = ["Candidate", "Trial", "Wishes", "candidates", "on_cpu", "words_of_bound"]

#: Seconds that the repetitions of one direction may take, and how many there are at most.
PATIENCE, ROUNDS = 1.0, 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A codec that is tried.

    Attributes:
        name: what the table calls it.
        codec: what `encode` or a spool takes.
        outer: what the bytes go through afterwards.
        bound: what it promises, or None.
    """

    name: str
    codec: Any
    outer: Outer | None = None
    bound: Bound | None = None

    @property
    def exact(self) -> bool:
        """Whether every bit has to come back."""
        return self.codec in (None, "lossless") or (
            isinstance(self.codec, NvComp) and self.codec.abs is None
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """What a codec did with an array.

    Attributes:
        name: the codec.
        place: `"cpu"` or `"gpu"`.
        raw_bytes: those of the array.
        stored_bytes: those that it made of them.
        values: how many values there are.
        encode_seconds: the best time of several.
        decode_seconds: the best time of several.
        quality: the reconstruction against the array.
        violations: values that break what the codec promises, its bound or every bit; None for
            codecs that promise nothing.
    """

    name: str
    place: str
    raw_bytes: int
    stored_bytes: int
    values: int
    encode_seconds: float
    decode_seconds: float
    quality: Quality
    violations: int | None

    @property
    def ratio(self) -> float:
        """How many times smaller it became."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def bits(self) -> float:
        """Bits for each value."""
        return 8.0 * self.stored_bytes / self.values if self.values else 0.0

    def rates(self) -> tuple[float, float]:
        """Bytes of the array per second, encoding and decoding."""
        times = (self.encode_seconds, self.decode_seconds)
        encoding, decoding = (self.raw_bytes / max(seconds, 1e-9) for seconds in times)
        return encoding, decoding

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for `json.dump`."""
        encoding, decoding = self.rates()
        return {
            "codec": self.name,
            "on": self.place,
            "raw_bytes": self.raw_bytes,
            "stored_bytes": self.stored_bytes,
            "ratio": self.ratio,
            "bits_per_value": self.bits,
            "encode_bytes_per_second": encoding,
            "decode_bytes_per_second": decoding,
            "quality": {**self.quality.as_dict(), "violations": self.violations},
        }


class Wishes(Protocol):
    """Which codecs are tried."""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Bounds to try."""

    @property
    def zfp(self) -> tuple[Zfp, ...]:
        """Settings of zfp to try besides."""

    @property
    def only(self) -> frozenset[str]:
        """The families that are tried."""


def candidates(values: Any, facts: Quality, wishes: Wishes) -> Iterator[Candidate]:
    """The codecs for an array, those that lose nothing first.

    Arguments:
        values: the array.
        facts: its range and RMS, as `quality` of it with itself finds them.
        wishes: what is asked for.
    """
    yield from (one for one in _exact() if _family(one) & wishes.only)
    if not is_lossy_dtype(name_of(values.dtype)):
        return
    for bound in wishes.bounds:
        lossy = _within(bound, limit_of(bound, facts.range, facts.rms), values)
        yield from (one for one in lossy if _family(one) & wishes.only)
    if "zfp" in wishes.only and _zfp_takes(values):
        for codec in wishes.zfp:
            yield Candidate(f"zfp {codec.kind}={codec.value:g}", codec)


def _family(candidate: Candidate) -> set[str]:
    return {candidate.name.split()[0]}


def _exact() -> Iterator[Candidate]:
    yield Candidate("twine", "lossless")
    yield Candidate("twine + zstd", "lossless", "zstd")
    yield Candidate("lz4", None, "lz4")
    yield Candidate("zstd", None, "zstd")
    yield Candidate("archive", None, "archive")


def _within(bound: Bound, limit: float | None, values: Any) -> Iterator[Candidate]:
    """Codecs with this bound; zfp knows absolute ones only, and is told the one that follows."""
    shown = words_of_bound(bound)
    yield Candidate(f"twine {shown}", bound, None, bound)
    yield Candidate(f"twine {shown} + zstd", bound, "zstd", bound)
    # None, 0 and what is infinite, as of squares of the largest numbers, is not a tolerance.
    if limit and math.isfinite(limit) and _zfp_takes(values):
        yield Candidate(f"zfp {shown}", Zfp(tolerance=limit), None, bound)


def words_of_bound(bound: Bound) -> str:
    """As an option has it: `pointwise=0.001,floor=1e-09`."""
    floor = "" if bound.floor is None else f",floor={bound.floor:g}"
    return f"{bound.kind}={bound.value:g}{floor}"


def _zfp_takes(values: Any) -> bool:
    return name_of(values.dtype) in ("float32", "float64")


def on_cpu(values: Any, candidate: Candidate, keep: Callable[[Any], None] | None = None) -> Trial:
    """Runs a codec on all cores.

    Arguments:
        values: an array in C order.
        candidate: the codec.
        keep: is shown the reconstruction.

    Raises:
        Error: the codec does not take these values.
    """
    codec, outer = candidate.codec, candidate.outer
    room, target = np.empty(room_for(values, codec, outer), "u1"), np.empty_like(values)
    # What is written for the first time costs the system's time, not the codec's.
    room.fill(0)
    target.reshape(-1).view("u1").fill(0)
    encoding, (stored, _, packed) = best_of(lambda: encode_into(room, values, codec, outer))
    dtype, shape = name_of(values.dtype), tuple(values.shape)
    shrunk = outer if packed else None
    encoded = Encoded(room[:stored].tobytes(), codec, dtype, shape, shrunk)
    decoding, _ = best_of(lambda: decode(encoded, target))
    if keep is not None:
        keep(target)
    return judged(candidate, "cpu", values, target, (stored, encoding, decoding))


def best_of(work: Callable[[], Any], before: Callable[[], Any] | None = None) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and what the last one returned. `before` is called
    before each run, and its time does not count."""
    best, spent = float("inf"), 0.0
    for _ in range(ROUNDS):
        if before is not None:
            before()
        begin = time.perf_counter()
        answer = work()
        seconds = time.perf_counter() - begin
        best, spent = min(best, seconds), spent + seconds
        if spent > PATIENCE:
            break
    return best, answer


def judged(
    candidate: Candidate, place: str, values: Any, target: Any, found: tuple[int, float, float]
) -> Trial:
    """The figures of a reconstruction; `found` are its bytes and the seconds of both ways."""
    figures = quality(values, target, candidate.bound, ssim=has_ssim())
    stored, encoding, decoding = found
    violations = figures.violations
    if candidate.exact:
        violations = int(np.count_nonzero(_bits(values) != _bits(target)))
    return Trial(
        name=candidate.name,
        place=place,
        raw_bytes=values.nbytes,
        stored_bytes=stored,
        values=figures.values,
        encode_seconds=encoding,
        decode_seconds=decoding,
        quality=figures,
        violations=violations,
    )


def has_ssim() -> bool:
    """Whether scikit-image is installed."""
    return importlib.util.find_spec("skimage") is not None


def _bits(values: Any) -> Any:
    return values.reshape(-1).view("u1")
