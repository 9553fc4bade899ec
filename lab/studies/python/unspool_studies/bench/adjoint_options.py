"""The options of the parts `gpuzip` and `schedules` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.codecs import NvComp
from unspool.errors import OptionError
from unspool_studies.rtm.codec import codec_of, name_of_codec
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.options import counts_of_cells, lengths, numbers
from unspool_studies.rtm.schedule import Choice
from unspool_studies.words import adder, count_of, size_of, some_of, words_of

__all__ = ["Gpuzip", "Migration", "PartOfRange", "add_adjoint_options", "adjoint_plans"]

MIB = 1 << 20

#: What part `gpuzip` migrates, and by which schedules.
MODELS = ("gradient", "layers", "salt", "file")
SCHEDULES = ("revolve", "zcut", "uniform")
#: What its spools encode with.
CODECS = "none lossless range=1e-6 range=1e-4 range=1e-2 zfp:rate=4 nvcomp:bitcomp,range=1e-4"


@dataclass(frozen=True)
class PartOfRange:
    """A codec of nvCOMP whose bound is a part of the range of the waves: its own bounds are in the
    unit of the values, which nobody knows before they are computed.

    Attributes:
        name: of the algorithm.
        part: of the range of the waves when all steps forward are taken.

    Raises:
        OptionError: nvCOMP has no such algorithm, or it loses nothing; or the part is not positive.
    """

    name: str
    part: float

    def __post_init__(self) -> None:
        self.of(1.0)

    def of(self, span: float) -> NvComp:
        """The codec for waves of that range."""
        return NvComp(self.name, abs=self.part * span)

    def __str__(self) -> str:
        return name_of_codec(self.of(1.0)).replace("abs=", "range=")


def _codec(text: str) -> Any:
    """A codec from its name: those of `codec_of`, and `nvcomp:bitcomp,range=1e-4`.

    Raises:
        argparse.ArgumentTypeError: it names none.
    """
    name, middle, part = text.strip().partition(",range=")
    if not (middle and name.startswith("nvcomp:")):
        return codec_of(text)
    try:
        return PartOfRange(name.removeprefix("nvcomp:"), float(part))
    except OptionError as why:
        raise argparse.ArgumentTypeError(f"{text!r}: {why}") from None
    except ValueError:
        reason = f"{text!r} has no number after range=, as in nvcomp:bitcomp,range=1e-4"
        raise argparse.ArgumentTypeError(reason) from None


def _codecs(text: str) -> tuple[Any, ...]:
    return tuple(map(_codec, text.split()))


@dataclass(frozen=True)
class Gpuzip:
    """What part `gpuzip` measures.

    Attributes:
        shape: cells of a field with Revolve, the absorbing layer included.
        steps: time steps there.
        snapshots: states that are kept there.
        tiers: states that the device tier holds there, one row each.
        zcut_shape: cells of a field with zCut.
        zcut_steps: time steps there.
        zcut_length: steps of a cut there.
        zcut_tiers: states that the device tier holds there.
        uniform_snapshots: states that Uniform keeps, of as many steps and cells as with zCut; None:
            as many as zCut does.
        schedules: which of `SCHEDULES`.
        models: which of `MODELS`.
        file: velocities of the model `file`, as `unspool-rtm` reads them.
        file_shape: cells of a raw file.
        file_spacing: metres between them, where the file does not say.
        codecs: of the spools.
        limit: seconds that a row may take.
        maps: a folder for pictures of images and their errors.
    """

    shape: tuple[int, ...] = (256, 256, 256)
    steps: int = 300
    snapshots: int = 6
    tiers: tuple[int, ...] = (0, 2, 4, 6)
    zcut_shape: tuple[int, ...] = (384, 384, 384)
    zcut_steps: int = 361
    zcut_length: int = 36
    zcut_tiers: tuple[int, ...] = (0, 2, 4, 6, 20, 40)
    uniform_snapshots: int | None = None
    schedules: tuple[str, ...] = SCHEDULES
    models: tuple[str, ...] = ("gradient",)
    file: Path | None = None
    file_shape: tuple[int, ...] | None = None
    file_spacing: tuple[float, ...] | None = None
    codecs: tuple[Any, ...] = _codecs(CODECS)
    limit: float = 180.0
    maps: Path | None = None


@dataclass(frozen=True)
class Migration:
    """What part `schedules` measures.

    Attributes:
        schedules: as `unspool-rtm --schedule` names them.
        model: a velocity model, as for `unspool-rtm`; None: a generated one.
        shape: cells of the model; None: as `unspool-rtm` has it.
        spacing: metres between its cells; None: likewise.
        steps: time steps of a shot.
        every: steps from one saved wavefield to the next.
        shots: how many.
        snapshots: states that are kept at most, where a schedule lets one choose.
        device: bytes of the device tier.
        host: bytes of the host tier.
        gpu: whether a GPU computes.
    """

    schedules: tuple[str, ...] = ("all", "revolve", "online", "uniform", "zcut", "levels", "auto")
    model: Path | None = None
    shape: tuple[int, ...] | None = None
    spacing: tuple[float, ...] | None = None
    steps: int = 1200
    every: int = 4
    shots: int = 1
    snapshots: int = 20
    device: int = 64 * MIB
    host: int = 192 * MIB
    gpu: bool = False


def add_adjoint_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of both parts."""
    _gpuzip_options(parser.add_argument_group("gpuzip"))
    _migration_options(parser.add_argument_group("schedules"))


