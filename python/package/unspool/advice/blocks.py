"""Which blocks of a model keep what they save, compute it again, or move it away: decided from what
a block was seen to take, by a forecast in virtual time.

A pass runs the blocks forwards, and then backwards in the opposite order. What a block saves for
its backward pass is kept, or moved away and fetched back, or forgotten and computed again from the
input of the block, which is kept or moved away itself. The forecast goes through a pass with these
rules:

- While a block runs forwards, and while it is computed again, all that it saves is there.
- Of one block that is moved, a part may be kept: no more is moved than has to be.
- Bytes that are moved away are there until twice the time of their copy is over, or something needs
  their room, which then waits for the copy. So the most bytes at once are known without the clock.
- Bytes are fetched in the order in which they are needed, as soon as they fit beside all that comes
  before they are needed, but only when a link that is a tenth slower would not be late otherwise.
- Computing takes longer beside copies, by the contention of the lane.

Nothing here knows PyTorch, moves a byte or reads a clock.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .links import Rate

#: Blocks up to which all choices are looked at: 4**5 of them.
FEW = 5

#: Places at which runs of more blocks may end.
CUTS = 20

#: The part of the time of a copy by which it begins earlier than it has to.
SPARE = 0.1


class Way(enum.StrEnum):
    """What becomes of what a block saves."""

    KEEP = "keep"
    OFFLOAD = "offload"
    RECOMPUTE = "recompute"
    #: Computed again from an input that was moved away.
    RECALL = "recompute, input offloaded"

    @property
    def moves(self) -> bool:
        """Whether bytes are moved away."""
        return self in (Way.OFFLOAD, Way.RECALL)

    @property
    def repeats(self) -> bool:
        """Whether the block is computed again."""
        return self in (Way.RECOMPUTE, Way.RECALL)


@dataclass(frozen=True, slots=True)
class Block:
    """What one block was seen to take.

    Attributes:
        saved: bytes that its backward pass needs, its input among them.
        inputs: bytes of its input that are needed to compute it again.
        forward: seconds of its forward pass.
        again: seconds of computing again what it saves.
        backward: seconds of its backward pass, without that.
    """

    saved: int
    inputs: int
    forward: float
    again: float
    backward: float

    def moved(self, way: Way) -> int:
        """The bytes that are moved away, if all are that may be."""
        return {Way.OFFLOAD: self.saved, Way.RECALL: self.inputs}.get(way, 0)

    def stays(self, way: Way, moved: int) -> int:
        """The bytes that stay from the forward pass to the backward pass, without those that are
        moved away."""
        return (self.inputs if way.repeats else self.saved) - moved

    def grows(self, way: Way) -> int:
        """The bytes that come when it is computed again."""
        return self.saved - self.inputs if way.repeats else 0


@dataclass(frozen=True, slots=True)
class Contention:
    """By how much computing takes longer beside copies: 0.1 for a tenth.

    Attributes:
        away: forwards, beside what is moved away.
        late: backwards, beside what is still on its way then.
        back: backwards, beside what comes back.
    """

    away: float = 0.0
    late: float = 0.0
    back: float = 0.0


@dataclass(frozen=True, slots=True)
class Lane:
    """The way that bytes are moved.

    Attributes:
        away, back: how fast.
        beside: whether they move beside computing, as between a GPU and main memory; otherwise the
            program does nothing else meanwhile.
        capacity: bytes that can be away at once.
        contention: how much that slows computing down.
    """

    away: Rate
    back: Rate
    beside: bool
    capacity: float = math.inf
    contention: Contention = Contention()


#: Where nothing can be moved.
NO_LANE = Lane(Rate(1.0), Rate(1.0), beside=False, capacity=0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a pass will take.

    Attributes:
        ways: of the blocks, in the order in which they run forwards.
        moved: by block, the bytes that are moved away.
        seconds: of all blocks, forwards and backwards.
        peak_bytes: the most bytes at once.
        room: by block, the bytes on their way that may still be there when it begins.
        room_back: the same for the backward pass.
        fetch: by block, whose bytes begin to come back when its backward pass begins.
    """

    ways: tuple[Way, ...]
    moved: tuple[int, ...]
    seconds: float
    peak_bytes: int
    room: tuple[int, ...] = ()
    room_back: tuple[int, ...] = ()
    fetch: tuple[tuple[int, ...], ...] = ()


def forecast(
    blocks: Sequence[Block],
    ways: Sequence[Way],
    budget: int,
    lane: Lane | None,
    moved: Sequence[int] | None = None,
) -> Forecast | None:
    """A pass in virtual time, or None where it does not fit into the budget or into the lane. All
    is moved that may be, unless `moved` says the bytes by block."""
    if moved is None:
        moved = _wholly(blocks, ways)
    held = _held(blocks, ways, moved)
    if any(before + block.saved > budget for before, block in zip(held, blocks, strict=False)):
        return None
    total = sum(moved)
    if total and (lane is None or total > lane.capacity):
        return None
    run = _Run(blocks, ways, budget, lane or NO_LANE, held, moved)
    run.forwards()
    run.backwards()
    return Forecast(
        tuple(ways),
        tuple(moved),
        run.now + run.slowed(),
        run.peak,
        tuple(run.room),
        tuple(run.room_back),
        tuple(run.fetch),
    )


