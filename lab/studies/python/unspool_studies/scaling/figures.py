"""Part `scaling`: Score's Figure 9 and a checkpointer's commits, from one GPU to thousands, and
what a user asks with `--simulate`. Nothing is measured: the core of a spool runs in virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from unspool.stats import size as size_text
from unspool.stats import time as time_text
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.scaling.cluster import COMMITS, Cluster
from unspool_studies.scaling.options import Scaling
from unspool_studies.scaling.recorded import table_of
from unspool_studies.scaling.simulate import Outcome, bound_of, simulated

__all__ = ["Line", "commits", "run", "shots"]

COLUMNS = (
    "nodes",
    "GPUs",
    "disk",
    "coupled",
    "save GB/s",
    "restore GB/s",
    "seconds",
    "bound s",
    "of bound %",
    "computing %",
    "blocked s",
    "meeting s",
    "to disk s",
    "busiest",
    "its use %",
)

NOTES = (
    "in virtual time; one node is run, and each node has an even part of the file system",
    "save, restore: bytes over the time for which a GPU was blocked, for all GPUs of a node",
    "bound: the least time of a GPU with an even part of everything that is shared",
    "to disk: from the last save until everything is in the slowest tier",
)

#: The name of a line of the picture, and its points.
Line = tuple[str, list[Outcome]]


def run(plan: Plan, report: Report) -> None:
    """Tables of what was asked, or of all figures, and the picture where it is wanted."""
    scaling = plan.scaling
    if scaling.asked:
        table = report.begin(Table("simulate", "In virtual time", COLUMNS, notes=list(NOTES)))
        for cluster in scaling.asked:
            _add(table, simulated(cluster))
            table.note(about(cluster))
        report.show(table)
        return
    found = {
        "shots": list(shots(scaling)),
        "commits": list(commits(scaling)),
    }
    for name, lines in found.items():
        report.show(_table(name, lines))
    report.show(table_of())
    if scaling.plot is not None:
        from unspool_studies.scaling.plot import draw

        draw(found["shots"], found["commits"], scaling.plot)
        print(f"written: {scaling.plot}")


def shots(scaling: Scaling) -> Iterator[Line]:
    """Figure 9: shots of variable sizes restored in irregular order, from one GPU on."""
    usual = Cluster(sizes="variable")
    if scaling.history is not None:
        usual = replace(usual, history=scaling.history)
    for disk in ("nvme", "fs"):
        for coupled in (False, True):
            one = replace(usual, disk=disk, coupled=coupled)
            inside = [replace(one, gpus=gpus, links=min(gpus, 4)) for gpus in (1, 2, 4)]
            name = f"{_DISKS[disk]}, {'coupled' if coupled else 'independent'}"
            yield name, _along([*inside, *_nodes(one, scaling)])


def commits(scaling: Scaling) -> Iterator[Line]:
    """Checkpoints of 16 GiB a GPU every five minutes."""
    for disk in ("nvme", "fs"):
        yield _DISKS[disk], _along(_nodes(replace(Cluster(**COMMITS), disk=disk), scaling))


_DISKS = {"nvme": "NVMe of the node", "fs": "file system"}


def _nodes(one: Cluster, scaling: Scaling) -> list[Cluster]:
    return [replace(one, nodes=nodes) for nodes in scaling.nodes]


def _along(clusters: Iterable[Cluster]) -> list[Outcome]:
    """Where nothing is shared between nodes, more of them are the same once more."""
    found: dict[Cluster, Outcome] = {}
    outcomes = []
    for cluster in clusters:
        alike = replace(cluster, nodes=1) if cluster.disk == "nvme" else cluster
        if alike not in found:
            found[alike] = simulated(alike)
        outcomes.append(replace(found[alike], cluster=cluster))
    return outcomes


def _table(name: str, lines: Iterable[Line]) -> Table:
    title = {
        "shots": "Shots of variable sizes, irregular order, all hints",
        "commits": "A checkpointer's commits",
    }[name]
    table = Table(f"scaling-{name}", title, COLUMNS, notes=list(NOTES))
    for _, outcomes in lines:
        for one in outcomes:
            _add(table, one)
        table.note(about(outcomes[-1].cluster))
    return table


def about(cluster: Cluster) -> str:
    """The machine and the work in a sentence."""
    write, read = cluster.nvme_write / 1e9, cluster.nvme_read / 1e9
    disk = {
        "nvme": f"an NVMe of {write:g} and {read:g} GB/s a node",
        "fs": f"a file system of {cluster.fs / 1e9:g} GB/s, {cluster.network / 1e9:g} a node",
        "none": "no disk",
    }[cluster.disk]
    count = cluster.history // cluster.checkpoint
    gpus = f"{cluster.gpus} GPUs a node on {cluster.links} links of {cluster.link / 1e9:g} GB/s"
    tiers = f"{size_text(cluster.device)} and {size_text(cluster.host)}"
    return (
        f"{gpus}, {disk}; each: {count} checkpoints of {size_text(cluster.checkpoint)} "
        f"({cluster.sizes}) through {tiers}, {time_text(cluster.compute)} of compute a step"
    )


def _add(table: Table, one: Outcome) -> None:
    cluster, least = one.cluster, bound_of(one.cluster)
    busiest = one.busiest
    cells: list[Cell] = [cluster.nodes, cluster.processes, cluster.disk]
    cells += ["yes" if cluster.coupled else "no", one.save / 1e9]
    cells += [None if one.restore is None else one.restore / 1e9, one.seconds, least]
    cells += [None if least is None else 100 * least / one.seconds, 100 * one.computing]
    cells += [one.blocked, one.meeting, one.flush, busiest.name, 100 * busiest.used]
    table.add(*cells)
