"""The blocks of a model as they are called, pass by pass: measured at first, and then each in the
way that was chosen for it.

A pass is a list of calls, and ends with the backward pass. What autograd's graph holds keeps it
alive, so that a graph that is dropped ends it too. What is known of passes of one signature is a
state, one of those in `_states`, which says how each call is made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from unspool.advice.blocks import Way

from ._again import Watch
from ._clock import Clock
from ._entry import Entry
from ._found import Wrapped
from ._inputs import within_checkpoint
from ._moving import Carrier
from ._recompute import recomputed
from ._segments import Measure
from ._spools import place_of
from ._states import Aside, Call, Chooser, Seen, Sizing, State, kind_of
from ._surroundings import transformed
from ._trees import flatten

__all__ = ["Pass", "Stack"]

#: Signatures of which something is known; the one that was used longest ago is forgotten.
SIGNATURES = 64


class Stack:
    """The blocks of one `budget`.

    Attributes:
        latest: the state by which the last pass was made.
    """

    def __init__(self, chooser: Chooser, carrier: Carrier) -> None:
        self.chooser, self.carrier = chooser, carrier
        self.latest: State | None = None
        self._known: OrderedDict[Any, State] = OrderedDict()
        self._lock = threading.Lock()
        self._local = threading.local()
        # The pass that is within the budget; others at the same time are computed again.
        self._owner: Any = None

    def call(self, wrapped: Wrapped, args: Any, kwargs: Any) -> Any:
        """Calls a block, in the way that was chosen for it."""
        block = wrapped.block
        if not (block.training and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return wrapped.original(*args, **kwargs)
        if within_checkpoint() or wrapped.makes_parameters() or transformed():
            # The first is computed again as it is; and a block that makes its parameters in this
            # call does not make them a second time.
            return wrapped.original(*args, **kwargs)
        leaves = [leaf for leaf in flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        if not any(each.requires_grad for each in itertools.chain(leaves, block.parameters())):
            return wrapped.original(*args, **kwargs)
        signature = _signature(leaves)
        current = self._current(wrapped, signature, leaves)
        return current.call(wrapped, signature, leaves, args, kwargs)

    def _current(self, wrapped: Wrapped, signature: Any, leaves: list[torch.Tensor]) -> Pass:
        """The pass that a call belongs to. One begins with its first block, or after the end of the
        one before."""
        held = getattr(self._local, "current", None)
        found: Pass | None = None if held is None else held()
        if found is None or found.over or found.first is wrapped:
            found = self._begin(wrapped, signature, leaves)
            self._local.current = weakref.ref(found)
        return found

    def _begin(self, wrapped: Wrapped, signature: Any, leaves: list[torch.Tensor]) -> Pass:
        clock = Clock(place_of(leaves))
        with self._lock:
            owner = None if self._owner is None else self._owner()
            if owner is not None and not owner.over:
                return Pass(self, wrapped, Aside(), clock)
            key = (id(wrapped), signature)
            state = self._known.pop(key, None) or Sizing(self.chooser)
            state = self._known[key] = state.next()
            if len(self._known) > SIGNATURES:
                self._known.popitem(last=False)
            self.latest = state
            made = Pass(self, wrapped, state, clock)
            self._owner = weakref.ref(made)
        return made


class Pass:
    """One pass, forwards and backwards.

    Attributes:
        first: the block with which it has begun.
        over: whether a backward pass through it has come to its end.
    """

    def __init__(self, stack: Stack, first: Wrapped, state: State, clock: Clock) -> None:
        self.carrier, self.first, self.state, self.clock = stack.carrier, first, state, clock
        self.over = self._ending = False
        self.seen = Seen(clock)
        # By call, what was moved away; and the tensors that the last call was given.
        self._moved: dict[int, list[weakref.ref[Entry]]] = {}
        self._given: list[torch.Tensor] = []

    def call(
        self, wrapped: Wrapped, signature: Any, leaves: list[torch.Tensor], args: Any, kwargs: Any
    ) -> Any:
        """Calls the next block."""
        place, call = len(self.seen.calls), Call(wrapped, signature)
        if self.state.measures:
            call.kind = (kind_of(wrapped.block), signature)
        call.way = self.state.way(place, call)
        self.seen.calls.append(call)
        self._make_room(self.state.room(place))
        call.begin = self.clock.mark()
        out = self._run(place, call, leaves, args, kwargs)
        call.end = self.clock.mark()
        given = {id(leaf) for leaf in leaves}
        for key, each in {id(each): each for each in flatten(out)[0]}.items():
            # An argument that is returned as it is belongs to what made it.
            if isinstance(each, torch.Tensor) and each.grad_fn is not None and key not in given:
                each.register_hook(functools.partial(self._reach, place))
        return out

    def _run(self, place: int, call: Call, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        run = call.wrapped.original
        if self.state.measures:
            self._note_inputs(call, leaves)
        if call.way is Way.RECOMPUTE:
            return self._again(call, args, kwargs)
        if call.way.moves:
            moving = self.state.moving(place, self.carrier, self._staying(call, leaves))
            self._moved[place] = moving.moved
            if call.way is Way.RECALL:
                return self._again(call, args, kwargs, moving)
            with moving:
                return run(*args, **kwargs)
        if not self.state.measures:
            return run(*args, **kwargs)
        return self._counted(call, leaves, args, kwargs)

    def _again(self, call: Call, args: Any, kwargs: Any, hooks: Any = None) -> Any:
        wrapped = call.wrapped
        if wrapped.watch is None:
            wrapped.watch = Watch([wrapped.block])
        what = f"budget: a block {type(wrapped.block).__name__}"
        kind = (kind_of(wrapped.block), call.key)
        timed = functools.partial(self._timed, call) if self.state.measures else None
        return recomputed(what, kind, wrapped.watch, wrapped.original, args, kwargs, hooks, timed)

    @contextlib.contextmanager
    def _timed(self, call: Call) -> Iterator[None]:
        """A context in which a call is computed again."""
        begin = self.clock.mark()
        try:
            yield
        finally:
            call.repeated = begin, self.clock.mark()

    def _counted(self, call: Call, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        measure = Measure()
        measure.known(self._others(call, leaves))
        before = measure.count()
        with measure:
            out = call.wrapped.original(*args, **kwargs)
        measure.known(leaves)
        call.saved = measure.count() - before
        return out

    def _note_inputs(self, call: Call, leaves: list[torch.Tensor]) -> None:
        """What the block is given; tensors that the last one was given too are not an input of it
        alone."""
        last = {_address(each) for each in self._given}
        self.state.shared |= {place for place, each in enumerate(leaves) if _address(each) in last}
        measure = Measure()
        measure.known(self._others(call, leaves))
        before = measure.count()
        measure.known(leaves)
        call.inputs = measure.count() - before
        # Without the graph, which leads to what holds this.
        self._given = [each.detach() for each in leaves if _address(each) is not None]

    def _others(self, call: Call, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors that stay whatever is done with the block."""
        block = call.wrapped.block
        shared = [leaf for place, leaf in enumerate(leaves) if place in self.state.shared]
        return [*block.parameters(), *block.buffers(), *shared]

    def _staying(self, call: Call, leaves: list[torch.Tensor]) -> frozenset[int]:
        found = {_address(each) for each in self._others(call, leaves)}
        return frozenset(each for each in found if each is not None)

    def _make_room(self, most: int | None) -> None:
        if most is not None:
            self.carrier.lanes.make_room(most)

    # The backward pass.

    def _reach(self, place: int, _: torch.Tensor) -> None:
        """The backward pass comes to a call."""
        if not self._ending:
            self._ending = True
            self._given = []
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
            self.carrier.expect(
                [each for moved in reversed(self._moved.values()) for each in reversed(moved)]
            )
        if not self.seen.reach(place):
            return
        self._make_room(self.state.room_back(place))
        for each in self.state.fetch(place):
            self.carrier.fetch(self._moved.get(each, ()))

    def _end(self) -> None:
        self._ending = False
        if not self.over:
            self.over = True
            self.seen.end = self.clock.mark()
            self.state.saw(self.seen)
        self.carrier.lanes.make_room(0)


def _address(tensor: torch.Tensor) -> int | None:
    """The address of the storage of a tensor that has one of its own."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
        return tensor.untyped_storage()._cdata
    return None


def _signature(leaves: list[torch.Tensor]) -> Any:
    """What passes are told apart by: shapes, dtypes, devices, and autocast."""
    autocast = tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in ("cpu", "cuda")
    )
    return tuple((leaf.shape, leaf.dtype, leaf.device) for leaf in leaves), autocast
