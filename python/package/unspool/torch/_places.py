"""Places that hold variables of a step: what is in them, and how it is put back.

`Places` compares what is in all of them with what was there by the identities of the values, in one
pass. Only where something differs, or something might lead to a graph, are places looked at.

`keep` takes what a later recomputation begins with. It refers to nothing that may lead to the graph
of another step, where the place itself may forget that graph. `copy` takes all that is there, for a
short time. `put` lets the place have again what one of the two has taken.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Array", "Cell", "Class", "Content", "Items", "Names", "Place", "Places", "Table"]

#: Items of a list, and bytes of an array, up to which its contents are kept.
ITEMS, BYTES = 10_000, 1 << 16

#: Containers within one another that are kept, such as an optimiser's state of a parameter.
DEPTH = 3

#: What is not kept, and stays as it is.
LEFT: Any = object()
#: What is not there.
MISSING: Any = object()

IMMUTABLE = frozenset(
    {int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
)


def _kept(value: Any) -> Any:
    """A value that leads to no graph, or `LEFT`."""
    if type(value) in (dict, list) and not value:
        # It may be filled with a graph.
        return LEFT
    return value if _is_plain(value, DEPTH) else LEFT


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a value leads to no graph, nor to containers within more than `depth` others."""
    if type(value) in IMMUTABLE or isinstance(value, torch.nn.Module | torch.Generator):
        return True
    if isinstance(value, torch.Tensor):
        return value.grad_fn is None
    if type(value) is tuple:
        return all(type(each) in IMMUTABLE for each in value)
    if type(value) not in (dict, list) or not depth or len(value) > ITEMS:
        return False
    items = value.values() if type(value) is dict else value
    return all(_is_plain(each, depth - 1) for each in items)


class Place:
    """One place."""

    def keep(self) -> Any:
        """What a recomputation begins with."""
        return self.copy()

    def copy(self) -> Any:
        """All that is there."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """What was taken is there again."""
        raise NotImplementedError

    def values(self) -> Any:
        """The values that are there."""
        return self.copy()

    def marks(self) -> Any:
        """What differs when something else is there, as long as what was there is held."""
        return list(map(id, self.values()))

    def is_left(self, kept: Any) -> bool:
        """Whether something stays as it is, of what `keep` has returned."""
        return kept is LEFT


class Table(Place):
    """A dictionary: attributes, parameters, buffers, or one of the user's."""

    def __init__(
        self, table: dict[Any, Any], skip: frozenset[str] = frozenset(), *, whole: bool = False
    ) -> None:
        self.table, self.skip, self.whole = table, skip, whole

    def values(self) -> Any:
        return self.table.values()

    def is_left(self, kept: Any) -> bool:
        return not self.whole and any(each is LEFT for each in kept.values())

    def keep(self) -> Any:
        if self.whole:
            return self.table.copy()
        skip = self.skip
        return {key: _kept(each) for key, each in self.table.items() if key not in skip}

    def copy(self) -> Any:
        return self.table.copy()

    def put(self, value: Any) -> None:
        table, skip = self.table, self.skip
        for key in [key for key in table if key not in value and key not in skip]:
            del table[key]
        for key, each in value.items():
            if each is not LEFT and key not in skip and table.get(key, MISSING) is not each:
                table[key] = each


class Names(Place):
    """Some of the names of a dictionary of globals."""

    def __init__(self, scope: dict[str, Any], names: tuple[str, ...]) -> None:
        self.scope, self.names = scope, names

    def copy(self) -> Any:
        return [self.scope.get(name, MISSING) for name in self.names]

    def marks(self) -> Any:
        return list(map(id, map(self.scope.get, self.names)))

    def put(self, value: Any) -> None:
        for name, each in zip(self.names, value, strict=True):
            if self.scope.get(name, MISSING) is each:
                continue
            if each is MISSING:
                del self.scope[name]
            else:
                self.scope[name] = each


class Cell(Place):
    """A variable of a closure."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def copy(self) -> Any:
        try:
            return (self.cell.cell_contents,)
        except ValueError:
            return ()

    def put(self, value: Any) -> None:
        now = self.copy()
        if value and not (now and now[0] is value[0]):
            self.cell.cell_contents = value[0]
        elif now and not value:
            del self.cell.cell_contents


class Class(Place):
    """The attributes of a class that are simple values."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.names = tuple(
            key
            for key, each in vars(kind).items()
            if not key.startswith("__")
            and (type(each) in IMMUTABLE or isinstance(each, torch.Tensor))
        )

    def copy(self) -> Any:
        found = vars(self.kind)
        return [found.get(name, MISSING) for name in self.names]

    def put(self, value: Any) -> None:
        found = vars(self.kind)
        for name, each in zip(self.names, value, strict=True):
            if each is not MISSING and found.get(name, MISSING) is not each:
                setattr(self.kind, name, each)


