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
from ._kept import newest_node, own_spool, reads_ahead, unpack
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
    """A context in which what autograd saves goes into a spool, each storage once, the oldest first
    until these are enough bytes.

    It goes at the end, as an operation may save what it has still to write. Where copies are made
    beside computing and the same was saved before, it goes as soon as it is written.

    Attributes:
        moved: what was saved, in that order; some of the last ones may have stayed.
        last: by their places there, how often something had been saved when each was saved last.
    """

    def __init__(
        self,
        carrier: Carrier,
        stay: frozenset[int],
        enough: int,
        last: Sequence[int] = (),
    ) -> None:
        self._carrier, self._stay, self._left, self._known = carrier, stay, enough, last
        self._entries: dict[int, weakref.ref[Entry]] = {}
        self.moved: list[weakref.ref[Entry]] = []
        self.last: list[int] = []
        self._packs = self._sent = 0
        super().__init__(self._pack, unpack)

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = movable(tensor, self._stay, LEAST)
        if storage is None:
            return Held(tensor)
        node, found = newest_node(), self._entries.get(storage._cdata)
        entry = None if found is None else found()
        if entry is None:
            entry = Entry(self._carrier, storage, len(self.moved))
            self._entries[storage._cdata] = weakref.ref(entry)
            self.moved.append(weakref.ref(entry))
            self.last.append(0)
        entry.node, place = (0, node), entry.see(tensor)
        self._packs += 1
        self.last[entry.number] = self._packs
        if self._known and reads_ahead(entry.device):
            self._send(node)
        return entry, place

    def _send(self, node: int | None) -> None:
        """Moves the next ones: without a node all, and otherwise those that are written by now, and
        that will not be saved once more."""
        while self._left > 0 and self._sent < len(self.moved):
            entry = self.moved[self._sent]()
            if entry is not None:
                if node is not None and not self._is_complete(entry, node):
                    return
                self._left -= entry.nbytes
                self._entries.pop(entry.key, None)
                with entry.lock:
                    entry.move(self._carrier.spool(entry.device), None, self._carrier.lanes)
            self._sent += 1

    def _is_complete(self, entry: Entry, node: int) -> bool:
        known = entry.number < len(self._known)
        return known and entry.node[1] != node and self._known[entry.number] <= self._packs

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if raised[0] is None:
            self._send(None)
        self._entries.clear()
