"""Files that are there completely or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["whole", "write_figures", "write_json", "write_picture"]


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends well, and else vanishes."""
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Writes a file of JSON.

    Raises:
        OSError: it cannot be written.
    """
    with whole(path) as part:
        part.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def write_picture(figure: Figure, file: Path) -> list[Path]:
    """Writes a figure of Matplotlib as PNG and as SVG, under this name but for the suffix; both
    files. The same figure gives the same bytes.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib import rc_context

    written = []
    with rc_context({"svg.hashsalt": "unspool"}):
        for kind in ("png", "svg"):
            written.append(file.with_suffix(f".{kind}"))
            with whole(written[-1]) as part:
                metadata = {"Date": None} if kind == "svg" else {}
                figure.savefig(part, dpi=110, format=kind, metadata=metadata)
    return written


def write_figures(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes figures of Matplotlib by their names, each as PNG and SVG, to a folder, which is made
    where it is not there; their files.

    Raises:
        OSError: one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            file = folder / f"{name}.{kind}"
            with whole(file) as part:
                figure.savefig(part, dpi=90, format=kind)
            written.append(file)
    return written
