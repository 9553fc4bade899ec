"""Codecs and bounds as values: immutable, comparable, hashable, and written as they are made.

None of them knows an array. `unspool.Spool(codec=...)` and `unspool.codecs.encode` take them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unspool.errors import OptionError

__all__ = ["Achieved", "Bound", "Codec", "Codecs", "NvComp", "Zfp"]

#: The algorithms of nvCOMP, and which of them can lose something.
NVCOMP = ("bitcomp", "ans", "lz4", "cascaded", "gdeflate", "zstd")
NVCOMP_LOSSY = ("bitcomp",)

BOUND_ADVICE = (
    "write one of Bound(abs=1e-4), Bound(range=1e-3), Bound(rms=1e-2), Bound(psnr=80), "
    "Bound(l2=1e-3) or Bound(pointwise=1e-3, floor=1e-12)"
)
ZFP_ADVICE = "write one of Zfp(rate=8), Zfp(precision=20) or Zfp(tolerance=1e-4)"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bound:
    """How far a value may be from the one that was saved; exactly one of these is given.

    NaN, infinities, and values for which the bound cannot be held by rounding come back bit for
    bit. A zero may lose its sign. `abs`, `range`, `rms` and `pointwise` hold for every finite
    value. `psnr` and `l2` are targets for the whole array, which are met where errors spread
    evenly; the absolute bound that follows from them holds for every value.

    Attributes:
        abs: at most this far, in the unit of the values.
        range: at most this part of the range, the largest minus the smallest finite value.
        rms: at most this part of the root mean square of the finite values.
        psnr: the peak signal-to-noise ratio to reach, in dB, the range being the peak.
        l2: the norm of the error to stay within, divided by that of the values.
        pointwise: at most this part of the value itself.
        floor: with `pointwise`, the magnitude below which values become 0; None for none.

    Raises:
        OptionError: none or several are given, or a number makes no sense.
    """

    abs: float | None = None
    range: float | None = None
    rms: float | None = None
    psnr: float | None = None
    l2: float | None = None
    pointwise: float | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        given = _only(self, ("floor",), BOUND_ADVICE)
        number = _positive(self, given, BOUND_ADVICE)
        most = {"range": 1.0, "l2": 1.0, "pointwise": 1.0, "psnr": 1000.0}.get(given, math.inf)
        if number >= most and given != "psnr":
            raise OptionError(
                f"Bound({given}={number:g}): an error as large as the values leaves nothing of "
                f"them; give a number below {most:g}, such as Bound({given}=1e-3)."
            )
        if number > most:
            raise OptionError(
                f'Bound(psnr={number:g}): no dtype is so exact; write "lossless" instead.'
            )
        if self.floor is not None:
            self._check_floor(given)

    def _check_floor(self, given: str) -> None:
        if given != "pointwise":
            raise OptionError(
                f"Bound({given}=..., floor=...): a floor belongs to a bound relative to each "
                "value: Bound(pointwise=1e-3, floor=1e-12)."
            )
        floor = _number("Bound", "floor", self.floor, BOUND_ADVICE)
        if not 0 <= floor < math.inf:
            raise OptionError(f"Bound(floor={floor:g}): a magnitude from 0 is needed.")
        object.__setattr__(self, "floor", floor)

    def __repr__(self) -> str:
        return _call(self)

    @property
    def kind(self) -> Literal["abs", "range", "rms", "psnr", "l2", "pointwise"]:
        """Which of them it is: `"abs"`, `"range"`, ..."""
        return _given(self)[0]  # type: ignore[return-value]

    @property
    def value(self) -> float:
        """The number that was given for it."""
        return float(getattr(self, self.kind))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Zfp:
    """The codec zfp, for exchange with other programs: float32 and float64 without NaN and Inf;
    exactly one of these is given.

    Its streams are those of the zfp library. Prefer `Bound`: at the same error it needs fewer
    bytes on wavefields, and it holds for every value.

    Attributes:
        rate: bits for each value, fixed.
        precision: bit planes for each block of values.
        tolerance: the largest error, in the unit of the values; zfp stays well below it.

    Raises:
        OptionError: none or several are given, or a number makes no sense.
    """

    rate: float | None = None
    precision: int | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        given = _only(self, (), ZFP_ADVICE)
        number = _positive(self, given, ZFP_ADVICE)
        if given != "tolerance" and number > 64:
            raise OptionError(f"Zfp({given}={number:g}): values have at most 64 bits.")
        if given == "precision":
            if number != int(number):
                raise OptionError(f"Zfp(precision={number:g}): a whole number of bit planes.")
            object.__setattr__(self, "precision", int(number))

    def __repr__(self) -> str:
        return _call(self)

    @property
    def kind(self) -> Literal["rate", "precision", "tolerance"]:
        """Which of them it is."""
        return _given(self)[0]  # type: ignore[return-value]

    @property
    def value(self) -> float:
        """The number that was given for it."""
        return float(getattr(self, self.kind))


@dataclass(frozen=True, slots=True, repr=False)
class NvComp:
    """A codec of NVIDIA's nvCOMP: `NvComp("bitcomp")`.

    Needs `pip install unspool[nvcomp]` and a spool on a GPU, which encodes and decodes: arrays of
    the host cross the link for it. Its streams are not documented, and may only be used with
    NVIDIA's GPUs: a durable spool refuses it.

    Attributes:
        name: `"bitcomp"`, `"ans"`, `"lz4"`, `"cascaded"`, `"gdeflate"` or `"zstd"`.
        abs: for `"bitcomp"`, the largest error in the unit of the values; None loses nothing.

    Raises:
        OptionError: there is no such codec, or it cannot lose anything.
    """

    name: str
    abs: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NVCOMP:
            known = ", ".join(f'"{name}"' for name in NVCOMP)
            raise OptionError(
                f"NvComp({self.name!r}): nvCOMP has no such codec here; it has {known}."
            )
        if self.abs is None:
            return
        if self.name not in NVCOMP_LOSSY:
            raise OptionError(
                f'NvComp("{self.name}", abs=...): it loses nothing; leave abs out, or write '
                'NvComp("bitcomp", abs=1e-4).'
            )
        _positive(self, "abs", 'write NvComp("bitcomp", abs=1e-4)')

    def __repr__(self) -> str:
        bound = "" if self.abs is None else f", abs={self.abs!r}"
        return f"NvComp({self.name!r}{bound})"


Codec = None | Literal["raw", "lossless", "auto"] | Bound | Zfp | NvComp

#: One codec, or one for each region by name, with "*" for those that are not named.
Codecs = Codec | Mapping[str, Codec]


@dataclass(frozen=True, slots=True)
class Achieved:
    """What a codec did with one array.

    Attributes:
        codec: what made the stored bytes: `"raw"`, `"twine"`, `"zfp"` or `"nvcomp"`.
        raw_bytes: the bytes of the values.
        stored_bytes: the bytes that are kept for them.
        values: how many values there are; a complex number has two; None as for `max_error`.
        max_error: the largest |x - x'| over the finite values, in their unit; None where the codec
            does not tell, as zfp on a GPU, and for what an earlier run has saved. Of a bound, 0.0
            also says that no error is as large as the smallest normal number.
        rms_error: the root mean square of x - x' over them, or None.
        outliers: values that are stored as they are, because the bound could not be held otherwise,
            or None.
    """

    codec: str
    raw_bytes: int
    stored_bytes: int
    values: int | None
    max_error: float | None
    rms_error: float | None
    outliers: int | None

    @property
    def ratio(self) -> float:
        """How many times smaller it became; 1 for nothing."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


