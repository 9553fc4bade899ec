"""States of a loop of unknown length in a stack of a fixed size, in XLA's memory.

A forward pass keeps the state before every step. When the stack is full, it forgets every second
one and keeps half as many from then on. A backward pass recomputes the states between two that are
kept, and puts those from which it will recompute again where the stack has room: as many steps are
taken as by `schedules.OnlineRevolve`, or fewer.

No state moves in the stack. Its entries, numbered in the order of their steps, are in places
`entry * stride % room`. The room is odd: doubling the stride then leaves the even entries in their
places, as the first half, and gives those of the odd ones to entries that come. One more place is
for what is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
from jax import lax, tree_util

from ._lanes import any_of
from ._perturbed import Parts
from ._steps import Steps

__all__ = ["LEAST", "MOST", "backwards", "forwards"]

#: The fewest entries with which loops are not recomputed too often, and the most that places can be
#: computed for.
LEAST, MOST = 7, 65_535
#: The most times that a schedule for some length recomputes each step; longer ones are not told
#: apart.
TIMES = 8


@tree_util.register_dataclass
@dataclass(frozen=True)
class Stack:
    """States at every `every`-th step.

    Attributes:
        rows: places for the leaves of states.
        every: steps from one entry to the next.
        stride: places from one entry to the next.
        room: the most entries.
    """

    rows: list[Any]
    every: Any
    stride: Any
    room: int = field(metadata={"static": True})

    @classmethod
    def of(cls, state: Any, room: int) -> Stack:
        """An empty one."""
        rows = [jnp.broadcast_to(leaf, (room + 1, *leaf.shape)) for leaf in state]
        return cls(rows, jnp.int32(1), jnp.uint32(1), room)

    def halved(self, when: Any) -> Stack:
        """Without every second entry, where `when` says so."""
        twice = jnp.where(when, 2, 1)
        stride = self.stride * twice.astype(jnp.uint32) % jnp.uint32(self.room)
        return replace(self, every=self.every * twice, stride=stride)

    def put(self, entry: Any, state: Any, when: Any) -> Stack:
        """With a state as this entry, where `when` says so."""
        place = jnp.where(when, self._place(entry), self.room)
        pairs = zip(self.rows, state, strict=True)
        return replace(self, rows=[row.at[place].set(leaf) for row, leaf in pairs])

    def read(self, entry: Any) -> list[Any]:
        """The state of this entry."""
        place = self._place(entry)
        return [row[place] for row in self.rows]

    def _place(self, entry: Any) -> Any:
        return (entry.astype(jnp.uint32) * self.stride % jnp.uint32(self.room)).astype(jnp.int32)


def forwards(steps: Steps, room: int, consts: Any, carry: Any, of_cond: Any) -> Any:
    """The loop, and what the backward pass needs."""

    def step(place: Any) -> Any:
        at, stack = place
        stack = stack.halved(at.total == stack.room * stack.every)
        stack = stack.put(at.total // stack.every, at.carry, at.total % stack.every == 0)
        return steps.after(consts, of_cond, at), stack

    place = (steps.first(of_cond, carry), Stack.of(carry, room))
    at, stack = lax.while_loop(lambda place: any_of(place[0].active), step, place)
    return at.carry, (stack, consts, of_cond, at.taken, at.total)


def backwards(steps: Steps, parts: Parts, kept: Any, given: Any) -> Any:
    """The gradients of constants and carry."""
    stack, consts, of_cond, taken, left = kept
    room = stack.room
    back = steps.back(parts, consts, of_cond, taken)
    # More room is worth more than nearer entries, where what is between them does not fit.
    free = room - -(-left // stack.every)
    stack = stack.halved((stack.every > 1) & (stack.every > free + 2))
    count = -(-left // stack.every)

    def ahead(n: Any, count: Any, begins: Any, stack: Any) -> Any:
        """The state before step `n`, computed from the last entry, and entries on the way."""

        def step(place: Any) -> Any:
            now, until, count, begins, stack, state = place
            now, state = now + 1, steps.next(consts, state, now < taken)
            here = now == until
            stack = stack.put(count, state, here)
            begins = begins.at[jnp.where(here, count, room)].set(now)
            count = count + here
            until = jnp.where(here, now + _distance(n + 1 - now, room - count), until)
            return now, until, count, begins, stack, state

        now = begins[count - 1]
        until = now + _distance(n + 1 - now, room - count)
        place = (now, until, count, begins, stack, stack.read(count - 1))
        return lax.while_loop(lambda place: place[0] < n, step, place)[2:]

    def behind(place: Any) -> Any:
        left, count, begins, stack, gradient, summed = place
        count, begins, stack, state = ahead(left - 1, count, begins, stack)
        gradient, summed = back(left - 1, state, gradient, summed)
        # The entry of this step is not needed again.
        count = count - (begins[count - 1] == left - 1)
        return left - 1, count, begins, stack, gradient, summed

    of_consts, of_carry, _ = parts.step
    summed = [jnp.zeros_like(leaf) for leaf in of_consts.chosen(consts)]
    begins = jnp.arange(room + 1, dtype=jnp.int32) * stack.every
    place = (left, count, begins, stack, list(given), summed)
    *_, gradient, summed = lax.while_loop(lambda place: place[0] > 0, behind, place)
    return [summed, of_carry.narrowed(gradient, parts.arguments[1]), []]


def _distance(steps: Any, free: Any) -> Any:
    """How far after an entry the next one is best, for so many steps until the backward pass and so
    many entries without a state: that of `schedules.Revolve`, which is more than `steps` where
    there are none."""
    steps, room = steps.astype(jnp.float32), (free + 1).astype(jnp.float32)
    times, reach = jnp.float32(1), jnp.float32(1)
    for n in range(1, TIMES):
        reach = reach * (room + n) / n
        times = times + (steps > reach)
    best = jnp.ceil(steps * times / (room + times))
    return jnp.where(free > 0, jnp.maximum(best, 1), steps).astype(jnp.int32)
