"""Programs on networks that are slowed down, plain and with their messages coded.

Two ways to slow a network down, both on this machine alone: `tc tbf` on the loopback of a network
namespace that ends with the program, which real TCP has to go through, and `slow.so` of
`studies/messages`, with which a send takes as long as its bytes would on a link. The second reaches
any speed; TCP between processes of a busy machine does not reach 1 GB/s.
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

__all__ = ["Comparison", "Network", "compare", "networks_of", "no_namespace"]

RANKS = 2

#: Messages from this size on are coded.
THRESHOLD = "4KiB"

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


def compare(
    bench: Bench, recorded: Recorded, network: Network, rounds: int
) -> Comparison | float | None:
    """Runs a program plain and coded, one after the other.

    Coded is what pays on this network; where nothing does, what pays on the fastest one on which
    something does, so that what it costs is seen.

    Returns:
        what was measured; the break-even when not even that is a network, or None without any.
    """
    program: Program = recorded.program
    best = _best(recorded.report)
    if best < 1e6:
        return best or None
    planned = min(network.speed, 0.9 * best)
    program_words = bench.ranks(RANKS, program, program.slab)
    words = [bench.command, "run", "--plan", recorded.run, "--network", f"{planned / 1e6:.3f}MB/s"]
    words += ["--threshold", THRESHOLD, "--", *program_words]
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
        return best
    limit, change = _expected(recorded.report, ways, network.speed)
    names = ", ".join(sorted(set(ways.values())))
    return Comparison(names, limit, change, plain, coded, float(found[1]), len(results) == 1)


def _best(report: dict[str, Any]) -> float:
    """The fastest network on which some lossless way pays for some kind of message."""
    found = [
        _limit([(flow, outcome)])
        for flow in report["flows"]
        if flow["least"] >= 4096
        for outcome in flow["outcomes"]
        if "within" not in outcome["scheme"] and outcome["factor"]
    ]
    return max(found, default=0.0)


def _expected(report: dict[str, Any], ways: dict[str, str], speed: float) -> tuple[float, float]:
    """The break-even of what is coded, and the seconds that it changes on a network, by the
    inequality of the report: a rank codes what it sends and decodes as much.
    """
    coded = [
        (flow, outcome)
        for flow in report["flows"]
        for outcome in flow["outcomes"]
        if flow["least"] >= 2048 and outcome["scheme"] in ways.get(str(flow["tag"]), "").split("; ")
    ]
    ranks = report["ranks"]
    work = sum(flow["bytes"] * _work(outcome) for flow, outcome in coded) / ranks
    less = sum(flow["bytes"] * outcome["factor"] for flow, outcome in coded) / ranks
    return _limit(coded), work - less / speed


def _work(outcome: dict[str, Any]) -> float:
    return float(1 / outcome["encode"] + 1 / outcome["decode"])


def _limit(coded: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> float:
    work = sum(flow["bytes"] * _work(outcome) for flow, outcome in coded)
    less = sum(flow["bytes"] * outcome["factor"] for flow, outcome in coded)
    return max(0.0, less / work) if work else 0.0
