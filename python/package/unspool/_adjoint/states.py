"""The state of a simulation as the driver sees it: what is saved, and where it is restored to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .._trees import is_tree
from ..errors import ArrayError, OptionError

__all__ = [
    "Part",
    "State",
    "WorkingState",
    "arrays_of",
    "is_array",
    "named_arrays",
    "never_changes",
    "place_of",
]


def arrays_of(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arrays of a state by position and by name, as `Spool.save` takes them."""
    if isinstance(value, list | tuple):
        return tuple(value), {}
    if isinstance(value, Mapping):
        return (), dict(value)
    return (value,), {}


def named_arrays(value: Any) -> dict[str, Any]:
    """The arrays of a state by the names that `Spool.save` gives them."""
    positional, named = arrays_of(value)
    return {**{str(number): array for number, array in enumerate(positional)}, **named}


class WorkingState(Protocol):
    """What the driver needs of the working state.

    Attributes:
        frozen: whether its arrays never change and are replaced instead.
    """

    frozen: bool

    def now(self) -> Any:
        """What the functions of the caller are given, and what is saved."""

    def replace(self, returned: Any) -> None:
        """Takes what `forward` returned."""

    def put_back(self, value: Any) -> None:
        """Makes an earlier value of a frozen state the working state again."""

    def restore(self, spool: Any, version: int, stream: Any) -> None:
        """The working state is what was saved under `version`."""


class State:
    """The working state: arrays, or a function that returns them.

    Attributes:
        frozen: whether its arrays are those of JAX: they never change and are replaced instead.
    """

    __slots__ = ("_ask", "_device", "_value", "frozen")

    def __init__(self, given: Any) -> None:
        self._ask = given if callable(given) and not is_array(given) else None
        self._value = None if self._ask else given
        positional, named = arrays_of(self.now())
        if not positional and not named:
            raise OptionError("adjoint(state=...): there is no array in it.")
        _check_names(named)
        arrays = [*positional, *named.values()]
        for one in filter(is_tree, arrays):
            raise ArrayError(f"adjoint(state=...): a {type(one).__name__} in it is not an array.")
        self.frozen = any(map(never_changes, arrays))
        self._device = place_of(arrays) if self.frozen else None
        if self.frozen and self._ask:
            raise OptionError(
                "adjoint(state=...): arrays of JAX never change, so that a function cannot give "
                "the same ones again: give the arrays themselves, and return new ones in forward."
            )

    def now(self) -> Any:
        """What the functions of the caller are given."""
        return self._ask() if self._ask else self._value

    def arrays(self) -> list[Any]:
        """The arrays in it."""
        return _each(self.now())

    def replace(self, returned: Any) -> None:
        """Takes what `forward` returned, which may be nothing."""
        if returned is None:
            if self.frozen:
                raise OptionError(
                    "forward returned nothing, but arrays of JAX never change: return the new "
                    "state, or Stop(step, state) at the end."
                )
            return
        if self._ask:
            raise OptionError(
                "forward returned something, but `state` is a function: change its arrays in place "
                "and return nothing."
            )
        if not _alike(self._value, returned):
            raise OptionError(
                f"forward returned {_shown(returned)}, but the state is {_shown(self._value)}: "
                "return a state of the same kind, or nothing when it was changed in place."
            )
        if not self.frozen and any(map(never_changes, _each(returned))):
            raise OptionError(
                "forward returned arrays of JAX, which never change, but the state began as others "
                "that are restored in place: begin with arrays of JAX, such as "
                "jax.numpy.asarray(state)."
            )
        self._value = returned

    def put_back(self, value: Any) -> None:
        """Makes an earlier value of a state that never changes the working state again."""
        self._value = value

    def restore(self, spool: Any, version: int, stream: Any) -> None:
        """The working state is what was saved under `version`."""
        if self.frozen:
            self._value = self.loaded(spool, version, self._value)
            return
        positional, named = arrays_of(self.now())
        spool.restore(version, *positional, stream=stream, **named)

    def loaded(self, spool: Any, version: int, like: Any) -> Any:
        """New arrays of JAX, in a container such as `like`."""
        found = spool.load(version, to="jax", device=self._device)
        if isinstance(like, list | tuple):
            parts = found if isinstance(found, tuple) else (found,)
            return type(like)(*parts) if hasattr(like, "_make") else type(like)(parts)
        return found


