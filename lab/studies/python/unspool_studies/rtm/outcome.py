"""What a migration has made and measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from unspool.stats import Stats
from unspool.types import Fidelity
from unspool_studies.rtm.model import Floats

__all__ = ["Figures", "Followed", "Kernels", "Migrated", "Outcome", "Shot", "Stack", "stack"]


@dataclass(frozen=True, eq=False)
class Shot:
    """One migrated shot.

    Attributes:
        number: which one.
        image: the correlation on the model's grid.
        illumination: the light of its source.
        seconds: how long it took.
    """

    number: int
    image: Floats
    illumination: Floats
    seconds: float

    @property
    def digest(self) -> str:
        """The SHA-256 of its image."""
        return hashlib.sha256(self.image.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Migrated:
    """A stack of shots.

    Attributes:
        image: the summed correlation on the model's grid, before any processing.
        illumination: the summed light of the sources.
        digests: of the image of each shot.
        seconds: how long each shot took.
    """

    image: Floats
    illumination: Floats
    digests: tuple[str, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Kernels:
    """What a GPU's kernels have done: those that take steps, injecting and recording included.

    Attributes:
        steps: steps of all passes.
        seconds: the device's time for them, gaps between kernels included; from a sample of them.
        step_bytes: what a step must read and write at least: the older level, which becomes the
            next one, the newer one and the medium.
        copy_bandwidth: bytes read and written a second by a copy on the device, in the same run.
    """

    steps: int
    seconds: float
    step_bytes: int
    copy_bandwidth: float


@dataclass(frozen=True)
class Followed:
    """What a schedule made of the forward passes, over all shots, in groups of steps.

    Attributes:
        advances: groups that the forward waves were advanced over.
        recomputed: those that were advanced over before.
        saves: states that were saved.
        restores: states that were restored.
        seconds: of both passes, saves and restores included.
        forward_seconds: in forward steps; where a GPU computes, only of enqueueing them.
        reverse_seconds: in those taken back, likewise.
        fidelity: of each shot, what a `Gradient` says of its image.
    """

    advances: int = 0
    recomputed: int = 0
    saves: int = 0
    restores: int = 0
    seconds: float = 0.0
    forward_seconds: float = 0.0
    reverse_seconds: float = 0.0
    fidelity: tuple[Fidelity, ...] = ()

    def __add__(self, other: Followed) -> Followed:
        """Both together."""
        names = [field.name for field in fields(self)]
        return Followed(*(getattr(self, name) + getattr(other, name) for name in names))


class Figures(NamedTuple):
    """What a spool and a propagator have measured so far; see `Outcome`."""

    stats: Stats
    followed: Followed
    times: Mapping[str, float]
    propagator: str
    kernels: Kernels | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run has made and measured.

    Attributes:
        migrated: the stack.
        records: the muted data by shot, float32 (steps, receivers), where they were wanted.
        stats: the spool's own figures.
        followed: what the schedule made of it.
        times: seconds of the application's time by what it did: compute, save, restore.
        propagator: what computed.
        kernels: the time of a GPU's kernels, where one computed.
        predicted: seconds of both passes of all shots that were predicted, where that was wanted.
        before: shots that were done before this run, of which there are no figures.
    """

    migrated: Migrated
    records: Mapping[int, Floats]
    stats: Stats
    followed: Followed
    times: Mapping[str, float]
    propagator: str
    kernels: Kernels | None = None
    predicted: float | None = None
    before: int = 0


class Stack:
    """A sum of shots on a grid. The order in which they are added decides its last bits."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._image, self._light = (np.zeros(shape, np.float32) for _ in range(2))
        self._digests: list[str] = []
        self._seconds: list[float] = []

    @property
    def done(self) -> int:
        """How many shots are in it."""
        return len(self._digests)

    def add(self, shot: Shot) -> None:
        """Adds one more."""
        self._image += shot.image
        self._light += shot.illumination
        self._digests.append(shot.digest)
        self._seconds.append(shot.seconds)

    def migrated(self) -> Migrated:
        """The sum."""
        return Migrated(self._image, self._light, tuple(self._digests), tuple(self._seconds))


def stack(shape: tuple[int, ...], shots: Iterable[Shot]) -> Migrated:
    """Adds shots on a grid of this shape, in the order in which they come."""
    found = Stack(shape)
    for shot in shots:
        found.add(shot)
    return found.migrated()
