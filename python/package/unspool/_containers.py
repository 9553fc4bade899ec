"""Containers that are more than a dictionary, a list or a tuple: what a tree says of them.

Each is spelled as the plain container that has the same items, with the name of its class and, of
some, one thing more. A reader that does not know the class has the plain container. Only classes of
this table are called.
"""

from __future__ import annotations

import builtins
import collections
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import ArrayError, shown

__all__ = ["Kind", "kind_of", "made"]

#: What a default dictionary may make, as no other function can be found again.
_FACTORIES = ("bool", "bytes", "complex", "dict", "float", "int", "list", "set", "str", "tuple")


def _nothing(value: Any) -> None:
    return None


class Kind(NamedTuple):
    """A class of containers.

    Attributes:
        base: the plain container: `dict`, `list` or `tuple`.
        name: its module and its name, or None for the plain container itself.
        changes: whether its items can be written.
        make: one of it, from a plain container and what `more` gave.
        more: what it has besides items, as a tree, or None.
    """

    base: type
    name: str | None
    changes: bool
    make: Callable[[Any, Any], Any]
    more: Callable[[Any], Any] = _nothing


def _ordered(items: dict[Any, Any], attributes: Any) -> Any:
    made: Any = collections.OrderedDict(items)
    # That of `torch.nn.Module.state_dict` has `_metadata`, which `load_state_dict` looks at.
    made.__dict__.update(attributes or {})
    return made


def _factory(value: Any) -> str | None:
    factory = value.default_factory
    if factory is None:
        return None
    if factory in (getattr(builtins, name) for name in _FACTORIES):
        return str(factory.__name__)
    raise ArrayError(
        f"a defaultdict that calls {shown(factory)} cannot be saved: pass dict(it), and make a "
        "defaultdict of what comes back"
    )


def _defaulting(items: dict[Any, Any], factory: Any) -> Any:
    if factory not in (None, *_FACTORIES):
        raise ArrayError(f"a defaultdict does not call {shown(factory)}.")
    return collections.defaultdict(factory and getattr(builtins, factory), items)


def _named(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


_PLAIN = {
    kind: Kind(kind, None, kind is not tuple, lambda items, _: items)
    for kind in (dict, list, tuple)
}

_OTHERS = [
    (collections.OrderedDict, dict, True, _ordered, lambda value: vars(value) or None),
    (collections.defaultdict, dict, True, _defaulting, _factory),
    (collections.Counter, dict, True, lambda items, _: collections.Counter(items), _nothing),
    (types.MappingProxyType, dict, False, lambda items, _: types.MappingProxyType(items), _nothing),
    (collections.deque, list, True, collections.deque, lambda value: value.maxlen),
    (set, list, False, lambda items, _: set(items), _nothing),
    (frozenset, list, False, lambda items, _: frozenset(items), _nothing),
]

_KINDS: dict[Any, Kind] = {
    **_PLAIN,
    **{
        kind: Kind(base, _named(kind), changes, make, more)
        for kind, base, changes, make, more in _OTHERS
    },
}

_BY_NAME = {kind.name: kind for kind in _KINDS.values()}


@functools.lru_cache(maxsize=256)
def kind_of(type_: type) -> Kind | None:
    """The kind of containers that are of this class, or None."""
    if type_ in _KINDS:
        return _KINDS[type_]
    if _is_sequence_of_c(type_):
        return Kind(tuple, _named(type_), False, lambda items, _: type_(items))
    return None


def made(name: str, items: Any, more: Any) -> Any:
    """A container of the class `name`, as `Kind.make` makes it.

    Raises:
        ArrayError: the class is not loaded, or not one of those that are called.
    """
    if name in _BY_NAME:
        return _BY_NAME[name].make(items, more)
    module, _, word = name.partition(":")
    found: Any = getattr(sys.modules.get(module), word, None)
    if isinstance(found, type) and _is_sequence_of_c(found):
        return found(items)
    raise ArrayError(
        f"the tree has a {word} of {module}, which is not loaded: import it first, or restore the "
        "arrays by their names (see regions())"
    )


def _is_sequence_of_c(type_: type) -> bool:
    """Whether it is a tuple with names, such as `torch.return_types.max`, or `torch.Size`: nothing
    of Python is called when one is made."""
    if not issubclass(type_, tuple) or type_ is tuple:
        return False
    return hasattr(type_, "n_sequence_fields") or _named(type_) == "torch:Size"
