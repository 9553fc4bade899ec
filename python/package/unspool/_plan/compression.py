"""What a codec makes of the states of a plan: how small they become, how fast, and who says so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from unspool._plan.links import Rate
from unspool.errors import OptionError

__all__ = ["Compression", "Settled"]

#: Encoder and decoder of Twine, in bytes of the arrays: without loss on one H100, for arrays from
#: 8 MiB on, and on four idle cores for a dense wavefield.
ON_GPU = (Rate(550e9, 15e-6), Rate(900e9, 11e-6))
ON_CPU = (Rate(1.8e9), Rate(6.5e9))

GIVEN, MEASURED = "given", "measured on the sample"

#: Seconds that the repetitions of one direction may take, and how many there are at most.
PATIENCE, ROUNDS = 1.0, 5


@dataclass(frozen=True, slots=True)
class Settled:
    """A codec as a plan takes it to be.

    Attributes:
        ratio: bytes of a state for each byte that is stored, from 1.
        encode: from the application's arrays into the fastest tier, in bytes of the arrays.
        decode: back, in bytes of the arrays as well.
        sources: where each of the three is from, in words.
        codec: that of the spool, if it was named.
    """

    ratio: float
    encode: Rate
    decode: Rate
    sources: tuple[str, str, str]
    codec: Any

    def held(self, count: int) -> int:
        """What is stored of `count` bytes."""
        return max(1, int(count / self.ratio))

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries and numbers."""
        rates = {"encode": self.encode, "decode": self.decode}
        plain = {
            name: {"bytes_per_second": rate.bytes_per_second, "latency": rate.latency}
            for name, rate in rates.items()
        }
        sources = dict(zip(("ratio", "encode", "decode"), self.sources, strict=True))
        codec = None if self.codec is None else str(self.codec)
        return {"ratio": self.ratio, **plain, "sources": sources, "codec": codec}


@dataclass(frozen=True, slots=True)
class Compression:
    """What is known of the codec that a plan is for.

    Attributes:
        ratio: bytes of a state for each byte that is stored, from 1.
        encode: how fast arrays are encoded, in bytes of the arrays; None for that of Twine as we
            have measured it: on one H100 without loss where the arrays are on a GPU, else on four
            cores.
        decode: how fast they are decoded, likewise.
        codec: the codec, as in `Spool`: it is then among the options of the candidates.
        measured: whether the figures were measured on this machine's cores, by `Compression.of`.

    Raises:
        OptionError: a figure makes no sense, or the speed of the codec is not known here.
    """

    ratio: float
    encode: Rate | None = None
    decode: Rate | None = None
    codec: Any = None
    measured: bool = False

    def __post_init__(self) -> None:
        from unspool._unspool import codecs_of

        _check_ratio(self.ratio)
        _check_rate("encode", self.encode)
        _check_rate("decode", self.decode)
        codecs_of(self.codec, "Compression(codec=...)")
        if not (self.encode and self.decode):
            _check_known(self.codec)

    @classmethod
    def of(cls, codec: Any, sample: Any) -> Self:
        """Tries a codec on an array like one of the state, with all cores: for about three seconds.

        The speeds hold for arrays in main memory. Where arrays are on a GPU a plan takes the ratio
        and assumes the speeds of Twine: for another codec say `Compression(found.ratio, encode,
        decode, codec)`.

        Raises:
            OptionError: the codec does not take the sample, or none was given.
            ArrayError: the sample is not an array of numbers.
            MissingLibraryError: NumPy is not installed.
        """
        from unspool.codecs.coding import Encoded, decode, encode_into, room_for
        from unspool.codecs.host import host_array, library, name_of

        values = host_array(sample)
        if codec is None or not values.nbytes:
            raise OptionError(
                'Compression.of(codec, sample) tries a codec, such as "lossless" or '
                "unspool.Bound(range=1e-4), on an array like one of your states, which has to "
                "have bytes."
            )
        room, target = library().empty(room_for(values, codec, None), "u1"), values.copy()
        # What is written for the first time costs the system's time, not the codec's.
        room.fill(0)
        encoding, (stored, _, _) = _best_of(lambda: encode_into(room, values, codec, None))
        data, shape = room[:stored].tobytes(), tuple(values.shape)
        encoded = Encoded(data, codec, name_of(values.dtype), shape)
        decoding, _ = _best_of(lambda: decode(encoded, target))
        encoder, decoder = (Rate(values.nbytes / seconds) for seconds in (encoding, decoding))
        return cls(max(1.0, encoded.ratio), encoder, decoder, codec, measured=True)

    def settled(self, on_gpu: bool) -> Settled:
        """The codec, with what was neither given nor measured there taken from the tables.

        Raises:
            OptionError: nothing is known of the codec's speed on a GPU.
        """
        known = (None, None) if on_gpu and self.measured else (self.encode, self.decode)
        if None in known:
            _check_known(self.codec)
        said = MEASURED if self.measured else GIVEN
        assumed = f"assumed: Twine on {'one H100' if on_gpu else 'four cores'}"
        encode, decode = (
            rate or usual for rate, usual in zip(known, ON_GPU if on_gpu else ON_CPU, strict=True)
        )
        of_encoder, of_decoder = (said if rate else assumed for rate in known)
        return Settled(self.ratio, encode, decode, (said, of_encoder, of_decoder), self.codec)


def _best_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and what the last one returned."""
    best, spent = math.inf, 0.0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        answer = work()
        seconds = max(time.perf_counter() - begin, 1e-9)
        best, spent = min(best, seconds), spent + seconds
        if spent > PATIENCE:
            break
    return best, answer


def _check_ratio(value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and value >= 1):
        raise OptionError(
            f"ratio={value!r:.40}: how many bytes of a state become one, a finite number from 1 "
            "(4 for a quarter of the bytes)."
        )


def _check_rate(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, Rate):
        raise OptionError(
            f"{name}={value!r:.40}: give a Rate in bytes of the arrays per second, such as "
            "unspool.planning.Rate(100e9), or leave it out."
        )


def _check_known(codec: Any) -> None:
    """Refuses a codec whose speed is not known without measuring it."""
    from unspool.codecs.values import Bound

    if codec is not None and codec != "lossless" and not isinstance(codec, Bound):
        raise OptionError(
            f"codec={codec!r:.60}: its speed is not known here; give encode= and decode=, in bytes "
            "of the arrays per second, as the command unspool-codecs measures them."
        )
