"""Objects of xarray, pandas and JAX in trees: what stands for each, and how it is made again.

Each is spelled as `{LIBRARY: CLASS, "of": TREE}`, where the tree has nothing but arrays, values and
plain containers. Nothing is imported before an object of a library is there, or is to be made.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .errors import ArrayError, MissingLibraryError

__all__ = ["LIBRARIES", "Leaves", "Parts", "is_foreign", "is_key", "made", "made_like", "parts_of"]

#: What a node may begin with. Texts with the first one alone are of the first format.
LIBRARIES = ("xarray", "pandas", "key", "pytree")

#: The kinds of the columns that a pandas frame may have: numbers, truth values, dates and times.
_COLUMNS = "biufcmM"


class Parts(NamedTuple):
    """An object taken apart.

    Attributes:
        origin: one of `LIBRARIES`.
        word: its class, or what else `made` needs.
        tree: its arrays and values.
        since: the format of a tree that has one.
    """

    origin: str
    word: str
    tree: Any
    since: int


class Leaves(dict[str, Any]):
    """The leaves of a pytree whose class cannot be made again, by their ways in it."""


def is_key(value: Any) -> bool:
    """Whether it is a typed key of JAX."""
    module = type(value).__module__.partition(".")[0]
    return module in ("jax", "jaxlib") and "key<" in str(getattr(value, "dtype", ""))


def is_foreign(value: Any) -> bool:
    """Whether `parts_of` takes it apart; it is no array and no container of Python."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if root in ("xarray", "pandas"):
        return kind.__name__ in _WRITERS or root == "xarray"
    return is_key(value) or _is_pytree(value)


def parts_of(value: Any) -> Parts:
    """An object taken apart.

    Raises:
        ArrayError: the end of a sentence that begins with its place: it cannot be.
    """
    if is_key(value):
        random = sys.modules["jax"].random
        return Parts("key", str(random.key_impl(value)), random.key_data(value), 3)
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("xarray", "pandas"):
        if kind.__name__ not in _WRITERS:
            raise ArrayError(": save an xarray.Dataset, a DataArray or a DataTree")
        return _WRITERS[kind.__name__](value)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return Parts("pytree", name, leaves_of(value), 3)


def made(library: str, word: str, tree: Any) -> Any:
    """An object of these parts; `Leaves` for a pytree, and plain data for a key without JAX.

    Raises:
        MissingLibraryError: the library is not installed.
    """
    if library == "pytree":
        return Leaves(tree)
    if library == "key":
        return _key(word, tree)
    try:
        module = importlib.import_module(library)
    except ImportError as why:
        text = f"a {word} was saved, which needs {library}: pip install {library}"
        raise MissingLibraryError(text, name=library) from why
    return _MAKERS[library, word](module, tree)


# Pytrees of JAX.


def _is_pytree(value: Any) -> bool:
    """Whether JAX knows its class as one that holds others."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "tree_util"):
        return False
    if value is None or isinstance(value, dict | list | tuple):
        return False
    shape = jax.tree_util.tree_structure(value, is_leaf=lambda one: one is not value)
    return not jax.tree_util.treedef_is_leaf(shape)


def leaves_of(value: Any) -> dict[str, Any]:
    """The arrays, numbers and texts of a pytree by their ways, such as `.layers[0].weight`. Other
    leaves, such as functions, belong to the program."""
    util = sys.modules["jax"].tree_util
    found, _ = util.tree_flatten_with_path(value)
    return {util.keystr(way): leaf for way, leaf in found if is_leaf_saved(leaf)}


def is_leaf_saved(leaf: Any) -> bool:
    """Whether a leaf is data."""
    return isinstance(leaf, bool | int | float | complex | str | bytes) or hasattr(leaf, "dtype")


def _key(word: str, data: Any) -> Any:
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        return data
    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=word)


def made_like(found: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved, with pytrees of JAX as in `like`, and all else as it is.

    Raises:
        ArrayError: a pytree has another structure, other shapes or other dtypes.
        MissingLibraryError: JAX is not installed.
    """
    if lacks := [name for name in like if name not in found]:
        raise ArrayError(f"like: nothing was saved under {lacks[0]!r}.")
    try:
        jax = importlib.import_module("jax")
    except ImportError as why:
        raise MissingLibraryError("like=... needs jax: pip install jax", name="jax") from why
    return {**found, **{name: _as(jax, name, found[name], one) for name, one in like.items()}}


def _as(jax: Any, name: str, saved: Any, like: Any) -> Any:
    """What was saved in the classes of `like`, and where its arrays are."""
    leaves, shape = jax.tree_util.tree_flatten(saved, is_leaf=lambda one: type(one) is Leaves)
    try:
        places = shape.flatten_up_to(like)
    except (TypeError, ValueError) as why:
        raise ArrayError(f"like: {name} has another structure than what was saved: {why}") from why
    return shape.unflatten(
        [_placed(jax, name, one, place) for one, place in zip(leaves, places, strict=True)]
    )


def _placed(jax: Any, name: str, saved: Any, place: Any) -> Any:
    if type(saved) is Leaves:
        return _filled(jax, name, saved, place)
    if not hasattr(saved, "dtype"):
        return saved
    form = tuple(getattr(place, "shape", ())), str(getattr(place, "dtype", None))
    if form != (tuple(saved.shape), str(saved.dtype)):
        raise ArrayError(
            f"like: {name} was {saved.dtype} of {tuple(saved.shape)}, and is {form[1]} of {form[0]}"
        )
    if type(place).__module__ == "numpy":
        return sys.modules["numpy"].asarray(saved)
    sharding = getattr(place, "sharding", None)
    return saved if sharding is None else jax.device_put(saved, sharding)


