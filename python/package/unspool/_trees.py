"""Trees of arrays: what `Spool.save` takes when it is more than arrays, and what `load` gives back.

The arrays of a tree are regions of the checkpoint, named by the way to them. What holds them, and
the numbers and texts beside them, is one region more, `unspool.tree`: JSON, as
docs/reference/format.md says. Nothing that is read back is called: a class is looked up among those
that the program has loaded, and its object is made field by field.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _arrays, _foreign, _pieces, _shards
from ._containers import Kind, kind_of, made
from ._types import Region
from .errors import ArrayError, shown

#: The region that says what the tree is.
REGION = "unspool.tree"

#: The versions of the text in it: members of enumerations and numbers of NumPy are of the second,
#: frames of pandas, keys and pytrees of JAX and a DataTree of the third, pieces of arrays of the
#: fourth.
FORMATS = (1, 2, 3, 4)

#: The plain containers by their names in a text.
_CONTAINERS = (("dict", dict), ("list", list), ("tuple", tuple))

#: What is no array, though nothing more is known of it.
_BASES = (dict, list, tuple, set, frozenset)

#: What writes an item into what holds it.
Write = Callable[[Any], None]

#: The most containers inside one another.
DEPTH = 100

_PLAIN = (type(None), bool, int, float, str)


class Anew:
    """A place in a target that takes what was saved there as a whole, in `value`.

    Its arrays are new ones, of the library and on the device of those that were saved; or those of
    `given`, where all of that has the form of what was saved. Then, where it `fills`, `value` is
    `given`, with the numbers and texts in it. `device` is another one for new arrays. Arrays of
    which ranks have pieces are new ones with the pieces that those of `like` have.
    """

    def __init__(
        self, given: Any = None, device: str | None = None, *, fills: bool = False, like: Any = None
    ) -> None:
        self.given, self.device, self.fills, self.like = given, device, fills, like
        self.value: Any = None


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
            return _named(tree), None
    return _spelled_out(tree)


def _spelled_out(tree: Any) -> tuple[list[tuple[str, Any]], bytes]:
    """The arrays of a tree by name, and its text."""
    writer = _Writer()
    spelled = writer.spell(tree, ())
    return _named(writer.arrays), text_of({"unspool": writer.format, "tree": spelled}).encode()


def described(tree: dict[str, Any]) -> dict[str, Any] | Apart:
    """The same arrays by name, with a text where they are of other libraries than NumPy.

    Raises:
        ArrayError: as for `flatten`.
    """
    if all(is_tree(value) or library_of(type(value)) == "numpy" for value in tree.values()):
        return tree
    arrays, text = _spelled_out(tree)
    return Apart(dict(arrays), text)


def text_of(content: Any) -> str:
    """JSON without blanks.

    Raises:
        ArrayError: an integer has more digits than Python writes.
    """
    try:
        return json.dumps(content, separators=(",", ":"))
    except ValueError as why:
        raise ArrayError(
            f"an integer cannot be saved, as Python does not write it: {why}."
        ) from why


def _named(arrays: dict[str, Any]) -> list[tuple[str, Any]]:
    for name in arrays:
        if not is_unicode(name):
            raise ArrayError(f"the name {name!r} is not Unicode: give it another one.")
    return list(arrays.items())


def is_unicode(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def is_tree(value: Any) -> bool:
    """Whether it is a number, a text, or something that holds others, and not an array."""
    kind = type(value)
    return not _is_array(kind) and (
        kind in _PLAIN
        or kind is complex
        or kind is Apart
        or isinstance(value, (enum.Enum, *_BASES))
        or kind_of(kind) is not None
        or _is_record(kind)
        or kind is Anew
        or hasattr(kind, "state_dict")
        or kind is _shards.Shard
        or _foreign.is_foreign(value)
    )


def build(text: bytes, arrays: dict[str, Any]) -> Any:
    """The tree with these arrays.

    Raises:
        ArrayError: the text is not one of ours, or names a class that is not loaded.
    """
    return _read(parsed(text), arrays)


def entry(text: bytes, name: str) -> tuple[bytes, list[str]] | None:
    """The text of one entry of the outermost dictionary, and the names of the arrays in it; None
    where there is no such entry.

    Raises:
        ArrayError: the text is not one of ours.
    """
    spelled = parsed(text)
    if not isinstance(spelled, dict) or name not in spelled.get("dict", ()):
        return None
    found = spelled["of"][spelled["dict"].index(name)]
    content = {"unspool": max(FORMATS), "tree": found}
    return text_of(content).encode(), [each["array"] for each in _arrays_in(found)]


def shards_in(text: bytes) -> list[dict[str, Any]]:
    """The arrays of a tree of which ranks have pieces, as nodes."""
    return [node for node, _ in _pieces.sharded(parsed(text), None, _plain)]


def assign(
    text: bytes, tree: Any, regions: Iterable[Region] = (), whole: _pieces.Whole | None = None
) -> tuple[list[tuple[str, Any]], Callable[[], None]]:
    """The arrays of a tree by the names that the text has for them, and what then writes the
    numbers and texts into it. Of the outermost dictionary some keys may be given. What lacks in a
    dictionary or a list that is empty is made, with arrays as `regions` describe them. Pieces of
    arrays are taken from `whole` then, if it is given.

    Raises:
        ArrayError: the tree is not the one that was saved, or cannot be changed.
        MovedError: it asks for other pieces, and `whole` is not given.
    """
    if type(tree) is Apart:
        return list(tree.arrays.items()), lambda: None
    filler = _Filler({region.name: region for region in regions}, whole)
    filler.fill_some(parsed(text), tree)
    return filler.arrays, filler.write


# Writing.


class _Writer:
    """Spells a tree, and gathers its arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.format = FORMATS[0]
        self._shards: set[str] = set()

    def spell(self, value: Any, way: tuple[object, ...]) -> Any:
        if len(way) > DEPTH:
            raise ArrayError(f"{_place(way[:3])}: it holds itself, or {DEPTH} levels and more.")
        type_ = type(value)
        if type_ in _PLAIN or type_ is complex:
            return _spelled(value)
        if (pieces := self._pieces(value, way)) is not None:
            return pieces
        if _is_array(type_) or type_ is bytes:
            return self._array(value, way)
        if type_ is Anew:
            return {"list": []}
        if (kind := kind_of(type_)) is not None:
            return self._container(kind, value, way)
        if _is_record(type_) and (record := self._record(value, way)) is not None:
            return record
        if _foreign.is_foreign(value):
            return self._foreign(value, way)
        if isinstance(value, enum.Enum):
            self.format = max(self.format, 2)
            return _member(value, way)
        if _is_scalar(value):
            self.format = max(self.format, 2)
            # As an array also an empty text has a byte.
            array = sys.modules["numpy"].asarray(value)
            return {"scalar": array.dtype.str, "hex": array.tobytes().hex()}
        _refuse_others(value, way)
        return self._array(value, way)

    def _array(self, value: Any, way: tuple[object, ...]) -> dict[str, str]:
        spelled = {"array": self._name(value, way), "as": library_of(type(value))}
        place = _arrays.place_of(value) if spelled["as"] in ("torch", "cupy") else None
        return spelled if place is None else {**spelled, "on": place}

    def _pieces(self, value: Any, way: tuple[object, ...]) -> dict[str, Any] | None:
        """The pieces of an array that this process saves; None for anything else."""
        try:
            found = _shards.pieces_of(value)
        except ArrayError as why:
            raise ArrayError(f"{_place(way)}{why}.") from None
        if found is None:
            return None
        self.format = max(self.format, 4)
        return _pieces.spelled(self._shards, found, way, self._array)

    def _record(self, value: Any, way: tuple[object, ...]) -> dict[str, Any] | None:
        """An object field by field; None where JAX knows another way, as fields are functions."""
        type_, fields = type(value), list(_fields(value))
        before, format_ = dict(self.arrays), self.format
        try:
            items = self._all(fields, way)
        except ArrayError:
            if not _foreign.is_foreign(value):
                raise
            self.arrays, self.format = before, format_
            return None
        name = f"{type_.__module__}:{type_.__qualname__}"
        return {"class": name, "fields": [field for field, _ in fields], "of": items}

    def _foreign(self, value: Any, way: tuple[object, ...]) -> dict[str, Any]:
        try:
            parts = _foreign.parts_of(value)
        except ArrayError as why:
            raise ArrayError(f"{_place(way)}{why}.") from None
        self.format = max(self.format, parts.since)
        return {parts.origin: parts.word, "of": self.spell(parts.tree, way)}

    def _container(self, kind: Kind, value: Any, way: tuple[object, ...]) -> dict[str, Any]:
        spelled: dict[str, Any]
        if kind.base is dict:
            keys = [_key(key, way) for key in value]
            spelled = {"dict": keys, "of": self._all(value.items(), way)}
        else:
            spelled = {kind.base.__name__: self._all(enumerate(value), way)}
        if kind.name is not None:
            spelled["as"] = kind.name
            try:
                more = kind.more(value)
            except ArrayError as why:
                raise ArrayError(f"{_place(way)}: {why}.") from None
            if more is not None:
                spelled["with"] = self.spell(more, (*way, "with"))
        return spelled

    def _all(self, items: Iterable[tuple[object, Any]], way: tuple[object, ...]) -> list[Any]:
        return [self.spell(value, (*way, key)) for key, value in items]

    def _name(self, array: Any, way: tuple[object, ...]) -> str:
        name = wanted = "/".join(map(str, way))
        count = 1
        while name in self.arrays or name == REGION:
            count += 1
            name = f"{wanted}#{count}"
        self.arrays[name] = array
        return name


