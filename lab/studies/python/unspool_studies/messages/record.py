"""A program's messages, recorded: what `unspool-messages report` says, and what samples come to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.messages.programs import Bench, Program
from unspool_studies.messages.samples import Sizes, runs_of, sizes_of

__all__ = ["Recorded", "record", "simulate"]

#: Runs a program, and keeps a copy of the parts of its ranks, which `record` removes.
KEEPING = '"$@" && cp -r "$UNSPOOL_MESSAGES_PARTS" "$STUDY_PARTS"'

#: L, o, g and G of Table 4.1, nanoseconds; S is as there when nothing is said.
THESIS_NETWORK = "5300,2300,2000,3"


@dataclass(frozen=True)
class Recorded:
    """A program and what is known of its messages.

    Attributes:
        program: the one.
        run: the file that `unspool-messages record` has written.
        report: of that file, as a dictionary.
        sizes: what the dissertation's tools make of samples.
    """

    program: Program
    run: Path
    report: dict[str, Any]
    sizes: Sizes

    def share(self, which: str) -> float | None:
        """Messages that were sent or received before, in percent: `sent` or `received`."""
        counted = self.report[f"{which}_before"]
        return 100 * counted["same"] / counted["compared"] if counted["compared"] else None

    def factor(self, scheme: str) -> float | None:
        """What a way of the report saves of the bytes that it was tried on, in percent."""
        for one in self.report["schemes"]:
            if one["outcome"]["scheme"] == scheme:
                return 100 * float(one["outcome"]["factor"])
        return None


def record(
    bench: Bench, program: Program, problem: tuple[str, int], ranks: int, most: int, seconds: float
) -> Recorded:
    """Records a program, and codes at most so many of its messages."""
    run = bench.folder / f"{program.name}-{program.data}-{ranks}.msg"
    parts = run.with_suffix(".kept")
    recording = [bench.command, "record", "-o", run, "--analysis", f"{seconds:g}", "--"]
    started = ["sh", "-c", KEEPING, "sh", *bench.ranks(ranks, program, problem)]
    bench.call([*recording, *started], {"STUDY_PARTS": str(parts)})
    printed, _ = bench.call([bench.command, "report", run, "--json"])
    runs = [one for part in sorted(parts.iterdir()) for one in runs_of(part)] if most else []
    shutil.rmtree(parts)
    return Recorded(program, run, json.loads(printed), sizes_of(runs, most))


def simulate(
    bench: Bench, run: Path, scales: tuple[int, ...], codecs: Sequence[tuple[float, float]]
) -> dict[int, list[float]]:
    """What codecs change of a step, in percent, by number of ranks, on the network of Table 4.1.

    Arguments:
        bench: what runs it.
        run: a recorded run.
        scales: numbers of ranks.
        codecs: nanoseconds a byte on either side, and the part of the bytes that is saved.
    """
    options = [word for cost, saved in codecs for word in ("--codec", f"{cost:g},{saved:.4f}")]
    changes = {}
    for ranks in scales:
        words = [bench.command, "simulate", run, "--json", "--ranks", str(ranks)]
        printed, _ = bench.call([*words, "--network", THESIS_NETWORK, *options])
        ways = json.loads(printed)["scales"][0]["ways"]
        changes[ranks] = [100 * way["change"] for way in ways[-len(codecs) :]]
    return changes
