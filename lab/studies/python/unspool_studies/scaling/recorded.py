"""What was measured with one, two and four GPUs, as the results of the repository say, beside what
is simulated for the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unspool_studies.bench.report import Table
from unspool_studies.scaling.cluster import cluster_of
from unspool_studies.scaling.simulate import Outcome, simulated

__all__ = ["RECORDED", "Recorded", "table_of"]


def _link(one: Outcome) -> float:
    """GB/s over the link of a GPU, both directions, in the time of both passes."""
    moved = one.processes[0]["link_bytes"][0]
    return float(sum(moved)) / one.seconds / 1e9


def _restores(one: Outcome) -> float:
    """GB/s of restores over the time for which they blocked."""
    return (one.restore or 0.0) / 1e9


def _forward(one: Outcome) -> float:
    """Seconds until the last save was over."""
    return one.seconds - one.flush


def _backward(one: Outcome) -> float:
    """Seconds of the pass of restores."""
    return one.compute / 2 + float(one.processes[0]["restore_seconds"])


@dataclass(frozen=True, slots=True)
class Recorded:
    """A figure of the results.

    Attributes:
        what: it is, with its unit.
        page: where it stands.
        cluster: the same work.
        figure: as it was measured, the mean where there are several.
        read: takes it from what was simulated.
    """

    what: str
    page: str
    cluster: str
    figure: float
    read: Callable[[Outcome], float]

    def simulated(self) -> float:
        """The same figure from virtual time."""
        return self.read(simulated(cluster_of(self.cluster)))


_SWEEP = "gpus=1,links=1,history=40GB,device=4GiB,host=48GiB,disk=none,order=reverse"
_ORDERS = "gpus=1,links=1,history=18GiB,device=1536MiB,host=20GiB,disk=none,compute=3ms"
#: Host memory that is written for the first time: a copy runs at 27 to 30 GB/s beside its
#: registration, and a node registers 34 GB/s for all its processes (decision 20).
_FRESH = (
    "workload=commits,checkpoint=128MiB,history=20GiB,device=4GiB,host=24GiB,compute=3ms,"
    "link=28.5GB/s,memory=34GB/s"
)


def _orders(sizes: str, order: str, rate: float) -> Recorded:
    """Of 18 GiB without a disk; the GB/s that are recorded are of the time blocked."""
    work = f"{_ORDERS},sizes={sizes},order={order}"
    seconds = 144 * 3e-3 + 18 * 1.073741824 / rate
    return Recorded(f"{sizes}, {order}: restores, s", "caching", work, seconds, _backward)


def _fresh(who: str, gpus: int, seconds: float, page: str) -> Recorded:
    work = f"gpus={gpus},links={gpus},{_FRESH}"
    return Recorded(f"{who}, fresh memory: saves, s", page, work, seconds, _forward)


RECORDED = (
    Recorded("sweep, no compute, GB/s", "copies", f"{_SWEEP},compute=0ms", 54.9, _link),
    Recorded("sweep, 1 ms, GB/s", "copies", f"{_SWEEP},compute=1ms", 0.97 * 55, _link),
    Recorded("sweep, 2 ms, GB/s", "copies", f"{_SWEEP},compute=2ms", 0.94 * 55, _link),
    _orders("uniform", "sequential", 1278),
    _orders("uniform", "reverse", 1301),
    _orders("uniform", "irregular", 903),
    _orders("variable", "sequential", 1232),
    _orders("variable", "reverse", 635),
    _fresh("one H200", 1, 0.71, "decision 49"),
    _fresh("two H200s", 2, 0.985, "decision 49"),
    _fresh("one of four H100s", 1, 0.655, "scaling"),
    _fresh("two of four H100s", 2, 1.1, "scaling"),
    _fresh("four H100s", 4, 1.76, "scaling"),
    Recorded(
        "four H100s, reverse: restores, s",
        "scaling",
        "gpus=4,links=4,history=20GiB,host=24GiB,disk=none,order=reverse,compute=3ms",
        0.46,
        _backward,
    ),
)


def table_of() -> Table:
    """Recorded beside simulated."""
    columns = ("what", "from", "recorded", "simulated", "off %")
    table = Table(
        "scaling-recorded", "Measured with one, two and four GPUs, and simulated", columns
    )
    for one in RECORDED:
        found = one.simulated()
        table.add(one.what, one.page, one.figure, found, 100 * (found / one.figure - 1))
    return table