def _given(value: Any, besides: tuple[str, ...] = ("floor",)) -> list[str]:
    names = [field.name for field in dataclasses.fields(value) if field.name not in besides]
    return [name for name in names if getattr(value, name) is not None]


def _only(value: Any, besides: tuple[str, ...], advice: str) -> str:
    """The name of the one field that is given."""
    given = _given(value, besides)
    if len(given) == 1:
        return given[0]
    name = type(value).__name__
    what = f"{' and '.join(given)} together" if given else "nothing was given"
    raise OptionError(f"{name}(...): {what}; {advice}.")


def _positive(value: Any, name: str, advice: str) -> float:
    """The field as a float above 0, which takes its place."""
    kind = type(value).__name__
    number = _number(kind, name, getattr(value, name), advice)
    if not 0 < number < math.inf:
        lossless = ' (for no loss at all, write "lossless")' if number == 0 else ""
        raise OptionError(f"{kind}({name}={number:g}): a number above 0 is needed{lossless}.")
    object.__setattr__(value, name, number)
    return number


def _number(kind: str, name: str, given: Any, advice: str) -> float:
    if not isinstance(given, bool | str | bytes):
        try:
            return float(given)
        except (TypeError, ValueError, OverflowError):
            pass
    raise OptionError(f"{kind}({name}={given!r}): that is not a number; {advice}.")


def _call(value: Any) -> str:
    fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    shown = ", ".join(f"{name}={number!r}" for name, number in fields if number is not None)
    return f"{type(value).__name__}({shown})"
