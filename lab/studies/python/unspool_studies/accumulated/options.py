"""The options of the parts `accumulated`, `accumulated-gpu` and `rates` of `unspool-bench`."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.words import adder, count_of, counts_of, given_as, size_of, some_of

__all__ = ["INTERVALS", "TABLES", "Accumulated", "accumulated_of", "add_accumulated_options"]

MB, MIB, GIB = 10**6, 1 << 20, 1 << 30

#: What is varied; and what needs a GPU: an ensemble of shots that follow a plan, and the migration
#: in several processes.
TABLES = ("ratio", "rate", "cache", "frequency", "shots", "processes")
#: Whose intervals between checkpoints a plan is made from: see `unspool_studies.accumulated.shots`.
INTERVALS = ("device", "host")
#: The frequencies in Hz that a source may have: others take no grid that anybody would compute on.
LOWEST, HIGHEST = 1.0, 64.0
#: What `--quick` changes, where no option says otherwise.
QUICK: dict[str, Any] = {"spins": (2, 4), "cells": (16,), "shots": 4}


@dataclass(frozen=True)
class Accumulated:
    """What the parts do; the paper's evaluation (HiPC 2023, section IV) unless options say more.

    Attributes:
        checkpoints: of a run.
        size: bytes of each.
        ratio: raw over compressed bytes, where the ratio does not vary.
        rate: bytes of checkpoints a second of computing, where that does not vary.
        cache: bytes on the device, where that does not vary.
        link: bytes a second to the host; the paper's machines have 25e9, an H100 with PCIe 5 55e9.
        ratios: that are tried.
        rates: that are tried.
        caches: that are tried.
        together: checkpoints that a spool encodes together, on a GPU.
        frequencies: of the source, of runs with the wavefields of a migration, in Hz.
        processes: that do a migration at the same time, each on a GPU.
        tables: what is varied; `TABLES`.
        twine: a file with the cost of Twine, in place of what is known of an H100.
        nvcomp: a file with that of nvCOMP.
        plot: a file for the plot.
        spins: of the quantum control whose rates are measured.
        cells: of its phase fields, along each axis.
        shots: of the migration whose checkpoints are compared, and of the one that follows a plan.
        intervals: that this plan is made from; of `INTERVALS`.
        examples: the folder with the programs of both.
    """

    checkpoints: int = 100
    size: int = 2 * MB
    ratio: float = 10.0
    rate: float = 100e9
    cache: int = 128 * MIB
    link: float = 25e9
    ratios: tuple[float, ...] = (4.0, 10.0, 16.0, 22.0, 28.0)
    rates: tuple[float, ...] = (40e9, 100e9, 200e9, 400e9)
    caches: tuple[int, ...] = tuple(mib * MIB for mib in (64, 128, 256, 512, 1024))
    frequencies: tuple[float, ...] = (4.0, 8.0, 12.0, 16.0)
    processes: tuple[int, ...] = (1, 2, 4)
    tables: tuple[str, ...] = TABLES
    together: int = 16
    twine: Path | None = None
    nvcomp: Path | None = None
    plot: Path | None = None
    spins: tuple[int, ...] = (4, 6, 8)
    cells: tuple[int, ...] = (32, 64)
    shots: int = 20
    intervals: str = INTERVALS[0]
    examples: Path = Path("examples")


def add_accumulated_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the parts."""
    group = parser.add_argument_group("accumulated")
    add = adder(group, "accumulated")
    add("--accumulated-checkpoints", count_of, "N", "of a run (100)")
    add("--accumulated-size", size_of, "SIZE", "of each (2MB)")
    add("--accumulated-link", size_of, "SIZE", "a second to the host (25GB)")
    add("--accumulated-twine", Path, "FILE", "cost of Twine, of `unspool-codecs --cost` (H100)")
    add("--accumulated-nvcomp", Path, "FILE", "cost of nvCOMP, likewise (H100)")
    add("--accumulated-together", count_of, "N", "checkpoints of one launch on a GPU (16)")
    add("--accumulated-tables", some_of(TABLES), "NAME[,NAME]", ", ".join(TABLES))
    add("--accumulated-processes", counts_of, "N[,N]", "each on its own GPU (1,2,4)")
    add("--accumulated-frequencies", _frequencies, "HZ[,HZ]", "of a migration's source (4,8,12,16)")
    add(
        "--accumulated-plot",
        Path,
        "FILE",
        "draw throughputs there (PNG or SVG; those of a GPU: -gpu; shots: -shots)",
    )
    add("--accumulated-spins", counts_of, "N[,N]", "of quantum control, for rates (4,6,8)")
    add("--accumulated-cells", counts_of, "N[,N]", "of a phase field along each axis (32,64)")
    add("--accumulated-shots", count_of, "N", "of a migration, for rates and shots (20)")
    group.add_argument(
        "--accumulated-intervals",
        choices=INTERVALS,
        help="by whose clock the plan of shots is made (device)",
    )
    add("--accumulated-examples", Path, "DIRECTORY", "the programs, for rates (examples)")


def _frequencies(text: str) -> tuple[float, ...]:
    """Frequencies in Hz, with commas between them."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(LOWEST <= frequency <= HIGHEST for frequency in found):
        reason = f"{text!r}: frequencies from {LOWEST:g} to {HIGHEST:g} Hz, as in 8,12,16"
        raise argparse.ArgumentTypeError(reason)
    return found


def accumulated_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the parts; what they leave out is as in the class above."""
    given = given_as("accumulated", options)
    return {"accumulated": Accumulated(**((QUICK if options.quick else {}) | given))}
