"""The options of part `paging` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.paging.thesis import SIZES, STANDS_FOR
from unspool_studies.words import count_of, given_as, some_of

__all__ = ["Paging", "add_paging_options", "paging_of"]


@dataclass(frozen=True)
class Paging:
    """What the part does.

    Attributes:
        plots: a directory for the figures, PNG and SVG.
        programs: which of `STANDS_FOR`.
        sizes: of problems, which of `SIZES`, the largest one last.
        scale: how many times as large arrays and memory are as in print.
    """

    plots: Path | None = None
    programs: tuple[str, ...] = tuple(STANDS_FOR)
    sizes: tuple[str, ...] = SIZES
    scale: int = 16

    @property
    def chunk(self) -> int:
        """Bytes that are moved at a time: the least memory holds 16 such chunks or more."""
        return min(256, 64 * self.scale) << 10


#: What `--quick` changes, where no option says otherwise.
QUICK = {"sizes": ("1x", "8x"), "scale": 4}


def add_paging_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the part."""
    group = parser.add_argument_group("paging")

    def add(name: str, kind: Any, metavar: str, text: str) -> None:
        group.add_argument(f"--paging-{name}", type=kind, metavar=metavar, help=text)

    programs, sizes = tuple(STANDS_FOR), ", ".join(SIZES)
    add("plots", Path, "DIRECTORY", "draw the figures there")
    add("programs", some_of(programs), "NAME[,NAME]", f"of {', '.join(programs)} (all)")
    add("sizes", some_of(SIZES), "SIZE[,SIZE]", f"of problems, of {sizes} (all)")
    add("scale", count_of, "N", "times the memory of the dissertation (16)")


def paging_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the part; what they leave out is as in the class above."""
    given = given_as("paging", options)
    if "sizes" in given:
        given["sizes"] = tuple(size for size in SIZES if size in given["sizes"])
    return {"paging": Paging(**((QUICK if options.quick else {}) | given))}
