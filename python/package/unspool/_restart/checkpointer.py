"""The class `unspool.Checkpointer`: what decides and what talks to other ranks is in Rust."""

from __future__ import annotations

import atexit
import inspect
import operator
import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, Self

from .._files import AnyPath, absolute
from .._partial import load as partial
from .._pieces import MovedError
from .._trees import is_unicode
from .._types import Disk, record_of
from .._unspool import Spool
from ..codecs.values import Codecs
from ..errors import (
    ArrayError,
    CapacityError,
    ClosedError,
    CorruptCheckpointError,
    Error,
    LostCheckpointError,
    OptionError,
    StorageError,
    UnknownVersionError,
    WaitTimeoutError,
    shown,
)
from .core import Core, Outcome, RestartCore
from .earlier import Earlier
from .gathered import Gathered, sharded_in
from .keeping import keep_of, score_of, scores_of
from .looking import Shown, as_html, as_line, due_text
from .options import Auto, Copies, Keep, Stop
from .parts import CheckpointPart, manifests_in, parts, parts_in
from .ranks import ranks_of
from .requeue import AGAIN, Told, requeue
from .signals import Signals
from .state import Restoring, bytes_of, load, named_at_opening
from .values import read, sort

__all__ = ["Checkpointer"]

#: What the bytes of a checkpoint may be the reason of, and not the program.
_UNREADABLE = (CorruptCheckpointError, LostCheckpointError, StorageError, UnknownVersionError)

#: What a save may fail with where a run that does not depend on it can go on.
_NO_ROOM = (CapacityError, StorageError, WaitTimeoutError)

#: What is made of a checkpoint: of one part or all of them, its step, and its small values as text.
Take = Callable[[Spool | Gathered, int, str], dict[str, Any]]


