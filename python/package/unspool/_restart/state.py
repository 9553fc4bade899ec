"""The state of a program by name, as a `Checkpointer` is given it, and how it comes back.

An *owner* is an object with `state_dict` and `load_state_dict`, such as a module, an optimizer, a
scheduler, a GradScaler or a StatefulDataLoader. Its state is saved as a tree, and is given back to
it whole when all ranks have theirs.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _foreign
from .._foreign import made_like
from .._shards import pieces_of
from .._trees import REGION, Anew, flatten, library_of
from .._unspool import Spool
from ..errors import ArrayError, OptionError, shown
from . import random
from .gathered import Gathered, check_pieces
from .values import fill, is_owner, is_small, read

__all__ = ["Restoring", "bytes_of", "load", "named_at_opening"]

#: What arrays have, and nothing else has.
_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")


def named_at_opening(given: Mapping[str, Any], options: Iterable[str]) -> dict[str, Any]:
    """What every save saves, by name; `rng=True` is the generators of the process.

    Raises:
        OptionError: something is no state, or one that cannot be restored into.
    """
    state = dict(given)
    if state.get("rng") is True:
        state["rng"] = random.EVERYWHERE
    elif state.get("rng") is None or state["rng"] is False:
        state.pop("rng", None)
    for name, value in state.items():
        if not random.is_generator(value) and not is_owner(value):
            _check(name, value, options)
    return state


def _check(name: str, value: Any, options: Iterable[str]) -> None:
    """Refuses what is no state, such as an option by a wrong name."""
    near = difflib.get_close_matches(name, options, 1)
    meant = f" Do you mean {near[0]}?" if near else ""
    wrong = f"{name}={shown(value)}: a Checkpointer has no such option, and it is no state"
    if is_small(value) and not isinstance(value, dict | list):
        raise OptionError(f"{wrong} that can be restored into: give it to `save`.{meant}")
    if _foreign.is_foreign(value):
        raise _immutable(name, type(value).__name__)
    try:
        arrays = flatten({name: value})[0]
    except ArrayError as why:
        raise OptionError(f"{name}: {why}{meant}") from None
    for _, array in arrays:
        if library_of(type(array)) == "jax":
            raise _immutable(name, "array of JAX")
        if not any(hasattr(type(array), one) for one in _PROTOCOLS) and not _is_buffer(array):
            raise OptionError(
                f"{wrong}: arrays are, generators of random numbers, containers of them, and "
                f"objects with state_dict and load_state_dict.{meant}"
            )


def _immutable(name: str, kind: str) -> OptionError:
    return OptionError(
        f"{name}: a {kind} cannot be written in place: give it to each `save`, and take it from "
        "load(), or from load(like=...)."
    )


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


class Restoring:
    """One call of `restore`: what it was given, and what was found for owners.

    With `whole`, lists and dictionaries get what was saved, whatever they have now.
    """

    def __init__(self, targets: Mapping[str, Any], *, whole: bool) -> None:
        self._generators = {name: one for name, one in targets.items() if random.is_generator(one)}
        self._owners = {name: one for name, one in targets.items() if is_owner(one)}
        apart = (self._generators, self._owners)
        self._others = {
            name: one for name, one in targets.items() if not any(name in of for of in apart)
        }
        self._containers = {
            name: one for name, one in self._others.items() if whole and type(one) in (dict, list)
        }
        # Once, as ranks may have to ask each other for that.
        self._states = {name: owner.state_dict() for name, owner in self._owners.items()}
        self._found: dict[str, Any] = {}
        self._places: dict[str, Anew] = {}

    def take(self, spool: Spool | Gathered, step: int, text: str) -> dict[str, Any]:
        """Restores arrays and values in place; the states of random numbers."""
        small, states = read(text)
        if isinstance(spool, Gathered):
            spool.check_values([*self._generators, *self._others, *self._owners])
        for name, generator in self._generators.items():
            if name not in states:
                raise ArrayError(f"{name}: no random numbers were saved under this name.")
            random.check(name, generator, states[name])
        self._places = {name: Anew(one, fills=True) for name, one in self._containers.items()}
        others = {**self._others, **self._places}
        writes = [fill(name, small[name], one) for name, one in others.items() if name in small]
        places = {
            name: Anew(state, like=_like(self._owners[name]))
            for name, state in self._states.items()
            if name not in small
        }
        arrays = {name: one for name, one in others.items() if name not in small}
        if places and not _is_tree(spool, step):
            raise ArrayError(f"{next(iter(places))}: no state was saved under this name.")
        if arrays or places:
            target = {**arrays, **places}
            if isinstance(spool, Spool) and _has_pieces([self._others, self._states]):
                check_pieces(spool, step, target)
            spool.restore(step, target)
        for write in writes:
            write()
        self._found = {name: small[name] for name in self._owners if name in small}
        self._found |= {name: place.value for name, place in places.items()}
        return states

    def finish(self, states: dict[str, Any]) -> None:
        """Gives owners, containers and generators what was saved."""
        for name, owner in self._owners.items():
            owner.load_state_dict(self._found[name])
        for name, place in self._places.items():
            _refill(name, self._containers[name], place.value)
        for name, generator in self._generators.items():
            random.set_state(generator, states[name])


class _Same:
    """Has the same thing under every key."""

    def __init__(self, it: Any) -> None:
        self._it = it

    def __getitem__(self, _: object) -> Any:
        return self._it


def _like(owner: Any) -> dict[str, Any] | None:
    """What says which pieces of arrays an optimizer gets that has no state yet: its parameters."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(owner, torch.optim.Optimizer) or owner.state:
        return None
    parameters = (one for group in owner.param_groups for one in group["params"])
    return {"state": {at: _Same(one) for at, one in enumerate(parameters)}}


