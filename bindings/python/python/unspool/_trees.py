"""Trees of arrays: what `Spool.save` takes when it is more than arrays, and what `load` gives back.

The arrays of a tree are regions of the checkpoint, named by the way to them. What holds them, and
the numbers and texts beside them, is one region more, `unspool.tree`: JSON, as
docs/reference/format.md says. Nothing that is read back is called: a class is looked up among those
that the program has loaded, and its object is made field by field.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .errors import ArrayError

#: The region that says what the tree is.
REGION = "unspool.tree"

#: The version of the text in it.
FORMAT = 1

#: The most containers inside one another.
DEPTH = 100

_PLAIN = (type(None), bool, int, float, str)

_KINDS: dict[Any, str] = {dict: "dict", list: "list", tuple: "tuple"}


class Apart:
    """A tree that was taken apart: its arrays by name, and its text, if names alone do not do."""

    def __init__(self, arrays: Mapping[str, Any], text: bytes | None) -> None:
        self.arrays, self.text = arrays, text


def flatten(tree: Any) -> tuple[list[tuple[str, Any]], bytes | None]:
    """The arrays of a tree by name, and its text; no text for what names alone say.

    Raises:
        ArrayError: something in it is neither an array nor what a text can say.
    """
    if type(tree) is Apart:
        return list(tree.arrays.items()), tree.text
    if type(tree) is dict and tree and all(type(key) is str for key in tree):
        values = tree.values()
        if not any(is_tree(value) for value in values) and REGION not in tree:
            return list(tree.items()), None
    writer = _Writer()
    spelled = writer.spell(tree, ())
    text = json.dumps({"unspool": FORMAT, "tree": spelled}, separators=(",", ":"))
    return list(writer.arrays.items()), text.encode()


def is_tree(value: Any) -> bool:
    """Whether it is a number, a text, or something that holds others, and not an array."""
    kind = type(value)
    return (
        kind in _PLAIN
        or kind in _KINDS
        or kind is complex
        or kind is Apart
        or _is_record(kind)
        or kind.__module__.startswith("xarray.")
    )


def build(text: bytes, arrays: dict[str, Any]) -> Any:
    """The tree with these arrays.

    Raises:
        ArrayError: the text is not one of ours, or names a class that is not loaded.
    """
    return _read(_parse(text), arrays)


def assign(text: bytes, tree: Any) -> tuple[list[tuple[str, Any]], Callable[[], None]]:
    """The arrays of a tree by the names that the text has for them, and what then writes the
    numbers and texts into it.

    Raises:
        ArrayError: the tree is not the one that was saved, or cannot be changed.
    """
    filler = _Filler()
    filler.fill(_parse(text), tree, ())
    return filler.arrays, filler.write


# Writing.


class _Writer:
    """Spells a tree, and gathers its arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}

    def spell(self, value: Any, way: tuple[object, ...]) -> Any:
        if len(way) > DEPTH:
            raise ArrayError(f"{_place(way[:3])}: it holds itself, or {DEPTH} levels and more.")
        kind = type(value)
        if kind in _PLAIN or kind is complex:
            return _spelled(value)
        if kind is dict:
            keys = [_key(key, way) for key in value]
            return {"dict": keys, "of": self._all(value.items(), way)}
        if kind in (list, tuple):
            return {_KINDS[kind]: self._all(enumerate(value), way)}
        if _is_record(kind):
            name = f"{kind.__module__}:{kind.__qualname__}"
            fields = list(_fields(value))
            return {
                "class": name,
                "fields": [field for field, _ in fields],
                "of": self._all(fields, way),
            }
        if kind.__module__.startswith("xarray."):
            return {"xarray": kind.__name__, "of": self.spell(_of_xarray(value, way), way)}
        return {"array": self._name(value, way)}

    def _all(self, items: Iterable[tuple[object, Any]], way: tuple[object, ...]) -> list[Any]:
        return [self.spell(value, (*way, key)) for key, value in items]

    def _name(self, array: Any, way: tuple[object, ...]) -> str:
        name = wanted = "/".join(str(key) for key in way)
        count = 1
        while name in self.arrays or name == REGION:
            count += 1
            name = f"{wanted}#{count}"
        self.arrays[name] = array
        return name


