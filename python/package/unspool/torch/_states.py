"""What is known of the passes of one signature, and how the next one is made.

`Sizing` counts bytes, `Timing` takes the time, `Planned` has chosen; `Aside` is for passes that go
on beside another. In the first two all blocks are computed again but the last one of each kind,
which is free again before the first one is computed again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from unspool.advice.blocks import Block, Forecast, Lane, Way, best, enough
from unspool.advice.plans import NoPlanError
from unspool.stats import size

from ._clock import Clock
from ._found import Wrapped
from ._moving import Carrier, Moving

__all__ = ["Aside", "Call", "Chooser", "Planned", "Seen", "Sizing", "State", "Timing", "kind_of"]

#: A step that takes so many times as long as expected is too slow, and so many of them in a row
#: end the moving of whole blocks.
SLOW, PATIENCE = 1.1, 3


class Call:
    """One call of a block.

    Attributes:
        key: the block and the shapes that it was given.
        kind: what calls have in common that take as much memory and as long; None where nothing is
            measured.
        saved, inputs: bytes, as in `unspool.advice.blocks.Block`; None where they were not counted.
        begin, end: moments of the forward pass.
        repeated: the moments at which it was begun to be computed again, and was, if that was
            measured.
    """

    def __init__(self, wrapped: Wrapped, signature: Any) -> None:
        self.wrapped, self.key = wrapped, (id(wrapped), signature)
        self.kind: Any = None
        self.way = Way.KEEP
        self.saved: int | None = None
        self.inputs = 0
        self.begin: Any = None
        self.end: Any = None
        self.repeated: tuple[Any, Any] | None = None


def kind_of(block: torch.nn.Module) -> Any:
    """What two blocks have in common that do the same to tensors of the same shape."""
    parameters = block.parameters()
    return type(block), tuple(None if is_lazy(each) else each.shape for each in parameters)


class Seen:
    """What was seen of one pass.

    Attributes:
        calls: in the order of the forward pass.
        end: the moment when the backward pass was over.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.calls = clock, list[Call]()
        self.end: Any = None
        self._reached: dict[int, Any] = {}

    def reach(self, place: int) -> bool:
        """The backward pass comes to a call. Whether it is the first time."""
        if place in self._reached:
            return False
        self._reached[place] = self.clock.mark()
        return True

    def passed(self) -> bool:
        """Whether the time can be read without a wait."""
        return self.clock.passed(self.end)

    def seconds(self) -> float:
        """Of all blocks forwards, and of all backwards."""
        forward = self.clock.seconds(self.calls[0].begin, self.calls[-1].end)
        return forward + self.clock.seconds(next(iter(self._reached.values())), self.end)

    def forward(self, place: int) -> float:
        """The seconds of the forward pass of a call."""
        return self.clock.seconds(self.calls[place].begin, self.calls[place].end)

    def again(self, place: int) -> float:
        """The seconds of computing a call again, within its backward pass."""
        repeated = self.calls[place].repeated
        return 0.0 if repeated is None else self.clock.seconds(*repeated)

    def backward(self) -> dict[int, float]:
        """The seconds of the backward passes, by call."""
        marks = [*self._reached.values(), self.end]
        pairs = zip(self._reached, marks, marks[1:], strict=False)
        return {place: self.clock.seconds(one, other) for place, one, other in pairs}


class Chooser:
    """What a choice is made from besides a pass.

    Attributes:
        budget: bytes.
        last: the last block of each kind, in the order of the model.
        moves: is called with the bytes that each pass moves, when a choice does so.
    """

    def __init__(
        self,
        budget: int,
        blocks: Sequence[Wrapped],
        lane: Callable[[torch.device], Lane | None],
        moves: Callable[[Lane | None, int], None],
    ) -> None:
        self.budget, self._lane, self.moves = budget, lane, moves
        self._lanes: dict[torch.device, Lane | None] = {}
        self.last = {id(each) for each in {kind_of(each.block): each for each in blocks}.values()}

    def lane(self, calls: Sequence[Call]) -> Lane | None:
        """How bytes are moved; None where the calls are on several devices."""
        device = self._device(calls)
        if device is not None and device not in self._lanes:
            self._lanes[device] = self._lane(device)
        return self.known_lane(calls)

    def known_lane(self, calls: Sequence[Call]) -> Lane | None:
        """The same, if it was asked for before."""
        device = self._device(calls)
        return None if device is None else self._lanes.get(device)

    def _device(self, calls: Sequence[Call]) -> torch.device | None:
        devices = {part[2] for call in calls for part in call.key[1][0]}
        # Beside tensors of a GPU, those of main memory are numbers and the like.
        devices = {each for each in devices if each.type != "cpu"} or devices
        return next(iter(devices)) if len(devices) == 1 else None


