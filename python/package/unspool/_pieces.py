"""Pieces of arrays in the text of a tree: nodes with `shards`, as docs/reference/format.md says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from . import _foreign
from ._shards import Pieces, Shard
from ._types import Region
from .errors import ArrayError

__all__ = ["MovedError", "Node", "Whole", "made", "matched", "sharded", "spelled", "without_like"]

Node = Mapping[str, Any]


class MovedError(ArrayError):
    """Other pieces of an array are asked for than the ones that this part has."""


class Whole(Protocol):
    """What has the pieces of all ranks."""

    def check(self, node: Node, pieces: Pieces) -> None:
        """Refuses pieces that cannot be filled."""

    def write(self, node: Node, pieces: Pieces) -> None:
        """Fills the pieces of an array."""

    def made(self, node: Node, like: Any) -> Any:
        """A new array, with the pieces that `like` has."""


def spelled(
    taken: set[str],
    found: Pieces,
    way: tuple[object, ...],
    spell: Callable[[Any, tuple[object, ...]], Any],
) -> dict[str, Any]:
    """The node of an array, with the pieces that this process saves; its name is added to those
    that are taken."""
    name = wanted = "/".join(map(str, way))
    count = 1
    while name in taken:
        count += 1
        name = f"{wanted}#{count}"
    taken.add(name)
    there = [] if found.replica else list(zip(found.boxes, found.arrays, strict=True))
    pieces = [(list(box.offset), array) for box, array in there if box.items]
    several = len(pieces) > 1
    return {
        "shards": name,
        "kind": found.kind,
        "shape": list(found.shape),
        "at": [at for at, _ in pieces],
        "of": [
            spell(array, (*way, place) if several else way)
            for place, (_, array) in enumerate(pieces)
        ],
    }


def made(node: Node, arrays: Mapping[Any, Any], read: Callable[[Any], Any]) -> Any:
    """What was made for the node, which is among `arrays` by `key_of` it, or else the piece of one
    rank as it was saved.

    Raises:
        MovedError: it was no `Shard`.
    """
    checked(node)
    if (key := key_of(node)) in arrays:
        return arrays[key]
    if node["kind"] != "shard" or len(node["of"]) != 1:
        raise without_like(node)
    return Shard(read(node["of"][0]), node["shape"], node["at"][0])


def key_of(node: Node) -> tuple[str, str]:
    """What is the name of no region."""
    return "shards", node["shards"]


def checked(node: Node) -> Node:
    """The node, whose fields are what they are to be.

    Raises:
        ArrayError: they are not.
    """
    shape: Any = node.get("shape")
    at, of = node.get("at"), node.get("of")
    fits = (
        isinstance(node["shards"], str)
        and _are_numbers(shape)
        and isinstance(at, list)
        and isinstance(of, list)
        and len(at) == len(of)
        and all(_are_numbers(one) and len(one) == len(shape) for one in at)
        and all(isinstance(one, dict) and isinstance(one.get("array"), str) for one in of)
        and isinstance(node.get("kind"), str)
    )
    if not fits:
        raise ArrayError("what is said of an array in pieces makes no sense: it was changed")
    return node


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def without_like(node: Node) -> MovedError:
    """The error of what is to be made, where nothing says which pieces of it."""
    return MovedError(
        f"{node['shards']} is an array of {tuple(node['shape'])} of which each rank has pieces: "
        "restore into what has the ones that you want, give what has them to load(like=...), or "
        "load the array or a region of it by its name."
    )


def matched(node: Node, found: Pieces, regions: Mapping[str, Region]) -> list[tuple[str, Any]]:
    """The arrays of pieces by the names of the same pieces in one part; of shapes that `regions`
    do not say nothing is asked.

    Raises:
        MovedError: the part has other ones.
    """
    mine = [(box, array) for box, array in zip(found.boxes, found.arrays, strict=True) if box.items]
    names = [one["array"] for one in node["of"]]
    same = [list(box.offset) for box, _ in mine] == node["at"] and all(
        name not in regions or regions[name].shape == box.shape
        for name, (box, _) in zip(names, mine, strict=True)
    )
    if not same:
        raise MovedError(f"{node['shards']}: this rank has saved another piece of it.")
    return [(name, array) for name, (_, array) in zip(names, mine, strict=True)]


def sharded(
    spelled: Any, like: Any, read: Callable[[Any], Any]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """The arrays of which ranks have pieces, each with what is in its place in `like`."""
    if not isinstance(spelled, dict):
        return
    if "shards" in spelled:
        checked(spelled)
        yield spelled, like
        return
    if "fields" in spelled or "dict" in spelled:
        keys = map(read, spelled["fields" if "fields" in spelled else "dict"])
        pairs: Iterable[tuple[Any, Any]] = zip(keys, spelled["of"], strict=True)
    elif "of" in spelled:
        like = _foreign.leaves_of(like) if "pytree" in spelled and like is not None else like
        pairs = [(None, spelled["of"])]
    else:
        pairs = enumerate(spelled.get("list") or spelled.get("tuple") or ())
    for key, part in pairs:
        yield from sharded(part, like if key is None else _item(like, key), read)


def _item(holder: Any, key: Any) -> Any:
    """An item or a field of what holds it; None where it has none."""
    try:
        return holder[key]
    except (IndexError, KeyError, TypeError):
        return getattr(holder, key, None) if isinstance(key, str) else None
