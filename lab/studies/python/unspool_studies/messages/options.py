"""The options of part `messages` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.words import count_of, given_as, some_of

__all__ = ["PROGRAMS", "Messages", "add_messages_options", "messages_of"]

#: The programs of `lab/studies/messages`, in the order of the dissertation's tables.
PROGRAMS = ("hpccg", "minife", "minimd", "lammps", "wave", "su3")


@dataclass(frozen=True)
class Messages:
    """What the part does.

    Attributes:
        plots: a directory for the figures, PNG and SVG.
        programs: which of `PROGRAMS`.
        command: `unspool-messages`; None: that of `target/release`, or the one on the PATH.
        sources: the folder with the programs' sources.
        compared: how many messages of a program are coded by the dissertation's tools at most.
        analysis: seconds for which `unspool-messages record` tries its ways of coding.
        rounds: runs of a program, plain and coded, on a slowed network.
        networks: their speeds, bytes a second of a rank.
        scales: numbers of ranks that are simulated.
        small: smaller problems.
    """

    plots: Path | None = None
    programs: tuple[str, ...] = PROGRAMS
    command: Path | None = None
    sources: Path = Path("lab/studies/messages")
    compared: int = 240
    analysis: float = 5.0
    rounds: int = 3
    networks: tuple[float, ...] = (0.1e9, 1e9, 10e9)
    scales: tuple[int, ...] = (256, 1024, 4096)
    small: bool = False


#: What `--quick` changes, where no option says otherwise.
QUICK = {"compared": 48, "analysis": 2.0, "rounds": 1, "scales": (256, 4096), "small": True}


def add_messages_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the part."""
    group = parser.add_argument_group("messages")

    def add(name: str, dest: str, kind: Any, metavar: str, text: str) -> None:
        group.add_argument(name, dest=f"messages_{dest}", type=kind, metavar=metavar, help=text)

    known = ", ".join(PROGRAMS)
    add("--messages-plots", "plots", Path, "DIRECTORY", "draw the figures there")
    add("--messages-programs", "programs", some_of(PROGRAMS), "NAME[,NAME]", f"of {known} (all)")
    add("--messages-command", "command", Path, "FILE", "unspool-messages (that of target/release)")
    add("--messages-sources", "sources", Path, "FOLDER", "of the programs (lab/studies/messages)")
    add("--messages-rounds", "rounds", count_of, "N", "on slowed networks (3)")


def messages_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the part; what they leave out is as in the class above."""
    given = given_as("messages", options)
    return {"messages": Messages(**((QUICK if options.quick else {}) | given))}
