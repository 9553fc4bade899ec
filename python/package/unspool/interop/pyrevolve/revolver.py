"""What all Revolvers do: carry a schedule out with the user's operators."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Any, Self

from unspool import Spool
from unspool.errors import OptionError
from unspool.interop.pyrevolve.keeper import Keeper
from unspool.interop.pyrevolve.options import version
from unspool.interop.pyrevolve.profiler import Profiler
from unspool.schedules import Action, Discard, Forward, Restore, Reverse, Save, Schedule

__all__ = ["BaseRevolver"]


class _Phase(Enum):
    """Which of the two calls comes next."""

    #: `apply_forward`.
    READY = "ready"
    #: `apply_reverse`: the forward pass is done, its copies are in the spool.
    TURNED = "turned"
    #: None: one of them is running.
    BUSY = "busy"
    #: None: `close` was called.
    CLOSED = "closed"


class BaseRevolver:
    """Computes forward and backward over all steps, with the copies that a schedule asks for.

    A Revolver may be used several times: `apply_forward`, `apply_reverse`, `apply_forward`, ...
    When an operator or the spool raises, the run is over and its copies are given up: the next call
    is `apply_forward` again, with the arrays as they are at step 0.

    Not for several threads at once.

    Attributes:
        checkpoint, fwd_operator, rev_operator, n_checkpoints, n_timesteps, timings: as given.
        profiler: times by section and action, see `Profiler`.
        schedule: the schedule that is carried out.
    """

    def __init__(
        self,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_timesteps: int,
        schedule: Schedule,
        open_spool: Callable[[Sequence[Any]], Spool],
        *,
        spool: Spool | None = None,
        first: int = 0,
        timings: Any = None,
        profiler: Any = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.fwd_operator = fwd_operator
        self.rev_operator = rev_operator
        self.n_timesteps = n_timesteps
        self.schedule = _covering(schedule, n_timesteps)
        self.timings = timings
        self.profiler = Profiler() if profiler is None else profiler
        self._keeper = Keeper(open_spool, spool, first=version("first", first))
        self._phase = _Phase.READY
        self._actions: Iterator[Action] = iter(())
        self._turn = 0
        # Without a reference to the Revolver, so that it goes when its user lets go of it.
        self._end = weakref.finalize(self, self._keeper.close)

    @property
    def spool(self) -> Spool | None:
        """The spool with the copies: the one given as `spool=`, or the Revolver's own, which is
        opened by the first save and so is None until then."""
        return self._keeper.spool

    @property
    def ratio(self) -> float:
        """The forward steps of a run before the last step of each reversal, over all steps: 1.0 and
        less when every state is kept, more with fewer copies."""
        advances: int = self.schedule.counts().advances
        return advances / self.n_timesteps

    @property
    def makespan(self) -> float:
        """The predicted cost of a run, for Revolvers that know costs; 0 for the others."""
        return 0

    def storage_ckps(self, k: int = 0) -> list[int]:
        """The steps whose states are kept at the moment."""
        return self._keeper.steps()

    def apply_forward(self) -> None:
        """Computes forward over all steps, keeping the copies that the schedule asks for.

        Raises:
            OptionError: `apply_reverse` comes next, or the Revolver is closed.
            All that the operators and `Spool.save` raise, with a note that names the steps.
        """
        self._expect(_Phase.READY, "apply_forward")
        with self._running("apply_forward", then=_Phase.TURNED):
            self._keeper.begin(self.schedule)
            self._actions = iter(self.schedule)
            for action in self._actions:
                if isinstance(action, Reverse):
                    self._turn = action.step
                    with self.profiler.get_timer("forward", "lastfw"):
                        self._forward(action.step, self.n_timesteps)
                    break
                self._perform("forward", action)

    def apply_reverse(self) -> None:
        """Computes backward over all steps, restoring states and computing forward again where
        there is no copy.

        Raises:
            OptionError: `apply_forward` comes next, or the Revolver is closed.
            All that the operators and `Spool.restore` raise, with a note that names the steps.
        """
        self._expect(_Phase.TURNED, "apply_reverse")
        with self._running("apply_reverse", then=_Phase.READY):
            with self.profiler.get_timer("reverse", "reverse"):
                self._reverse(self._turn)
            for action in self._actions:
                self._perform("reverse", action)
            self._keeper.end()

    def close(self) -> None:
        """Gives the copies up, and closes the spool unless it was given as `spool=`. A second call
        does nothing. Letting go of the Revolver and the end of a `with` block do the same.
        """
        self._phase = _Phase.CLOSED
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _class: type[BaseException] | None,
        _raised: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _expect(self, phase: _Phase, call: str) -> None:
        if self._phase is phase:
            return
        why = {
            _Phase.READY: "there was no forward pass yet, or the last one is used up: "
            "call apply_forward() first",
            _Phase.TURNED: "the forward pass is done and its copies wait: call apply_reverse(), or "
            "make a new Revolver to begin anew",
            _Phase.BUSY: "this Revolver is running; an operator must not call it",
            _Phase.CLOSED: "this Revolver is closed: make a new one",
        }
        raise OptionError(f"{call}(): {why[self._phase]}.")

    @contextmanager
    def _running(self, call: str, then: _Phase) -> Iterator[None]:
        self._phase = _Phase.BUSY
        try:
            yield
        except BaseException as error:
            self._phase = _Phase.READY
            self._actions = iter(())
            self._keeper.drop()
            error.add_note(f"in {call}(); its copies are given up, begin with apply_forward()")
            raise
        self._phase = then

    def _perform(self, section: str, action: Action) -> None:
        timer = self.profiler.get_timer
        match action:
            case Forward():
                with timer(section, "advance"):
                    self._forward(action.start, action.stop)
            case Save():
                with timer(section, "takeshot"):
                    self._save(action.step, action.tier)
            case Restore():
                with timer(section, "restore"):
                    self._restore(action.step)
            case Discard():
                with timer(section, "remove"):
                    self._keeper.discard(action.step, action.tier)
            case Reverse():
                with timer(section, "reverse"):
                    self._forward(action.step, action.step + 1)
                    self._reverse(action.step)

    def _forward(self, start: int, stop: int) -> None:
        with _Noting("in fwd_operator.apply(t_start={}, t_end={})", start, stop):
            self.fwd_operator.apply(t_start=start, t_end=stop)

    def _reverse(self, step: int) -> None:
        with _Noting("in rev_operator.apply(t_start={}, t_end={})", step, step + 1):
            self.rev_operator.apply(t_start=step, t_end=step + 1)

    def _save(self, step: int, tier: str | None) -> None:
        with _Noting("saving the state before step {}", step):
            arrays = _listed(self.checkpoint.get_data(step))
            with self.profiler.get_timer("storage", "copy_save"):
                self._keeper.save(step, arrays, tier)

    def _restore(self, step: int) -> None:
        with _Noting("restoring the state before step {}", step):
            arrays = _listed(self.checkpoint.get_data_location(step))
            with self.profiler.get_timer("storage", "copy_load"):
                self._keeper.restore(step, arrays)


def _listed(arrays: Any) -> tuple[Any, ...]:
    """The arrays of a state; one that stands alone is not taken apart."""
    if hasattr(arrays, "shape") and hasattr(arrays, "dtype"):
        return (arrays,)
    if not isinstance(arrays, Iterable):
        raise OptionError(f"the checkpoint object gave {arrays!r}: give a list of arrays.")
    return tuple(arrays)


def _covering(schedule: Schedule, n_timesteps: int) -> Schedule:
    if schedule.steps != n_timesteps:
        known = (
            "an unknown number of steps" if schedule.steps is None else f"{schedule.steps} steps"
        )
        raise OptionError(
            f"schedule= is for {known}, and n_timesteps is {n_timesteps}: apply_forward() computes "
            f"over exactly n_timesteps steps, so make the schedule for as many."
        )
    return schedule


class _Noting:
    """Adds to what is raised in the block, which stays as it is, what was going on."""

    __slots__ = ("_what",)

    def __init__(self, what: str, *numbers: int) -> None:
        self._what = what, numbers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _class: object, raised: BaseException | None, _traceback: object) -> None:
        if raised is not None:
            text, numbers = self._what
            raised.add_note(text.format(*numbers))
