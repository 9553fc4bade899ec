"""Pictures of comparisons and of arrays as files, by Matplotlib."""

from __future__ import annotations

from typing import Any

from ..errors import MissingLibraryError
from .outcome import Comparison

__all__ = ["plot_array", "plot_comparison"]


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


def plot_array(values: Any, title: str, path: str) -> None:
    """Writes a picture of numbers of one or two dimensions.

    Raises:
        MissingLibraryError: Matplotlib is not installed.
        OSError: the file cannot be written.
    """
    import numpy as np

    figure = _figure((7.0, 5.0))
    axes = figure.subplots()
    axes.set_title(title)
    if values.ndim < 2:
        axes.plot(values.reshape(-1))
    else:
        finite = values[np.isfinite(values)]
        most = float(np.abs(finite).max()) if finite.size and finite.min() < 0 < finite.max() else 0
        limits = {"cmap": "RdBu_r", "vmin": -most, "vmax": most} if most else {"cmap": "viridis"}
        figure.colorbar(axes.imshow(values, aspect="auto", **limits))
    figure.savefig(path, dpi=110)


def _figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as cause:
        text = "a picture needs the package matplotlib: pip install matplotlib"
        raise MissingLibraryError(text, name="matplotlib") from cause
    return Figure(figsize=size, layout="constrained")
