"""The schedules of the field, made by the extension."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from .._files import read_text
from .._unspool import ScheduleCore, trace_text
from ..errors import ScheduleError
from .actions import Action
from .base import Native
from .given import ended, whole, word_of

__all__ = [
    "Listed",
    "MultiLevel",
    "OnlineRevolve",
    "Revolve",
    "StoreAll",
    "Trace",
    "Uniform",
    "ZCut",
    "to_trace",
]


class _Made(Native):
    """Sets the fields of frozen dataclasses once, and pickles them by their arguments."""

    def _set(self, core: ScheduleCore, **values: Any) -> None:
        for name, value in {**values, "_made": core}.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class StoreAll(_Made):
    """Keeps every state: no step is computed twice.

    `steps - 1` saves and restores, and as many slots.

    Raises:
        ScheduleError: there are no steps.
    """

    steps: int
    slots: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        steps = whole("StoreAll", "steps", self.steps)
        core = ScheduleCore.store_all(steps)
        self._set(core, steps=steps, slots=core.slots)


@dataclass(frozen=True)
class Revolve(_Made):
    """The fewest recomputed steps that so many slots allow, for a known number of steps.

    Binomial checkpointing: A. Griewank and A. Walther, "Algorithm 799: revolve", ACM Transactions
    on Mathematical Software 26 (2000). State 0 takes a slot.

    Attributes:
        steps: the number of steps.
        slots: the most copies at a time; more than `steps - 1` are of no use.

    Raises:
        ScheduleError: there are no steps, or no slot although there are two steps or more.
    """

    steps: int
    slots: int

    def __post_init__(self) -> None:
        steps = whole("Revolve", "steps", self.steps)
        slots = whole("Revolve", "slots", self.slots)
        self._set(ScheduleCore.revolve(steps, slots), steps=steps, slots=slots)


@dataclass(frozen=True)
class OnlineRevolve(_Made):
    """Revolve for a number of steps that is not known before the forward pass ends.

    After P. Stumm and A. Walther, "New algorithms for optimal online checkpointing", SIAM Journal
    on Scientific Computing 32 (2010). The forward pass goes to state N, one further than Revolve's,
    and up to `comb(slots + 2, 2)` steps all advances together are Revolve's for N + 1 steps, which
    nothing undercuts; for more steps there are a few percent more.

    Its actions wait for the end of the forward pass: a list of them has no end.

    Attributes:
        slots: the most copies at a time.

    Raises:
        ScheduleError: there is no slot.
    """

    slots: int
    steps: None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        slots = whole("OnlineRevolve", "slots", self.slots)
        self._set(ScheduleCore.online_revolve(slots), slots=slots, steps=None)


@dataclass(frozen=True)
class Uniform(_Made):
    """Copies at equal intervals, kept until the interval was reversed; inside an interval each
    step starts again from its beginning.

    Attributes:
        steps: the number of steps.
        slots: the most copies at a time.

    Raises:
        ScheduleError: there are no steps, or no slot although there are two steps or more.
    """

    steps: int
    slots: int

    def __post_init__(self) -> None:
        steps = whole("Uniform", "steps", self.steps)
        slots = whole("Uniform", "slots", self.slots)
        self._set(ScheduleCore.uniform(steps, slots), steps=steps, slots=slots)


@dataclass(frozen=True, init=False)
class ZCut(_Made):
    """GPUZIP's schedule for fast storage: equal cuts, and every state inside one of them at a time.

    With `M` cuts of length `L = ceil(N / M)`: the forward pass keeps the first state of each cut
    and every state inside the last one. Then, cut by cut backwards: restore its first state,
    advance again keeping every state, reverse through it. About `M + L - 2` slots, and no step is
    computed more than twice. The figures that GPUZIP publishes imply `L` of 33 to 41.

    Exactly one of the three must be given.

    Attributes:
        steps: the number of steps.
        slots: the most copies at a time.
        knob: the argument that was given, `"cuts"`, `"length"` or `"slots"`.
        value: and its value.

    Raises:
        ScheduleError: there are no steps, or the slots are too few.
    """

    steps: int
    knob: str
    value: int
    slots: int = field(compare=False)

    def __init__(
        self,
        steps: int,
        *,
        cuts: int | None = None,
        length: int | None = None,
        slots: int | None = None,
    ) -> None:
        given = {"cuts": cuts, "length": length, "slots": slots}
        chosen = {name: value for name, value in given.items() if value is not None}
        if len(chosen) != 1:
            raise ScheduleError("ZCut takes exactly one of cuts=, length= and slots=.")
        ((knob, value),) = chosen.items()
        object.__setattr__(self, "steps", whole("ZCut", "steps", steps))
        object.__setattr__(self, "knob", knob)
        object.__setattr__(self, "value", whole("ZCut", knob, value))
        self.__post_init__()

    def __post_init__(self) -> None:
        core = ScheduleCore.z_cut(self.steps, self.knob, self.value)
        self._set(core, slots=core.slots)

    def __repr__(self) -> str:
        return f"ZCut(steps={self.steps}, {self.knob}={self.value})"


@dataclass(frozen=True, kw_only=True)
class MultiLevel(_Made):
    """The least predicted time with slots in several tiers, which cost time to write and to read.

    After G. Aupy, J. Herrmann, P. Hovland and Y. Robert, "Optimal multistage algorithm for adjoint
    computation", SIAM Journal on Scientific Computing 38 (2016), and J. Herrmann and
    G. Pallez (Aupy), "H-Revolve: a framework for adjoint computation on synchronous hierarchical
    platforms", ACM Transactions on Mathematical Software 46 (2020). Making one of 3000 steps takes
    up to a second.

    Attributes:
        steps: the number of steps; it may be given by position.
        device, host, disk: the slots of each tier; None for a tier that is not used, and
            `math.inf` for as many as are wanted.
        write_seconds: how long writing a state to each tier takes, such as `{"disk": 0.2}`; nothing
            for tiers that are not named.
        read_seconds: the same for reading.
        step_seconds: how long one step of the forward pass takes.

    Raises:
        ScheduleError: the number of steps, of tiers or of slots is 0; or a cost is not a number of
            seconds.
    """

    steps: int = field(kw_only=False)
    device: float | None = None
    host: float | None = None
    disk: float | None = None
    write_seconds: Mapping[str, float] = field(default_factory=dict)
    read_seconds: Mapping[str, float] = field(default_factory=dict)
    step_seconds: float = 1.0
    slots: int = field(init=False, repr=False, compare=False)

    # Mappings have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        steps = whole("MultiLevel", "steps", self.steps)
        used = {tier: getattr(self, tier) for tier in _TIERS if getattr(self, tier) is not None}
        if not used:
            raise ScheduleError("MultiLevel needs slots in a tier: give device=, host= or disk=.")
        write = _costs("write_seconds", self.write_seconds)
        read = _costs("read_seconds", self.read_seconds)
        levels = [
            (tier, _slots(tier, slots), write.get(tier, 0.0), read.get(tier, 0.0))
            for tier, slots in used.items()
        ]
        core = ScheduleCore.multi_level(steps, levels, _cost("step_seconds", self.step_seconds))
        self._set(core, steps=steps, write_seconds=write, read_seconds=read, slots=core.slots)


_TIERS = ("device", "host", "disk")


def _costs(argument: str, given: Any) -> dict[str, float]:
    """The seconds for each tier that is named."""
    if not isinstance(given, Mapping):
        raise ScheduleError(
            f'MultiLevel({argument}={given!r}): write seconds by tier, such as {{"disk": 0.2}}.'
        )
    for tier in given:
        if tier not in _TIERS:
            raise ScheduleError(f"MultiLevel({argument}=...): there is no tier {tier!r}.")
    return {tier: _cost(argument, seconds) for tier, seconds in given.items()}


def _cost(argument: str, seconds: Any) -> float:
    try:
        return float(seconds)
    except (TypeError, ValueError, OverflowError):
        message = f"MultiLevel({argument}=...): {seconds!r} is not a number of seconds."
        raise ScheduleError(message) from None


def _slots(tier: str, slots: float) -> int | None:
    return None if slots == math.inf else whole("MultiLevel", tier, slots)


class Listed(_Made):
    """A schedule that someone wrote down: any list of actions that keeps the rules.

    Arguments:
        actions: `Forward`, `Save`, `Restore`, `Reverse`, `Discard` and at last `End` objects.

    Attributes:
        steps: the number of steps, which the first `Reverse` says.
        slots: the most copies at a time.

    Raises:
        ScheduleError: an action breaks a rule, there is no `End`, or there are more than 2**24
            actions.
        MemoryError: there is no memory for so many.
    """

    def __init__(self, actions: Iterable[Action]) -> None:
        self._begin(ScheduleCore.listed(word_of(action) for action in ended(actions)))

    def _begin(self, core: ScheduleCore) -> None:
        self._made, self.steps, self.slots = core, core.steps, core.slots

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Listed) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.steps, self.slots))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.steps} steps with {self.slots} slots>"


class Trace(Listed):
    """A schedule from a text in GPUZIP's format, lines `step ACTION`.

    The actions are `FORWARD`, `SAVE`, `SAVE_INTERMEDIARY`, `RESTORE`, `FIRSTURN`, `BACKWARD` and
    `TERMINATE`. A copy is discarded after its last restore before the next save of the same step.

    Arguments:
        source: a path, or the text itself, which has more than one line.

    Raises:
        ScheduleError: a line cannot be read, or breaks a rule.
        OSError: the file cannot be read.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.text = source if _is_text(source) else _read(source)
        self._begin(ScheduleCore.trace(self.text))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_text, (self.text,)


def _is_text(source: Any) -> TypeGuard[str]:
    return isinstance(source, str) and "\n" in source


def _read(path: str | os.PathLike[str]) -> str:
    if not os.fspath(path):
        raise ScheduleError("Trace(''): write the path of a file, or a text of lines.")
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise ScheduleError(
            f"{os.fspath(path)} is not a trace: it is not text, but has other bytes from byte "
            f"{error.start} on."
        ) from error


def _from_text(text: str) -> Trace:
    return Trace(text if "\n" in text else text + "\n")


def to_trace(schedule: Iterable[Action]) -> str:
    """The text of a schedule in GPUZIP's format, which has no words for tiers and discards.

    Raises:
        ScheduleError: something in it is not an action, or its number of steps is not known.
    """
    return trace_text([word_of(action) for action in ended(schedule)])