class Items(Place):
    """A list, a set or a deque."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def values(self) -> Any:
        # Items that come and go are not looked at: what matters is the list.
        return ()

    def marks(self) -> Any:
        return list(map(id, self.items))

    def keep(self) -> Any:
        if len(self.items) > ITEMS:
            return LEFT
        found = [*self.items]
        return LEFT if any(_kept(each) is LEFT for each in found) else found

    def copy(self) -> Any:
        return [*self.items]

    def put(self, value: Any) -> None:
        items = self.items
        if value is LEFT or (len(items) == len(value) and all(map(operator.is_, items, value))):
            return
        items.clear()
        if isinstance(items, list | deque):
            items.extend(value)
        else:
            items.update(value)


class Array(Place):
    """A small array of NumPy."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def values(self) -> Any:
        return ()

    def marks(self) -> Any:
        return self.array.tobytes() if self.array.nbytes <= BYTES else None

    def copy(self) -> Any:
        small = self.array.nbytes <= BYTES and not self.array.dtype.hasobject
        return self.array.copy() if small else LEFT

    def put(self, value: Any) -> None:
        if (
            value is not LEFT
            and self.array.flags.writeable
            and value.tobytes() != (self.array.tobytes())
        ):
            self.array[...] = value


@dataclass(frozen=True, slots=True)
class Content:
    """What was in all places.

    Attributes:
        marks: of what was there; one object as long as the same is there.
        values: what `keep` or `copy` of each place has returned.
        left: the places of which something stays as it is.
    """

    marks: Any
    values: list[Any]
    left: Sequence[int]


class Places:
    """All places that were found."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        tables = [each for each in places if isinstance(each, Table)]
        self._tables = [each.table for each in tables if not each.skip]
        self._views = [view for each in self._tables for view in (each.keys(), each.values())]
        # Of modules, the attributes that count are a few among many.
        self._modules = [each.table for each in tables if each.skip]
        self._lengths = list(map(len, self._modules))
        self._getters = [_getter(each) for each in tables if each.skip]
        self._cells = [each.cell for each in places if isinstance(each, Cell)]
        self._others = [each for each in places if not isinstance(each, Table | Cell)]

    def values(self) -> Iterator[Any]:
        """The values that are there."""
        return itertools.chain.from_iterable(each.values() for each in self._places)

    def _marks(self) -> Any:
        # Without a call of Python for each: models have thousands of them.
        flat = itertools.chain.from_iterable
        try:
            attributes = [get(each) for get, each in zip(self._getters, self._modules, strict=True)]
        except KeyError:
            return object()
        if list(map(len, self._modules)) != self._lengths:
            # Attributes have come that are not looked at: equal to nothing.
            return object()
        return (
            list(map(id, flat(attributes))),
            list(map(len, self._tables)),
            list(map(id, flat(self._views))),
            _contents(self._cells),
            [each.marks() for each in self._others],
        )

    def keep(self, last: Content | None) -> Content:
        """What a recomputation begins with; `last` is what this has returned before."""
        marks = self._marks()
        if last is None or marks != last.marks:
            values, looked = [each.keep() for each in self._places], range(len(self._places))
        elif last.left:
            marks, values, looked = last.marks, list(last.values), last.left
            for n in looked:
                values[n] = self._places[n].keep()
        else:
            return last
        left = [n for n in looked if self._places[n].is_left(values[n])]
        return Content(marks, values, left)

    def copy(self, kept: Content) -> Content:
        """All that is there, for a short time; the same object where it is what was kept."""
        marks = self._marks()
        if marks != kept.marks:
            return Content(marks, [each.copy() for each in self._places], ())
        if not kept.left:
            return kept
        values = list(kept.values)
        for n in kept.left:
            values[n] = self._places[n].copy()
        return Content(marks, values, ())

    def put(self, held: Content, now: Content | None = None) -> None:
        """What was there is there again; `now` is what is there, where that is known."""
        if held.marks != (self._marks() if now is None else now.marks):
            for place, value in zip(self._places, held.values, strict=True):
                place.put(value)


def _getter(table: Table) -> Any:
    """What says the attributes of a module, as a tuple."""
    names = [key for key in table.table if key not in table.skip]
    return operator.itemgetter(*names, *names[:1]) if names else lambda _: ()


def _contents(cells: Sequence[Any]) -> list[int]:
    try:
        return [id(cell.cell_contents) for cell in cells]
    except ValueError:
        # One is empty.
        return [id(each) for cell in cells for each in (*Cell(cell).copy(), MISSING)]
