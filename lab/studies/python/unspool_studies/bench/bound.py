"""The shortest time of a history of saves and restores over given links: a bound that no program
is faster than, whatever it keeps where and whatever it knows of the order.

The application does one thing after the other: it computes, and it saves or restores one
checkpoint. A tier holds so many bytes, so between any two of these calls at least so many have to
cross the link below it; both directions carry at once, and computing goes on meanwhile.

- Of what was saved since a call, all that is still needed and does not fit above a link has gone
  down over it since that call.
- Of what is restored since a call, all that cannot have been above the link when it began, or was
  given up since, has come up over it since that call.

How little that is, for each pair of calls, is known exactly: whoever gives up what is used last
moves the fewest bytes (Belady), counted byte by byte, so that checkpoints of different sizes are
no other case. The bound is the longest way through these times and those of the computing. Nothing
is said of latencies, and a save or restore may pass by a tier that is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate

from unspool import advice
from unspool.advice import Candidate, Rate
from unspool.advice.sizes import OPTIONS
from unspool.schedules import Discard, Forward, Restore, Reverse, Save
from unspool.schedules.base import dry_run

__all__ = ["Access", "Link", "Pace", "accesses_of", "least_of", "least_seconds"]

#: Pairs of calls that are looked at, two seconds of work. In longer histories only some calls are
#: taken as the first of a pair, so that the bound is lower.
PAIRS = 1_000_000


@dataclass(frozen=True, slots=True)
class Access:
    """One save or restore.

    Attributes:
        version: which checkpoint. One that is restored and never saved was there before.
        size: its bytes.
        compute: seconds of computing since the access before.
        saves: whether it is a save.
        copy: seconds that the application's own copy takes.
    """

    version: int
    size: int
    compute: float = 0.0
    saves: bool = False
    copy: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """What lies between a tier and the next slower one.

    Attributes:
        room: bytes of the tier above it.
        down: bytes a second towards the slower tier.
        up: the same, back.
    """

    room: int
    down: float
    up: float


def least_seconds(
    accesses: Sequence[Access], links: Sequence[Link], *, after: float = 0.0, kept: bool = False
) -> float:
    """Seconds of all accesses and the computing between them.

    Args:
        accesses: in their order.
        links: the fastest first; none where everything fits into one tier.
        after: seconds of computing after the last access.
        kept: whether checkpoints are kept at the end; else each is needed until its last access.
    """
    history = _History(_apart(accesses), kept)
    return history.seconds(_rooms(accesses, links), links) + after


def _apart(accesses: Iterable[Access]) -> list[Access]:
    """One access in place of several of the same checkpoint with nothing computed between them:
    the application still has the bytes.
    """
    found: list[Access] = []
    for access in accesses:
        before = found[-1] if found else None
        if before and before.version == access.version and not (access.compute or access.saves):
            found[-1] = replace(before, copy=before.copy + access.copy)
        else:
            found.append(access)
    return found


def _rooms(accesses: Iterable[Access], links: Iterable[Link]) -> list[int]:
    """Bytes of all tiers above each link: of whole checkpoints where they are all alike."""
    sizes = {access.size for access in accesses}
    whole = sizes.pop() if len(sizes) == 1 else 1
    return list(accumulate(link.room - link.room % max(1, whole) for link in links))


class _History:
    """Accesses, and for each of them the one of the same checkpoint before and after."""

    def __init__(self, accesses: Sequence[Access], kept: bool) -> None:
        self._accesses, count = accesses, len(accesses)
        self._before, self._next, self._end = [-1] * count, [count] * count, [count] * count
        last: dict[int, int] = {}
        for place, access in enumerate(accesses):
            if access.version in last and not access.saves:
                before = last[access.version]
                self._before[place], self._next[before] = before, place
            last[access.version] = place
        for place in reversed(range(count)):
            follows = self._next[place]
            ends = place if not kept else count
            self._end[place] = self._end[follows] if follows < count else ends

    def seconds(self, rooms: Sequence[int], links: Sequence[Link]) -> float:
        count = len(self._accesses)
        done = [0.0] * count
        stride = 1 + count * count * len(links) // (2 * PAIRS)
        for first, access in enumerate(self._accesses):
            begins = access.compute + (done[first - 1] if first else 0.0)
            done[first] = max(done[first], begins + access.copy)
            if first % stride:
                continue
            for room, link in zip(rooms, links, strict=True):
                for place, down, up in self._moved(first, room):
                    moved = max(down / link.down, up / link.up)
                    done[place] = max(done[place], begins + moved)
        return done[-1] if done else 0.0

    def _moved(self, first: int, room: int) -> Iterator[tuple[int, float, float]]:
        """The least bytes that went down and that came up since the call of `first`, for it and
        each access after it.
        """
        above, saved = _Above(room), _Above(room)
        self._begin(first, above)
        down = up = 0
        for place in range(first, len(self._accesses)):
            access = self._accesses[place]
            there = above.take(access.version)
            up += 0 if access.saves else access.size - there
            if self._next[place] < len(self._accesses):
                above.keep(access.version, access.size, self._next[place])
            if access.saves and self._end[place] > place:
                down += saved.keep(access.version, access.size, self._end[place])
            elif self._end[place] == place:
                saved.take(access.version)
            yield place, down, up

    def _begin(self, first: int, above: _Above) -> None:
        """Keeps what is restored first."""
        for place in range(first, len(self._accesses)):
            access = self._accesses[place]
            if above.is_full():
                return
            if not access.saves and self._before[place] < first:
                above.keep(access.version, access.size, place)


class _Above:
    """What is kept above a link; what is needed last is given up when there is too little room."""

    def __init__(self, room: int) -> None:
        self._room, self._used = room, 0
        self._kept: dict[int, int] = {}
        # Those that are gone stand after all that are there: they were needed earlier.
        self._last: list[tuple[int, int]] = []

    def is_full(self) -> bool:
        return self._used >= self._room

    def keep(self, version: int, size: int, until: int) -> int:
        """Keeps a checkpoint until that access; the bytes that are given up for it."""
        self._kept[version] = size
        self._used += size
        heappush(self._last, (-until, version))
        excess = given = max(0, self._used - self._room)
        while excess:
            version = self._last[0][1]
            part = min(excess, self._kept[version])
            self._kept[version] -= part
            excess -= part
            if not self._kept[version]:
                heappop(self._last)
        self._used -= given
        return given

    def take(self, version: int) -> int:
        """Does not keep a checkpoint any more; the bytes of it that were kept."""
        found = self._kept.pop(version, 0)
        self._used -= found
        return found


@dataclass(frozen=True, slots=True)
class Pace:
    """What the steps and copies of an adjoint take.

    Attributes:
        forward: seconds of a forward step.
        reverse: seconds of a reverse step.
        save: how fast the application copies when it saves; None where that is not counted.
        restore: the same when it restores.
    """

    forward: float
    reverse: float
    save: Rate | None = None
    restore: Rate | None = None


def least_of(
    candidate: Candidate,
    links: advice.Links,
    steps: tuple[float, float],
    sizes: tuple[int, int],
    count: int | None = None,
) -> float:
    """The bound of a schedule with its tiers, as `unspool.advice` has them.

    Args:
        candidate: the schedule, and the options of its spool.
        links: the speeds of the machine.
        steps: seconds of a forward and of a reverse step.
        sizes: bytes of a state, and of a copy that is only restored to reverse a step.
        count: the number of steps, where the schedule does not know it.
    """
    found = links.of(candidate.tiers)
    between = [
        Link(candidate.options[OPTIONS[link.fast]], *_speeds(link.flush, link.prefetch))
        for link in found.links
    ]
    pace = Pace(*steps, links.save, links.restore)
    actions = _ended(dry_run(candidate.schedule, count), count)
    accesses, after = accesses_of(actions, pace, *sizes)
    return least_seconds(accesses, between, after=after)


def _ended(actions: Iterable[object], steps: int | None) -> Iterator[object]:
    """The forward pass ends where there are no more steps, wherever the schedule would go."""
    for action in actions:
        match action:
            case Forward(start, stop) if steps is not None and stop > steps:
                yield Forward(start, steps)
            case _:
                yield action


def _speeds(*rates: Rate) -> Iterator[float]:
    return (rate.bytes_per_second for rate in rates)


def accesses_of(
    actions: Iterable[object], pace: Pace, whole: int, part: int | None = None
) -> tuple[list[Access], float]:
    """The accesses of a schedule, and the seconds of computing after the last one.

    Args:
        actions: of the schedule.
        pace: of its steps.
        whole: bytes of a state.
        part: bytes of a copy that is only restored to reverse a step; the whole without it.
    """
    found = _Accesses(pace)
    for action in actions:
        found.see(action)
    return found.sized(whole, whole if part is None else part), found.compute


class _Accesses:
    """Follows a schedule: every copy is a checkpoint of its own."""

    def __init__(self, pace: Pace) -> None:
        self._pace, self.compute = pace, 0.0
        self._found: list[Access] = []
        #: The checkpoint of each step that is kept, and in how many tiers the schedule keeps it.
        self._kept: dict[int, tuple[int, int]] = {}
        self._checkpoints = 0
        #: Checkpoints from which the application went on, so that they are whole states.
        self._whole: set[int] = set()
        self._restored: int | None = None

    def see(self, action: object) -> None:
        pace = self._pace
        match action:
            case Forward(start, stop):
                self._goes_on()
                self.compute += (stop - start) * pace.forward
            case Reverse():
                self._restored = None
                self.compute += pace.reverse
            case Save(step):
                self._goes_on()
                self._save(step)
            case Restore(step):
                self._restored = self._kept[step][0]
                self._add(self._restored, saves=False)
            case Discard(step):
                checkpoint, tiers = self._kept.pop(step)
                if tiers > 1:
                    self._kept[step] = checkpoint, tiers - 1

    def _goes_on(self) -> None:
        if self._restored is not None:
            self._whole.add(self._restored)
            self._restored = None

    def _save(self, step: int) -> None:
        if step in self._kept:
            checkpoint, tiers = self._kept[step]
            self._kept[step] = checkpoint, tiers + 1
            return
        self._checkpoints += 1
        self._kept[step] = self._checkpoints, 1
        self._add(self._checkpoints, saves=True)

    def _add(self, checkpoint: int, *, saves: bool) -> None:
        self._found.append(Access(checkpoint, 0, self.compute, saves))
        self.compute = 0.0

    def sized(self, whole: int, part: int) -> list[Access]:
        def sized(access: Access) -> Access:
            size = whole if access.version in self._whole else part
            rate = self._pace.save if access.saves else self._pace.restore
            return replace(access, size=size, copy=rate.seconds(size) if rate else 0.0)

        return [sized(access) for access in self._found]
