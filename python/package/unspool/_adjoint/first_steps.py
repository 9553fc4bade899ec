"""The first steps of a run whose schedule is chosen while it runs (`unspool.schedules.Auto`).

They are taken one at a time, timed, and their states saved where that costs little. The run then
follows the schedule that was chosen from its beginning: what that saves of these states is there,
and the other copies are discarded. Where a later copy has no room, the run keeps that of state 0
alone, and another schedule is chosen for what is left.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from dataclasses import replace
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from ..errors import CapacityError
from ..schedules import StoreAll
from ..schedules.actions import FORWARD
from ..schedules.auto import After
from .report import Chosen
from .states import arrays_of

if TYPE_CHECKING:
    from ..advice.choosing import Seen
    from .run import Run

__all__ = ["FirstSteps"]

#: The most first steps, and their largest share of all steps. At least `TIMED` steps after the
#: first one are timed.
MOST, PART, TIMED = 8, 1 / 50, 2

#: Steps of a run in which another save shows what it takes into memory that was used before. In
#: shorter ones it is taken to be this share of the first one.
LONG, USED = 64, 0.3

#: Where a save takes longer than this many steps, the states of the first steps are not saved:
#: the fastest schedule will have few saves.
DEAR = 2.0

#: Seconds that more steps than these may take, and their share of the whole run.
PATIENCE, SHARE = 0.05, 0.01

#: How often another schedule is chosen.
CHOICES = 3


class FirstSteps:
    """What they show, and what was chosen for it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps = run.steps or 0
        #: Seconds of each step.
        self.forward: list[float] = []
        #: Seconds of saves: into memory that is used for the first time, and into other memory.
        self.cold: list[float] = []
        self.warm: list[float] = []
        self.seen: Seen | None = None
        self.chosen: Chosen | None = None
        self.choices = 0

    def go(self) -> None:
        """Takes them, and has the run follow what was chosen."""
        if self.steps == 1:
            self.chosen = Chosen(StoreAll(1), "there is one step")
            self.run.follow(self.chosen.schedule)
            return
        self._save(0)
        most = self._most()
        while True:
            at = len(self.forward)
            self._step(at)
            if at + 1 >= most or self._enough():
                break
            if not self._is_dear() and not self._has_room_for(at + 1):
                break
        self.seen = self._figures()
        self._choose()

    def _choose(self) -> None:
        from ..advice.choosing import choose

        assert self.seen is not None
        self.run.inside = "the plan"
        self.chosen = Chosen(*choose(self.seen))
        self.run.follow(self.chosen.schedule, len(self.forward))

    def _most(self) -> int:
        """The most steps: all their states are there at once, and none is after the last one that
        any schedule saves."""
        from ..advice.choosing import room_of

        spool, before = self.run.spool, self.run.before
        size = self._size()
        tiers = room_of(before, self._reserved())
        on_gpu = spool.device.startswith("cuda")
        rooms = sum(tiers.slots(name, size, on_gpu) for name in tiers.names)
        most = max(1 + TIMED, min(MOST, int(PART * self.steps)))
        return max(1, min(most, self.steps - 1, rooms))

    def _step(self, at: int) -> None:
        """Takes one step."""
        self.run.word = FORWARD, at, at + 1, None
        self._wait()
        begun = clock()
        self.run.take(at, at + 1)
        self._wait()
        self.forward.append(clock() - begun)

    def _save(self, step: int) -> None:
        """Saves the working state; that of a long run twice, as used memory is faster."""
        run = self.run
        version = run.job.first + step
        self._wait()
        for times in (self.cold, self.warm)[: 1 if step or self.steps < LONG else 2]:
            if step in run.there:
                run.spool.discard(version)
                run.there.discard(step)
            begun = clock()
            run.put(version, only_reversed=False)
            run.saving = None
            run.there.add(step)
            self._wait()
            times.append(clock() - begun)

    def _has_room_for(self, step: int) -> bool:
        """Saves the working state, if there is room."""
        try:
            self._save(step)
        except CapacityError:
            self.run.saving = None
            return False
        return True

    def _wait(self) -> None:
        """Waits for the work of a GPU."""
        self.run.inside = "state"
        positional, named = arrays_of(self.run.state.now())
        wait_for([*positional, *named.values()], self.run.job.stream)

    def _enough(self) -> bool:
        """Whether the steps that were timed will do."""
        timed, taken = self.forward[1:], sum(self.forward)
        if len(timed) < TIMED:
            return False
        if self._is_dear():
            return True
        whole = 2 * self.steps * statistics.median(timed)
        return taken >= max(PATIENCE, SHARE * whole)

    def _is_dear(self) -> bool:
        """Whether a save takes much longer than a step."""
        return min(self.cold) > DEAR * statistics.median(self.forward[1:] or self.forward)

    def _size(self) -> int:
        """Bytes of a state."""
        positional, named = arrays_of(self.run.state.now())
        return max(1, sum(map(_bytes_of, [*positional, *named.values()])))

    def _part(self) -> int:
        """Bytes of what a reverse step reads."""
        part, size = self.run.part, self._size()
        if part is None:
            return size
        positional, named = arrays_of(part.now())
        return min(size, max(1, sum(map(_bytes_of, [*positional, *named.values()]))))

    def _reserved(self) -> int:
        """Bytes of copies that no schedule counts: the one beside the last step, and the exact ones
        of `check`."""
        run = self.run
        turning = not run.turned and not run.state.frozen
        return self._part() * (turning + run.apart)

    def _figures(self) -> Seen:
        from ..advice.choosing import Seen

        run, size, part = self.run, self._size(), self._part()
        now = run.spool.stats()
        raw = now.codec.raw_bytes - run.before.codec.raw_bytes
        stored = now.codec.stored_bytes - run.before.codec.stored_bytes
        first = statistics.median(self.cold)
        new = now.tiers[0].name != "disk" and not run.spool.device.startswith("cuda")
        usual = min([first, *(self.warm or [USED * first if new else first])])
        return Seen(
            steps=self.steps,
            state_bytes=size,
            reverse_bytes=part,
            step_seconds=max(statistics.median(self.forward[1:] or self.forward), 1e-9),
            first_seconds=first,
            save_seconds=max(usual, 1e-9),
            ratio=max(1.0, raw / stored) if stored else None,
            device=run.spool.device,
            before=run.before,
            now=now,
            reserved=self._reserved(),
            spare=len(run.there) * (size - part),
            taken=len(self.forward),
            there=frozenset(run.there),
        )

    def again(self, step: int) -> bool:
        """Chooses another schedule for the steps that are not reversed, where the copy of a state
        has no room: now for copies as large as their arrays. Whether it did."""
        from ..advice import NoPlanError
        from ..advice.choosing import choose

        run, seen = self.run, self.seen
        if seen is None or 0 not in run.held or self.choices == CHOICES:
            return False
        reserved = seen.reserved + self.choices * seen.state_bytes
        self.choices += 1
        seen = replace(seen, ratio=None, spare=0, taken=0, reserved=reserved)
        after = self.steps - run.reversed - step
        left = replace(seen, steps=after, reserved=reserved + seen.state_bytes)
        try:
            before, _, _ = choose(replace(seen, steps=step))
            last, why, plan = choose(left)
        except NoPlanError:
            return False
        run.keep_first()
        why += f"; chosen at state {step:,}, whose copy had no room"
        self.chosen = Chosen(After(before, last), why, plan)
        run.follow(self.chosen.schedule, step)
        run.look_ahead()
        return True


def _bytes_of(array: Any) -> int:
    """The bytes of an array of any library."""
    found = getattr(array, "nbytes", None)
    if found is None:
        with contextlib.suppress(TypeError):
            found = memoryview(array).nbytes
    return int(found or 0)


def wait_for(arrays: list[Any], stream: Any) -> None:
    """Waits for what was enqueued for these arrays: only then the clock says how long it took.

    Of CuPy, PyTorch and JAX, or on a stream of theirs; the work of others is not waited for.
    """
    if hasattr(stream, "synchronize"):
        stream.synchronize()
    for array in arrays:
        library = type(array).__module__.split(".")[0]
        if hasattr(array, "block_until_ready"):
            array.block_until_ready()
        elif library == "cupy":
            sys.modules["cupy"].cuda.get_current_stream().synchronize()
        elif library == "torch" and array.is_cuda:
            sys.modules["torch"].cuda.current_stream(array.device).synchronize()
