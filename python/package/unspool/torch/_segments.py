"""How long the segments of a scan are: decided from what two steps were seen to save."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ._changed import Held

__all__ = ["ALIGNMENT", "OVERHEAD", "PROBED", "Measure", "Segments", "Sizes", "segments"]

#: Steps that run as they are, so that what the second one saves can be counted.
PROBED = 2

#: What a checkpoint takes in a tier beyond its tensors: alignment, and a head on disk.
OVERHEAD = 8192

#: What a tensor may take beyond its bytes.
ALIGNMENT = 512


@dataclass(frozen=True, slots=True)
class Segments:
    """How a loop is cut.

    Attributes:
        segment: steps in a segment.
        host: bytes of main memory for the states at which segments start, in a spool of our own.
        disk: whether that spool needs a disk as well.
    """

    segment: int
    host: int
    disk: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a loop takes.

    Attributes:
        steps: that are left after those that were measured, or None where that is not known.
        saved: bytes that one step saves for its gradient; 0 where they were not counted.
        state: bytes of the carry.
        largest: bytes of its largest tensor.
        host: bytes of main memory that a spool may take.
        shared: whether the budget is of that main memory too, so that the states count.
        alive: segments whose saved tensors are there at once.
    """

    steps: int | None
    saved: int
    state: int
    largest: int
    host: int
    shared: bool
    alive: int = 1

    def cut(self, budget: int) -> Segments | None:
        """How the loop is cut within a budget; None where everything is kept."""
        # What the measured steps have saved stays until they are gone back through.
        limit = max(0, budget - PROBED * self.saved) // self.alive
        return segments(self.steps, self.saved, self.state, limit, self.host, shared=self.shared)

    def bytes(self, cut: Segments | None) -> int | None:
        """The most at once of what the budget is for; None where that is not known."""
        if self.steps is None or not self.saved:
            return None
        if cut is None:
            return (PROBED + self.steps) * self.saved
        states = cut.host if self.shared else 0
        return (PROBED + self.alive * cut.segment) * self.saved + states

    def recomputed(self, cut: Segments | None) -> int | None:
        """The steps that are computed once more: those of all segments but the last one."""
        if cut is None:
            return 0
        return None if self.steps is None else max(0, self.steps - 1) // cut.segment * cut.segment


def segments(
    steps: int | None, saved: int, state: int, budget: int, host: int, *, shared: bool
) -> Segments | None:
    """The longest segments that keep a backward pass within `budget` bytes, or None where all steps
    fit as they are.

    Each step is computed once more whatever the length is, so longer segments mean fewer states to
    keep, and more memory while one is computed again.

    Arguments:
        steps: that are left, or None where that is not known.
        saved: bytes that autograd saves in one step.
        state: bytes of the carry.
        budget: bytes where the tensors are.
        host: bytes of main memory that a spool may take.
        shared: whether the budget is of that main memory too, so that the states count.
    """
    if steps is not None and steps * saved <= budget:
        return None
    room = state + OVERHEAD
    segment = max(1, (budget - 2 * state) // max(saved, 1))
    if steps is None:
        return Segments(max(1, segment // 2) if shared else segment, host, disk=True)
    segment = min(segment, steps)
    if not shared:
        needed = -(-steps // segment) * room
        return Segments(segment, min(needed, host), disk=needed > host)
    return _shared(steps, max(saved, 1), room, budget)


def _shared(steps: int, saved: int, room: int, budget: int) -> Segments:
    """The largest length with length * saved + ceil(steps / length) * room within the budget; where
    there is none, half of the budget is for a segment, and states go on to the disk."""
    square = budget**2 - 4 * saved * room * steps
    if square >= 0:
        segment = int((budget + math.isqrt(square)) // (2 * saved))
        for length in range(min(segment, steps), max(0, segment - 2), -1):
            states = -(-steps // length) * room
            if length * saved + states <= budget:
                return Segments(length, states, disk=False)
    segment = min(steps, max(1, budget // (2 * saved)))
    return Segments(segment, max(2 * room, budget - segment * saved), disk=True)


class Measure(saved_tensors_hooks):
    """A context that counts what autograd saves in it, and changes nothing else."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        super().__init__(self._pack, Held.get)

    def known(self, tensors: list[torch.Tensor]) -> None:
        """These need not be counted: they are there anyway."""
        for tensor in tensors:
            self._see(tensor)

    def count(self) -> int:
        """The bytes of all storages that were seen so far, each once."""
        return sum(self._seen.values())

    def _pack(self, tensor: torch.Tensor) -> Any:
        self._see(tensor)
        return Held(tensor)

    def _see(self, tensor: torch.Tensor) -> None:
        # Tensors without one memory of their own (sparse ones, and subclasses) are not counted.
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._seen[storage._cdata] = storage.nbytes()