def _filled(jax: Any, name: str, saved: Leaves, like: Any) -> Any:
    """A pytree like another one, with the leaves that were saved."""
    pairs, shape = jax.tree_util.tree_flatten_with_path(like)
    ways = [jax.tree_util.keystr(way) for way, leaf in pairs if is_leaf_saved(leaf)]
    if set(ways) != saved.keys():
        other = sorted(saved.keys() ^ set(ways))
        raise ArrayError(f"like: {name} has other leaves than were saved: {', '.join(other[:3])}")
    leaves = (
        _placed(jax, name + at, saved[at], leaf) if is_leaf_saved(leaf) else leaf
        for at, leaf in ((jax.tree_util.keystr(way), leaf) for way, leaf in pairs)
    )
    return shape.unflatten(leaves)


# xarray.


def _variables(given: Any) -> dict[Any, Any]:
    # An array without dimensions is a scalar to xarray, which of times lends no unit.
    array = sys.modules["numpy"].asarray
    return {
        name: {"dims": list(one.dims), "values": array(one.values), "attrs": dict(one.attrs)}
        for name, one in given.items()
    }


def _dataset(value: Any) -> dict[str, Any]:
    data, coords = _variables(value.data_vars), _variables(value.coords)
    return {"data": data, "coords": coords, "attrs": dict(value.attrs)}


def _of_array(value: Any) -> Parts:
    whole = value.to_dataset(name="values", promote_attrs=False)
    return Parts("xarray", "DataArray", {"name": value.name, **_dataset(whole)}, 1)


def _of_data_tree(value: Any) -> Parts:
    nodes = {node.path: _dataset(node.to_dataset(inherit=False)) for node in value.subtree}
    return Parts("xarray", "DataTree", {"name": value.name, "nodes": nodes}, 3)


def _to_dataset(xarray: Any, parts: Any) -> Any:
    def variables(given: dict[Any, Any]) -> dict[Any, Any]:
        return {name: (one["dims"], one["values"], one["attrs"]) for name, one in given.items()}

    return xarray.Dataset(variables(parts["data"]), variables(parts["coords"]), parts["attrs"])


def _to_array(xarray: Any, parts: Any) -> Any:
    return _to_dataset(xarray, parts)["values"].rename(parts["name"])


def _to_data_tree(xarray: Any, parts: Any) -> Any:
    nodes = {path: _to_dataset(xarray, node) for path, node in parts["nodes"].items()}
    return xarray.DataTree.from_dict(nodes, name=parts["name"])


# pandas.


def _numbers(values: Any, what: str) -> Any:
    if getattr(values.dtype, "kind", "O") not in _COLUMNS or not hasattr(values.dtype, "str"):
        raise ArrayError(
            f" has {what} of {values.dtype}, which is no number: leave it out, or save it as text"
        )
    return values.to_numpy()


def _index(index: Any) -> dict[str, Any]:
    """An index of numbers, dates or texts: a range, a list or an array."""
    if index.nlevels > 1:
        raise ArrayError(" has an index of several levels: save reset_index() of it")
    if type(index).__name__ == "RangeIndex":
        return {"name": index.name, "range": [index.start, index.stop, index.step]}
    listed = list(index)
    if getattr(index.dtype, "kind", "O") == "O" and all(type(one) in (str, int) for one in listed):
        kind = "object" if index.dtype == "object" else None
        return {"name": index.name, "list": listed, "dtype": kind}
    return {"name": index.name, "array": _numbers(index, "an index")}


def _to_index(pandas: Any, parts: Any) -> Any:
    if "range" in parts:
        return pandas.RangeIndex(*parts["range"], name=parts["name"])
    if "list" in parts:
        return pandas.Index(parts["list"], dtype=parts["dtype"], name=parts["name"])
    return pandas.Index(parts["array"], name=parts["name"])


def _of_frame(value: Any) -> Parts:
    columns = [_numbers(value.iloc[:, at], f"a column {name!r}") for at, name in enumerate(value)]
    tree = {"index": _index(value.index), "columns": _index(value.columns), "values": columns}
    return Parts("pandas", "DataFrame", {**tree, "attrs": dict(value.attrs)}, 3)


def _of_series(value: Any) -> Parts:
    tree = {"index": _index(value.index), "name": value.name, "values": _numbers(value, "values")}
    return Parts("pandas", "Series", {**tree, "attrs": dict(value.attrs)}, 3)


def _to_frame(pandas: Any, parts: Any) -> Any:
    index, columns = _to_index(pandas, parts["index"]), _to_index(pandas, parts["columns"])
    frame = pandas.DataFrame(dict(enumerate(parts["values"])), index=index)
    frame.columns = columns
    frame.attrs = parts["attrs"]
    return frame


def _to_series(pandas: Any, parts: Any) -> Any:
    series = pandas.Series(parts["values"], _to_index(pandas, parts["index"]), name=parts["name"])
    series.attrs = parts["attrs"]
    return series


_WRITERS: dict[str, Callable[[Any], Parts]] = {
    "Dataset": lambda value: Parts("xarray", "Dataset", _dataset(value), 1),
    "DataArray": _of_array,
    "DataTree": _of_data_tree,
    "DataFrame": _of_frame,
    "Series": _of_series,
}

_MAKERS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("xarray", "Dataset"): _to_dataset,
    ("xarray", "DataArray"): _to_array,
    ("xarray", "DataTree"): _to_data_tree,
    ("pandas", "DataFrame"): _to_frame,
    ("pandas", "Series"): _to_series,
}
