"""Numbers and texts beside arrays, by the ways to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import _trees
from .._restart.values import read

__all__ = ["dims_of", "is_text", "leaves_of", "leaves_of_values"]

#: What a node of a tree may hold items under.
ITEMS = ("of", "list", "tuple")


def is_text(name: str) -> bool:
    """Whether it names the text beside arrays, of a rank or of all."""
    return name.rpartition("/")[2] == _trees.REGION


def leaves_of(text: bytes) -> dict[str, Any]:
    """All that the text of a tree says but arrays: `{"model/lr": 0.1}`. What is neither a number
    nor a text, such as a class or a byte string, is the node that stands for it.

    Raises:
        ArrayError: the text is not one of ours.
    """
    return dict(_leaves(_trees.parsed(text), ""))


def leaves_of_values(text: str) -> dict[str, Any]:
    """The small values of a run."""
    return dict(_plain(read(text)[0], ""))


def dims_of(text: bytes) -> dict[str, tuple[str, ...]]:
    """The names of dimensions of arrays that were saved in objects of xarray, by the names of the
    arrays."""
    return dict(_dims(_trees.parsed(text)))


def _leaves(node: Any, way: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, dict):
        yield way, node
        return
    if "array" in node:
        return
    if "float" in node or "scalar" in node:
        yield way, _number(node)
        return
    held = next((node[key] for key in ITEMS if key in node), None)
    if held is None:
        yield way, node
        return
    items = held if isinstance(held, list) else [held]
    keys: Any = node.get("dict", node.get("fields", range(len(items))))
    for key, item in zip(keys, items, strict=False):
        yield from _leaves(item, _joined(way, key if isinstance(held, list) else ""))


def _number(node: dict[str, Any]) -> Any:
    """A float that JSON has no number for, or a number of NumPy as one of Python."""
    if "float" in node:
        return float(node["float"])
    found = _trees.scalar(str(node["scalar"]), bytes.fromhex(node["hex"]))
    return found.item() if found.dtype.kind in "biufcU" else node


def _plain(value: Any, way: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list):
        yield way, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _plain(item, _joined(way, key))


def _joined(way: str, key: Any) -> str:
    return "/".join(filter(None, (way, str(key))))


def _dims(node: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of nodes that are mappings with `dims` and `values`."""
    if isinstance(node, list):
        for item in node:
            yield from _dims(item)
    if not isinstance(node, dict):
        return
    keys, items = node.get("dict"), node.get("of")
    if (
        isinstance(keys, list)
        and isinstance(items, list)
        and {"dims", "values"} <= set(each for each in keys if isinstance(each, str))
    ):
        named = dict(zip(keys, items, strict=False))
        dims, values = named["dims"], named["values"]
        if isinstance(values, dict) and isinstance(values.get("array"), str):
            yield values["array"], tuple(map(str, next(iter(dims.values()))))
        return
    for key in ITEMS:
        if key in node:
            yield from _dims(node[key])