def _spelled(value: Any) -> Any:
    if type(value) is complex:
        return {"complex": [_spelled(value.real), _spelled(value.imag)]}
    if type(value) is float and not abs(value) < float("inf"):
        return {"float": repr(value)}
    return value


def _key(key: Any, way: tuple[object, ...]) -> Any:
    if type(key) in _PLAIN:
        return _spelled(key)
    raise ArrayError(
        f"{_place(way)}: a key is a {type(key).__name__}; keys are texts, numbers, or None."
    )


def _is_record(kind: type) -> bool:
    if dataclasses.is_dataclass(kind):
        return True
    return issubclass(kind, tuple) and kind is not tuple and hasattr(kind, "_fields")


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple):
        return zip(value._fields, value, strict=True)  # type: ignore[attr-defined]
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _of_xarray(value: Any, way: tuple[object, ...]) -> Any:
    if type(value).__name__ == "DataArray":
        name, made = value.name, value.to_dataset(name="values", promote_attrs=False)
        return {"name": name, **_of_xarray(made, way)}
    if type(value).__name__ != "Dataset":
        raise ArrayError(f"{_place(way)}: save an xarray.Dataset or a DataArray.")

    # An array without dimensions is a scalar to xarray, which of times lends no unit.
    array = sys.modules["numpy"].asarray

    def parts(variables: Any) -> dict[Any, Any]:
        return {
            name: {"dims": list(one.dims), "values": array(one.values), "attrs": dict(one.attrs)}
            for name, one in variables.items()
        }

    data, coords = parts(value.data_vars), parts(value.coords)
    return {"data": data, "coords": coords, "attrs": dict(value.attrs)}


def _place(way: Iterable[object]) -> str:
    return "the tree" + "".join(f"[{key!r}]" for key in way)


# Reading.


def _parse(text: bytes) -> Any:
    try:
        content = json.loads(text)
        if content["unspool"] != FORMAT:
            raise ArrayError(
                f"the tree has the format {content['unspool']}, and this version of Unspool reads "
                f"{FORMAT}: update it, or restore the arrays by their names (see regions())"
            )
        return content["tree"]
    except (KeyError, RecursionError, TypeError, ValueError) as cause:
        raise _unreadable() from cause


def _unreadable() -> ArrayError:
    return ArrayError(
        f"the region {REGION!r} does not describe a tree: restore the arrays by their names (see "
        f"regions())"
    )


