"""A cluster as people write it: `nodes=64,gpus=8,disk=fs`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from unspool_studies.words import ORDERS, SIZES, count_of, size_of

__all__ = ["KEYS", "Cluster", "cluster_of"]

MIB, GIB = 1 << 20, 1 << 30

#: Restores that are announced ahead; None: all, before the first save.
HINTS: Mapping[str, int | None] = {"all": None, "one": 1, "none": 0}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, and what each GPU does; speeds in bytes a second, each way where it is not said.

    Attributes:
        nodes: all alike.
        gpus: of a node.
        links: between the GPUs and the host memory of a node; GPUs are dealt out to them in turn.
        link: the speed of each of them, and the most that a GPU moves.
        memory: what the host memory of a node takes and gives for all its GPUs together; 0: more
            than the links carry. Memory that was never used is slower than any link.
        nvme_write: of the disk of a node.
        nvme_read: of it.
        network: of a node, to the file system.
        fs: of the file system, for all nodes and both directions together.
        disk: the slowest tier: `nvme`, `fs`, or `none` where host memory holds everything.
        coupled: whether all GPUs wait for each other before every step.
        workload: `shot`, a history that is saved and then restored, or `commits`, checkpoints of
            which none is restored.
        checkpoint: bytes.
        history: bytes of all checkpoints of a GPU.
        device: bytes of the device tier; 0: a save goes to host memory by itself.
        host: bytes of the host tier of a GPU.
        compute: seconds of a step.
        order: of restores.
        sizes: `uniform`, or `variable` around `checkpoint`.
        hints: restores that are announced ahead: `all`, `one`, `none`.
    """

    nodes: int = 1
    gpus: int = 8
    links: int = 4
    link: float = 55e9
    memory: float = 0.0
    nvme_write: float = 5e9
    nvme_read: float = 6e9
    network: float = 25e9
    fs: float = 100e9
    disk: str = "nvme"
    coupled: bool = False
    workload: str = "shot"
    checkpoint: int = 128 * MIB
    history: int = 48 * GIB
    device: int = 4 * GIB
    host: int = 32 * GIB
    compute: float = 10e-3
    order: str = "irregular"
    sizes: str = "uniform"
    hints: str = "all"

    @property
    def processes(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus


#: What a checkpointer does, where nothing else is said: ten checkpoints of 16 GiB a GPU, of which
#: host memory holds two, one every five minutes.
COMMITS: Mapping[str, Any] = {
    "workload": "commits",
    "checkpoint": 16 * GIB,
    "history": 160 * GIB,
    "device": 0,
    "host": 32 * GIB,
    "compute": 300.0,
}


def _speed(text: str) -> float:
    """Bytes a second: `55GB/s`."""
    return float(size_of(text.strip().removesuffix("/s")))


def _speed_or_none(text: str) -> float:
    return 0.0 if text.strip() == "0" else _speed(text)


def _seconds(text: str) -> float:
    """`10ms`, `300s`."""
    words = text.strip()
    for unit, scale in (("ms", 1e-3), ("s", 1.0)):
        if words.endswith(unit):
            try:
                found = float(words.removesuffix(unit)) * scale
            except ValueError:
                break
            if 0 <= found < 1e6:
                return found
            break
    raise argparse.ArgumentTypeError(f"{text!r}: a time is written as 10ms or 300s")


def _room(text: str) -> int:
    return 0 if text.strip() == "0" else size_of(text)


def _one_of(*known: str) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text.strip() not in known:
            raise argparse.ArgumentTypeError(f"{text!r}: one of {', '.join(known)}")
        return text.strip()

    return choose


def _yes(text: str) -> bool:
    return _one_of("yes", "no")(text) == "yes"


#: How each value is read, by its key.
KEYS: Mapping[str, Callable[[str], Any]] = {
    "nodes": count_of,
    "gpus": count_of,
    "links": count_of,
    "link": _speed,
    "memory": _speed_or_none,
    "nvme-write": _speed,
    "nvme-read": _speed,
    "network": _speed,
    "fs": _speed,
    "disk": _one_of("nvme", "fs", "none"),
    "coupled": _yes,
    "workload": _one_of("shot", "commits"),
    "checkpoint": size_of,
    "history": size_of,
    "device": _room,
    "host": size_of,
    "compute": _seconds,
    "order": _one_of(*ORDERS),
    "sizes": _one_of(*SIZES),
    "hints": _one_of(*HINTS),
}

#: Checkpoints and GPUs of one node that are simulated at most: about a minute of work.
MOST = 100_000


def cluster_of(text: str) -> Cluster:
    """Reads `key=value,...`; what is left out is as in `Cluster`, or as a checkpointer has it.

    Raises:
        ArgumentTypeError: a key or a value cannot be read, or they do not go together.
    """
    given: dict[str, Any] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        key, is_there, value = word.partition("=")
        read = KEYS.get(key)
        if read is None or not is_there:
            known = ", ".join(KEYS)
            raise argparse.ArgumentTypeError(f"{word!r}: give KEY=VALUE with a key of {known}")
        try:
            given[key.replace("-", "_")] = read(value)
        except argparse.ArgumentTypeError as why:
            raise argparse.ArgumentTypeError(f"{key}: {why}") from None
    usual = Cluster(**COMMITS) if given.get("workload") == "commits" else Cluster()
    given.setdefault("links", min(usual.links, given.get("gpus", usual.gpus)))
    return _checked(replace(usual, **given))


def _checked(found: Cluster) -> Cluster:
    if found.links > found.gpus:
        raise argparse.ArgumentTypeError(f"links: {found.links} for {found.gpus} GPUs are too many")
    if found.history < 2 * found.checkpoint:
        raise argparse.ArgumentTypeError("history: two checkpoints or more are needed")
    if found.host < found.checkpoint:
        raise argparse.ArgumentTypeError("host: a checkpoint has to fit into the host tier")
    count = found.history // found.checkpoint * found.gpus
    if count > MOST:
        text = f"history: {count:,} checkpoints of a node, and {MOST:,} are the most"
        raise argparse.ArgumentTypeError(text)
    return found


assert {key.replace("-", "_") for key in KEYS} == {field.name for field in fields(Cluster)}