class State:
    """What is known, and how the calls of the next pass are made.

    Attributes:
        measures: whether bytes are counted.
        shared: places of arguments that are given to several calls; grows while bytes are counted.
    """

    measures = False
    shared: frozenset[int] = frozenset()

    def next(self) -> State:
        """The state for the next pass."""
        return self

    def way(self, place: int, call: Call) -> Way:
        """How a call is made."""
        raise NotImplementedError

    def moving(self, place: int, carrier: Carrier, stay: frozenset[int]) -> Moving:
        """A context in which what a call saves is moved, but for storages at some addresses."""
        raise NotImplementedError

    def room(self, place: int) -> int | None:
        """The bytes on their way that may still be there when a call begins."""
        return None

    def room_back(self, place: int) -> int | None:
        """The same when its backward pass begins."""
        return None

    def fetch(self, place: int) -> Sequence[int]:
        """The calls whose bytes begin to come back then."""
        return ()

    def saw(self, seen: Seen) -> None:
        """A pass came to its end."""


class Aside(State):
    """Of a pass beside another one."""

    def way(self, place: int, call: Call) -> Way:
        return Way.RECOMPUTE


class Sizing(State):
    """Nothing is known yet."""

    measures = True

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self._seen: Seen | None = None

    def way(self, place: int, call: Call) -> Way:
        return Way.KEEP if id(call.wrapped) in self.chooser.last else Way.RECOMPUTE

    def saw(self, seen: Seen) -> None:
        self._seen = seen

    def next(self) -> State:
        if self._seen is None:
            return self
        calls = self._seen.calls
        saved = {call.kind: call.saved for call in calls if call.saved is not None}
        if all(call.kind in saved for call in calls):
            blocks = [Block(saved[call.kind] or 0, 0, 0.0, 0.0, 0.0) for call in calls]
            kept = best(blocks, self.chooser.budget, None, [Way.KEEP])
            if kept is not None:
                return Planned(self.chooser, calls, kept, self.shared)
        return Timing(self.chooser, calls, self.shared)


class Timing(Sizing):
    """The calls of a pass are known, and not how long they take."""

    def __init__(self, chooser: Chooser, calls: Sequence[Call], shared: frozenset[int]) -> None:
        super().__init__(chooser)
        self.shared = shared
        self._keys = [call.key for call in calls]
        self._kept = set({call.kind: place for place, call in enumerate(calls)}.values())

    def way(self, place: int, call: Call) -> Way:
        return Way.KEEP if place in self._kept else Way.RECOMPUTE

    def next(self) -> State:
        seen = self._seen
        if seen is None:
            return self
        if [call.key for call in seen.calls] != self._keys:
            return Sizing(self.chooser)
        blocks = blocks_of(seen)
        forecast = best(blocks, self.chooser.budget, None, [Way.KEEP])
        if forecast is None:
            lane = self.chooser.lane(seen.calls)
            forecast = best(blocks, self.chooser.budget, lane)
            if forecast is None:
                raise NoPlanError(_nothing(self.chooser.budget, blocks, lane))
            self.chooser.moves(lane, sum(forecast.moved))
        computing = sum(block.forward + block.backward for block in blocks)
        repeated = sum(
            block.again for block, call in zip(blocks, seen.calls, strict=True) if call.way.repeats
        )
        beside = seen.seconds() - computing - repeated
        return Planned(self.chooser, seen.calls, forecast, self.shared, blocks, beside)


def blocks_of(seen: Seen) -> list[Block]:
    """What the calls of a pass take, by their kinds."""
    kinds: dict[Any, list[int]] = {}
    for place, call in enumerate(seen.calls):
        kinds.setdefault(call.kind, []).append(place)
    found = {kind: _block(seen, places) for kind, places in kinds.items()}
    return [found[call.kind] for call in seen.calls]


def _block(seen: Seen, places: Sequence[int]) -> Block:
    backward = seen.backward()
    calls = [seen.calls[place] for place in places]
    forward = statistics.median(seen.forward(place) for place in places)
    repeated = [seen.again(place) for place in places if seen.calls[place].repeated is not None]
    again = statistics.median(repeated) if repeated else forward
    once = [max(0.0, backward[place] - seen.again(place)) for place in places if place in backward]
    inputs = max(call.inputs for call in calls)
    saved = max(call.saved or 0 for call in calls)
    return Block(max(saved, inputs), inputs, forward, again, statistics.median(once or [0.0]))


