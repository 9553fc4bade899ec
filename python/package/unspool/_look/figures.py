"""Pictures of comparisons and of arrays as files, by Matplotlib."""

from __future__ import annotations

from typing import Any

from ..errors import MissingLibraryError
from .outcome import Comparison

__all__ = ["plot_comparison"]


def plot_comparison(found: Comparison, path: str) -> None:
    """Writes a picture of the largest difference of each array over the steps.

    Raises:
        MissingLibraryError: Matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = _figure((8.0, 4.0))
    axes = figure.subplots()
    for name in dict.fromkeys(one.name for one in found.differences if one.name):
        axes.plot(found.steps, found.largest(name), ".-", label=name)
    axes.set(xlabel="step", ylabel="largest difference", title=f"{found.a} and {found.b}")
    axes.set_yscale("symlog", linthresh=1e-16)
    if found.differences:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as cause:
        text = "a picture needs the package matplotlib: pip install matplotlib"
        raise MissingLibraryError(text, name="matplotlib") from cause
    return Figure(figsize=size, layout="constrained")
