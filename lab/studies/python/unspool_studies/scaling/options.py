"""The options of `unspool-bench --simulate` and of its part `scaling`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.scaling.cluster import KEYS, Cluster, cluster_of
from unspool_studies.words import given_as

__all__ = ["Scaling", "add_scaling_options", "scaling_of"]


@dataclass(frozen=True)
class Scaling:
    """What the part does.

    Attributes:
        asked: clusters of the user, in place of the figures of the part.
        plot: a file for the picture.
        nodes: the clusters of the part, by their nodes.
        history: bytes of a GPU there; None: as in `Cluster`.
    """

    asked: tuple[Cluster, ...] = ()
    plot: Path | None = None
    nodes: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    history: int | None = None


#: What `--quick` changes, where no option says otherwise.
QUICK = {"nodes": (1, 64, 1024), "history": 40 << 30}


def add_scaling_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the part."""
    group = parser.add_argument_group("simulate and scaling", _KEYS)
    group.add_argument(
        "--simulate",
        dest="scaling_asked",
        type=cluster_of,
        action="append",
        metavar="KEY=VALUE[,...]",
        help="what a cluster that is not here would take, in virtual time, and nothing else; may "
        "be given several times",
    )
    group.add_argument(
        "--scaling-plot", type=Path, metavar="FILE", help="draw the figures of part scaling there"
    )


_KEYS = (
    f"Keys: {', '.join(KEYS)}. Sizes as 128MiB, speeds as 55GB/s, times as 10ms, yes or no; "
    "disk=nvme, fs or none, workload=shot or commits, hints=all, one or none. The guide says what "
    "each is."
)


def scaling_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the part; what they leave out is as in the class above."""
    given = given_as("scaling", options)
    given["asked"] = tuple(given.get("asked", ()))
    return {"scaling": Scaling(**((QUICK if options.quick else {}) | given))}
