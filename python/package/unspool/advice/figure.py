"""The picture of an advice: how efficient each way is on other machines, with this one marked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import MissingLibraryError
from .jobs import Problem, choices_of
from .places import Place

#: How far the axes go to both sides of this machine, and points on them.
SPAN, POINTS = 100.0, 41


def draw(problem: Problem, path: str | os.PathLike[str]) -> None:
    """Writes the picture.

    Raises:
        MissingLibraryError: Matplotlib is not installed.
        OSError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as cause:
        text = "a picture needs the package matplotlib: pip install matplotlib"
        raise MissingLibraryError(text, name="matplotlib") from cause
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, _around(problem.mtbf), lambda value: replace(problem, mtbf=value), 3600.0)
    left.set(xlabel="mean time between two failures of the job (h)", ylabel="work / time (%)")
    _panel(right, _around(problem.disk.write), lambda value: _with_rate(problem, value), 1e9)
    right.set(xlabel="a rank writes to the disk (GB/s)")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _around(value: float) -> list[float]:
    return [value * SPAN ** (2.0 * place / (POINTS - 1) - 1.0) for place in range(POINTS)]


def _with_rate(problem: Problem, write: float) -> Problem:
    disk = problem.disk
    factor = write / disk.write
    return replace(problem, disk=Place(write, max(1.0, disk.read * factor), disk.path, 0))


def curves(
    values: Sequence[float], changed: Callable[[float], Problem]
) -> dict[str, list[tuple[float, float]]]:
    """Values and efficiency of every way by its name, where it works."""
    found: dict[str, list[tuple[float, float]]] = {}
    for value in values:
        for name, share in _shares(changed(value)).items():
            found.setdefault(name, []).append((value, share))
    return found


def _shares(problem: Problem) -> dict[str, float]:
    """The efficiency of every way by its name."""
    return {
        one.name if one.place == "disk" else f"{one.name} ({one.place})": one.efficiency
        for one in choices_of(problem)[0]
    }


def _panel(
    axes: Any, values: Sequence[float], changed: Callable[[float], Problem], unit: float
) -> None:
    # This machine is in the middle.
    here = values[len(values) // 2]
    # The same colours in both panels, as far as the same ways work in them.
    for at, (name, line) in enumerate(sorted(curves(values, changed).items())):
        points = [(value / unit, 100.0 * share) for value, share in line]
        axes.plot(*zip(*points, strict=True), color=f"C{at % 10}", label=name)
        share = dict(line).get(here)
        if share is not None:
            axes.plot(here / unit, 100.0 * share, "o", color=f"C{at % 10}")
    axes.axvline(here / unit, color="0.6", linestyle=":", label="here")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