def _gpuzip_options(group: argparse._ArgumentGroup) -> None:
    add = adder(group, "gpuzip")
    add("--gpuzip-shape", counts_of_cells, "NXxNYxNZ", "cells with Revolve (256x256x256)")
    add("--gpuzip-steps", count_of, "N", "time steps with Revolve (300)")
    add("--gpuzip-snapshots", count_of, "N", "states that Revolve keeps (6)")
    add("--gpuzip-tiers", numbers, "N[,N]", "states that the device tier holds (0,2,4,6)")
    add("--zcut-shape", counts_of_cells, "NXxNYxNZ", "cells with zCut (384x384x384)")
    add("--zcut-steps", count_of, "N", "time steps with zCut (361)")
    add("--zcut-length", count_of, "L", "steps of a cut (36)")
    add("--zcut-tiers", numbers, "N[,N]", "states that the device tier holds (0,2,4,6,20,40)")
    text = "states that Uniform keeps, with cells, steps and tiers of zCut (as many as zCut)"
    add("--uniform-snapshots", count_of, "N", text)
    add("--gpuzip-schedules", some_of(SCHEDULES), "NAME[,NAME]", ", ".join(SCHEDULES))
    add("--gpuzip-codecs", _codecs, "CODEC ...", f"of the spools, in one argument ({CODECS})")
    text = f"{', '.join(MODELS)}: what grows with depth, two that are made, a file (gradient)"
    add("--gpuzip-models", some_of(MODELS), "NAME[,NAME]", text)
    text = "velocities of the model file, as unspool-rtm reads them; a section is extended in y"
    add("--gpuzip-file", Path, "FILE", text)
    add("--gpuzip-file-shape", counts_of_cells, "NXxNZ", "of a raw file")
    add("--gpuzip-file-spacing", lengths, "D", "metres between its cells")
    add("--gpuzip-limit", count_of, "S", "seconds that a row may take (180)")
    add("--gpuzip-maps", Path, "DIRECTORY", "draw images and their errors there (PNG and SVG)")


def _migration_options(group: argparse._ArgumentGroup) -> None:
    add = adder(group, "migration", "rtm")
    known = ",".join(Migration.schedules)
    add("--schedules", _schedules, "NAME[,NAME]", f"as for unspool-rtm ({known})")
    add("--rtm-model", Path, "FILE", "velocities, as for unspool-rtm (a generated model)")
    add("--rtm-shape", counts_of_cells, "NXxNZ", "cells of the model (1201x401)")
    add("--rtm-spacing", lengths, "METRES", "between cells (7.5)")
    add("--rtm-steps", count_of, "N", "time steps of a shot (1200)")
    add("--rtm-every", count_of, "K", "steps from one saved wavefield to the next (4)")
    add("--rtm-shots", count_of, "N", "(1)")
    add("--rtm-snapshots", count_of, "N", "states kept at most (20)")
    add("--rtm-device", size_of, "SIZE", "(64MiB)")
    add("--rtm-host", size_of, "SIZE", "(192MiB)")
    group.add_argument(
        "--rtm-gpu",
        dest="migration_gpu",
        action="store_true",
        default=None,
        help="compute on the GPU",
    )


def _schedules(text: str) -> tuple[str, ...]:
    """Names that `unspool-rtm --schedule` knows."""
    names = words_of(text)
    if not names:
        raise argparse.ArgumentTypeError("no schedule is named")
    for name in names:
        try:
            Choice(name)
        except MigrationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return names


def adjoint_plans(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of both parts; what they leave out is as in the classes above."""
    return {
        "gpuzip": Gpuzip(**_given(options, "gpuzip_")),
        "migration": Migration(**_given(options, "migration_")),
    }


def _given(options: argparse.Namespace, prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in vars(options).items()
        if name.startswith(prefix) and value is not None
    }
