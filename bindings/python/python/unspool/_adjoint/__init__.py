"""The adjoint driver: carries a schedule out on a spool.

`unspool.adjoint` is the one function; `AdjointReport` is what it returns, `Progress` what it tells
while it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

from ..errors import OptionError, VersionExistsError
from ..schedules import as_schedule
from ..schedules.given import figure
from .report import AdjointReport, Progress
from .run import Job, Run
from .states import Part, State

__all__ = ["AdjointReport", "Progress", "adjoint"]

# How many restores ahead of the current one are announced.
LOOKAHEAD = 1024


def adjoint(
    schedule: Any,
    spool: Any,
    forward: Callable[[Any, int, int], Any],
    reverse: Callable[[Any, int], Any],
    state: Any,
    *,
    for_reverse: Any = None,
    at_end: Callable[[Any], Any] | None = None,
    first: SupportsIndex = 0,
    progress: Callable[[Progress], Any] | None = None,
    stream: Any = None,
    lookahead: SupportsIndex = LOOKAHEAD,
) -> AdjointReport:
    """Runs a simulation forwards and its adjoint backwards, keeping in `spool` what `schedule`
    says, and computing the rest again.

    State n is the state before step n; the steps are 0 to N - 1. `state` is state 0 at first. What
    will be restored is known from a dry run of the schedule and announced to the spool, so that it
    is in its fastest tier in time.

    Arguments:
        schedule: one of `unspool.schedules`, a list of actions, or a schedule of the package
            `checkpoint_schedules`.
        spool: where copies are kept. State n gets the version `first + n`; nothing is left behind.
        forward: `forward(state, n0, n1)` takes the steps n0 to n1 - 1, so that state n0 becomes
            state n1: in place, or by returning the new state. With a schedule that does not know
            the number of steps it returns `schedules.Stop(n)` when the forward pass ends at n.
        reverse: `reverse(state, n)` takes the adjoint back over step n. It may read state n, and
            must not count on anything else in `state`. What it returns is ignored.
        state: an array, a list, tuple or mapping of arrays, or a function without arguments that
            returns one of these, asked anew each time (for buffers that are swapped). The arrays of
            any library, on the CPU or a GPU. Copies are restored into these arrays, or the ones
            that `forward` returned; arrays of JAX, which never change, are replaced.
        for_reverse: the part of the state that `reverse` reads: arrays, or a function of the state
            that returns them. `reverse` is then given that part instead of the state, and copies
            that the schedule only restores to be reversed from hold no more than the part.
        at_end: `at_end(state)` is called once with state N, before the first `reverse`: for the
            value of the objective and the start of the adjoint. It costs one forward step and one
            copy more, unless the number of steps was not known: the forward pass ends at state N
            then.
        first: the version of state 0. The versions to `first + N` must be free.
        progress: is called with a `Progress` after every action.
        stream: the stream of copies of arrays on a GPU, as for `Spool.save`.
        lookahead: how many restores are announced ahead of time.

    Returns:
        What it cost: steps computed again, bytes moved, time spent and time waited.

    Raises:
        ScheduleError: the schedule breaks a rule; the action is not carried out.
        OptionError: an argument makes no sense, or the spool has `discard_after_restore`.
        VersionExistsError: a version is in use.
        All that `Spool.save` and `Spool.restore` raise, and whatever the functions raise. The
            exception has a note that names the step, the spool is usable, and what the driver kept
            in it is discarded.
    """
    chosen = as_schedule(schedule)
    _check_function("forward", forward)
    _check_function("reverse", reverse)
    if at_end is not None:
        _check_function("at_end", at_end)
    if progress is not None:
        _check_function("progress", progress)
    base, ahead = _integer("first", first), _integer("lookahead", lookahead)
    if not 0 <= ahead < 1 << 63:
        raise OptionError(f"adjoint(lookahead={ahead}): write a number of restores, 0 or more.")
    _check_spool(spool)
    _check_versions(spool, base, figure(chosen, "steps"))
    held = State(state)
    part = None if for_reverse is None else Part(for_reverse, held)
    job = Job(chosen, spool, forward, reverse, held, part, at_end, base, progress, stream, ahead)
    return Run(job).go()


def _check_function(name: str, function: Any) -> None:
    if not callable(function):
        raise OptionError(f"adjoint({name}={function!r}): that is no function.")


def _integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(f"adjoint({name}={value!r}): that is no whole number.") from None


def _check_spool(spool: Any) -> None:
    if isinstance(spool, type) or not callable(getattr(spool, "save", None)):
        raise OptionError(f"adjoint(spool={spool!r}): that is no Spool.")
    if getattr(spool, "discard_after_restore", False):
        raise OptionError(
            "adjoint: the spool was opened with discard_after_restore=True, so it would discard "
            "copies that the schedule restores again. Open it without: the driver discards each "
            "copy after its last use."
        )


def _check_versions(spool: Any, first: int, steps: int | None) -> None:
    """The versions of all states are free; of an unknown number of states, all from `first` on."""
    last = (1 << 63) - 1 if steps is None else first + steps
    if first < -1 << 63 or last >= 1 << 63:
        raise OptionError(f"adjoint(first={first}): versions are integers of 64 bits.")
    for version in spool.versions():
        if first <= version <= last:
            needed = f"{first} and later" if steps is None else f"{first} to {last}"
            taken = VersionExistsError(
                f"adjoint keeps states under the versions {needed}, and {version} is already "
                "saved: discard it, or give another `first`."
            )
            taken.version = version
            raise taken