class Checkpointer:
    """Saves what a long job needs to go on after it was ended, and restores it.

    `save` returns when copies are under way, or done for arrays in main memory; afterwards the
    arrays are encoded, written and synced. A checkpoint *counts* when all of it is durable, on all
    ranks; then older ones go. Restart takes the newest one that counts.

        with unspool.Checkpointer("run", every="10min") as checkpoints:
            step = checkpoints.restore(u=u) or 0
            while step < steps and not checkpoints.stopping:
                step += 1
                advance(u)
                checkpoints.step(step, u=u, time=step * dt)

    A Checkpointer that was not closed is closed when nothing refers to it any more, and at the end
    of the program. Other ranks are not asked then, and what went wrong is a `RuntimeWarning`.

    Its methods are called by one thread. With `ranks`, all ranks make the same calls in the same
    order. A wait for another rank ends after `timeout`, and the error names the rank. To find out
    which one it is takes up to 5 s more.

    State that is named at the opening is saved by every save, and restored by `restore()`:

        with unspool.Checkpointer("run", model=model, optim=optim, rng=True) as checkpoints:
            step = checkpoints.restore() or 0
            while step < steps and not checkpoints.stopping:
                step += 1
                train(model, optim)
                checkpoints.step(step)

    Arguments:
        path: the folder of the run, on a file system that outlives the job. It is made when the one
            that is to hold it exists. Each rank has a folder in it. A relative path is that of the
            working directory at the opening.
        every: when `due` says yes: a duration such as `"10min"` after the last checkpoint, a number
            of steps as an integer, an `Auto` or `"auto"` for the interval that loses least by what
            a checkpoint costs, or None.
        keep: how many checkpoints that count stay, or a `Keep`, also for the best ones and one of
            each so many steps; one or two more may lie there for a while.
        codec: what is done with the bytes of arrays, as for a `Spool`.
        increments: with True, a checkpoint is stored as what has changed since the one before, in
            chunks of 64 KiB, and in full as often as costs least; with a number, one in so many
            is full, and more where increments would be larger than that. Checkpoints are compared
            in the host tier, which needs room for one of them, and for three where saves are not to
            wait for the disk. A device tier with room for two of them compares arrays of a GPU
            there: then only what has changed leaves it.
        device_memory: the size of a device tier, as for a `Spool`: arrays of a GPU are copied there
            first.
        host_memory: the size of the host tier, as for a `Spool`. With `"auto"` it follows what is
            saved: it takes up to twice the largest state, three times with `increments`.
        device: the place of the device tier, as for a `Spool`.
        ranks: None, a communicator of mpi4py, a process group of PyTorch, `"torch"` for its default
            one, or an object with `rank`, `size` and `all_gather(message, seconds)`.
        copies: where checkpoints are kept besides: a `Copies`, or a place beyond the machine, such
            as `"s3://bucket/prefix"`.
        stop: what ends the run before it is done: a `Stop`. Without it, SIGTERM and SIGUSR1 do.
        timeout: the longest wait for the disk and for other ranks, in seconds. The ranks take up to
            5 s more to find out which of them does not answer.
        state: what each save saves and `restore()` restores, by any other names: objects with
            `state_dict` and `load_state_dict`, generators of random numbers, arrays that are
            changed in place, and containers of arrays; those of JAX are given to `save`. `rng=True`
            stands for the generators that Python, NumPy and PyTorch have for the whole process, on
            all its CUDA devices.

    Raises:
        OptionError: an argument makes no sense or is no state.
        StorageError: the folder cannot be made or read, another process has it open, or parts of
            what another number of ranks has saved there are missing; or this is so on another rank.
        WaitTimeoutError: another rank did not answer.
    """

    # What `__del__` finds where the opening has failed.
    _open, _process = False, -1
    _earlier: Earlier = None  # type: ignore[assignment]

    def __init__(
        self,
        path: AnyPath,
        *,
        every: int | str | Auto | None = "auto",
        keep: int | Keep = 2,
        codec: Codecs = None,
        increments: bool | int = False,
        device_memory: int | str | None = None,
        host_memory: int | str | None = "auto",
        device: str = "auto",
        ranks: Any = None,
        copies: Copies | AnyPath | None = None,
        stop: Stop | None = None,
        timeout: float = 300.0,
        **state: Any,
    ) -> None:
        self._state = named_at_opening(state, _OPTIONS)
        rule = every if isinstance(every, Auto) else Auto()
        copies = copies if isinstance(copies, Copies) else Copies(copies)
        stop = _stop(stop)
        self._keep = keep_of(keep)
        self._signals, self._path = Signals(stop.signals), absolute(path, "path")
        place = None if copies.remote is None else _place(copies.remote)
        opened: list[Spool] = []

        def make(data: Path | None) -> Spool:
            disk = None if data is None else Disk(data, durable=True)
            memory = (device_memory, host_memory)
            spool = Spool(*memory, disk, device=device, codec=codec, timeout=timeout)
            opened.append(spool)
            return spool

        try:
            all_ranks = ranks_of(ranks, timeout)
            self._rank, self._size, self._timeout = all_ranks.rank, all_ranks.size, timeout
            self._earlier = Earlier(self._path, all_ranks, timeout)
            self._core: Core = RestartCore(
                self._earlier.home,
                all_ranks,
                make,
                every="auto" if isinstance(every, Auto) else every,
                keep=self._keep.last,
                best=self._keep.best,
                keep_every=self._keep.every,
                stops=bool(self._signals),
                limit=stop.limit,
                mtbf=rule.mtbf,
                share=rule.share,
                timeout=timeout,
                remote=None if place is None else str(place),
                remote_every=copies.every,
                partner=copies.partner,
                increments=increments,
            )
        except BaseException:
            for spool in opened:
                spool.close()
            if self._earlier is not None:
                self._earlier.close()
            raise
        self._spool = opened[0]
        self._begun = False
        self._expect()
        self._on_error, self._requeue = stop.on_error, stop.requeue
        self._restored: int | None = None
        self._stopped = False
        self._every, self._since = every, time.monotonic()
        self._saved: int | None = None
        self._open, self._process = True, os.getpid()
        if self._keep.best:
            self._score_again(None if place is None else str(place))
        self._told = Told(self._core.stop)
        self._signals.install(self._told)
        # It is finished while the interpreter still works, if it is still there then.
        self._at_exit = _last_of(weakref.ref(self))
        atexit.register(self._at_exit)
        for text in self._core.warnings:
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def due(self, step: int, /) -> bool:
        """Whether the checkpoint of `step` is due: by `every`, or once when the run is to stop. The
        same on all ranks, which ask each other about once a second.

        Raises:
            WaitTimeoutError: another rank did not answer.
            ClosedError.
        """
        self._check()
        return self._is_due(step)

    def _is_due(self, step: int) -> bool:
        if not self._begun:
            # Optimizers have a state by now.
            self._begun = True
            self._expect()
        return self._core.due(_step(step))

    def _expect(self) -> None:
        """Has memory made ready for what was named at the opening: one checkpoint is saved while
        another is on its way. So the first saves need not wait for that."""
        if expected := bytes_of(self._state):
            self._spool._expect_bytes(2 * expected)

    def save(self, step: int, /, **what: Any) -> None:
        """Saves the checkpoint of `step`, due or not: what was named at the opening, and what is
        given here. That may be arrays and trees as a `Spool` takes them; numbers, texts, True,
        False, None, lists and dictionaries of those (tuples come back as lists); and generators of
        random numbers of Python, NumPy and PyTorch and objects with `state_dict` and
        `load_state_dict`, such as modules and optimizers, whose state is saved.

        Arrays may be changed when this returns. It waits only where every tier is full of
        checkpoints that are still on their way. What goes wrong later is told by the next call.

        Raises:
            OptionError: the step does not come after the last one, or after what lies in the folder
                when nothing was restored; the small values take more than 1 MiB; or a name is that
                of another object at the opening.
            ArrayError, DeviceError: as for `Spool.save`.
            CapacityError, StorageError, WaitTimeoutError: there was no room for the arrays; or an
                earlier checkpoint does not count, and why. The last one that counts stays.
            WaitTimeoutError: another rank did not answer.
            ClosedError.
        """
        self._check()
        self._tell()
        self._save(step, what, None)

    def _save(self, step: int, what: Mapping[str, Any], stream: Any, *, bare: bool = False) -> None:
        """Saves what is named, arrays on a stream as `Spool.save` takes it; `bare` as of `sort`."""
        sorted_ = sort(self._with_state(what), bare=bare)
        score = score_of(self._keep, sorted_.values)
        self._earlier.check(_step(step))
        self._core.begin(_step(step), sorted_.text)
        if score is not None:
            self._core.score(step, score)
        try:
            self._earlier.settle(self._keep)
            self._earlier.forget_after(step)
            self._spool.save(step, sorted_.arrays, stream=stream)
            self._core.commit()
            self._saved, self._since = step, time.monotonic()
        except BaseException as error:
            self._core.abandon()
            if self._on_error == "warn" and isinstance(error, _NO_ROOM):
                warnings.warn(f"Step {step} was not saved: {error}", RuntimeWarning, stacklevel=2)
                return
            raise

    def _score_again(self, remote: str | None) -> None:
        """Scores what an earlier process has saved, by what rank 0 has written."""
        found = [] if remote is None else manifests_in(remote)
        saved = [(one.step, read(one.values)[0]) for one in found]
        for one in RestartCore.listed(self._path)[0]:
            with suppress(Error):
                saved.append((one["step"], read(self._core.values(one["step"]))[0]))
        for step, score in scores_of(self._keep, saved).items():
            self._core.score(step, score)

    def _with_state(self, what: Mapping[str, Any]) -> dict[str, Any]:
        for name in what.keys() & self._state.keys():
            if what[name] is not self._state[name]:
                raise OptionError(f"{name}: another object has this name since the opening.")
        return {**self._state, **what}

    def step(self, step: int, /, **what: Any) -> bool:
        """Saves the checkpoint of `step` if it is due; whether it was.

        Raises:
            All that `due` and `save` raise.
        """
        self._check()
        self._tell()
        if not self._is_due(step):
            return False
        self.save(step, **what)
        return True

    def latest(self) -> int | None:
        """The step of the newest checkpoint that counts, or None.

        Raises:
            WaitTimeoutError: another rank did not answer.
            ClosedError.
        """
        self._check()
        return self._candidate()

    def _candidate(self, unreadable: Sequence[int] = ()) -> int | None:
        """The newest checkpoint that counts, of this number of ranks or another one."""
        own, other = self._core.candidate(list(unreadable)), self._earlier.newest(unreadable)
        return max((step for step in (own, other) if step is not None), default=None)

    def restore(self, step: int | None = None, /, **targets: Any) -> int | None:
        """Gives back the newest checkpoint that counts, and returns its step, or None when there is
        none: copied into arrays, and given to generators of random numbers and by
        `load_state_dict` to objects that have it. Without targets that is what was named at the
        opening, and else some of what was saved. `values` has the small values. A checkpoint that
        was saved just now is waited for.

        With a step it is that checkpoint and no other one, on all ranks: those that are newer go
        with the next save.

        Lists, dictionaries and objects that were saved are filled in place, and have to be as when
        they were saved. A dictionary or a list that is empty gets what was saved, in new arrays of
        the same library, with a `RuntimeWarning`: give it to its owner, or pass the owner itself.

        What a rank lacks, it gets back from its partner; what it lacks or has damaged, it fetches
        from the remote place. Else all ranks take the next older checkpoint, with a
        `RuntimeWarning` that names the file; those that are newer go with the next save.

        Pieces of arrays (`unspool.types.Shard`, DTensors) are filled from the parts of all ranks. A
        checkpoint of another number of ranks is restored as well: all else is equal in its parts.

        Raises:
            ArrayError: names, shapes, dtypes or containers are not those that were saved, here or
                on another rank.
            UnknownVersionError: the step does not count on this rank.
            LostCheckpointError: the step cannot be read on some rank, and why.
            WaitTimeoutError: the checkpoint did not become durable, or another rank did not answer,
                within `timeout`.
            DeviceError, ClosedError; and what `load_state_dict` raises.
        """
        self._check()
        restoring = Restoring(targets or self._state, whole=not targets)

        take = restoring.take
        taken, states = self._newest(take) if step is None else self._exactly(_step(step), take)
        if states is not None:
            restoring.finish(states)
        return taken

    def load(
        self,
        step: int | None = None,
        /,
        *names: str,
        region: Any = None,
        to: Literal["numpy", "cupy", "torch", "jax"] | None = None,
        device: str | None = None,
        like: Mapping[str, Any] | None = None,
    ) -> Any:
        """Everything that was saved under `step`: arrays as new ones, and small values. A
        checkpoint that was saved just now is waited for. Without a step it is the newest checkpoint
        that counts, taken as by `restore`: arrays of JAX, which cannot be written, come back so.

        Arrays are of the library that they were saved of, on the device where they were, or on the
        current one where that is not here; with `to` and `device` all are of that library and
        there. `like` has pytrees of JAX by name, such as a model of Equinox or Flax: what was saved
        comes back in their classes, with their functions, on the devices of their arrays. It also
        has the arrays of which ranks have pieces: new ones get the pieces that those have.

        With `names` it is only what was saved under these, or its part `region`, as by
        `Spool.load`; the run does not go on from such a look.

        A step that was loaded can be gone on from: a save of a step after it that is not newer than
        the last one deletes what came after it, on all ranks. So a run that went wrong goes back.

        Raises:
            UnknownVersionError: there is no checkpoint that counts; or the step that was named does
                not count on this rank.
            All that `Spool.load` and `restore` raise.
        """

        def look(source: Spool | Gathered, step: int, text: str) -> dict[str, Any]:
            small = read(text)[0]
            if isinstance(source, Gathered):
                source.check_values(names)
                arrays = [name for name in names if name not in small]
                return {**small, **source.named(arrays, region, to or "numpy", device)}
            if any(node["shards"] in names for node in sharded_in(source, step)):
                raise MovedError("An array is put together from all parts.")
            apart = {name: small[name] for name in names if name in small}
            others = [name for name in names if name not in apart]
            if others or region is not None:
                found = partial(source, step, others, region, to or "numpy", device)
                apart |= {others[0]: found} if len(others) == 1 else found
            return apart

        def take(source: Spool | Gathered, step: int, text: str) -> dict[str, Any]:
            if isinstance(source, Gathered):
                source.check_values(None)
            return load(source, step, read(text)[0], (to, device), like)

        self._check()
        if names:
            return self._looked(step, names, look)
        if region is not None:
            raise OptionError("load(region=): name the array of which it is a part.")
        if step is not None:
            found = self._taken(_step(step), take)
            self._core.loaded(_step(step))
            self._earlier.go_on(_step(step), loaded=True)
            return found
        taken = self._newest(take)[1]
        if taken is None:
            raise UnknownVersionError(f"{self._path} has no checkpoint that counts.")
        return taken

    def _looked(self, step: int | None, names: tuple[str, ...], look: Take) -> Any:
        at = self._candidate() if step is None else _step(step)
        if at is None:
            raise UnknownVersionError(f"{self._path} has no checkpoint that counts.")
        found = self._taken(at, look)
        return found[names[0]] if len(names) == 1 else {name: found[name] for name in names}

    def steps(self) -> list[int]:
        """The steps of the checkpoints in the folder of which this rank's part counts, in ascending
        order, without asking other ranks. Also answered when the Checkpointer is closed."""
        return [row["step"] for row in self._rows()]

    def values(self, step: int | None = None) -> dict[str, Any]:
        """The small values of `step`; without one, of what was restored, or else of the newest
        checkpoint that counts. Empty when there is none.

        Raises:
            UnknownVersionError: the step does not count on this rank.
            WaitTimeoutError, StorageError, ClosedError.
        """
        self._check()
        if step is None:
            step = self._restored if self._restored is not None else self._candidate()
        if step in self._earlier.steps:
            return self._taken(step, _values_of)
        return {} if step is None else read(self._core.values(_step(step)))[0]

    @staticmethod
    def parts(path: AnyPath, step: int | None = None) -> list[CheckpointPart]:
        """What each rank has of a checkpoint, by rank: for a program that has another number of
        ranks. Nothing is changed in the folder. Without a step it is the newest checkpoint of which
        all parts are there.

        Raises:
            UnknownVersionError: not all parts of the step are there.
            StorageError.
        """
        return parts(path, step)

    @property
    def stopping(self) -> bool:
        """Whether the run is to stop, as a signal came, or the limit was reached, on any rank.

        The last `due`, `step` or `save` has found out, on all ranks alike; the checkpoint of that
        step was due, so that a loop may end when it is saved. A process without ranks is told as
        soon as it asks here, unless it asked for a step that was not due: then the next one is."""
        if self._open:
            self._stopped = self._core.stopping
        return self._stopped

    @property
    def exit_code(self) -> int:
        """What the program may give to `sys.exit` at its end: 75 where `stopping` has said that the
        run is to stop, so that there is more to do, and else 0."""
        return AGAIN if self._stopped else 0

    @property
    def interval(self) -> float | None:
        """The seconds between two checkpoints by what is known now; None where steps decide."""
        return self._core.interval

    @property
    def copies(self) -> dict[str, Any] | None:
        """How far the copies in the remote place are on this rank: its `place`, the `steps` that it
        has, the step that it is `copying`, and how many were `skipped`, as they were due while an
        earlier one was on its way. None where there is no remote place."""
        return self._core.copies()

    @property
    def spool(self) -> Spool:
        """The spool that the arrays of this rank are saved into, for its statistics; it is not to
        be changed by other means. With `increments` they leave it when they count."""
        return self._spool

    def stop(self) -> None:
        """Asks the run to stop, as a signal does."""
        self._core.stop()

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything that was saved is durable on this rank; it counts when it is so on
        all of them.

        Raises:
            CapacityError, StorageError, WaitTimeoutError: a checkpoint does not count, and why.
            ClosedError.
        """
        self._check()
        self._core.flush(timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Waits until everything that was saved counts, deletes what is not kept, and ends. A
        second call does nothing.

        With `Stop(requeue="slurm")` Slurm is then asked for another run, where `stopping` has said
        that this one is to stop.

        With a remote place it waits until the newest checkpoint is there, which is an error of this
        call when it does not get there; the next opening goes on with it then.

        What cannot be made durable is tried once more, and then this raises, and the Checkpointer
        stays open, so that it can be closed again; with `Stop(on_error="warn")` it is given up.

        Raises:
            CapacityError, StorageError, WaitTimeoutError: a checkpoint does not count, and why; or
                its copy did not get to the remote place.
            WaitTimeoutError: another rank did not answer.
        """
        wanted = self._requeue is not None and self._open and self._rank == 0
        self._end(agree=True, timeout=timeout)
        if wanted and self._stopped and not self._told.cancelled:
            requeue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        if raised is None:
            self.close()
            return
        # The other ranks may not be here, so they are not asked.
        try:
            self._end(agree=False, timeout=None)
        except Exception as why:
            raised.add_note(f"Closing the Checkpointer failed as well: {why}")
            self._give_up()

    def __repr__(self) -> str:
        return as_line(self._shown())

    def _repr_html_(self) -> str:
        return as_html(self._shown())

    def _shown(self) -> Shown:
        """What there is to see; no rank is asked."""
        state = "closed" if not self._open else "stopping" if self._stopped else "open"
        rows = self._rows()
        coming = None if any(row["step"] == self._saved for row in rows) else self._saved
        last = max(
            (step for step in (self._restored, self._saved) if step is not None), default=None
        )
        due = due_text(self._every, self._core.interval, time.monotonic() - self._since, last)
        return Shown(str(self._path), state, rows, coming, due if self._open else "")

    def _rows(self) -> list[dict[str, Any]]:
        """The checkpoints of which this rank's part counts, by step."""
        with suppress(StorageError):
            return [
                one
                for one in RestartCore.listed(self._path)[0]
                if (self._rank in one["has"] if one["ranks"] == self._size else one["counts"])
            ]
        return []

    def _newest(self, take: Take) -> tuple[int | None, dict[str, Any] | None]:
        """The newest checkpoint that all ranks can take, and what `take` made of it here."""
        self._check()
        unreadable: list[int] = []
        while (step := self._candidate(unreadable)) is not None:
            taken, raised, outcome = self._tried(step, take)
            try:
                reasons = self._became(step, outcome)
            except OptionError as told:
                # What a rank was given is not what it has saved.
                refused = raised if outcome[0] == "refused" else None
                raise refused or ArrayError(str(told)) from None
            if not reasons:
                self._go_on(step)
                return step, taken
            for text in reasons:
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            unreadable.append(step)
        return None, None

    def _exactly(self, step: int, take: Take) -> tuple[int, dict[str, Any]]:
        """The checkpoint of `step` on all ranks, and what `take` made of it here."""
        self._check()
        taken, raised, outcome = self._tried(step, take)
        try:
            reasons = self._became(step, outcome)
        except OptionError as told:
            raise raised or ArrayError(str(told)) from None
        if raised is not None or taken is None:
            raise raised or Error("A step was restored, and nothing came of it.")
        if reasons:
            raise LostCheckpointError(" ".join(reasons))
        self._go_on(step)
        return step, taken

    def _became(self, step: int, outcome: tuple[Outcome, str]) -> list[str]:
        """Tells all ranks what became of restoring a step; why it did not on some rank."""
        if step not in self._earlier.steps:
            return self._core.restored(step, *outcome)
        return self._earlier.agree(step, outcome)

    def _go_on(self, step: int) -> None:
        """The run goes on from a step."""
        if step in self._earlier.steps:
            self._core.loaded(step)
        self._earlier.go_on(step)
        self._restored, self._since = step, time.monotonic()

    def _tried(
        self, step: int, take: Take
    ) -> tuple[dict[str, Any] | None, Exception | None, tuple[Outcome, str]]:
        """What `take` made of a checkpoint here, what it raised, and what other ranks are told."""
        try:
            return self._taken(step, take), None, ("restored", "")
        except _UNREADABLE as why:
            return None, why, ("unreadable", str(why))
        except Exception as why:
            return None, why, ("refused", str(why))

    def _taken(self, step: int, take: Take) -> dict[str, Any]:
        """What `take` makes of a checkpoint here; what is damaged here is fetched."""
        if step in self._earlier.steps:
            with Gathered(self._earlier.parts(step), self._rank, same=False) as source:
                return take(source, step, source.text)
        self._core.ready(step)
        try:
            return self._read(step, take)
        except _UNREADABLE as why:
            if not self._core.fetch(step):
                raise
            text = f"Step {step} was damaged here, and was fetched from the remote place: {why}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        return self._read(step, take)

    def _read(self, step: int, take: Take) -> dict[str, Any]:
        """What `take` makes of a checkpoint that is here, in full or as increments; other pieces of
        arrays are put together from the parts of all ranks."""
        text, spool = self._core.values(step), self._core.reading(step)
        try:
            with nullcontext(self._spool) if spool is None else spool as there:
                return take(there, step, text)
        except MovedError:
            # Other ranks may still have to write what was saved just now.
            parts = parts_in(self._path, step, self._timeout if step == self._saved else 0.0)
        with Gathered(parts, self._rank, same=True) as source:
            return take(source, step, text)

    def _check(self) -> None:
        if not self._open:
            raise ClosedError("The Checkpointer is closed.")
        if os.getpid() != self._process:
            raise ClosedError("The Checkpointer belongs to the process that forked this one.")

    def _tell(self) -> None:
        """Tells what went wrong after an earlier call."""
        # Checkpoints count without their copies.
        if (text := self._core.take_copy_failure()) is not None:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        failure = self._core.take_failure()
        if failure is None:
            return
        if self._on_error == "raise":
            raise failure
        warnings.warn(str(failure), RuntimeWarning, stacklevel=3)

    def _end(self, *, agree: bool, timeout: float | None) -> None:
        if not self._open or os.getpid() != self._process:
            return
        failure: Error | None = None
        try:
            self._core.close(agree, timeout)
        except Error as why:
            if not self._core.closed and self._on_error == "raise":
                raise
            failure = why
        if not self._core.closed:
            self._give_up(timeout)
        else:
            with suppress(StorageError):
                self._earlier.settle(self._keep)
            self._finish()
            # What is not durable now does not count, and was told.
            self._spool.close(timeout=timeout, discard_unflushed=True)
        if failure is not None and self._on_error == "raise":
            raise failure
        if failure is not None:
            warnings.warn(str(failure), RuntimeWarning, stacklevel=3)

    def _give_up(self, timeout: float | None = None) -> None:
        """Ends without what is not durable."""
        if not self._open:
            return
        self._core.give_up()
        self._finish()
        # Its own error was told, and says more. It is closed also when a device still hangs.
        with warnings.catch_warnings(), suppress(WaitTimeoutError):
            warnings.simplefilter("ignore", RuntimeWarning)
            self._spool.close(timeout=timeout, discard_unflushed=True)

    def _finish(self) -> None:
        self._signals.restore()
        atexit.unregister(self._at_exit)
        self._earlier.close()
        self._open = False

    def __del__(self) -> None:
        self._last()

    def _last(self) -> None:
        """Ends when the interpreter does, or when nobody has it any more."""
        try:
            self._end(agree=False, timeout=None)
        except Error as why:
            warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            self._give_up()


