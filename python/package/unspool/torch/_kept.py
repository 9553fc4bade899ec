"""What autograd saved, by storage: kept by reference up to a budget, and the oldest of the rest in
a spool.

A storage is here once, however many tensors over it were saved. It is copied as late as possible,
and never while the operation that saved it may not have written it yet: some save a tensor that
they are about to fill. Room is made in the order in which storages were saved, since a backward
pass needs the oldest last. On a GPU copies are made beside computing, and memory goes back in the
order of the stream that computes. A step that saves what the step before saved copies the storages
that will not fit as soon as they are written, and holds them until their room is needed. In the
first step nobody knows what will come: once a copy had to be made, copies begin while an eighth of
the budget is left. On the way back what will be wanted next, as in the step before, begins to come
as soon as the budget has room.

What autograd holds refers to an entry, and this refers to entries only weakly: what a dropped graph
has saved goes with it. An entry may die in any thread, also in the one that holds the lock: it
leaves a note then, for whoever has the lock.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from unspool._history import at_death, close_quietly, discard_quietly, free_host
from unspool.errors import Error

from ._changed import Held
from ._entry import Entry, movable
from ._lanes import Lanes
from ._spools import open_spool

__all__ = ["Kept", "own_spool", "unpack"]

#: The number of the newest node that this thread has made for a graph. A node has one before it
#: saves anything, and its operation runs before the next node is made.
newest_node: Callable[[], int] = torch._C._autograd._get_sequence_nr

#: Main memory in front of the disk, in a spool of our own for tensors in main memory.
STAGE = 64 << 20

#: The part of a budget in which tensors of a GPU are held while they leave, in a step that keeps
#: more than the one before.
LEAVING = 8


def reads_ahead(device: torch.device) -> bool:
    """Whether copies back are made beside computing, so that those to come may begin early."""
    return device.type == "cuda"


def own_spool(place: torch.device) -> Any:
    """A spool of our own, for what is moved away from there."""
    if place.type == "cuda":
        return open_spool(place, free_host())
    # In main memory it is already: what is to be freed goes to disk.
    return open_spool(place, STAGE, disk=True)


class Kept:
    """The saved tensors of one `offload`.

    Attributes:
        stay: addresses of storages that are left alone: those of parameters.
        bytes: what is kept by reference.
    """

    def __init__(self, spool: Any, codec: Any, budget: int, min_bytes: int) -> None:
        self.codec, self.budget, self.min_bytes = codec, budget, min_bytes
        self._spool = spool
        self._announces: bool | None = None
        self.stay: frozenset[int] = frozenset()
        self.lock, self._opening = threading.Lock(), threading.Lock()
        self.bytes = 0
        self._lanes = Lanes()
        # The bytes of the budget that tensors of a GPU may take while they leave; none before one
        # had to, so that what fits into the budget stays.
        self._leaving = 0
        # The bytes of all entries, here or moved: now, and at most in this step; and what is
        # expected of this step from the one before, where copies are made beside computing. They
        # grow until something is wanted back.
        self._alive = self._peak = self._expected = 0
        self._beside, self._growing = False, True
        # How often this step has saved something; and after how many times each entry, by its
        # number, was saved last, in this step and in the one before.
        self._packs = 0
        self._last: dict[int, int] = {}
        self._final: dict[int, int] = {}
        # By address, and in the order in which they were saved, or came back.
        self._entries: dict[int, weakref.ref[Entry]] = {}
        self._order: dict[int, weakref.ref[Entry]] = {}
        self._turns = self._live = 0
        # The newest node for which each thread has saved something.
        self._newest: dict[int, int] = {}
        self._dead: deque[tuple[int, int, int, int | None]] = deque()
        # By their numbers in the step: the order in which entries were wanted back, in this step
        # and in the one before, and which of them came back before they were wanted.
        self._numbers = 0
        self._wanted: list[int] = []
        self._learned: dict[int, int] = {}
        self._early: set[int] = set()
        # What was moved since something was last wanted, and what will be wanted next.
        self._moved: list[weakref.ref[Entry]] = []
        self._ahead: deque[weakref.ref[Entry]] = deque()

    # What autograd calls.

    def pack(self, tensor: torch.Tensor) -> Any:
        """What autograd keeps in the place of a tensor."""
        storage = movable(tensor, self.stay, self.min_bytes)
        if storage is None:
            return Held(tensor)
        thread, node, key = threading.get_ident(), newest_node(), storage._cdata
        with self.lock:
            self._newest[thread] = node
            found = self._entries.get(key)
            entry = None if found is None else found()
            if entry is None:
                entry = Entry(self, storage, self._numbers)
                self._numbers += 1
                self._live += 1
                self._entries[key] = weakref.ref(entry)
                self._keep(entry)
                self._alive += entry.nbytes
                self._peak = max(self._peak, self._alive)
                self._beside = reads_ahead(entry.device)
            entry.node = (thread, node)
            place = entry.see(tensor)
            self._packs += 1
            self._last[entry.number] = self._packs
        self._settle()
        return entry, place

    def take(self, entry: Entry, place: int) -> torch.Tensor:
        """A tensor that was saved."""
        self._growing = False
        if self._moved:
            self._sort_moved(entry)
        tensor = entry.at_once(place)
        if tensor is None:
            with entry.lock:
                if entry.away():
                    # What is away has left by now: its memory is for what comes back.
                    self._lanes.make_room(0)
                    self._come_back(entry)
                    self._want(entry)
                elif entry.number in self._early:
                    self._want(entry)
                tensor = entry.get(place)
            self._settle(entry)
        if self._ahead:
            self._read_ahead(entry.device)
        return tensor

    # Steps.

    def enter(self) -> None:
        """A context begins; a step, if nothing is left of the last one."""
        with self.lock:
            if self._live == 0:
                if self._wanted:
                    self._learned = {each: turn for turn, each in enumerate(self._wanted)}
                self._wanted, self._moved, self._numbers = [], [], 0
                self._ahead.clear()
                self._early.clear()
                if self._packs:
                    self._learn_sizes()
        self._lanes.make_room(max(0, self.budget - self.bytes) if self._live else 0)

    def _learn_sizes(self) -> None:
        self._expected, self._final = self._peak if self._beside else 0, self._last
        self._peak, self._packs, self._last, self._growing = 0, 0, {}, True
        if self._expected:
            self._leaving = 0

    def leave(self) -> None:
        """A context ends: everything that this thread has saved is written by now."""
        with self.lock:
            self._newest.pop(threading.get_ident(), None)
        self._settle()

    # Room.

    def _keep(self, entry: Entry) -> None:
        entry.turn, self._turns = self._turns, self._turns + 1
        self._order[entry.turn] = weakref.ref(entry)
        self.bytes += entry.nbytes

    def _settle(self, needed: Entry | None = None) -> None:
        """Forgets what is dead, and moves the oldest away until the rest is within the budget."""
        if self._dead:
            self._bury()
        while self.bytes > self._most():
            entry = self._oldest(needed)
            if entry is None:
                break
            if entry.device.type == "cuda" and self._alive > self._expected:
                self._leaving = self.budget // LEAVING
            self._move(entry)
            self._lanes.make_room(max(0, self.budget - self.bytes))
        self._lanes.make_room(max(0, self.budget - self.bytes))

    def _most(self) -> int:
        """The bytes that may be kept now: there is room for what this step will still save."""
        coming = self._expected - self._alive if self._growing else 0
        return self.budget - max(self._leaving, coming)

    def _is_final(self, entry: Entry) -> bool:
        """Whether an entry will not be saved once more, as far as is known: it would be copied
        twice."""
        return self.bytes > self.budget or self._final.get(entry.number, 0) <= self._packs

    def _move(self, entry: Entry) -> None:
        try:
            new = entry.move(self.spool, self.codec, self._lanes)
        except BaseException:
            with self.lock:
                self._keep(entry)
            raise
        finally:
            entry.lock.release()
        if new:
            self._moved.append(weakref.ref(entry))

    def _oldest(self, needed: Entry | None) -> Entry | None:
        """The entry to be moved next, with its lock taken."""
        with self.lock:
            for turn, reference in self._order.items():
                entry = reference()
                if entry is None or entry is needed:
                    continue
                if self._newest.get(entry.node[0]) == entry.node[1] or not self._is_final(entry):
                    continue
                if entry.lock.acquire(blocking=False):
                    del self._order[turn]
                    self.bytes -= entry.nbytes
                    found = self._entries.get(entry.key)
                    if found is not None and found() is entry:
                        del self._entries[entry.key]
                    return entry
        return None

    def forget(self, entry: Entry) -> None:
        """An entry dies."""
        self._dead.append((entry.turn, entry.key, entry.nbytes, entry.version))
        self._bury()

    def _bury(self) -> None:
        while self._dead and self.lock.acquire(blocking=False):
            versions = []
            try:
                while self._dead:
                    turn, key, nbytes, version = self._dead.popleft()
                    self._live -= 1
                    self._alive -= nbytes
                    if self._order.pop(turn, None) is not None:
                        self.bytes -= nbytes
                        found = self._entries.get(key)
                        if found is not None and found() is None:
                            del self._entries[key]
                    if version is not None:
                        versions.append(version)
            finally:
                self.lock.release()
            for version in versions:
                discard_quietly(self._spool, version)

    # The spool.

    @property
    def spool(self) -> Any:
        """The spool, opened when it is first needed."""
        with self._opening:
            if self._spool is None:
                self._spool = self._opened()
                at_death(self, close_quietly, self._spool)
            return self._spool

    def _opened(self) -> Any:
        with self.lock:
            alive = [entry for entry in (each() for each in self._order.values()) if entry]
        gpus = [entry.device for entry in alive if entry.device.type == "cuda"]
        return own_spool(gpus[0] if gpus else torch.device("cpu"))

    def _come_back(self, entry: Entry, lanes: Lanes | None = None) -> None:
        entry.restore(self.spool, lanes)
        with self.lock:
            if entry.turn not in self._order:
                self._keep(entry)

    def _want(self, entry: Entry) -> None:
        with self.lock:
            self._early.discard(entry.number)
            # A graph that is gone back through again and again says nothing new.
            if len(self._wanted) < self._numbers:
                self._wanted.append(entry.number)

    # What will be wanted next.

    def _read_ahead(self, device: torch.device) -> None:
        """Begins to bring back what will be wanted next, as far as the budget has room."""
        if not reads_ahead(device) or self._lanes.gives(self.spool, device):
            self._ahead.clear()
        while self._ahead:
            self._bury()
            entry = self._next()
            if entry is None:
                return
            try:
                if entry.away():
                    self._lanes.make_room(max(0, self.budget - self.bytes - entry.nbytes))
                    self._come_back(entry, self._lanes)
                    self._early.add(entry.number)
            except (Error, RuntimeError):
                # When it is wanted, it says why it cannot come.
                return
            finally:
                entry.lock.release()

    def _sort_moved(self, entry: Entry) -> None:
        """Says what will be wanted after this entry: as in the last step, or the newest first."""
        if self._announces is None:
            self._announces = len(self.spool.stats().tiers) > 1
        with self.lock:
            found = [reference() for reference in (*self._ahead, *self._moved)]
            self._moved = []
            alive = [each for each in found if each is not None and each is not entry]
            alive.sort(key=lambda each: (self._learned.get(each.number, math.inf), -each.number))
            self._ahead = deque(weakref.ref(each) for each in alive)
        if self._announces and alive:
            self.spool.expect([each.version for each in alive if each.version is not None])

    def _next(self) -> Entry | None:
        """The entry that is wanted next and fits into the budget, with its lock taken."""
        with self.lock:
            while self._ahead:
                entry = self._ahead[0]()
                if entry is not None and entry.version is not None:
                    if self.bytes + entry.nbytes > self._most():
                        return None
                    if entry.lock.acquire(blocking=False):
                        self._ahead.popleft()
                        return entry
                # It is gone, or somebody brings it back.
                self._ahead.popleft()
        return None


def unpack(packed: Any) -> torch.Tensor:
    """The tensor in whose place `Kept.pack` has given this."""
    if type(packed) is Held:
        return packed.get()
    entry, place = packed
    return entry.kept.take(entry, place)