def _read(spelled: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(spelled, dict):
        return spelled
    try:
        return _read_node(spelled, arrays)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as cause:
        if isinstance(cause, ArrayError):
            raise
        raise _unreadable() from cause


def _read_node(spelled: dict[str, Any], arrays: dict[str, Any]) -> Any:
    if "array" in spelled:
        return arrays[spelled["array"]]
    if "float" in spelled:
        return float(spelled["float"])
    if "complex" in spelled:
        return complex(*(_read(part, arrays) for part in spelled["complex"]))
    for kind in (list, tuple):
        if kind.__name__ in spelled:
            return kind(_read(item, arrays) for item in spelled[kind.__name__])
    if "xarray" in spelled:
        return _to_xarray(spelled["xarray"], _read(spelled["of"], arrays))
    values = [_read(item, arrays) for item in spelled["of"]]
    if "dict" in spelled:
        return {
            _read(key, arrays): value for key, value in zip(spelled["dict"], values, strict=True)
        }
    return _object(_class(spelled["class"]), dict(zip(spelled["fields"], values, strict=True)))


def _class(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and _is_record(found):
        return found
    raise ArrayError(
        f"the tree has an object of the class {path} of {module}, which is not loaded: import it "
        f"first, or restore the arrays by their names (see regions())"
    )


def _object(kind: Any, values: dict[str, Any]) -> Any:
    """An object of a class, field by field: nothing of the class is called."""
    if issubclass(kind, tuple):
        return tuple.__new__(kind, [values[name] for name in kind._fields])
    if {field.name for field in dataclasses.fields(kind)} != set(values):
        raise ArrayError(
            f"the class {kind.__qualname__} has other fields than when it was saved: restore the "
            f"arrays by their names (see regions())"
        )
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _to_xarray(kind: str, parts: dict[str, Any]) -> Any:
    xarray = sys.modules.get("xarray")
    if xarray is None:
        import xarray  # type: ignore[no-redef, import-not-found, unused-ignore]

    def variables(given: dict[Any, Any]) -> dict[Any, Any]:
        return {name: (one["dims"], one["values"], one["attrs"]) for name, one in given.items()}

    made: Any = xarray
    made = made.Dataset(variables(parts["data"]), variables(parts["coords"]), parts["attrs"])
    if kind == "Dataset":
        return made
    return made["values"].rename(parts["name"])


# Restoring into a tree.


class _Filler:
    """Compares a tree with a text, and gathers what is to be written."""

    def __init__(self) -> None:
        self.arrays: list[tuple[str, Any]] = []
        self._later: list[Callable[[], None]] = []

    def write(self) -> None:
        for write in self._later:
            write()

    def fill(self, spelled: Any, target: Any, way: tuple[object, ...]) -> None:
        if isinstance(spelled, dict) and "array" in spelled:
            if is_tree(target):
                raise _differs(way, target)
            self.arrays.append((spelled["array"], target))
            return
        if not isinstance(spelled, dict) or "float" in spelled or "complex" in spelled:
            raise _differs(way, target)
        for key, item, value, write in self._entries(spelled, target, way):
            inner = (*way, key)
            if _is_value(item):
                self._value(_read(item, {}), value, inner, write)
            else:
                self.fill(item, value, inner)

    def _value(self, saved: Any, value: Any, way: tuple[object, ...], write: Any) -> None:
        if not is_tree(value) or type(value) in _KINDS:
            raise _differs(way, value)
        if write is not None:
            self._later.append(lambda: write(saved))
        elif type(saved) is not type(value) or (saved != value and saved == saved):
            raise ArrayError(
                f"{_place(way)} was {saved!r} when it was saved, and what holds it cannot be "
                f"changed: use load"
            )

    def _entries(self, spelled: Any, target: Any, way: tuple[object, ...]) -> Iterator[Any]:
        kind = type(target)
        if "dict" in spelled and kind is dict:
            keys = [_read(key, {}) for key in spelled["dict"]]
            if len(keys) == len(target) and all(key in target for key in keys):
                for key, item in zip(keys, spelled["of"], strict=True):
                    yield key, item, target[key], _setter(target.__setitem__, key)
                return
        items = spelled.get("list") if kind is list else spelled.get("tuple")
        if kind in (list, tuple) and items is not None and len(items) == len(target):
            for index, item in enumerate(items):
                write = _setter(target.__setitem__, index) if kind is list else None
                yield index, item, target[index], write
            return
        name = f"{kind.__module__}:{kind.__qualname__}"
        if spelled.get("class") == name and _is_record(kind):
            found = dict(_fields(target))
            if list(found) == spelled["fields"]:
                changes = not isinstance(target, tuple) and not _is_frozen(kind)
                for field, item in zip(spelled["fields"], spelled["of"], strict=True):
                    write = _setter(target.__setattr__, field) if changes else None
                    yield field, item, found[field], write
                return
        raise _differs(way, target)


def _is_value(spelled: Any) -> bool:
    return not isinstance(spelled, dict) or "float" in spelled or "complex" in spelled


def _is_frozen(kind: Any) -> bool:
    return bool(kind.__dataclass_params__.frozen)


def _setter(write: Callable[[Any, Any], None], key: object) -> Callable[[Any], None]:
    return lambda value: write(key, value)


def _differs(way: tuple[object, ...], target: Any) -> ArrayError:
    return ArrayError(
        f"{_place(way)} is a {type(target).__name__}, which differs from what was saved: give the "
        f"same structure, or use load"
    )
