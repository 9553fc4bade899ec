"""The picture of `unspool-codecs -o`: original, reconstruction and error, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from unspool_studies.codecs.source import Source
from unspool_studies.codecs.trial import Candidate, Trial

__all__ = ["Picture"]

#: Inches of a panel, of the margins around, and dots per inch.
PANEL, SIDE, DPI = 4.2, 0.9, 110

#: Amplitudes beyond this percentile are clipped in the pictures of values, in per cent.
CLIP = 99.0

#: The most points along an edge: more are not seen.
FINEST = 1600


@dataclass(slots=True)
class _Row:
    name: str
    plane: Any
    trial: Trial | None = None


class Picture:
    """One row for each codec that loses something."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._source: Source | None = None

    def begin(self, source: Source) -> None:
        """Keeps a plane of the original: the one in the middle of a larger array."""
        self._source = source

    def keeper(self, candidate: Candidate) -> Callable[[Any], None]:
        """Takes the plane of a reconstruction."""

        def keep(values: Any) -> None:
            self._rows.append(_Row(candidate.name, _plane(values)))

        return keep

    def measured(self, trial: Trial) -> None:
        """The figures of the reconstruction that was taken last."""
        if self._rows and self._rows[-1].trial is None and self._rows[-1].name == trial.name:
            self._rows[-1].trial = trial

    def save_to(self, path: Path) -> None:
        """Writes the picture as a PNG.

        Raises:
            OSError: the file cannot be written.
        """
        assert self._source is not None
        original = _plane(self._source.array)
        rows = [row for row in self._rows if row.trial is not None] or [_Row("nothing", original)]
        with matplotlib.rc_context({"font.size": 9.0, "axes.titlesize": 9.5}):
            figure = self._drawn(original, rows)
            figure.savefig(path, format="png")

    def _drawn(self, original: Any, rows: list[_Row]) -> Figure:
        tall = _height(original)
        size = (3 * PANEL + 2 * SIDE, len(rows) * (tall + 0.55) + SIDE)
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        panels = figure.subplots(len(rows), 3, squeeze=False)
        for axes, row in zip(panels, rows, strict=True):
            _values(figure, axes[0], original, original, "original")
            _values(figure, axes[1], row.plane, original, _titled(row))
            _errors(figure, axes[2], row.plane - original)
        assert self._source is not None
        figure.suptitle(f"{self._source.name} {_where(self._source.array)}")
        return figure


def _plane(values: Any) -> Any:
    """The last two dimensions in the middle of the others, or all of a row, as float64."""
    real = np.abs(values) if values.dtype.kind == "c" else values
    while real.ndim > 2:
        real = real[real.shape[0] // 2]
    steps = tuple(slice(None, None, max(1, extent // FINEST)) for extent in real.shape)
    return np.atleast_1d(np.array(real[steps], np.float64))


def _where(values: Any) -> str:
    middle = ", ".join(str(extent // 2) for extent in values.shape[:-2])
    return f"[{middle}]" if middle else ""


def _height(plane: Any) -> float:
    """Inches, such that the plane keeps its proportions as far as that looks well."""
    if plane.ndim == 1:
        return 0.5 * PANEL
    tall, wide = plane.shape
    return float(PANEL * np.clip(tall / max(wide, 1), 0.3, 1.2))


def _titled(row: _Row) -> str:
    if row.trial is None:
        return row.name
    found = row.trial.quality
    similar = "" if found.ssim is None else f", SSIM {found.ssim:.4f}"
    return f"{row.name}: {row.trial.ratio:.1f} x smaller\nPSNR {found.psnr:.1f} dB{similar}"


def _values(figure: Figure, axes: Any, plane: Any, original: Any, title: str) -> None:
    axes.set_title(title)
    if plane.ndim == 1:
        axes.plot(plane, linewidth=0.7)
        return
    finite = original[np.isfinite(original)]
    low, high = np.percentile(finite, (100.0 - CLIP, CLIP)) if finite.size else (0.0, 1.0)
    if low < 0 < high:
        high = max(-low, high)
        low = -high
    _image(figure, axes, plane, cmap="gray", vmin=low, vmax=high if high > low else low + 1.0)


def _errors(figure: Figure, axes: Any, error: Any) -> None:
    axes.set_title("reconstruction - original")
    if error.ndim == 1:
        axes.plot(error, linewidth=0.7, color="tab:red")
        return
    finite = np.abs(error[np.isfinite(error)])
    most = float(finite.max(initial=0.0)) or 1.0
    _image(figure, axes, error, cmap="RdBu_r", vmin=-most, vmax=most)


def _image(figure: Figure, axes: Any, plane: Any, **options: Any) -> None:
    picture = axes.imshow(plane, aspect="auto", interpolation="nearest", **options)
    figure.colorbar(picture, ax=axes, shrink=0.9)
