"""Pictures of what a lossy history does to an image: beside the image without a loss, and the
difference of both on a stated scale."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from unspool_studies.rtm.figure import limit_of
from unspool_studies.rtm.model import Floats, Model

__all__ = ["draw_maps", "enlarged"]

#: Width of a figure in inches, the least and the greatest height of a row, and dots per inch.
WIDTH, LEAST, GREATEST, DPI = 11.0, 1.6, 5.0, 100
#: Of every figure.
FORMATS = (".png", ".svg")


def draw_maps(model: Model, images: Mapping[str, Floats], folder: Path) -> list[Path]:
    """Writes a picture of each codec, and one of all as `all.png` and `all.svg`.

    Args:
        model: what was migrated.
        images: finished images of the model's shape by the names of their codecs; the first one
            is without a loss. Of images in space the section in the middle of y is shown.
        folder: where the pictures go; it is made.

    Returns:
        The files.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (plain, *names), sections = images, {name: _section(image) for name, image in images.items()}
    sheets = {_file_name(name): [plain, name] for name in names}
    sheets["all"] = [plain, *names]
    found = []
    for stem, shown in sheets.items():
        figure = _sheet(model, {name: sections[name] for name in shown})
        for ending in FORMATS:
            found.append(folder / f"{stem}{ending}")
            _save(figure, found[-1])
    return found


def enlarged(image: Floats, wanted: Floats) -> int:
    """How many times larger the difference of two images is drawn than the images: the power of
    ten, from 1, that leaves it within the same scale; 1 where there is none.
    """
    apart = image - wanted
    if not apart.any() or not np.isfinite(apart).all():
        return 1
    # Most of a difference may be nothing: its percentile is 0 then.
    largest = float(np.percentile(np.abs(apart), 98.5)) or float(np.abs(apart).max())
    return int(10 ** max(0, math.floor(math.log10(limit_of(wanted) / largest))))


def _section(image: Floats) -> Floats:
    return image if image.ndim == 2 else image[:, image.shape[1] // 2]


def _file_name(codec: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", codec)


def _save(figure: Figure, file: Path) -> None:
    # The same bytes for the same images.
    with rc_context({"svg.hashsalt": "unspool"}):
        figure.savefig(file, dpi=DPI, metadata={"Date": None} if file.suffix == ".svg" else {})


def _sheet(model: Model, images: Mapping[str, Floats]) -> Figure:
    """The model and the image without a loss, and below them each image and its difference."""
    (width, *_, depth), (plain, *names) = model.extent, images
    tall = min(max(0.42 * WIDTH * depth / width, LEAST), GREATEST) + 0.5
    figure = Figure(figsize=(WIDTH, 0.6 + tall * len(images)), layout="constrained")
    panels = figure.subplots(len(images), 2, squeeze=False)
    wanted = images[plain]
    limit = limit_of(wanted)
    with rc_context({"font.size": 9.0}):
        speeds = _section(model.velocity) / 1000.0
        _panel(panels[0, 0], model, speeds, "velocity", "km/s", cmap="turbo")
        _image(panels[0, 1], model, wanted, f"image, codec {plain}", limit, "gray")
        for (left, right), name in zip(panels[1:], names, strict=True):
            _image(left, model, images[name], f"image, codec {name}", limit, "gray")
            _difference(right, model, images[name], wanted, limit)
    figure.suptitle(_title(model), fontsize=10)
    figure.supxlabel("distance (km)", fontsize=9)
    return figure


def _title(model: Model) -> str:
    if not model.in_space:
        return model.name
    return f"{model.name}, at y = {model.shape[1] // 2 * model.spacing[1] / 1000.0:.2f} km"


def _difference(axes: Axes, model: Model, image: Floats, wanted: Floats, limit: float) -> None:
    times = enlarged(image, wanted)
    if np.array_equal(image, wanted):
        title = "difference: none"
    elif times == 1:
        title = "difference, on the same scale"
    else:
        title = f"difference, enlarged {times:,} times"
    _image(axes, model, image - wanted, title, limit / times, "seismic")


def _image(
    axes: Axes, model: Model, values: Floats, title: str, limit: float, colours: str
) -> None:
    label = "amplitude / rms"
    _panel(axes, model, values, title, label, cmap=colours, vmin=-limit, vmax=limit)


def _panel(
    axes: Axes, model: Model, values: Floats, title: str, label: str, **options: Any
) -> None:
    (width, *_, depth), (dx, *_, dz) = model.extent, model.spacing
    edges = np.array([-dx / 2, width + dx / 2, depth + dz / 2, -dz / 2]) / 1000.0
    picture = axes.imshow(
        values.T, extent=tuple(edges), aspect="auto", interpolation="bilinear", **options
    )
    axes.figure.colorbar(picture, ax=axes, pad=0.01).set_label(label)
    axes.set_title(title, fontsize=9)
    axes.set_ylabel("depth (km)")
