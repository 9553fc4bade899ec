"""What a cluster takes, in virtual time.

One node is run: all nodes are alike, and each has an even part of the file system. So what is said
of 1,024 nodes takes as long to say as of one, and knows nothing of nodes that differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import unspool
from unspool_studies.bench.bound import Access, Link, least_seconds
from unspool_studies.bench.experiment import order_of
from unspool_studies.bench.sizes import SEED, sizes_of
from unspool_studies.scaling.cluster import HINTS, Cluster

__all__ = ["NoSimulation", "Outcome", "Shared", "asked_of", "bound_of", "simulated"]

#: Copies within the device, and seconds before the first byte of a copy: those of an H100.
COPIES = (1460e9, 5e-6)
LINK_LATENCY, DISK_LATENCY = 10e-6, 100e-6

#: The most bytes and transfers in flight in one direction of a link, as a spool has them.
IN_FLIGHT = (256 << 20, 8)

#: A disk that is never full.
WIDE = 1 << 60


class NoSimulation(unspool.Error, ValueError):
    """What was asked for cannot be."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Something that GPUs of a node share.

    Attributes:
        name: for people.
        capacity: bytes a second.
        users: process, link, and whether towards the GPU.
        used: the part of its capacity that was used over the whole time, 0 to 1.
    """

    name: str
    capacity: float
    users: tuple[tuple[int, int, bool], ...]
    used: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out.

    Attributes:
        cluster: of which.
        seconds: until the last GPU was done.
        compute: seconds of each GPU.
        save: bytes a second of the time for which saves blocked, of all GPUs of a node together.
        restore: the same of restores; None for commits.
        blocked: seconds for which a GPU was blocked in saves and restores, the mean.
        meeting: seconds of waits for other GPUs, the mean.
        flush: seconds from the last save until everything was on the disk, the mean.
        shared: what the GPUs share.
        processes: what the core says of each GPU of a node.
    """

    cluster: Cluster
    seconds: float
    compute: float
    save: float
    restore: float | None
    blocked: float
    meeting: float
    flush: float
    shared: tuple[Shared, ...]
    processes: tuple[dict[str, Any], ...]

    @property
    def computing(self) -> float:
        """The part of the time in which a GPU computes."""
        return self.compute / self.seconds

    @property
    def busiest(self) -> Shared:
        """What is used most."""
        return max(self.shared, key=lambda one: one.used)


def simulated(cluster: Cluster) -> Outcome:
    """Runs it.

    Raises:
        NoSimulation: it does not fit.
    """
    from unspool_studies._native import simulate

    shared = tuple(_shared(cluster))
    try:
        found, used = simulate(asked_of(cluster, shared))
    except ValueError as why:
        raise NoSimulation(str(why)) from None
    seconds = max(one["seconds"] for one in found)
    total = sum(one["bytes"] for one in found)

    def mean(name: str) -> float:
        return sum(float(one[name]) for one in found) / len(found)

    return Outcome(
        cluster,
        seconds,
        mean("compute_seconds"),
        total / mean("save_seconds"),
        total / mean("restore_seconds") if cluster.workload == "shot" else None,
        mean("save_seconds") + mean("restore_seconds"),
        mean("meeting_seconds"),
        mean("flush_seconds"),
        tuple(
            Shared(one.name, one.capacity, one.users, moved / one.capacity / seconds)
            for one, (moved, _) in zip(shared, used, strict=True)
        ),
        tuple(found),
    )


def asked_of(cluster: Cluster, shared: tuple[Shared, ...] | None = None) -> dict[str, Any]:
    """The question to the core."""
    shared = tuple(_shared(cluster)) if shared is None else shared
    write, read = _disk(cluster)
    # Below one page there is no device tier, and the core finds room in host memory at once.
    device = max(cluster.device, 4096)
    links = [((cluster.link, LINK_LATENCY),) * 2, ((write, DISK_LATENCY), (read, DISK_LATENCY))]
    count = 2 if cluster.disk == "none" else 3
    return {
        "tiers": [("device", device), ("host", cluster.host), ("disk", WIDE)][:count],
        "links": links[: count - 1],
        "copies": COPIES,
        "compute": cluster.compute,
        "hints": HINTS[cluster.hints],
        "workloads": [_workload(cluster, gpu) for gpu in range(cluster.gpus)],
        "shared": [(one.capacity, list(one.users)) for one in shared],
        "coupled": cluster.coupled,
        "in_flight": (max(IN_FLIGHT[0], 2 * cluster.checkpoint), IN_FLIGHT[1]),
    }


def _disk(cluster: Cluster) -> tuple[float, float]:
    """What one GPU alone writes and reads at most."""
    if cluster.disk == "nvme":
        return cluster.nvme_write, cluster.nvme_read
    return (min(cluster.network, cluster.fs / cluster.nodes),) * 2


def _workload(cluster: Cluster, gpu: int) -> tuple[list[int], list[int] | None]:
    """Sizes and order differ from GPU to GPU where they are drawn."""
    sizes = sizes_of(cluster.sizes, cluster.history, cluster.checkpoint, SEED + gpu)
    if cluster.workload == "commits":
        return list(sizes), None
    return list(sizes), list(order_of(cluster.order, len(sizes), SEED + gpu))


def _shared(cluster: Cluster) -> Iterator[Shared]:
    gpus = range(cluster.gpus)
    for number in range(cluster.links):
        mine = [gpu for gpu in gpus if gpu % cluster.links == number]
        for name, up in (("down", False), ("up", True)):
            users = tuple((gpu, 0, up) for gpu in mine)
            yield Shared(f"link {number} {name}", cluster.link, users)
    if cluster.memory:
        both = tuple((gpu, 0, up) for gpu in gpus for up in (False, True))
        yield Shared("host memory", cluster.memory, both)
    down, up = (tuple((gpu, 1, way) for gpu in gpus) for way in (False, True))
    if cluster.disk == "none":
        return
    if cluster.disk == "nvme":
        yield Shared("nvme write", cluster.nvme_write, down)
        yield Shared("nvme read", cluster.nvme_read, up)
        return
    yield Shared("network out", cluster.network, down)
    yield Shared("network in", cluster.network, up)
    yield Shared("file system", cluster.fs / cluster.nodes, down + up)


def bound_of(cluster: Cluster) -> float | None:
    """The least seconds of a shot whose GPU has an even part of everything that is shared."""
    if cluster.workload != "shot":
        return None
    sizes, order = _workload(cluster, 0)
    assert order is not None
    # The links with the most GPUs are those that hold up.
    on_link = -(-cluster.gpus // cluster.links)
    link = min(cluster.link / on_link, cluster.memory / cluster.gpus or math.inf)
    write, read = (
        min(speed, alone) for speed, alone in zip(_even(cluster), _disk(cluster), strict=True)
    )
    between = [Link(cluster.device, link, link), Link(cluster.host, write, read)]
    between = between[: 1 if cluster.disk == "none" else 2]
    saves = [Access(step, size, cluster.compute, saves=True) for step, size in enumerate(sizes)]
    # A step of the way back computes after its restore.
    restores = [
        Access(step, sizes[step], cluster.compute if number else 0.0)
        for number, step in enumerate(order)
    ]
    return least_seconds([*saves, *restores], between, after=cluster.compute)


def _even(cluster: Cluster) -> tuple[float, float]:
    """An even part of the disk, for a GPU: written and read."""
    if cluster.disk == "nvme":
        return cluster.nvme_write / cluster.gpus, cluster.nvme_read / cluster.gpus
    each = min(cluster.network, cluster.fs / cluster.nodes) / cluster.gpus
    return each, each
