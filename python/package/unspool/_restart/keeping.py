"""The option `keep` of a `Checkpointer`, and the scores of checkpoints by what it monitors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from .._types import record_of
from ..errors import OptionError, shown
from .options import Keep

__all__ = ["keep_of", "score_of", "scores_of"]


def keep_of(given: Any) -> Keep:
    """The checkpoints that stay.

    Raises:
        OptionError: the option makes no sense.
    """
    keep = Keep(given) if type(given) is int else record_of("keep", given, Keep)
    _check_number("last", keep.last, 1)
    _check_number("best", keep.best, 0)
    if keep.every is not None:
        _check_number("every", keep.every, 1)
    if keep.mode not in ("min", "max"):
        raise OptionError(f'Keep(mode={shown(keep.mode)}): write "min" or "max".')
    if (keep.best > 0) != isinstance(keep.monitor, str):
        raise OptionError(
            f"Keep(best={keep.best}, monitor={shown(keep.monitor)}): the best ones are those by a "
            'number that is saved, such as Keep(best=2, monitor="loss").'
        )
    return keep


def _check_number(name: str, value: Any, least: int) -> None:
    if type(value) is not int or not least <= value < 1 << 32:
        raise OptionError(f"Keep({name}={shown(value)}): write an integer, at least {least}.")


def score_of(keep: Keep, values: Mapping[str, Any]) -> float | None:
    """How good a checkpoint with these small values is: lower is better, and NaN for one that has
    no such value; None where nobody asks.

    Raises:
        OptionError: there is no such number.
    """
    if keep.monitor is None:
        return None
    value = values.get(keep.monitor, values)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionError(
            f"Keep(monitor={keep.monitor!r}): give `save` a number by this name, such as "
            f"{keep.monitor}=loss.item(), or None where there is none."
        )
    return float(value) if keep.mode == "min" else -float(value)


def scores_of(keep: Keep, saved: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[int, float]:
    """The scores of what was saved before, by step."""
    found: dict[int, float] = {}
    for step, values in saved:
        with suppress(OptionError):
            found[step] = cast(float, score_of(keep, values))
    return found