def _refill(name: str, container: Any, found: Any) -> None:
    """Puts what was saved into a container in place of what it has."""
    if found is container:
        return
    if type(found) is not type(container):
        was, now = type(found).__name__, type(container).__name__
        raise ArrayError(f"{name}: it was a {was} when it was saved, and is a {now}.")
    container.clear()
    container.update(found) if isinstance(container, dict) else container.extend(found)


def load(
    spool: Spool | Gathered,
    step: int,
    small: Mapping[str, Any],
    where: tuple[Any, str | None],
    like: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """All of a checkpoint: small values, arrays of the library and on the device that are given,
    and what holds them; what is named in `like`, as it is there."""
    to, device = where
    if to is not None or not _is_tree(spool, step):
        found = spool.load(step, to="numpy" if to is None else to, device=device)
    else:
        place = Anew(device=device, like=like)
        spool.restore(step, place)
        found = place.value
    found = {**small, **found}
    if like is None:
        return found
    # Without JAX nothing in `like` is of it, and what has pieces of arrays is done.
    is_loaded = "jax" in sys.modules
    rest = {name: one for name, one in like.items() if is_loaded or not _has_pieces(one)}
    return made_like(found, rest) if rest else found


def _has_pieces(given: Any) -> bool:
    """Whether it has arrays of which ranks have pieces; each container is looked at once."""
    left, seen = [given], set[int]()
    while left:
        value = left.pop()
        parts: Iterable[Any] = ()
        if isinstance(value, Mapping):
            parts = value.values()
        elif isinstance(value, list | tuple):
            parts = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [getattr(value, one.name) for one in dataclasses.fields(value)]
        elif pieces_of(value) is not None:
            return True
        if id(value) not in seen:
            seen.add(id(value))
            left += parts
    return False


def _is_tree(spool: Spool | Gathered, step: int) -> bool:
    return any(region.name == REGION for region in spool.regions(step))


def bytes_of(state: Any) -> int:
    """The bytes of the arrays in a state, as far as it can be asked for them without any effect."""
    if callable(getattr(state, "parameters", None)) and callable(getattr(state, "buffers", None)):
        return sum(bytes_of(one) for one in (*state.parameters(), *state.buffers()))
    if is_owner(state):
        state = getattr(state, "state", None)
    if isinstance(state, Mapping):
        return sum(map(bytes_of, state.values()))
    if isinstance(state, list | tuple):
        return sum(map(bytes_of, state))
    here = getattr(state, "to_local", None)
    return int(getattr(here() if callable(here) else state, "nbytes", 0))
