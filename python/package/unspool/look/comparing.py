"""`unspool.look.diff`: where two histories or runs begin to differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from .. import _arrays
from .._files import AnyPath
from ..errors import Error, OptionError
from .checkpoints import Array, Checkpoints
from .frames import differing
from .leaves import is_text
from .outcome import Comparison, Difference
from .values import Found, Tolerance, scan

__all__ = ["BLOCK", "blocks_of", "diff"]

#: The bytes of an array that are compared at once.
BLOCK = 1 << 23

#: Chooses among steps.
Choose = Callable[[list[int]], Sequence[int]]


def diff(
    a: AnyPath,
    b: AnyPath,
    *,
    arrays: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    which: Literal["all", "common", "first"] = "all",
    rtol: float | None = None,
    atol: float | None = None,
    ulp: int | None = None,
    bounds: bool = False,
) -> Comparison:
    """Compares the checkpoints of two durable histories, runs or places of copies.

    Without a tolerance, equal means the same bits: NaN with another payload and -0.0 for 0.0 are
    differences. With one, NaN equals NaN, 0.0 equals -0.0, and a value may be
    `atol + rtol * abs(b)` from that of `b`, or within `ulp` representable numbers. The two parts of
    a complex number are compared alone.

    Arrays whose checksums are equal in pieces of 64 KiB are not read. So this does not notice
    damage on a disk in what is equal: `unspool verify` does.

    Arguments:
        a: a directory, or a place of copies such as `"s3://bucket/run"`.
        b: the other one, such as a reference.
        arrays: only these arrays, numbers and texts, by name.
        steps: only these steps.
        which: `"all"` steps, where one that only `a` or `b` has is a difference; those in
            `"common"`; or all up to the `"first"` one that differs.
        rtol: how far values may be from each other, relative to that of `b`.
        atol: how far they may be, in their unit.
        ulp: how many representable numbers they may be apart.
        bounds: also as far as the bounds of the codecs allow that have stored them.

    Raises:
        OptionError: a path holds no checkpoints, neither has one of `steps`, or an option makes no
            sense.
    """
    if which not in ("all", "common", "first"):
        raise OptionError(f'which={which!r}: write "all", "common" or "first".')
    tolerance = Tolerance(rtol, atol, ulp)
    with Checkpoints(a) as one, Checkpoints(b) as other:
        both = _Both(one, other, arrays, tolerance, bounds)
        return both.compared(_chosen(both, steps), which)


def _chosen(both: _Both, steps: Sequence[int] | None) -> list[int]:
    """The steps of both.

    Raises:
        OptionError: none has one that was asked for.
    """
    there = sorted({*both.a.steps, *both.b.steps, *both.a.lost, *both.b.lost})
    if steps is None:
        return there
    if unknown := [step for step in steps if step not in set(there)]:
        raise OptionError(f"steps: neither {both.a.place} nor {both.b.place} has {unknown[0]}.")
    return sorted(set(steps))


class _Both:
    """Two places that are compared."""

    def __init__(
        self,
        a: Checkpoints,
        b: Checkpoints,
        names: Sequence[str] | None,
        tolerance: Tolerance,
        bounds: bool,
    ) -> None:
        self.a, self.b, self._tolerance, self._bounds = a, b, tolerance, bounds
        self._names = None if names is None else frozenset(names)
        self._has = frozenset(a.steps), frozenset(b.steps)
        self._read = 0

    def compared(self, steps: Sequence[int], which: str) -> Comparison:
        """What differs in these steps."""
        done: list[int] = []
        found: list[Difference] = []
        for step in steps:
            there = [step in has for has in self._has]
            if which == "common" and not all(there):
                continue
            done.append(step)
            of_step = list(self._of_step(step))
            found += of_step
            if of_step and which == "first":
                break
        places = str(self.a.place), str(self.b.place)
        faults = [
            f"{place}: {fault}"
            for place, one in zip(places, (self.a, self.b), strict=True)
            for fault in (one.faults if not one.lost else ())
        ]
        return Comparison(*places, done, found, faults, self._read)

    def _of_step(self, step: int) -> Iterator[Difference]:
        lost = [why for one in (self.a, self.b) if (why := one.lost.get(step)) is not None]
        if lost:
            yield Difference(step, "", "unreadable", detail=lost[0])
            return
        there = [step in has for has in self._has]
        if not all(there):
            one, other = ("a checkpoint" if each else None for each in there)
            yield Difference(step, "", "missing", one, other)
            return
        try:
            arrays = self.a.regions(step), self.b.regions(step)
            numbers = self._numbers(step, *arrays)
        except Error as why:
            yield Difference(step, "", "unreadable", detail=str(why))
            return
        for name in self._wanted(*arrays):
            if not is_text(name):
                yield from self._of_array(step, name, arrays[0].get(name), arrays[1].get(name))
        for name in self._wanted(*numbers):
            yield from _of_number(step, name, *numbers, self._tolerance)

    def _numbers(
        self, step: int, one: dict[str, Array], other: dict[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Numbers and texts of both; none where checksums say that they are equal."""
        texts = {name for name in (*one, *other) if is_text(name)}
        same = all(
            name in one and name in other and _places(one[name], other[name]) == []
            for name in texts
        )
        if same and not (self.a.has_manifests or self.b.has_manifests):
            return {}, {}
        return self.a.values(step), self.b.values(step)

    def _wanted(self, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
        names = dict.fromkeys((*one, *other))
        return [name for name in names if self._names is None or name in self._names]

    def _of_array(
        self, step: int, name: str, a: Array | None, b: Array | None
    ) -> Iterator[Difference]:
        if a is None or b is None:
            yield Difference(step, name, "missing", a and a.text, b and b.text)
        elif a.form != b.form:
            yield Difference(step, name, "form", a.text, b.text)
        else:
            try:
                found = self._values(step, name, a, b)
            except Error as why:
                yield Difference(step, name, "unreadable", detail=str(why))
                return
            if found.count:
                shape = a.region.shape
                yield Difference(
                    step,
                    name,
                    "values",
                    found.a,
                    found.b,
                    index=_index(found.place, shape),
                    count=found.count,
                    of=math.prod(shape),
                    largest=found.largest,
                )

    def _values(self, step: int, name: str, a: Array, b: Array) -> Found:
        tolerance, found = self._tolerance, Found()
        places = _places(a, b)
        if not places:
            return found
        if self._bounds:
            tolerance = tolerance.with_bounds(a.stream(), b.stream())
        if not (a.is_in_parts and b.is_in_parts):
            self._read += 2 * a.region.nbytes
            return scan(self.a.read(step, name), self.b.read(step, name), tolerance)
        dtype = _arrays.numpy_dtype(a.region.dtype)
        for first, end in blocks_of(places, dtype.itemsize, a.region.nbytes):
            self._read += 2 * (end - first)
            one = self.a.read_bytes(step, name, a.at, first, end).view(dtype)
            other = self.b.read_bytes(step, name, b.at, first, end).view(dtype)
            found.add(one, other, first // dtype.itemsize, tolerance)
        return found


def _places(a: Array, b: Array) -> list[range]:
    """Where the stored bytes of two arrays may differ."""
    stored = a.achieved.stored_bytes
    if a.achieved.codec == b.achieved.codec and stored == b.achieved.stored_bytes:
        return differing((a.frame, a.at), (b.frame, b.at), stored)
    return [range(stored)]


def _of_number(
    step: int, name: str, a: dict[str, Any], b: dict[str, Any], tolerance: Tolerance
) -> Iterator[Difference]:
    """Of the numbers and texts beside arrays."""
    if name not in a or name not in b:
        yield Difference(step, name, "missing", a.get(name), b.get(name))
        return
    one, other = a[name], b[name]
    if type(one) is type(other) is float:
        import numpy as np

        found = scan(np.array([one]), np.array([other]), tolerance)
        if found.count:
            yield Difference(
                step, name, "values", one, other, index=(), count=1, of=1, largest=found.largest
            )
    elif type(one) is not type(other) or one != other:
        yield Difference(step, name, "values", one, other, index=(), count=1, of=1)


def blocks_of(places: list[range], itemsize: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Runs of whole items that have these bytes, none of them larger than a block."""
    block = max(BLOCK // itemsize, 1) * itemsize
    done = 0
    for place in places:
        end = min(-(-place.stop // itemsize) * itemsize, nbytes)
        first = max(place.start // itemsize * itemsize, done)
        for begin in range(first, end, block):
            yield begin, min(begin + block, end)
        done = max(done, end)


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an item that has a place in C order."""
    found = []
    for length in reversed(shape):
        place, at = divmod(place, length)
        found.append(at)
    return tuple(reversed(found))
