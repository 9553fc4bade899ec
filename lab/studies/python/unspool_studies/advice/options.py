"""The options of the parts `advise` and `failures` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.words import count_of, given_as, size_of

__all__ = ["Advising", "add_advising_options", "advising_of"]

MIB = 1 << 20


@dataclass(frozen=True)
class Advising:
    """What the parts do.

    Attributes:
        plots: a directory for the figures of `advise`.
        state: bytes of the state of the job in `failures`.
        work: seconds that this job computes, in virtual time.
        mtbf: seconds between two of its failures.
        seed: of its failures.
    """

    plots: Path | None = None
    state: int = 64 * MIB
    work: float = 3600.0
    mtbf: float = 300.0
    seed: int = 1


#: What `--quick` changes, where no option says otherwise.
QUICK = {"state": 4 * MIB, "work": 600.0}


def add_advising_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the parts."""
    group = parser.add_argument_group("advise and failures")

    def add(name: str, dest: str, kind: Any, metavar: str, text: str) -> None:
        group.add_argument(name, dest=f"advising_{dest}", type=kind, metavar=metavar, help=text)

    add("--advise-plots", "plots", Path, "DIRECTORY", "draw the figures there")
    add("--failures-state", "state", size_of, "SIZE", "of the job (64MiB)")
    add("--failures-work", "work", float, "S", "that it computes, in virtual time (3600)")
    add("--failures-mtbf", "mtbf", float, "S", "between two failures (300)")
    add("--failures-seed", "seed", count_of, "N", "(1)")


def advising_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the parts; what they leave out is as in the class above."""
    given = given_as("advising", options)
    return {"advising": Advising(**((QUICK if options.quick else {}) | given))}
