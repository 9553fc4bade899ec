"""The options of the parts `gpuzip` and `schedules` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.options import counts_of_cells, lengths
from unspool_studies.rtm.schedule import Choice
from unspool_studies.words import count_of, counts_of, size_of, words_of

__all__ = ["Gpuzip", "Migration", "add_adjoint_options", "adjoint_plans"]

MIB = 1 << 20


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
    """

    shape: tuple[int, ...] = (256, 256, 256)
    steps: int = 300
    snapshots: int = 6
    tiers: tuple[int, ...] = (2, 4, 6)
    zcut_shape: tuple[int, ...] = (384, 384, 384)
    zcut_steps: int = 361
    zcut_length: int = 36
    zcut_tiers: tuple[int, ...] = (2, 6, 20, 40)


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
    def add(name: str, kind: Any, metavar: str, text: str) -> None:
        dest = name.strip("-").replace("-", "_")
        dest = dest if dest.startswith("gpuzip_") else f"gpuzip_{dest}"
        group.add_argument(name, dest=dest, type=kind, metavar=metavar, help=text)

    add("--gpuzip-shape", counts_of_cells, "NXxNYxNZ", "cells with Revolve (256x256x256)")
    add("--gpuzip-steps", count_of, "N", "time steps with Revolve (300)")
    add("--gpuzip-snapshots", count_of, "N", "states that Revolve keeps (6)")
    add("--gpuzip-tiers", counts_of, "N[,N]", "states that the device tier holds (2,4,6)")
    add("--zcut-shape", counts_of_cells, "NXxNYxNZ", "cells with zCut (384x384x384)")
    add("--zcut-steps", count_of, "N", "time steps with zCut (361)")
    add("--zcut-length", count_of, "L", "steps of a cut (36)")
    add("--zcut-tiers", counts_of, "N[,N]", "states that the device tier holds (2,6,20,40)")


def _migration_options(group: argparse._ArgumentGroup) -> None:
    def add(name: str, kind: Any, metavar: str, text: str) -> None:
        dest = "migration_" + name.removeprefix("--rtm-").strip("-")
        group.add_argument(name, dest=dest, type=kind, metavar=metavar, help=text)

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