def _wholly(blocks: Sequence[Block], ways: Sequence[Way]) -> list[int]:
    return [block.moved(way) for block, way in zip(blocks, ways, strict=True)]


def _held(blocks: Sequence[Block], ways: Sequence[Way], moved: Sequence[int]) -> list[int]:
    """By block, the bytes that stay of those before it."""
    triples = zip(blocks, ways, moved, strict=True)
    stay = (block.stays(way, gone) for block, way, gone in triples)
    return list(itertools.accumulate(stay, initial=0))


def partly(
    blocks: Sequence[Block], ways: Sequence[Way], budget: int
) -> tuple[Sequence[Way], list[int]] | None:
    """The ways, and the bytes to be moved by block, where of the last block that is moved as much
    is kept as there is room for; None where that is nothing."""
    last = max((n for n, way in enumerate(ways) if way is Way.OFFLOAD), default=None)
    if last is None:
        return None
    moved = _wholly(blocks, ways)
    later = list(zip(_held(blocks, ways, moved), blocks, strict=False))[last + 1 :]
    room = min((budget - before - block.saved for before, block in later), default=budget)
    if room <= 0:
        return None
    moved[last] = max(0, moved[last] - room)
    return (ways if moved[last] else [*ways[:last], Way.KEEP, *ways[last + 1 :]]), moved


