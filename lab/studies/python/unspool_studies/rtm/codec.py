"""Codecs of a history, as words of the command line."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from typing import Any

from unspool.codecs import Bound, NvComp, Zfp
from unspool.errors import OptionError

__all__ = ["FORMS", "codec_of", "is_lossy", "name_of_codec"]

#: How codecs are written.
FORMS = (
    "none, lossless, auto; a bound: abs=, range=, rms=, psnr=, l2=, or pointwise= with floor=, "
    "as in range=1e-3 or pointwise=1e-3,floor=1e-12; zfp:rate=8, zfp:precision=20, "
    "zfp:tolerance=1e-4; on a GPU nvcomp:lz4, nvcomp:bitcomp,abs=1e-4 and others of nvCOMP"
)


def codec_of(text: str) -> Any:
    """The codec that a text names, as `unspool.Spool(codec=...)` takes it.

    Raises:
        argparse.ArgumentTypeError: it names none.
    """
    words = text.strip()
    if words in ("none", "raw", ""):
        return None
    if words in ("lossless", "auto"):
        return words
    family, colon, rest = words.partition(":")
    try:
        if colon and family == "zfp":
            return Zfp(**_numbers(Zfp, rest))
        if colon and family == "nvcomp":
            name, _, more = rest.partition(",")
            return NvComp(name, **_numbers(NvComp, more))
        if not colon and "=" in words:
            return Bound(**_numbers(Bound, words))
    except OptionError as why:
        raise argparse.ArgumentTypeError(f"{text!r}: {why}") from None
    raise argparse.ArgumentTypeError(f"{text!r} is not a codec; there are {FORMS}")


def _numbers(codec: type[Bound | Zfp | NvComp], text: str) -> dict[str, Any]:
    """The numbers after their names, of those that a codec has.

    Raises:
        OptionError: one has no such name, no number, or comes twice.
    """
    known = [field.name for field in fields(codec) if field.name != "name"]
    found: dict[str, float] = {}
    for part in text.split(",") if text.strip() else ():
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in known:
            raise OptionError(f"{name!r} is not known; there are {FORMS}")
        if name in found:
            raise OptionError(f"{name}= comes twice")
        found[name] = _number(part, number)
    return found


def _number(part: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"{part!r} has no finite number, as in range=1e-3")
    return number


def is_lossy(codec: Any) -> bool:
    """Whether what comes back may be something else."""
    return isinstance(codec, Bound | Zfp) or (isinstance(codec, NvComp) and codec.abs is not None)


def name_of_codec(codec: Any) -> str:
    """The text that names a codec: what `codec_of` takes."""
    match codec:
        case None:
            return "none"
        case Zfp():
            return f"zfp:{codec.kind}={_short(codec.value)}"
        case NvComp():
            return f"nvcomp:{codec.name}" + (
                "" if codec.abs is None else f",abs={_short(codec.abs)}"
            )
        case Bound():
            floor = "" if codec.floor is None else f",floor={_short(codec.floor)}"
            return f"{codec.kind}={_short(codec.value)}{floor}"
    return str(codec)


def _short(value: float) -> str:
    """`1e-3` rather than `0.001` or `1e-03`."""
    mantissa, _, exponent = f"{value:.5e}".partition("e")
    plain, power = f"{float(mantissa):g}", int(exponent)
    return f"{value:g}" if -2 < power < 6 else f"{plain}e{power}"
