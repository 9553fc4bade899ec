"""The adjoint driver: carries a schedule out on a spool.

`unspool.adjoint` is the one function; `AdjointReport` is what it returns, `Progress` what it tells
while it runs.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any, SupportsIndex

from .._gradient import Gradient
from .._history import checked
from .._types import record_of
from ..errors import OptionError, VersionExistsError
from ..schedules import Auto, as_schedule
from ..schedules.given import figure
from .accumulated import Accumulated
from .durable import Durable
from .fidelity import CheckedRun
from .options import LOOKAHEAD, Access, Resume
from .ordered import check_order, ordered
from .report import AdjointReport, Chosen, Effect, Fidelity, FidelityWarning, Progress, Stretch
from .resumed import ResumableRun
from .run import Job, Run
from .states import Part, State

__all__ = [
    "AdjointReport",
    "Chosen",
    "Effect",
    "Fidelity",
    "FidelityWarning",
    "Progress",
    "Stretch",
    "adjoint",
]

# The last version that there can be.
LAST = (1 << 63) - 1


def adjoint(
    schedule: Any,
    spool: Any,
    forward: Callable[[Any, int, int], Any],
    reverse: Callable[[Any, int], Any],
    state: Any,
    *,
    for_reverse: Any = None,
    at_end: Callable[[Any], Any] | None = None,
    progress: Callable[[Progress], Any] | None = None,
    access: Access | None = None,
    resume: str | os.PathLike[str] | Resume | None = None,
    adjoint_state: Any = None,
    check: SupportsIndex = 0,
) -> AdjointReport:
    """Runs a simulation forwards and its adjoint backwards, keeping in `spool` what `schedule`
    says, and computing the rest again.

    State n is the state before step n; the steps are 0 to N - 1. `state` is state 0 at first. What
    will be restored is known from a dry run of the schedule and announced to the spool, so that it
    is in its fastest tier in time.

    Arguments:
        schedule: one of `unspool.schedules`, a list of actions, or a schedule of the package
            `checkpoint_schedules`. `schedules.Auto(steps)` chooses the fastest one after its first
            steps, and the report says which.
        spool: where copies are kept, a `Spool` or an `IncrementalSpool`. State n gets the version
            n, or another one by `access`; nothing is left behind.
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
        progress: is called with a `Progress` after every action.
        access: how the spool is used: an `unspool.types.Access`, with the version of state 0, the
            stream of copies, how far ahead restores are announced, and the codec of states.
        resume: a folder on a file system that outlives the process, or an `unspool.types.Resume`
            with one and the time between two checkpoints. When the process is killed, in
            the forward or in the reverse sweep, the same call in another process goes on from what
            is durable there, and ends with the same bits if the steps compute the same ones. It is
            emptied at the end. Give each problem a folder of its own: a folder of other shapes or
            another number of steps is refused, other data in arrays of the same shapes are not.
        adjoint_state: everything that `reverse` and `at_end` change and `reverse` goes on from, for
            `resume`: an array, a list or tuple of arrays, or a dictionary of arrays, trees of them,
            generators of random numbers, numbers and texts, as `Checkpointer.save` takes them; or a
            function without arguments that returns one of these, asked anew each time. It is
            restored in place; numbers, texts and arrays of JAX are replaced in the dictionary.
        check: the number of states, spread over the run, that are also kept without loss, to
            estimate what a codec with a bound does to the gradient. `adjoint_state` has to be given
            as for `resume`, with the arrays of the gradient in it; generators of random numbers
            cannot be. Every step is then reversed twice, the checked ones three times: `reverse`
            must change nothing that counts besides `adjoint_state`, and find it where that says.
            Exact states take the versions after those of the run. The result is in the report;
            above 5 % there is an `unspool.types.FidelityWarning` too.

    Returns:
        What it cost: steps computed again, bytes moved, time spent and time waited; where it went
        on from `resume`, since then.

    Raises:
        ScheduleError: the schedule breaks a rule; the action is not carried out.
        OptionError: an argument makes no sense, or another adjoint lies in the folder of `resume`;
            `lookahead="learn"`, and the spool does not learn;
            `check` together with `resume`, or with a schedule that does not know the number of
            steps; `schedules.Auto` together with `resume`; a `Gradient` together with `resume`,
            `check`, `schedules.Auto` or an `IncrementalSpool`, or without `adjoint_state`.
        NoPlanError: the spool has no room for any schedule that `schedules.Auto` may choose.
        VersionExistsError: a version is in use.
        All that `Spool.save` and `Spool.restore` raise, and whatever the functions raise. The
            exception has a note that names the step, the spool is usable, and what the driver kept
            in it is discarded. What is durable in the folder of `resume` stays.
    """
    chosen = as_schedule(schedule)
    given = {"at_end": at_end, "progress": progress}
    given = {name: function for name, function in given.items() if function is not None}
    _check_functions(forward=forward, reverse=reverse, **given)
    access = record_of("access", access, Access)
    checked("adjoint", spool)
    base, learns = _integer("first", access.first), access.lookahead == "learn"
    ahead = _ahead(access.lookahead, spool)
    checks = _checks(check, adjoint_state, resume)
    steps = figure(chosen, "steps")
    wanted = _versions(base, None if steps is None else steps + checks)
    held = State(state)
    part = None if for_reverse is None else Part(for_reverse, held)
    rest = (held, part, at_end, base, progress, access.stream, ahead)
    job = Job(chosen, spool, forward, reverse, *rest, codec=access.codec, announces=not learns)
    if isinstance(access.codec, Gradient):
        _check_order(job, adjoint_state, resume, checks)
        _check_versions(spool, wanted)
        return ordered(access.codec, job, Accumulated(adjoint_state))
    if resume is None:
        _check_versions(spool, wanted)
        if checks:
            return CheckedRun(job, Accumulated(adjoint_state), checks).go()
        return Run(job).go()
    if isinstance(chosen, Auto):
        raise OptionError(
            f"adjoint(resume=...): {chosen!r} may choose another schedule in the process that goes "
            "on. Give the one that a run without `resume` has chosen, report.choice.schedule, or "
            "the best one of unspool.plan."
        )
    if adjoint_state is None:
        raise OptionError("adjoint(resume=...): give `adjoint_state`, which reverse steps change.")
    accumulated = Accumulated(adjoint_state)
    resume = resume if isinstance(resume, Resume) else Resume(resume)
    kept = (held, accumulated, base, steps, access.stream)
    with Durable(resume.path, resume.every, *kept) as durable:
        return _resumed(job, durable, wanted)


def _check_order(job: Job, adjoint_state: Any, resume: Any, checks: int) -> None:
    """What a `Gradient` needs is there."""
    call = "adjoint(access=Access(codec=Gradient(...)))"
    if adjoint_state is None:
        raise OptionError(f"{call}: give `adjoint_state`, in which the gradient is.")
    if resume is not None or checks:
        other = "check" if checks else "resume"
        raise OptionError(f"{call}: not together with `{other}`: leave one of them out.")
    check_order(call, job.spool, job.schedule)


def _resumed(job: Job, durable: Durable, wanted: tuple[int, int]) -> AdjointReport:
    """A run that begins, or goes on, in a folder that outlives it."""
    if durable.place is None:
        _check_versions(job.spool, wanted)
        durable.begin()
    else:
        _discard_left(job.spool, wanted)
    return ResumableRun(job, durable).go()


def _check_functions(**given: Any) -> None:
    for name, function in given.items():
        if not callable(function):
            raise OptionError(f"adjoint({name}={function!r}): that is not a function.")


def _integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(f"adjoint({name}={value!r}): that is not a whole number.") from None


def _ahead(lookahead: Any, spool: Any) -> int:
    """How many restores are announced ahead of time."""
    if lookahead == "learn":
        if not getattr(spool, "learn", False):
            raise OptionError(
                'adjoint(access=Access(lookahead="learn")): the spool does not learn. Open it with '
                "Spool(learn=True), or leave lookahead as it is."
            )
        return LOOKAHEAD
    ahead = _integer("lookahead", lookahead)
    if not 0 <= ahead < 1 << 63:
        raise OptionError(f"adjoint(lookahead={ahead}): write a number of restores, 0 or more.")
    return ahead


def _checks(check: SupportsIndex, adjoint_state: Any, resume: Any) -> int:
    """The number of states that are checked."""
    count = _integer("check", check)
    if count < 0:
        raise OptionError(f"adjoint(check={count}): write a number of states, 0 or more.")
    if count and resume is not None:
        raise OptionError(
            "adjoint(check=...): a run with `resume` cannot be checked: what it would compare is "
            "gone when the process is killed. Check a run without."
        )
    if count and adjoint_state is None:
        raise OptionError(
            "adjoint(check=...): give `adjoint_state`, in which the gradient is, to be compared."
        )
    return count


def _versions(first: int, steps: int | None) -> tuple[int, int]:
    """The first and the last version of all states; of an unknown number of them, all that follow
    the first one."""
    last = LAST if steps is None else first + steps
    if first < -1 << 63 or last > LAST:
        raise OptionError(f"adjoint(first={first}): versions are integers of 64 bits.")
    return first, last


def _check_versions(spool: Any, wanted: tuple[int, int]) -> None:
    """The versions of all states are free."""
    first, last = wanted
    for version in spool.versions():
        if first <= version <= last:
            needed = f"{first} and later" if last == LAST else f"{first} to {last}"
            taken = VersionExistsError(
                f"adjoint keeps states under the versions {needed}, and {version} is already "
                "saved: discard it, or give another `first`."
            )
            taken.version = version
            raise taken


def _discard_left(spool: Any, wanted: tuple[int, int]) -> None:
    """What a run that was killed has left in a durable spool: its states are computed again."""
    for version in spool.versions():
        if wanted[0] <= version <= wanted[1]:
            spool.discard(version)
