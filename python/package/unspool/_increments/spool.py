"""The public object: what is given and asked for, as a `Spool` takes it."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Self, SupportsIndex

from .._arrays import device_for
from .._trees import assign, build, flatten, is_tree
from .._unspool import Spool, codecs_of
from ..codecs.values import Bound
from ..errors import ArrayError, Error, OptionError, UnknownVersionError, VersionExistsError
from .chain import Chain, Layout, State
from .numbers import Form, Place, as_array, decoded, encoded, on_stream, place_of

__all__ = ["IncrementalSpool"]

#: What is asked of an `IncrementalSpool` and answered by its spool.
PASSED_ON = frozenset("close closed device latest learn prepare stats write_trace".split())


class IncrementalSpool:
    """A history in a spool, in which each state is stored as its difference to the next one.

    It is for histories with a bound that are restored in reverse order and change little from one
    state to the next, such as every step of a diffusive process. It takes the place of the spool:
    `unspool.adjoint(schedule, IncrementalSpool(spool, Bound(abs=1e-4)), ...)`.

    Values become multiples of a step, as with a `Bound` in a spool. Differences of whole numbers
    are exact: the bound holds against what was saved, and errors do not add up along a chain. NaN,
    infinities and values that are too large for the step come back bit for bit. So do arrays
    without a bound and those that a bound is not for (all but float32, float64, complex64 and
    complex128), which are stored as differences of their bits.

    The newest state is held in memory, or on the GPU of its arrays: up to two whole numbers for
    each value, and as many again for a while when the next one is saved. Restores in reverse order
    read one difference each; any other one reads up to `full` checkpoints. A state that was
    discarded takes room until no older one is built on it, which are at most `full - 1`; where the
    newest is always discarded first, it takes none.

    What the spool has means something to this object alone: a durable directory cannot be opened
    again as this history. A call on another stream of a GPU than the one before, or for arrays of
    another library, stores the newest state in full first. All methods may be called from several
    threads; one runs at a time. `close`, `closed`, `device`, `prepare`, `stats` and `write_trace`
    are those of the spool.

    Arguments:
        spool: where the differences go; empty, and of this object alone from now on. Its own codec
            is not used.
        codec: a `Bound(abs=...)`, or a mapping of them by the names of arrays as for `Spool`, with
            `"lossless"` or None for arrays without a bound.
        full: one state in so many is stored in full.

    Raises:
        OptionError: an option makes no sense, or the spool cannot be used.
    """

    def __init__(self, spool: Spool, codec: Any, *, full: SupportsIndex = 16) -> None:
        if not isinstance(spool, Spool):
            raise OptionError(f"IncrementalSpool(spool={spool!r}): that is not a Spool.")
        if len(spool):
            raise OptionError(
                "IncrementalSpool: the spool is not empty, and what is in it is of this object "
                "alone: open another one."
            )
        if _whole("full", full) < 1:
            raise OptionError(f"IncrementalSpool(full={full}): write a number of states from 1.")
        self._bounds = _bounds(codec)
        if not any(self._bounds.values()):
            raise OptionError(
                "IncrementalSpool: without a bound, the difference to the next state takes about "
                'as much as the state. Give a Bound(abs=...), or use Spool(codec="lossless").'
            )
        self._spool, self._chain = spool, Chain(spool, operator.index(full))
        self._states: dict[int, State] = {}
        #: Restores that are still to come of what is read back once.
        self._once: Counter[int] = Counter()
        self._lock = threading.RLock()

    def save(
        self,
        version: SupportsIndex,
        /,
        *arrays: Any,
        stream: Any = None,
        codec: Any = None,
        **named: Any,
    ) -> None:
        """Saves arrays under `version`, as `Spool.save` does; versions may come in any order.

        What is written to the spool is the state that was saved before. If that fails, this one is
        not saved and that one is still held. `codec` takes the place of the usual one for this
        state; where that changes a bound, the state before it is stored in full.

        Raises:
            ArrayError: an array is not one of NumPy, CuPy, PyTorch or JAX, and has no buffer
                protocol; its items are not numbers; or as for `Spool.save`.
            All else that `Spool.save` raises.
        """
        with self._call(version) as number:
            if number in self:
                raise VersionExistsError(
                    f"Version {number} is already saved: discard it, or use another number."
                )
            bounds = self._bounds if codec is None else _bounds(codec)
            entries, tree = _given(arrays, named)
            found, text = (entries, None) if tree is None else flatten(tree)
            given = {name: as_array(array, name) for name, array in found}
            if not given:
                raise ArrayError(f"save({number}): no array was given.")
            usual = bounds["*"]
            forms = [Form.of(one, bounds.get(name, usual), name) for name, one in given.items()]
            layout = Layout(tuple(given), tuple(forms), not arrays or tree is not None, text)
            places = tuple(map(place_of, given.values()))
            with on_stream(stream, places) as handle:
                each = zip(given.values(), forms, places, strict=True)
                numbers = [one for each_array in each for one in encoded(*each_array)]
                state = State(number, layout, (places, handle))
                self._chain.push(state, numbers)
            self._states[number] = state

    def restore(
        self, version: SupportsIndex, /, *arrays: Any, stream: Any = None, **named: Any
    ) -> None:
        """Copies what was saved under `version` into arrays, as `Spool.restore` does.

        Raises:
            CorruptCheckpointError, LostCheckpointError, StorageError: the checkpoint of the state,
                or of one that it is built on, cannot be read; the text names both.
            All else that `Spool.restore` raises.
        """
        with self._call(version) as number:
            state = self._find(number)
            (entries, tree), write = _given(arrays, named), None
            if tree is not None and state.layout.text is not None:
                entries, write = assign(state.layout.text, tree)
            elif tree is not None:
                entries = flatten(tree)[0]
            targets = _targets(state, dict(entries), not arrays or tree is not None)
            layout, places = state.layout, list(state.where[0])
            for name, target in targets.items():
                places[layout.names.index(name)] = place_of(target)
            with on_stream(stream, tuple(places)) as handle:
                for name, value in self._values(state, tuple(places), handle, set(targets)):
                    if place_of(targets[name]).module == "torch":
                        targets[name].copy_(value)
                    else:
                        targets[name][...] = value
            if write is not None:
                write()
            self._restored(number)

    def load(
        self, version: SupportsIndex, /, *, to: str = "numpy", device: str | None = None
    ) -> Any:
        """What was saved under `version`, as new arrays of the library `to`, as by `Spool.load`.

        Raises:
            All that `restore` and `Spool.load` raise.
        """
        with self._call(version) as number:
            state = self._find(number)
            own = self._spool.device.partition(":")[2]
            place = Place(to, device_for(to, device, int(own) if own else None))
            layout = state.layout
            places = (place,) * len(layout.names)
            with on_stream(None, places) as handle:
                found = dict(self._values(state, places, handle, set(layout.names)))
            self._restored(number)
            if layout.text is not None:
                return build(layout.text, found)
            several = tuple(found.values())
            return found if layout.by_name else several if len(several) > 1 else several[0]

    def expect(
        self,
        versions: Iterable[SupportsIndex],
        /,
        *,
        once: bool = False,
        last: bool | Iterable[bool] | None = None,
    ) -> None:
        """Announces restores, as `Spool.expect` does."""
        if once and last is not None:
            raise OptionError("expect(once=True, last=...): leave one of them out.")
        if once:
            versions = [operator.index(version) for version in versions]
        self._spool.expect(versions, last=last)
        if once:
            with self._lock:
                self._once.update(versions)

    def forget_hints(self) -> None:
        """Forgets everything that `expect` has announced."""
        self._spool.forget_hints()
        with self._lock:
            self._once.clear()

    def _restored(self, number: int) -> None:
        """Discards a state that is read back once, after the last restore that was announced."""
        if number in self._once:
            self._once[number] -= 1
            if not self._once[number]:
                del self._once[number]
                self.discard(number)

    def discard(self, version: SupportsIndex, /) -> None:
        """Discards what was saved under `version`. Its checkpoint stays in the spool for as long as
        another state is built on it. When the spool fails to remove it, the version is gone all the
        same, and the room is free when the spool is closed.

        Raises:
            UnknownVersionError, StorageError, ClosedError.
        """
        with self._call(version) as number:
            state = self._find(number)
            del self._states[state.version]
            self._chain.discard(state)

    def flush(self, *, timeout: float | None = None) -> None:
        """Stores the newest state in full, and waits as `Spool.flush` does."""
        with self._lock:
            self._chain.settle()
        self._spool.flush(timeout=timeout)

    def versions(self) -> list[int]:
        """The saved versions, in ascending order."""
        with self._lock:
            return sorted(self._states)

    def __getattr__(self, name: str) -> Any:
        if name in PASSED_ON:
            return getattr(self._spool, name)
        raise AttributeError(f"an IncrementalSpool has no attribute {name!r}")

    def __contains__(self, version: object, /) -> bool:
        return version in self._states

    def __iter__(self) -> Iterator[int]:
        return iter(self.versions())

    def __len__(self) -> int:
        return len(self._states)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        self._spool.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._spool.__exit__(*raised)

    def _prefer(self, version: SupportsIndex, tier: str, /) -> None:
        with self._call(version) as number:
            self._chain.prefer(self._find(number), tier)

    @contextlib.contextmanager
    def _call(self, version: SupportsIndex) -> Iterator[int]:
        """One call at a time; what it raises has the version that it named."""
        number = _whole("version", version)
        with self._lock:
            try:
                # A closed spool says so, also to what would be answered from memory.
                self._spool.latest()
                yield number
            except Error as error:
                error.version = number
                raise

    def _find(self, number: int) -> State:
        if number not in self:
            raise UnknownVersionError(f"No state has the version {number}.")
        return self._states[number]

    def _values(
        self, state: State, places: tuple[Place, ...], handle: int | None, names: set[str]
    ) -> Iterator[tuple[str, Any]]:
        """The arrays of a state that have these names."""
        numbers = iter(self._chain.numbers(state, (places, handle)))
        layout = state.layout
        for name, form, place in zip(layout.names, layout.forms, places, strict=True):
            own = [next(numbers) for _ in range(form.arrays)]
            if name in names:
                yield name, decoded(own, form, place)


def _given(
    arrays: tuple[Any, ...], named: dict[str, Any]
) -> tuple[list[tuple[str, Any]], Any | None]:
    """The arrays that a call was given with their names; or what holds arrays, numbers and texts,
    as `Spool` takes it."""
    if arrays and named:
        raise ArrayError("Some arrays were given by position and some by name: give all one way.")
    if any(is_tree(value) for value in arrays or named.values()):
        return [], named or (arrays[0] if len(arrays) == 1 else arrays)
    return list(named.items()) or [(str(at), one) for at, one in enumerate(arrays)], None


def _targets(state: State, given: dict[str, Any], by_name: bool) -> dict[str, Any]:
    """The arrays to restore into, by name.

    Raises:
        ArrayError: they are not those that were saved, or cannot be written.
    """
    layout, names = state.layout, given.keys()
    known = names <= set(layout.names) if by_name else len(names) == len(layout.names)
    if not names or not known or by_name != layout.by_name:
        how = "by name" if layout.by_name else "by position"
        raise ArrayError(
            f"restore({state.version}): {how} {', '.join(layout.names)} were saved, and "
            f"{', '.join(names) or 'nothing'} {'by name' if by_name else 'by position'} was given."
        )
    targets = {name: as_array(array, name, written=True) for name, array in given.items()}
    forms = dict(zip(layout.names, layout.forms, strict=True))
    for name, target in targets.items():
        saved, found = forms[name], Form.of(target, None, name)
        if (saved.shape, saved.dtype) != (found.shape, found.dtype):
            raise ArrayError(
                f"restore({state.version}): {name!r} was saved as {saved.dtype} of shape "
                f"{saved.shape}, and the array given has {found.dtype} of shape {found.shape}."
            )
    return targets


def _whole(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(f"IncrementalSpool: {name}={value!r} is not a whole number.") from None


def _bounds(codec: Any) -> dict[str, float | None]:
    """The absolute bounds of arrays by name, and of all others as "*"; None loses nothing."""
    usual, single = codecs_of(codec, "IncrementalSpool(codec=...)")
    return {name: _absolute(one) for name, one in {"*": usual, **single}.items()}


def _absolute(codec: Any) -> float | None:
    """The absolute bound of a codec; None for one that loses nothing."""
    if codec in (None, "raw", "lossless"):
        return None
    if isinstance(codec, Bound) and codec.abs is not None:
        return codec.abs
    raise OptionError(
        f"IncrementalSpool(codec={codec!r}): states can be subtracted when they have the same "
        "step, for which the bound has to be absolute: write Bound(abs=...), such as the range of "
        "the values times what Bound(range=...) would have."
    )