class Part:
    """The part of the state that `reverse` reads: arrays, or a function of the state."""

    __slots__ = ("_ask", "_like", "_state", "_value")

    def __init__(self, given: Any, state: State) -> None:
        self._state = state
        self._ask = given if callable(given) and not is_array(given) else None
        self._value = None if self._ask else given
        self._like: Any = None
        if state.frozen and not self._ask:
            raise OptionError(
                "adjoint(for_reverse=...): arrays of JAX never change: give a function of the "
                "state that returns the part."
            )
        if not any(arrays_of(self.now())):
            raise OptionError("adjoint(for_reverse=...): there is no array in it.")

    def now(self) -> Any:
        """The part of the working state."""
        return self._ask(self._state.now()) if self._ask else self._value

    def to_save(self) -> Any:
        """The part of the working state, which is about to be saved."""
        self._like = self.now()
        return self._like

    def restored(self, spool: Any, version: int, stream: Any) -> Any:
        """The part that was saved under `version`."""
        if self._state.frozen:
            return self._state.loaded(spool, version, self._like)
        value = self.now()
        positional, named = arrays_of(value)
        spool.restore(version, *positional, stream=stream, **named)
        return value


def is_array(value: Any) -> bool:
    """Whether it is an array, although it can be called (some libraries' arrays can)."""
    return any(hasattr(value, name) for name in ("__dlpack__", "__array__", "dtype"))


def _each(value: Any) -> list[Any]:
    positional, named = arrays_of(value)
    return [*positional, *named.values()]


def never_changes(array: Any) -> bool:
    """Whether it is an array of JAX."""
    return type(array).__module__.split(".")[0] in ("jax", "jaxlib")


def place_of(arrays: list[Any], option: str = "state") -> str | None:
    """The device of these arrays of JAX, as `Spool.load` names it.

    Raises:
        OptionError: there are others among them, or they are on several devices.
    """
    if not all(map(never_changes, arrays)):
        raise OptionError(
            f"adjoint({option}=...): it mixes arrays of JAX, which never change, with others: give "
            "arrays of one kind."
        )
    devices = {device for array in arrays for device in array.devices()}
    if len(devices) > 1:
        raise OptionError(f"adjoint({option}=...): the arrays of JAX are on several devices.")
    (device,) = devices
    return "cpu" if device.platform == "cpu" else f"cuda:{device.id}"


def _check_names(named: Mapping[Any, Any]) -> None:
    for name in named:
        if not isinstance(name, str) or name == "stream":
            raise OptionError(
                f"adjoint(state=...): an array is called {name!r}: names are strings other than "
                '"stream".'
            )


def _alike(one: Any, other: Any) -> bool:
    """Whether two states are of the same kind: one array, as many, or with the same names."""
    if isinstance(one, Mapping):
        same = isinstance(other, Mapping) and one.keys() == other.keys()
        return same and all(_exchangeable(array, other[name]) for name, array in one.items())
    if isinstance(one, list | tuple):
        same = isinstance(other, list | tuple) and len(one) == len(other)
        return same and all(map(_exchangeable, one, other))
    return _exchangeable(one, other)


def _exchangeable(one: Any, other: Any) -> bool:
    """Whether one array may take the place of the other: not a number that some solver returned."""
    if type(one) is type(other):
        return True
    return is_array(other) and getattr(one, "shape", None) == getattr(other, "shape", None)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(repr, value))}"
    if isinstance(value, list | tuple):
        kinds = ", ".join(type(array).__name__ for array in value)
        return f"a {type(value).__name__} of {len(value)} ({kinds})"
    return f"one {type(value).__name__}"
