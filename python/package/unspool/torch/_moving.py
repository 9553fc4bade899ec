"""Blocks of which what is saved, or the input, is moved."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from unspool._history import at_death, close_quietly, discard_quietly

from ._changed import Held
from ._entry import Entry, movable
from ._kept import own_spool, unpack
from ._lanes import Lanes

__all__ = ["Carrier", "Moving"]

#: Storages that are smaller stay.
LEAST = 4096


class Carrier:
    """A spool, and the streams for copies into it and back.

    Entries hold it, so that a spool of our own is open as long as something is in it.
    """

    def __init__(self, spool: Any) -> None:
        self._spool = spool
        self.lanes = Lanes()
        # With one tier alone there is nothing to bring nearer.
        self._announces: bool | None = None

    def spool(self, device: torch.device) -> Any:
        """The spool, opened when it is first needed."""
        if self._spool is None:
            self._spool = own_spool(device)
            at_death(self, close_quietly, self._spool)
        return self._spool

    def take(self, entry: Entry, place: int) -> torch.Tensor:
        """A tensor that was saved."""
        tensor = entry.at_once(place)
        if tensor is not None:
            return tensor
        with entry.lock:
            self._bring(entry)
            return entry.get(place)

    def fetch(self, entries: Sequence[weakref.ref[Entry]]) -> None:
        """Begins to bring back what is away, the last one first."""
        for reference in reversed(entries):
            entry = reference()
            if entry is not None:
                with entry.lock:
                    self._bring(entry)

    def _bring(self, entry: Entry) -> None:
        if entry.away():
            entry.restore(self._spool, self.lanes)

    def expect(self, entries: Sequence[weakref.ref[Entry]]) -> None:
        """Says in which order what is away will be wanted."""
        if not entries:
            return
        if self._announces is None:
            self._announces = len(self._spool.stats().tiers) > 1
        if not self._announces:
            return
        alive = [entry for entry in (reference() for reference in entries) if entry is not None]
        self._spool.expect([entry.version for entry in alive if entry.away()])

    def forget(self, entry: Entry) -> None:
        """An entry dies."""
        if entry.version is not None:
            discard_quietly(self._spool, entry.version)


class Moving(saved_tensors_hooks):
    """A context at whose end all that autograd has saved in it goes into a spool, each storage
    once.

    Attributes:
        moved: what went, in the order in which it was saved.
    """

    def __init__(self, carrier: Carrier, stay: frozenset[int]) -> None:
        self._carrier, self._stay = carrier, stay
        self._entries: dict[int, weakref.ref[Entry]] = {}
        self.moved: list[weakref.ref[Entry]] = []
        super().__init__(self._pack, unpack)

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = movable(tensor, self._stay, LEAST)
        if storage is None:
            return Held(tensor)
        found = self._entries.get(storage._cdata)
        entry = None if found is None else found()
        if entry is None:
            entry = Entry(self._carrier, storage, 0)
            self._entries[storage._cdata] = weakref.ref(entry)
            self.moved.append(weakref.ref(entry))
        return entry, entry.see(tensor)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._entries.clear()
        if raised[0] is not None:
            return
        for reference in self.moved:
            # Not before the end: an operation may save what it has still to write.
            entry = reference()
            if entry is not None:
                with entry.lock:
                    entry.move(self._carrier.spool(entry.device), None, self._carrier.lanes)
