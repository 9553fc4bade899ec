"""What a codec makes of the states of a plan: how small they become, how fast, and who says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unspool.errors import OptionError
from unspool.planning.links import Rate
from unspool.planning.sizes import bytes_of

__all__ = ["Compression", "Wish", "wish_of"]

#: Encoder and decoder of Twine, in bytes of the arrays: without loss on one H100, for arrays from
#: 8 MiB on, and on four idle cores for a dense wavefield.
ON_GPU = (Rate(550e9, 15e-6), Rate(900e9, 11e-6))
ON_CPU = (Rate(1.8e9), Rate(6.5e9))

GIVEN, MEASURED = "given", "measured on the sample"


@dataclass(frozen=True, slots=True)
class Compression:
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
    sources: tuple[str, str, str] = (GIVEN, GIVEN, GIVEN)
    codec: Any = None

    def held(self, count: int) -> int:
        """What is stored of `count` bytes."""
        return max(1, int(count / self.ratio))

    def as_dict(self) -> dict[str, Any]:
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
class Wish:
    """What was said about a codec, checked, before it is known where the arrays are."""

    ratio: float | None
    encode: Rate | None
    decode: Rate | None
    codec: Any
    sample: Any

    def settled(self, on_gpu: bool) -> Compression:
        """The codec, with what was not said measured on the sample or taken from the tables.

        Raises:
            OptionError: the codec does not take the sample, or nothing is known of its speed.
        """
        ratio, speeds, source = self.ratio, ON_GPU if on_gpu else ON_CPU, GIVEN
        of_ratio = GIVEN
        if ratio is None:
            ratio, measured = _tried(self.codec, self.sample)
            of_ratio = MEASURED
            speeds, source = (speeds, source) if on_gpu else (measured, MEASURED)
        if source != MEASURED and not (self.encode and self.decode):
            _check_known(self.codec)
            source = f"assumed: Twine on {'one H100' if on_gpu else 'four cores'}"
        sources = (of_ratio, GIVEN if self.encode else source, GIVEN if self.decode else source)
        encode, decode = self.encode or speeds[0], self.decode or speeds[1]
        return Compression(ratio, encode, decode, sources, self.codec)


def wish_of(ratio: Any, encode: Any, decode: Any, codec: Any, sample: Any) -> Wish | None:
    """What was said about a codec; None when nothing was.

    Raises:
        OptionError: it makes no sense, or does not say how small states become.
    """
    if ratio is None and sample is None:
        given = {"encode": encode, "decode": decode, "codec": codec}
        alone = [name for name, value in given.items() if value is not None]
        if not alone:
            return None
        raise OptionError(
            f"{alone[0]}=... says nothing of how small states become: add ratio=, or codec= with "
            "a sample= of your data, on which it is measured."
        )
    if ratio is not None and sample is not None:
        raise OptionError("ratio= and sample= both say how small states become: leave one out.")
    if sample is not None and codec is None:
        raise OptionError(
            'sample=... is there to try a codec on: add codec="lossless" or a bound, such as '
            "codec=unspool.Bound(range=1e-4)."
        )
    from unspool.codecs.words import words_of

    words_of(codec, "codec")
    rates = (_rate("encode", encode), _rate("decode", decode))
    return Wish(None if ratio is None else _ratio(ratio), *rates, codec, sample)


def _ratio(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= 1:
        return float(value)
    raise OptionError(
        f"ratio={value!r:.40}: how many bytes of a state become one, a finite number from 1 (4 for "
        "a quarter of the bytes)."
    )


def _rate(name: str, value: Any) -> Rate | None:
    """Bytes in a second, as a number or as text with a unit."""
    if value is None or isinstance(value, Rate):
        return value
    if isinstance(value, str):
        text = value.strip()
        if not text.endswith("/s"):
            raise OptionError(f'{name}={value!r}: a speed is written as "500 GB/s".')
        return Rate(float(bytes_of(name, text.removesuffix("/s"))))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 1 <= value <= 1e18):
        raise OptionError(
            f'{name}={value!r:.40}: write bytes of the arrays per second, or text such as "500 '
            'GB/s".'
        )
    return Rate(float(value))


def _tried(codec: Any, sample: Any) -> tuple[float, tuple[Rate, Rate]]:
    """Ratio and speeds of a codec on an array, with all cores."""
    from unspool.codecs.host import host_array
    from unspool.codecs.trial import Candidate, on_cpu

    values = host_array(sample)
    if not values.nbytes:
        raise OptionError("sample=... has no bytes: give an array like one of your states.")
    trial = on_cpu(values, Candidate("the sample", codec))
    encode, decode = trial.rates()
    return max(1.0, trial.ratio), (Rate(encode), Rate(decode))


def _check_known(codec: Any) -> None:
    """Refuses codecs of whose speed there is no table."""
    from unspool.codecs.values import Bound

    if codec is not None and codec != "lossless" and not isinstance(codec, Bound):
        raise OptionError(
            f"codec={codec!r:.60}: its speed is not known here; add encode= and decode=, in bytes "
            'of the arrays per second ("100 GB/s"), as `unspool codecs` measures them.'
        )