def _nothing(budget: int, blocks: Sequence[Block], lane: Lane | None) -> str:
    return (
        f"budget: {_rounded(budget, math.floor)} are too little for {len(blocks)} blocks, of which "
        f"the largest saves {size(max(block.saved for block in blocks))}. "
        f"{_rounded(enough(blocks, lane), math.ceil)} are enough: give a larger budget, or smaller "
        "batches."
    )


def _rounded(count: int, how: Callable[[Fraction], int]) -> str:
    """A size in words that is not rounded the other way: what is said to be enough is."""
    hundredth = Fraction(1 << 10 * ((max(count, 1).bit_length() - 1) // 10), 100)
    return size(math.ceil(how(count / hundredth) * hundredth))


class Planned(State):
    """A way was chosen for each call.

    Attributes:
        forecast: what is expected of the blocks.
        blocks: what they were measured to take; None where all fits anyhow.
        beside: seconds of a step between the blocks.
        seen: the last pass.
        allowed: the ways among which it was chosen.
    """

    def __init__(
        self,
        chooser: Chooser,
        calls: Sequence[Call],
        forecast: Forecast,
        shared: frozenset[int],
        blocks: Sequence[Block] | None = None,
        beside: float = 0.0,
    ) -> None:
        self.chooser, self.calls, self.forecast, self.shared = chooser, calls, forecast, shared
        self.blocks, self.beside = blocks, beside
        self.seen: Seen | None = None
        self.allowed: Sequence[Way] = tuple(Way)
        self._others: dict[Any, float | None] = {}
        # By call, what the last context that moved something has learned.
        self._last: dict[int, Sequence[int]] = {}
        self._judged: Seen | None = None
        self._slow = 0
        self._strayed = False

    @property
    def expected(self) -> float | None:
        """The seconds that a step is expected to take in the blocks and between them."""
        return None if self.blocks is None else self.forecast.seconds + self.beside

    @property
    def fell_back(self) -> bool:
        """Whether blocks are no longer moved, as that took longer than expected."""
        return Way.OFFLOAD not in self.allowed

    def within(self, budget: int) -> float | None:
        """The seconds that a step would be expected to take within another budget; None where
        nothing fits."""
        assert self.blocks is not None
        key = budget, self.allowed
        if key not in self._others:
            lane = self.chooser.known_lane(self.calls)
            found = best(self.blocks, budget, lane, self.allowed)
            self._others[key] = None if found is None else found.seconds + self.beside
        return self._others[key]

    def way(self, place: int, call: Call) -> Way:
        if place >= len(self.calls) or self.calls[place].key != call.key:
            self._strayed = True
        return Way.RECOMPUTE if self._strayed else self.forecast.ways[place]

    def moving(self, place: int, carrier: Carrier, stay: frozenset[int]) -> Moving:
        made = Moving(carrier, stay, self.forecast.moved[place], self._last.get(place, ()))
        # What is learned of it by its end is for the next pass.
        self._last[place] = made.last
        return made

    def room(self, place: int) -> int | None:
        return _at(self.forecast.room, place, 0)

    def room_back(self, place: int) -> int | None:
        return _at(self.forecast.room_back, place, 0)

    def fetch(self, place: int) -> Sequence[int]:
        return _at(self.forecast.fetch, place, ())

    def saw(self, seen: Seen) -> None:
        self.seen = seen

    def next(self) -> State:
        if self._strayed:
            return Sizing(self.chooser)
        self._judge()
        if self._slow >= PATIENCE and Way.OFFLOAD in self.forecast.ways:
            self._fall_back()
        return self

    def _judge(self) -> None:
        """Compares the last pass with what was expected, once, and without a wait."""
        seen, expected = self.seen, self.expected
        if seen is None or seen is self._judged or expected is None or not seen.passed():
            return
        self._judged = seen
        self._slow = self._slow + 1 if seen.seconds() > SLOW * expected else 0

    def _fall_back(self) -> None:
        assert self.blocks is not None
        budget, lane = self.chooser.budget, self.chooser.lane(self.calls)
        for ways in ((Way.KEEP, Way.RECOMPUTE), (Way.KEEP, Way.RECOMPUTE, Way.RECALL)):
            found = best(self.blocks, budget, lane, ways)
            if found is not None:
                self.forecast, self.allowed, self._slow = found, ways, 0
                return


def _at(values: Sequence[Any], place: int, other: Any) -> Any:
    return values[place] if place < len(values) else other
