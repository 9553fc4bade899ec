"""The folder of an adjoint that can go on after it was killed: `unspool.adjoint(resume=...)`.

Two Checkpointers lie in it. One has states of the forward sweep, state 0 among them, and all of
them stay: they are what every other state can be computed from. One has what the reverse steps have
accumulated, by the number of steps that are reversed. So a run goes on from a number of reversed
steps, or in its forward sweep, from its newest state; whatever a schedule had kept in memory is
computed again from the states that are here.

Both lie in one folder, so that the end of a run is one renaming.
"""

from __future__ import annotations

import os
import shutil
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from .._restart import Checkpointer
from .._restart.options import Stop
from ..errors import CorruptCheckpointError, LostCheckpointError, OptionError, StorageError
from .accumulated import OWN, Accumulated, shape_of
from .pieces import Pieces
from .states import State, named_arrays

__all__ = ["Durable", "Place"]

#: The version of what is written.
FORMAT = 1

#: The most checkpoints that a Checkpointer keeps.
ALL = (1 << 32) - 1

#: The least host memory for checkpoints, in bytes.
LEAST_ROOM = 16 << 20

#: What the bytes of a state may be the reason of.
UNREADABLE = (CorruptCheckpointError, LostCheckpointError, StorageError)


class Place(NamedTuple):
    """Where a run goes on.

    Attributes:
        state: in the forward sweep, the state that the working state is.
        reversed: how many steps are reversed; the adjoint state is that after them.
        steps: the number of steps, where it is known.
    """

    state: int
    reversed: int
    steps: int | None