#: The names of options, for who writes one of them wrong.
_OPTIONS = [
    name
    for name, one in inspect.signature(Checkpointer.__init__).parameters.items()
    if one.kind is one.KEYWORD_ONLY
]


def _stop(given: Any) -> Stop:
    stop = record_of("stop", given, Stop)
    if not isinstance(stop.on_error, str) or stop.on_error not in ("raise", "warn"):
        raise OptionError(f'Stop(on_error={shown(stop.on_error)}): write "raise" or "warn".')
    if stop.requeue not in (None, "slurm"):
        raise OptionError(f'Stop(requeue={shown(stop.requeue)}): write "slurm" or None.')
    return stop


def _values_of(source: Any, _: int, text: str) -> dict[str, Any]:
    """The small values of a checkpoint of another number of ranks."""
    source.check_values(None)
    return read(text)[0]


def _place(remote: AnyPath) -> Path | str:
    """An address as it is, or a path that is meant now."""
    is_address = isinstance(remote, str) and "://" in remote
    place = remote if isinstance(remote, str) and is_address else absolute(remote, "copies")
    if not is_unicode(str(place)):
        raise OptionError(f"copies={shown(remote)}: names of objects are Unicode.")
    return place


def _last_of(checkpointer: weakref.ref[Checkpointer]) -> Callable[[], None]:
    """What ends a Checkpointer that is still there."""

    def last() -> None:
        if (still := checkpointer()) is not None:
            still._last()

    return last


def _step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise OptionError(f"step={shown(step)}: a step is an integer.") from None
    if not 0 <= number < 1 << 63:
        raise OptionError(f"step={shown(number)}: a step is not negative, and below 2**63.")
    return int(number)