class _Run:
    """One pass.

    Attributes:
        held: by block, the bytes that stay of those before it.
        moved: by block, the bytes that are moved away.
        left: by block, when its bytes have left.
        gone: by block, when that is sure to be over.
        leaving: blocks whose bytes have not made room yet, the oldest first, and those bytes.
        spare: by block, the bytes that are free while it runs backwards.
        ready: by block, when its bytes are back.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        ways: Sequence[Way],
        budget: int,
        lane: Lane,
        held: Sequence[int],
        moved: Sequence[int],
    ) -> None:
        self.blocks, self.ways, self.budget, self.lane = blocks, ways, budget, lane
        self.held, self.moved = held, moved
        self.now = self.busy = 0.0
        self.peak = self.leaving_bytes = 0
        self.leaving: deque[int] = deque()
        self.left, self.gone, self.ready = ([0.0] * len(blocks) for _ in range(3))
        self.spare: list[int] = []
        self.room: list[int] = []
        self.room_back = [0] * len(blocks)
        self.fetch: list[tuple[int, ...]] = [()] * len(blocks)

    def forwards(self) -> None:
        for place, block in enumerate(self.blocks):
            self.room.append(self._make_room(self.budget - self.held[place] - block.saved))
            self.now += block.forward
            if self.moved[place]:
                self._send(place, self.moved[place])

    def _send(self, place: int, size: int) -> None:
        taken = self.lane.away.seconds(size)
        self.busy = max(self.busy, self.now) + taken
        self.left[place], self.gone[place] = self.busy, self.busy + taken
        if self.lane.beside:
            self.leaving.append(place)
            self.leaving_bytes += size
        else:
            self.now = self.busy

    def _make_room(self, room: int) -> int:
        """Waits until no more is leaving than there is room for, and lets go of what has left. The
        bytes that may still be there."""
        assert room >= 0
        while self.leaving and (
            self.leaving_bytes > room or self.gone[self.leaving[0]] <= self.now
        ):
            place = self.leaving.popleft()
            self.leaving_bytes -= self.moved[place]
            self.now = max(self.now, self.left[place])
        self.peak = max(self.peak, self.budget - room + self.leaving_bytes)
        return min(room, self.leaving_bytes)

    def backwards(self) -> None:
        self.busy = 0.0
        fours = zip(self.blocks, self.ways, self.moved, self.held, strict=False)
        self.spare = [
            self.budget - before - block.stays(way, moved) - block.grows(way)
            for block, way, moved, before in fours
        ]
        ahead = deque(place for place in reversed(range(len(self.moved))) if self.moved[place])
        soon = self._soon(list(ahead))
        for place in reversed(range(len(self.blocks))):
            came = self.fetch[place] = tuple(self._next(place, ahead, soon))
            self.room_back[place] = self._make_room(self.spare[place])
            for each in came:
                self._bring(each)
            self.now = max(self.now, self.ready[place])
            self.now += self._back(place)

    def _back(self, place: int) -> float:
        """The seconds of the backward pass of a block."""
        block = self.blocks[place]
        return block.backward + (block.again if self.ways[place].repeats else 0.0)

    def _soon(self, ahead: Sequence[int]) -> dict[int, int]:
        """By block that was moved, the block at whose backward pass its bytes may be fetched at the
        earliest: none of them comes too late then, if nothing waits."""
        starts = [0.0, *itertools.accumulate(map(self._back, reversed(range(len(self.blocks)))))]
        found, end = dict[int, int](), math.inf
        for place in reversed(ahead):
            taken = self.lane.back.seconds(self.moved[place])
            end = min(end, starts[len(self.blocks) - 1 - place]) - taken
            turn = max(0, bisect.bisect_right(starts, end - SPARE * taken) - 1)
            found[place] = len(self.blocks) - 1 - turn
        return found

    def _next(self, now: int, ahead: deque[int], soon: dict[int, int]) -> Iterator[int]:
        """Those that are fetched when the backward pass of block `now` begins."""
        while ahead:
            place, size = ahead[0], self.moved[ahead[0]]
            if place != now and not (self.lane.beside and now <= soon[place]):
                return
            if place != now and min(self.spare[place : now + 1]) < size:
                return
            for each in range(place, now + 1):
                self.spare[each] -= size
            yield ahead.popleft()

    def _bring(self, place: int) -> None:
        begin = max(self.busy, self.now, self.left[place])
        self.busy = begin + self.lane.back.seconds(self.moved[place])
        self.ready[place] = self.busy

    def slowed(self) -> float:
        """The seconds by which computing takes longer beside copies, at most."""
        if not self.lane.beside:
            return 0.0
        sizes, slows = [each for each in self.moved if each], self.lane.contention
        away, back = (sum(map(rate.seconds, sizes)) for rate in (self.lane.away, self.lane.back))
        forward = sum(block.forward for block in self.blocks)
        backward = sum(map(self._back, range(len(self.blocks))))
        late = min(max(0.0, away - forward), backward)
        return (
            slows.away * min(away, forward) + slows.late * late + slows.back * min(back, backward)
        )


def best(
    blocks: Sequence[Block], budget: int, lane: Lane | None, allowed: Iterable[Way] = Way
) -> Forecast | None:
    """The fastest pass within a budget, or None where nothing fits.

    Of a few blocks, all choices are compared. Of more, those in which the first blocks have one
    way, the next ones another, and the last ones, whose room is free soonest, are kept: of equal
    blocks, no other choice was ever seen to be better. Each is tried with whole blocks moved, and
    with a part of one. What a larger budget allows is never slower.
    """
    ways = [way for way in allowed if lane is not None or not way.moves]
    tried = _all(blocks, ways) if len(blocks) <= FEW else in_runs(blocks, ways)
    found: Forecast | None = None
    for least, choice in sorted(tried, key=lambda one: one[0]):
        if found is not None and least >= found.seconds:
            break
        chosen = choice()
        part = partly(blocks, chosen, budget)
        for made, moved in ((chosen, None),) if part is None else ((chosen, None), part):
            one = forecast(blocks, made, budget, lane, moved)
            if one is not None and (found is None or one.seconds < found.seconds):
                found = one
    return found


#: The least seconds of a choice, and what makes it.
_Tried = tuple[float, Callable[[], tuple[Way, ...]]]


def _all(blocks: Sequence[Block], ways: Sequence[Way]) -> Iterator[_Tried]:
    for choice in itertools.product(ways, repeat=len(blocks)):
        pairs = zip(blocks, choice, strict=True)
        again = sum(block.again for block, way in pairs if way.repeats)
        yield _computing(blocks) + again, functools.partial(tuple, choice)


def in_runs(blocks: Sequence[Block], ways: Sequence[Way]) -> Iterator[_Tried]:
    """Choices of one run of each way, in any order, and the rest kept."""
    count, computing = len(blocks), _computing(blocks)
    again = [0.0, *itertools.accumulate(block.again for block in blocks)]
    others = [way for way in ways if way is not Way.KEEP]
    # Of many blocks, not every length: some percent of them go one way or the other together.
    cuts = sorted({*range(0, count, -(-count // CUTS)), count})
    for order in itertools.permutations(others):
        for ends in itertools.combinations_with_replacement(cuts, len(order)):
            edges = (0, *ends, count)
            runs = list(zip((*order, Way.KEEP), edges, edges[1:], strict=False))
            more = sum(again[end] - again[begin] for way, begin, end in runs if way.repeats)
            yield computing + more, functools.partial(_written_out, runs)


def _written_out(runs: Iterable[tuple[Way, int, int]]) -> tuple[Way, ...]:
    return tuple(way for way, begin, end in runs for _ in range(begin, end))


def _computing(blocks: Sequence[Block]) -> float:
    return sum(block.forward + block.backward for block in blocks)


def enough(blocks: Sequence[Block], lane: Lane | None) -> int:
    """A budget that something fits into: the smallest one if all inputs can be moved, or none."""
    inputs = sum(block.inputs for block in blocks)
    way = Way.RECOMPUTE if lane is None or inputs > lane.capacity else Way.RECALL
    ways = [way] * len(blocks)
    held = _held(blocks, ways, _wholly(blocks, ways))
    return max((here + block.saved for here, block in zip(held, blocks, strict=False)), default=0)
