"""The call of `Checkpointer` that an advice comes down to."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from unspool._advise.model import Level, optimum
from unspool._advise.problem import Place, Problem
from unspool._unspool import automatic_rule

if TYPE_CHECKING:
    from unspool._advise.choosing import Way

__all__ = ["duration", "line_of"]

#: What "auto" takes is good enough this near to the best interval.
NEAR = 1.1


def line_of(
    way: Way, problem: Problem, interval: float, level: Level, copied: int | None
) -> str | None:
    """The call, or None where `Checkpointer` cannot do that or what it would store is not known."""
    coded = way.coded.ratio != 1.0
    # What is left of an array with a codec depends on how far its values move.
    if coded and (way.increments or way.coded.codec is None):
        return None
    words = [f'"{_folder(problem.place(way.place))}"', *_when(problem, interval, level)]
    if way.coded.codec is not None:
        words.append(f"codec={_codec(way.coded.codec)}")
    if way.increments:
        words.append("increments=True")
    if copied is not None and problem.remote is not None:
        words += _copies(problem.remote, interval + level.blocked, copied, problem, way)
    return f"Checkpointer({', '.join(words)})"


def _folder(place: Place) -> str:
    return "FOLDER" if place.path is None else os.path.join(place.path, "run")


def _codec(codec: object) -> str:
    return f'"{codec}"' if isinstance(codec, str) else repr(codec)


def _when(problem: Problem, interval: float, level: Level) -> list[str]:
    """When a checkpoint is due: "auto", which goes by what saves turn out to cost, where it comes
    to about the same."""
    share = automatic_rule(problem.ranks)[1]
    automatic = max(optimum(level.blocked, problem.mtbf), level.durable)
    if problem.blocking or not interval / NEAR <= automatic <= interval * NEAR:
        return [f'every="{duration(interval)}"']
    words = ['every="auto"', f'mtbf="{duration(problem.mtbf)}"']
    lost = level.blocked / (automatic + level.blocked)
    if lost > share:
        words.append(f"share={min(0.99, math.ceil(lost * 110) / 100):g}")
    return words


def _copies(place: Place, step: float, copied: int, problem: Problem, way: Way) -> list[str]:
    stored = problem.checkpoint_bytes / way.coded.ratio
    words = [f'remote="{_folder(place) if place.path is not None else "PLACE"}"']
    # As often as the place has time is what "auto" does, and the default.
    if (copied - 1) * step > stored / place.write:
        words.append(f'remote_every="{duration(copied * step)}"')
    return words


def duration(seconds: float) -> str:
    """As `Checkpointer` takes it, `"1h30min"` or `"2min15s"`; at most 1 % beside the figure."""
    if seconds >= 200 * 3600:
        return f"{min(round(seconds / 3600), 87_600)}h"
    if seconds >= 7200:
        return _two(round(seconds / 60), "h", "min")
    if seconds >= 60:
        return _two(round(seconds), "min", "s")
    return f"{seconds:.3g}s" if seconds >= 1 else f"{max(seconds * 1e3, 0.01):.2f}ms"


def _two(count: int, large: str, small: str) -> str:
    whole, part = divmod(count, 60)
    return f"{whole}{large}{part}{small}" if part else f"{whole}{large}"