class Durable:
    """What is durable of one run.

    Attributes:
        place: where the run goes on, or None when nothing is there.
    """

    place: Place | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int | str,
        state: State,
        accumulated: Accumulated,
        first: int,
        steps: int | None,
        stream: Any,
    ) -> None:
        self._path, self._every = Path(path), every
        self._state, self._accumulated, self._stream = state, accumulated, stream
        self._problem: dict[str, Any] = {
            "format": FORMAT,
            "first version": first,
            "steps": steps,
            "state": {name: shape_of(one) for name, one in named_arrays(state.now()).items()},
            "adjoint state": accumulated.shapes(),
        }
        self._flushed = False

    def __enter__(self) -> Self:
        """Opens the folder, and restores what the run goes on from.

        Raises:
            OptionError: another adjoint lies there, or an option makes no sense.
            StorageError: the folder cannot be made or read, or another process has it open.
        """
        folder = self._path / "adjoint"
        for one in (self._path, folder):
            _make(one)
        for ended in self._path.glob("adjoint-ended-*"):
            shutil.rmtree(ended, ignore_errors=True)
        with ExitStack() as opened:
            adjoint, state = self._accumulated.arrays(), self._state.arrays()
            reverse = self._opened(folder / "reverse", 2, adjoint)
            self._reverse = opened.enter_context(reverse)
            forward = self._opened(folder / "forward", ALL, state)
            self._forward = opened.enter_context(forward)
            self.place = self._find()
            self._open = opened.pop_all()
        self._pieces = Pieces(self._every)
        return self

    def __exit__(self, kind: Any, raised: BaseException | None, trace: Any) -> None:
        if raised is not None:
            self._open.__exit__(kind, raised, trace)
            return
        # What is not durable yet is not needed any more.
        self._forward._give_up()
        self._reverse._give_up()
        self._open.close()
        self._remove()

    def _opened(self, folder: Path, keep: int, arrays: list[Any]) -> Checkpointer:
        host = _room(arrays)
        quiet = Stop(signals=())
        return Checkpointer(folder, every=self._every, keep=keep, host_memory=host, stop=quiet)

    def _find(self) -> Place | None:
        for checkpoints in (self._reverse, self._forward):
            if values := checkpoints.values():
                self._check(values.get(OWN, {}))
        reversed_ = self._accumulated.restore(self._reverse)
        if reversed_ is not None:
            if self._forward.latest() is None:
                raise LostCheckpointError(
                    f"adjoint(resume=...): {self._path} has steps that are reversed and no state "
                    "to go on from: files are missing there. Delete it to begin anew."
                )
            return Place(0, reversed_, self._reverse.values(reversed_)[OWN]["steps"])
        step, _ = self._forward._newest(self._take)
        return None if step is None else Place(step, 0, self._problem["steps"])

    def _take(self, spool: Any, step: int, _: str = "") -> dict[str, Any]:
        self._state.restore(spool, step, self._stream)
        return {}

    def _check(self, found: dict[str, Any]) -> None:
        problem = found.get("problem", {})
        for name, value in self._problem.items():
            if problem.get(name) != value:
                raise OptionError(
                    f"adjoint(resume=...): another adjoint lies in {self._path}: its {name} is "
                    f"{problem.get(name)!s:.200}, and this one's {value!s:.200}. Give another "
                    "folder, or delete that one."
                )

    def begin(self) -> None:
        """Keeps state 0, which the working state is."""
        self._save(self._forward, 0, named_arrays(self._state.now()), None)

    def piece(self, start: int, stop: int) -> int:
        """Where the next call of `forward` from `start` ends, which is to reach `stop`."""
        return self._pieces.end(start, stop)

    def advanced(self, step: int, taken: int, seconds: float) -> None:
        """The working state is a state that was never computed before, after a call of `forward`
        that took so many steps and seconds. Keeps it if that is due."""
        if self._forward.due(step):
            self._save(self._forward, step, named_arrays(self._state.now()), None)
        self._pieces.took(taken, seconds, self._forward.interval)

    def reversed(self, count: int, steps: int) -> None:
        """So many steps are reversed. Keeps the adjoint state if that is due."""
        if count == steps or not self._reverse.due(count):
            return
        if not self._flushed:
            # It is worth nothing without states to go on from.
            self._forward.flush()
            self._flushed = True
        self._save(self._reverse, count, self._accumulated.now(), steps)

    def bring(self, low: int, high: int) -> int | None:
        """Makes the last one of the states `low` to `high` that are kept here the working state;
        its step, or None when there is none."""
        for step in reversed(self._forward.spool.versions()):
            if low <= step <= high:
                try:
                    self._take(self._forward.spool, step)
                except UNREADABLE as why:
                    text = f"State {step} is computed again: {why}"
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
                else:
                    return step
        return None

    def _save(self, to: Checkpointer, step: int, what: dict[str, Any], steps: int | None) -> None:
        to._tell()
        own = {"problem": self._problem, "steps": steps}
        # The working state says which library its arrays are of.
        to._save(step, {**what, OWN: own}, self._stream, bare=True)

    def _remove(self) -> None:
        """Leaves nothing of a run that is done."""
        folder, ended = self._path / "adjoint", self._path / f"adjoint-ended-{os.getpid()}"
        try:
            folder.replace(ended)
        except OSError as why:
            raise StorageError(
                f"adjoint(resume=...): the adjoint is done, and {folder} cannot be removed: {why}. "
                "Remove it, or the next call goes on with it."
            ) from why
        shutil.rmtree(ended, ignore_errors=True)
        with suppress(OSError):
            self._path.rmdir()


def _room(arrays: list[Any]) -> int | str:
    """The host memory for one checkpoint of these arrays that is on its way to the disk; for more
    of them where they are small."""
    sizes = [getattr(array, "nbytes", None) for array in arrays]
    known = [size for size in sizes if isinstance(size, int)]
    return sum(known) * 9 // 8 + LEAST_ROOM if len(known) == len(sizes) else "auto"


def _make(folder: Path) -> None:
    """Makes a folder that a crash of the machine leaves there.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(exist_ok=True)
        holder = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(holder)
        finally:
            os.close(holder)
    except OSError as why:
        raise StorageError(f"adjoint(resume=...): {folder} cannot be made: {why}") from why
