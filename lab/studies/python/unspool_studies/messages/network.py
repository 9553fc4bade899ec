"""Programs on networks that are slowed down, plain and with their messages coded.

Two ways to slow a network down, both on this machine alone: `tc tbf` on the loopback of a network
namespace that ends with the program, which real TCP has to go through, and `slow.so` of
`lab/studies/messages`, with which a send takes as long as its bytes would on a link. The second
reaches any speed; TCP between processes of a busy machine does not reach 1 GB/s.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.messages.programs import Bench, Program
from unspool_studies.messages.record import Recorded

__all__ = [
    "Comparison",
    "Network",
    "best_break_even",
    "break_even",
    "coded_flows",
    "compare",
    "expected_change",
    "networks_of",
    "no_namespace",
]

RANKS = 2

#: Where coding pays below this only, it is not tried: bytes a second.
SLOWEST = 1e6

#: Messages from this size on are coded, bytes.
THRESHOLD = 4096

#: A kind of messages of a report, and what was measured of a way of coding it.
Coded = tuple[dict[str, Any], dict[str, Any]]

#: Sets up the loopback of a new namespace, and becomes the program.
SHAPED = (
    'ip link set lo up && tc qdisc add dev lo root tbf rate "$1" burst 256kb limit 64mb && shift '
    '&& exec "$@"'
)

#: Open MPI by TCP through the loopback.
OVER_TCP = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


@dataclass(frozen=True)
class Network:
    """A network that is slowed down.

    Attributes:
        speed: bytes a second of a rank's link, or of all ranks together where it is shared.
        is_shaped: by `tc`, else by `slow.so`.
    """

    speed: float
    is_shaped: bool

    def wrap(self, words: Sequence[str | Path]) -> list[str | Path]:
        """The command within the namespace."""
        if not self.is_shaped:
            return list(words)
        # One loopback carries what all ranks send: as much as their links together.
        rate = f"{self.speed * RANKS * 8:.0f}bit"
        return ["unshare", "--map-root-user", "--net", "sh", "-c", SHAPED, "sh", rate, *words]

    def environment(self, bench: Bench) -> dict[str, str]:
        """What the ranks have to be told."""
        if self.is_shaped:
            return OVER_TCP
        slow = {"LD_PRELOAD": str(bench.folder / "slow.so"), "SLOW_NETWORK": f"{self.speed:.0f}"}
        return slow

    def __str__(self) -> str:
        return f"{self.speed / 1e9:g} GB/s, {'tc' if self.is_shaped else 'delay'}"


def no_namespace() -> str | None:
    """Why `tc` cannot be used here; None when it can."""
    for tool in ("unshare", "ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not there"
    words = Network(1e9, True).wrap(["true"])
    tried = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=20
    )
    if tried.returncode != 0:
        return f"no namespace can be made: {tried.stderr.strip()}"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=20)
    return None if "Open MPI" in version.stdout else "only Open MPI is told to use the loopback"


def networks_of(speeds: Sequence[float]) -> tuple[list[Network], str | None]:
    """The networks with these speeds, the slowest by `tc` as well, and why not."""
    why = no_namespace()
    shaped = [] if why else [Network(min(speeds), True)]
    return [*shaped, *(Network(speed, False) for speed in speeds)], why


@dataclass(frozen=True)
class Comparison:
    """A program on a network.

    Attributes:
        ways: the ways of coding, by their names.
        break_even: the speed up to which they pay, as it was recorded; bytes a second.
        expected: what coding changes of a run, as it was recorded; seconds.
        plain: seconds of plain runs.
        coded: seconds of coded runs.
        saved: of the bytes on the wire, in percent.
        is_same: whether both have computed the same.
    """

    ways: str
    break_even: float
    expected: float
    plain: list[float]
    coded: list[float]
    saved: float
    is_same: bool

    @property
    def measured(self) -> float:
        """What coding has changed, in seconds: between the fastest runs, undisturbed ones."""
        return min(self.coded) - min(self.plain)


def compare(bench: Bench, recorded: Recorded, network: Network, rounds: int) -> Comparison | None:
    """Runs a program plain and coded, one after the other.

    Coded is what pays on this network; where nothing does, what pays on the fastest one on which
    something does, so that what it costs is seen.

    Returns:
        what was measured; None when nothing is coded: no way pays on a network of `SLOWEST` or
        more, or none by enough.
    """
    program: Program = recorded.program
    best = best_break_even(recorded.report)
    if best < SLOWEST:
        return None
    planned = min(network.speed, 0.9 * best)
    program_words = bench.ranks(RANKS, program, program.slab)
    words = [bench.command, "run", "--plan", recorded.run, "--network", f"{planned / 1e6:.3f}MB/s"]
    words += ["--threshold", str(THRESHOLD), "--", *program_words]
    environment = network.environment(bench)
    plain, coded = [], []
    results, told = set(), ""
    for _ in range(rounds):
        one = bench.outcome(network.wrap(program_words), environment)
        two = bench.outcome(network.wrap(words), environment)
        plain.append(one.seconds)
        coded.append(two.seconds)
        results |= {one.result, two.result}
        told = two.told
    ways = dict(re.findall(r"coded: .*, tag (\d+): (.*)", told))
    found = re.search(r"\((-?[0-9.]+) % saved\)", told)
    if found is None:
        return None
    coding = coded_flows(recorded.report, ways, planned)
    return Comparison(
        ways="; ".join(sorted(set(ways.values()))),
        break_even=break_even(coding),
        expected=expected_change(coding, RANKS, network.speed),
        plain=plain,
        coded=coded,
        saved=float(found[1]),
        is_same=len(results) == 1,
    )


def _long_flows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [flow for flow in report["flows"] if flow["least"] >= THRESHOLD]


def best_break_even(report: dict[str, Any]) -> float:
    """The fastest network on which some lossless way pays for some kind of message."""
    found = [
        break_even([(flow, outcome)])
        for flow in _long_flows(report)
        for outcome in flow["outcomes"]
        if "within" not in outcome["scheme"] and outcome["factor"]
    ]
    return max(found, default=0.0)


def coded_flows(report: dict[str, Any], ways: dict[str, str], planned: float) -> list[Coded]:
    """The kinds of messages that a plan codes, each with what was measured of its way.

    Arguments:
        report: of the recorded run.
        ways: what `unspool-messages run` has told: the ways of a tag, with semicolons between them.
        planned: the network that it was told.
    """
    found = []
    for flow in _long_flows(report):
        names = ways.get(str(flow["tag"]), "").split("; ")
        some = [outcome for outcome in flow["outcomes"] if outcome["scheme"] in names]
        if some:
            best = max(some, key=lambda one: one["factor"] - planned * _work(one))
            found.append((flow, best))
    return found


def _work(outcome: dict[str, Any]) -> float:
    """Seconds that coding and decoding take of a byte."""
    return float(1 / outcome["encode"] + 1 / outcome["decode"])


def break_even(coded: Sequence[Coded]) -> float:
    """The speed of a network up to which coding pays, bytes a second."""
    work = sum(flow["bytes"] * _work(outcome) for flow, outcome in coded)
    less = sum(flow["bytes"] * outcome["factor"] for flow, outcome in coded)
    return max(0.0, less / work) if work else 0.0


def expected_change(coded: Sequence[Coded], ranks: int, speed: float) -> float:
    """The seconds that coding changes of a run: a rank codes what it sends and decodes as much."""
    each = (flow["bytes"] * (_work(outcome) - outcome["factor"] / speed) for flow, outcome in coded)
    return sum(each) / ranks
