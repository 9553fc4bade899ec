"""The options of the part `rtm-codecs` of `unspool-bench`."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.rtm.codec import codec_of
from unspool_studies.rtm.options import counts_of_cells, lengths
from unspool_studies.words import adder, count_of, given_as

__all__ = ["RtmCodecs", "add_rtm_codecs_options", "rtm_codecs_of"]

#: What is tried: from bounds that nobody sees to some that ruin the image.
CODECS = (
    "lossless range=1e-6 range=1e-5 range=1e-4 range=1e-3 range=1e-2 range=1e-1 range=5e-1 "
    "rms=1e-2 rms=1e-1 psnr=60 psnr=80 l2=1e-3 l2=1e-2 pointwise=1e-2,floor=1e-12 "
    "zfp:rate=2 zfp:rate=4 zfp:rate=8 zfp:rate=16"
)

#: Models that are generated.
KINDS = ("layers", "salt")


@dataclass(frozen=True)
class RtmCodecs:
    """What part `rtm-codecs` does.

    Attributes:
        model: a file of velocities; None: one is generated.
        generated: which one: one of `KINDS`.
        shape: cells of a raw file or of the generated model.
        spacing: metres between cells.
        coarser: every so many cells of the model are taken, along each axis.
        extended: cells along y over which a section is repeated; None: it stays one.
        shots: to migrate.
        frequency: of the source in Hz; None: what the grid carries.
        schedule: which states are kept.
        snapshots: of the schedule.
        codecs: to try, beside none.
        device: the device tier.
        host: the host tier.
        directory: of the disk tier.
        gpu: compute on a GPU.
        plot: a file for the plot.
        maps: a folder for pictures of images and their errors.
    """

    model: Path | None = None
    generated: str = "layers"
    shape: tuple[int, ...] | None = None
    spacing: tuple[float, ...] | None = None
    coarser: int = 1
    extended: int | None = None
    shots: int = 2
    frequency: float | None = None
    schedule: str = "all"
    snapshots: int | None = None
    codecs: tuple[Any, ...] = tuple(map(codec_of, CODECS.split()))
    device: str = "4MiB"
    host: str = "2GiB"
    directory: Path = Path(tempfile.gettempdir())
    gpu: bool = False
    plot: Path | None = None
    maps: Path | None = None


def add_rtm_codecs_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the part."""
    group = parser.add_argument_group("rtm-codecs")
    add = adder(group, "rtm_codecs", "image")
    add("--image-model", Path, "FILE", "velocities, as unspool-rtm reads them (generated)")
    add("--image-generated", _generated, "NAME", f"model: {', '.join(KINDS)} (layers)")
    text = "of a raw file or the generated model (301x151)"
    add("--image-shape", counts_of_cells, "NXx[NYx]NZ", text)
    add("--image-spacing", lengths, "D", "metres between cells (10)")
    add("--image-coarser", count_of, "K", "take every K-th cell of the model (1)")
    add("--image-extended", count_of, "NY", "repeat a section over so many cells along y")
    add("--image-shots", count_of, "N", "(2)")
    add("--image-frequency", float, "HZ", "of the source (what the grid carries)")
    add("--image-schedule", str, "NAME", "which states are kept (all)")
    add("--image-snapshots", count_of, "N", "of revolve and others (20)")
    add("--image-codecs", _codecs, "CODEC ...", f"to try, in one argument ({CODECS})")
    add("--image-device", str, "SIZE", "the device tier (4MiB)")
    add("--image-host", str, "SIZE", "the host tier (2GiB)")
    add("--image-plot", Path, "FILE", "draw error against ratio there (PNG or SVG)")
    add("--image-maps", Path, "DIRECTORY", "draw images and their errors there (PNG and SVG)")
    group.add_argument(
        "--image-gpu",
        dest="rtm_codecs_gpu",
        action="store_true",
        default=None,
        help="compute on one",
    )


def _generated(text: str) -> str:
    if text not in KINDS:
        reason = f"there is no model {text!r}: choose from {', '.join(KINDS)}"
        raise argparse.ArgumentTypeError(reason)
    return text


def _codecs(text: str) -> tuple[Any, ...]:
    return tuple(map(codec_of, text.split()))


def rtm_codecs_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the part; what they leave out is as in the class above."""
    given = given_as("rtm_codecs", options)
    return {"rtm_codecs": RtmCodecs(**given)}