def _member(value: enum.Enum, way: tuple[object, ...]) -> dict[str, str]:
    type_, name = type(value), value.name
    if name not in type_.__members__:
        raise ArrayError(f"{_place(way)}: {shown(value)} has no name of its own: pass its value.")
    return {"enum": f"{type_.__module__}:{type_.__qualname__}", "name": name}


def _is_scalar(value: Any) -> bool:
    """Whether it is a number, a date or a text of NumPy, which is no array."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic) or value.dtype.kind not in "biufcmMSU":
        return False
    return bool(numpy.dtype(value.dtype.str) == value.dtype)


@functools.lru_cache(maxsize=256)
def _is_array(type_: type) -> bool:
    """Whether nothing of this class is anything but an array; what is not found so is looked at."""
    return type_.__name__ in ("ndarray", "Tensor") and type_.__module__ in (
        "numpy",
        "cupy",
        "torch",
    )


def _refuse_others(value: Any, way: tuple[object, ...]) -> None:
    """Says what to do with what holds others, or a state, and is not an array."""
    type_ = type(value)
    base = next((base for base in _BASES if issubclass(type_, base)), None)
    if base is not None:
        name, plain = type_.__name__, base.__name__
        raise ArrayError(
            f"{_place(way)} is a {name}, a {plain} with more than its items: pass {plain}(it), and "
            f"make a {name} of what comes back."
        )
    if callable(value) and not hasattr(type_, "__dlpack__") and not hasattr(type_, "state_dict"):
        raise ArrayError(f"{_place(way)} is a function or a class, and not data: leave it out.")
    if hasattr(value, "state_dict"):
        raise ArrayError(f"{_place(way)} is a {type_.__name__}: pass its state_dict().")


@functools.lru_cache(maxsize=256)
def library_of(type_: type) -> str:
    """The library that an array is of, by its name; or `bytes`."""
    if type_ is bytes:
        return "bytes"
    roots = [base.__module__.partition(".")[0] for base in type_.__mro__]
    found = {"jaxlib": "jax"}.get(roots[0], roots[0])
    return next((name for name in ("torch", "cupy", "jax") if name in (found, *roots)), "numpy")


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


@functools.lru_cache(maxsize=256)
def _is_record(kind: type) -> bool:
    if dataclasses.is_dataclass(kind):
        return True
    return issubclass(kind, tuple) and kind is not tuple and hasattr(kind, "_fields")


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple):
        return zip(value._fields, value, strict=True)  # type: ignore[attr-defined]
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _place(way: Iterable[object]) -> str:
    return "the tree" + "".join(f"[{shown(key)}]" for key in way)


# Reading.


def parsed(text: bytes) -> Any:
    """The outermost node of a text. Raises ArrayError where it is not one of ours."""
    try:
        content = json.loads(text)
        if content["unspool"] not in FORMATS:
            raise ArrayError(
                f"the tree has the format {content['unspool']}, and this version of Unspool reads "
                f"{FORMATS[-1]}: update it, or restore the arrays by their names (see regions())"
            )
        return content["tree"]
    except (KeyError, RecursionError, TypeError, ValueError) as cause:
        raise _unreadable() from cause


def _unreadable() -> ArrayError:
    return ArrayError(
        f"the region {REGION!r} does not describe a tree: restore the arrays by their names (see "
        f"regions())"
    )


def _read(spelled: Any, arrays: Mapping[Any, Any]) -> Any:
    if not isinstance(spelled, dict):
        return spelled
    try:
        return _read_node(spelled, arrays)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as cause:
        if isinstance(cause, ArrayError):
            raise
        raise _unreadable() from cause


def _plain(spelled: Any) -> Any:
    return _read(spelled, {})


def _read_node(spelled: dict[str, Any], arrays: Mapping[Any, Any]) -> Any:
    if "array" in spelled:
        array = arrays[spelled["array"]]
        return _arrays.as_bytes(array) if spelled.get("as") == "bytes" else array
    if "shards" in spelled:
        return _pieces.made(spelled, arrays, lambda one: _read(one, arrays))
    if "float" in spelled:
        return float(spelled["float"])
    if "complex" in spelled:
        return complex(*(_read(part, arrays) for part in spelled["complex"]))
    if "enum" in spelled:
        return _class(spelled["enum"], _is_enum).__members__[spelled["name"]]
    if "scalar" in spelled:
        return scalar(spelled["scalar"], bytes.fromhex(spelled["hex"]))
    for name, base in _CONTAINERS:
        if name in spelled:
            return _read_container(base, spelled, arrays)
    for library in _foreign.LIBRARIES:
        if library in spelled:
            return _foreign.made(library, spelled[library], _read(spelled["of"], arrays))
    values = [_read(item, arrays) for item in spelled["of"]]
    kind = _class(spelled["class"], _is_record)
    return _object(kind, dict(zip(spelled["fields"], values, strict=True)))


def scalar(form: str, content: bytes) -> Any:
    """A number, a date or a text of NumPy, and nothing that has addresses in it."""
    numpy = importlib.import_module("numpy")
    dtype = numpy.dtype(form)
    if dtype.kind not in "biufcmMSU" or dtype.itemsize != len(content):
        raise ValueError(form)
    return numpy.ndarray((), dtype, content)[()]


def _read_container(base: Any, spelled: dict[str, Any], arrays: Mapping[Any, Any]) -> Any:
    if base is dict:
        pairs = zip(spelled["dict"], spelled["of"], strict=True)
        plain: Any = {_read(key, arrays): _read(item, arrays) for key, item in pairs}
    else:
        plain = base(_read(item, arrays) for item in spelled[base.__name__])
    if "as" not in spelled:
        return plain
    return made(spelled["as"], plain, _read(spelled.get("with"), arrays))


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def _class(name: str, fits: Callable[[type], bool]) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and fits(found):
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


# Restoring into a tree.


class _Filler:
    """Compares a tree with a text, and gathers what is to be written."""

    def __init__(
        self,
        regions: Mapping[str, Region],
        whole: _pieces.Whole | None = None,
        *,
        adds: bool = True,
    ) -> None:
        self.arrays: list[tuple[str, Any]] = []
        self._whole = whole
        self._regions, self._adds = regions, adds
        self._later: list[Callable[[], None]] = []
        self._added: list[str] = []

    def write(self) -> None:
        """Writes what is no array."""
        for write in self._later:
            write()
        if self._added:
            warnings.warn(
                f"{self._added[0]} lacked what was saved, which was put into it: give it to its "
                "owner, as by load_state_dict, if that has another one.",
                RuntimeWarning,
                stacklevel=2,
            )

    def fill_some(self, spelled: Any, target: Any) -> None:
        """Fills a tree, of whose outermost dictionary keys may be missing."""
        if type(target) is dict and target and isinstance(spelled, dict) and "dict" in spelled:
            kept = [
                (key, item)
                for key, item in zip(spelled["dict"], spelled["of"], strict=True)
                if _read(key, {}) in target
            ]
            spelled = {"dict": [key for key, _ in kept], "of": [item for _, item in kept]}
        self.fill(spelled, target, (), None)

    def fill(self, spelled: Any, target: Any, way: tuple[object, ...], write: Write | None) -> None:
        if type(target) is Anew:
            self._anew(spelled, target, way)
            return
        if isinstance(target, tuple) and isinstance(spelled, dict) and "list" in spelled:
            # JSON alone has no tuples.
            spelled = {"tuple": spelled["list"]}
        if _is_value(spelled):
            self._value(_read(spelled, {}), target, way, write)
        elif "shards" in spelled:
            self._pieces(spelled, target, way)
        elif "array" in spelled:
            self._array(spelled, target, way, write)
        elif self._is_empty(spelled, target):
            self._put(spelled, target, way)
        else:
            for key, item, value, setter in self._entries(spelled, target, way):
                self.fill(item, value, (*way, key), setter)

    def _anew(self, spelled: Any, target: Anew, way: tuple[object, ...]) -> None:
        """Takes what was saved as a whole."""
        sharded = self._sharded(spelled, target)
        nodes = {node["array"]: node for node in _arrays_in(spelled)}
        if self._whole is not None:
            own = {each["array"] for node, _ in sharded for each in node["of"]}
            nodes = {name: node for name, node in nodes.items() if name not in own}
        alike = None
        if self._whole is None or target.fills or not sharded:
            alike = self._alike(spelled, target.given, nodes)
        if alike is None:
            self._check_like(sharded)
            arrays = {name: self._fresh(node, way, target.device) for name, node in nodes.items()}
        else:
            arrays = dict(alike.arrays)
            self.arrays += arrays.items()

        def write() -> None:
            if alike is not None and target.fills:
                alike.write()
                target.value = target.given
                return
            finished: dict[Any, Any] = {
                name: _arrays.finish(array, _library_in(nodes[name]), -1)
                for name, array in arrays.items()
            }
            if alike is not None:
                finished |= {_pieces.key_of(node): like for node, like in sharded}
            elif (whole := self._whole) is not None:
                finished |= {_pieces.key_of(node): whole.made(node, like) for node, like in sharded}
            target.value = _read(spelled, finished)

        self._later.append(write)

    def _sharded(self, spelled: Any, target: Anew) -> list[tuple[dict[str, Any], Any]]:
        """The arrays of which ranks have pieces, with those that say which ones are wanted."""
        like = target.given if target.like is None else target.like
        return list(_pieces.sharded(spelled, like, _plain))

    def _check_like(self, sharded: list[tuple[dict[str, Any], Any]]) -> None:
        """Refuses to make arrays of which ranks have pieces where nothing says which ones."""
        for node, like in sharded:
            anew = self._whole is not None or node["kind"] != "shard" or like is not None
            if anew and (self._whole is None or like is None):
                raise _pieces.without_like(node)

    def _pieces(self, spelled: dict[str, Any], target: Any, way: tuple[object, ...]) -> None:
        """Pieces of an array, from this part where it has the same ones."""
        found = _shards.pieces_of(target)
        if found is None:
            raise _differs(way, target)
        if list(found.shape) != spelled["shape"]:
            raise ArrayError(
                f"{_place(way)} is a piece of an array of {found.shape}, which was one of "
                f"{tuple(spelled['shape'])} when it was saved."
            )
        if (whole := self._whole) is not None:
            whole.check(spelled, found)
            self._later.append(lambda: whole.write(spelled, found))
            return
        self.arrays += _pieces.matched(spelled, found, self._regions)

    def _alike(self, spelled: Any, given: Any, nodes: Mapping[str, Any]) -> _Filler | None:
        """What fills what was given, where that has the form of what was saved, and no other."""
        if given is None:
            return None
        other = _Filler(self._regions, self._whole, adds=False)
        try:
            other.fill(spelled, given, (), None)
        except ArrayError:
            return None
        found = dict(other.arrays)
        same = found.keys() == nodes.keys() == self._regions.keys() & nodes.keys()
        fits = (
            same
            and not other._added
            and all(
                _arrays.fits(array, _library_in(nodes[name]), self._regions[name])
                for name, array in found.items()
            )
        )
        return other if fits else None

    def _array(
        self, spelled: dict[str, Any], target: Any, way: tuple[object, ...], write: Write | None
    ) -> None:
        if target is None and write is not None and self._adds:
            _refuse_jax(spelled, way)
            fresh = self._fresh(spelled, way)
            self._later.append(lambda: write(fresh))
            self._added.append(_place(way))
            return
        if is_tree(target):
            raise _differs(way, target)
        self.arrays.append((spelled["array"], target))

    def _fresh(
        self, spelled: dict[str, Any], way: tuple[object, ...], device: str | None = None
    ) -> Any:
        """A new array for one that was saved, of the same library."""
        region, library = self._regions.get(spelled["array"]), _library_in(spelled)
        if region is None:
            raise ArrayError(f"{_place(way)}: the array {spelled['array']!r} is not there.")
        place = _arrays.device_again(library, spelled.get("on"))
        if device is not None and library != "numpy":
            place = _arrays.device_for(library, device, None)
        made = _arrays.allocate(region.shape, region.dtype, library, place)
        self.arrays.append((region.name, made))
        return made

    def _value(self, saved: Any, value: Any, way: tuple[object, ...], write: Write | None) -> None:
        kind = kind_of(type(value))
        if not (is_tree(value) or _is_scalar(value)) or (kind is not None and kind.changes):
            raise _differs(way, value)
        if write is not None:
            self._later.append(lambda: write(saved))
        elif type(saved) is not type(value) or (saved != value and saved == saved):
            raise ArrayError(
                f"{_place(way)} was {shown(saved)} when it was saved, and what holds it cannot be "
                f"changed: use load"
            )

    def _is_empty(self, spelled: dict[str, Any], target: Any) -> bool:
        kind = kind_of(type(target))
        if kind is None or not kind.changes or target or not self._adds:
            return False
        return bool(spelled.get(kind.base.__name__))

    def _put(self, spelled: dict[str, Any], target: Any, way: tuple[object, ...]) -> None:
        """Puts what was saved into a container that has nothing."""
        plain = {name: part for name, part in spelled.items() if name not in ("as", "with")}
        if self._whole is not None:
            for node, _ in _pieces.sharded(plain, None, _plain):
                raise _pieces.without_like(node)
        for node in _arrays_in(plain):
            _refuse_jax(node, way)
        fresh = {node["array"]: self._fresh(node, way) for node in _arrays_in(plain)}
        found = _read(plain, fresh)
        add = target.update if isinstance(found, dict) else target.extend
        self._later.append(lambda: add(found))
        self._added.append(_place(way))

    def _add(self, target: Any, lacks: dict[Any, Any], way: tuple[object, ...]) -> None:
        """Adds values that a dictionary lacks, such as options of a scheduler in an optimizer."""
        if lacks:
            found = {key: _read(item, {}) for key, item in lacks.items()}
            self._later.append(lambda: target.update(found))
            self._added.append(_place(way))

    def _entries(self, spelled: Any, target: Any, way: tuple[object, ...]) -> Iterator[Any]:
        type_ = type(target)
        kind = kind_of(type_)
        if kind is not None and kind.base is dict and "dict" in spelled:
            keys = [_read(key, {}) for key in spelled["dict"]]
            saved = dict(zip(keys, spelled["of"], strict=True))
            lacks = {key: item for key, item in saved.items() if key not in target}
            fits = all(key in saved for key in target) and (kind.changes or not lacks)
            if not fits or any(True for _ in _arrays_in(list(lacks.values()))):
                raise _other_keys(way, keys, target)
            self._add(target, lacks, way)
            for key, value in target.items():
                write = _setter(target.__setitem__, key) if kind.changes else None
                yield key, saved[key], value, write
            return
        items = None if kind is None else spelled.get(kind.base.__name__)
        if kind is not None and items is not None and len(items) == len(target):
            for index, (item, value) in enumerate(zip(items, target, strict=True)):
                write = _setter(target.__setitem__, index) if kind.changes else None
                yield index, item, value, write
            return
        name = f"{type_.__module__}:{type_.__qualname__}"
        if spelled.get("class") == name and _is_record(type_):
            found = dict(_fields(target))
            if list(found) == spelled["fields"]:
                changes = not isinstance(target, tuple) and not _is_frozen(type_)
                for field, item in zip(spelled["fields"], spelled["of"], strict=True):
                    write = _setter(target.__setattr__, field) if changes else None
                    yield field, item, found[field], write
                return
        raise _differs(way, target)


def _library_in(node: Mapping[str, Any]) -> str:
    """The library of new arrays for one that was saved."""
    library = node.get("as")
    return library if library in ("torch", "cupy", "jax") else "numpy"


def _refuse_jax(node: Mapping[str, Any], way: tuple[object, ...]) -> None:
    if _library_in(node) == "jax":
        raise ArrayError(f"{_place(way)} lacks an array of JAX, which cannot be filled: use load.")


def _arrays_in(spelled: Any) -> Iterator[dict[str, Any]]:
    """The arrays of what was spelled."""
    if isinstance(spelled, dict) and "array" in spelled:
        yield spelled
    elif isinstance(spelled, dict | list):
        for part in spelled.values() if isinstance(spelled, dict) else spelled:
            yield from _arrays_in(part)


def _is_value(spelled: Any) -> bool:
    """Whether it has no arrays, and cannot be changed in place."""
    if not isinstance(spelled, dict) or not {"float", "complex", "enum", "scalar"}.isdisjoint(
        spelled
    ):
        return True
    return "tuple" in spelled and all(map(_is_value, spelled["tuple"]))


def _is_frozen(kind: Any) -> bool:
    return bool(kind.__dataclass_params__.frozen)


def _setter(write: Callable[[Any, Any], None], key: object) -> Callable[[Any], None]:
    return lambda value: write(key, value)


def _other_keys(way: tuple[object, ...], saved: list[Any], target: Any) -> ArrayError:
    lacks = [key for key in saved if key not in target]
    more = [key for key in target if key not in saved]
    what = [f"it lacks {lacks[:3]}" if lacks else "", f"it has {more[:3]} as well" if more else ""]
    return ArrayError(
        f"{_place(way)} has other keys than when it was saved: {', '.join(filter(None, what))}. "
        "Give the same ones, or an empty dictionary, which is filled, or use load."
    )


def _differs(way: tuple[object, ...], target: Any) -> ArrayError:
    return ArrayError(
        f"{_place(way)} is a {type(target).__name__}, which differs from what was saved: give the "
        f"same structure, or use load"
    )
