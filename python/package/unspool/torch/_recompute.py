"""Computations of which autograd keeps nothing: they are computed again when a gradient first needs
a tensor that they have saved.

While a computation runs, its tensors are still there, for a step that takes a gradient itself.
When it has ended, each stands for its place among those that were saved, and the first one that is
needed has all of them computed again. Each is given out once, so that the memory of what was gone
back through is free; a second pass computes them once more. Only the tensors themselves are used of
what is computed again, and not its graph.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd.graph import saved_tensors_hooks

from ._again import DifferentError, Moment, Stopped, Watch, compare, first_time, held
from ._changed import Held, refuse
from ._trees import flatten, unflatten

__all__ = ["Frame", "recomputed"]


class _Place:
    """One tensor that was saved: here as long as the computation runs, or when it was computed
    again."""

    __slots__ = ("__weakref__", "frame", "held", "tensor")

    def __init__(self, frame: Frame, held: Held | None) -> None:
        self.frame, self.held = frame, held
        self.tensor: torch.Tensor | None = None


class Frame:
    """One computation.

    Attributes:
        what: it is, for messages.
        kind: what it has in common with others that need not be compared once it was.
        expected: its results, if they are to be compared.
        holds: whether tensors stay while it runs; without, they are computed again even then.
        taken: whether one was needed while it ran.
        keeps: whether tensors that are saved from now on stay, as they would be other ones when
            they are computed again.
        watch: what learns of it, as long as it runs.
        around: makes a context in which it is computed again.
    """

    def __init__(
        self,
        what: str,
        kind: Any,
        watch: Watch,
        moment: Moment,
        again: Callable[[], Sequence[Any]],
    ) -> None:
        self.what, self.kind, self.moment, self._again = what, kind, moment, again
        self.watch: Watch | None = watch
        self.expected: Sequence[Any] | None = None
        self.holds, self.taken, self.keeps = True, False, False
        self.around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self._saved: list[weakref.ref[_Place]] = []
        self._kinds: list[Any] = []
        self._live: list[weakref.ref[_Place]] = []
        self._lock = threading.RLock()
        self._filled = self._wanted = 0
        self._failed: Exception | None = None

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """A context in which the computation runs."""
        with saved_tensors_hooks(self._pack, _unpack):
            try:
                yield
                assert self.watch is not None
                self.watch.learn(self.moment)
            finally:
                self.watch = None
                self.let_go()

    def keep(self) -> None:
        """What is saved from now on stays."""
        self.holds = self.keeps = True

    def let_go(self) -> None:
        """What was saved so far need not be here any more."""
        if self.keeps:
            return
        for reference in self._live:
            place = reference()
            if place is not None:
                place.held = None
        self._live.clear()

    def _pack(self, tensor: torch.Tensor) -> _Place:
        place = _Place(self, Held(tensor) if self.holds else None)
        reference = weakref.ref(place)
        self._saved.append(reference)
        if self.holds:
            self._live.append(reference)
        self._kinds.append(_kind(tensor))
        return place

    def take(self, place: _Place) -> torch.Tensor:
        """A tensor that was saved."""
        with self._lock:
            held = place.held
            if held is not None:
                self.taken = True
                return held.get()
            if place.tensor is None:
                if self.watch is not None:
                    # What the gradient saves may have to stay.
                    self.taken = self.holds = True
                    self.watch.learn(self.moment, ended=False)
                self._compute()
            tensor, place.tensor = place.tensor, None
        assert tensor is not None
        return tensor

    def _compute(self) -> None:
        """Computes what was saved again."""
        comparing = self.expected is not None and first_time(self.kind)
        alive = [n for n, each in enumerate(self._saved) if _is_missing(each())]
        self._filled, self._wanted = 0, -1 if comparing else alive[-1] + 1
        results: Sequence[Any] = ()
        try:
            with self.around():
                results = self.moment.again(self.what, self._run)
        except Stopped:
            failed, self._failed = self._failed, None
            if failed is not None:
                raise failed from None
        if comparing and self.expected is not None:
            compare(self.kind, self.what, self.expected, results)
        if self._filled < (alive[-1] + 1 if self._wanted >= 0 else len(self._saved)):
            raise self._different(f"saves {self._filled} tensors")
        self.expected = None

    def _run(self) -> Sequence[Any]:
        with saved_tensors_hooks(self._fill, _same), torch.enable_grad():
            return self._again()

    def _fill(self, tensor: torch.Tensor) -> torch.Tensor:
        """The next tensor is there again."""
        number = self._filled
        if number >= len(self._saved):
            self._fail(self._different("saves more tensors"))
        self._filled += 1
        place, kind = self._saved[number](), _kind(tensor)
        plain = tensor.detach() if tensor.requires_grad else tensor
        known = self._kinds[number]
        if kind[:3] != known[:3]:
            self._fail(
                self._different(
                    f"saves a {kind[1]} of shape {list(kind[0])} in place of a {known[1]} of shape "
                    f"{list(known[0])}"
                )
            )
        lasting = self.moment.lasting(plain)
        # Of a tensor that is brought back the version says nothing.
        if None not in (kind[3], known[3]) and kind[3] != known[3] and lasting is plain:
            refuse(tensor, known[3])
        if place is not None:
            place.tensor = lasting
        if self._filled == self._wanted:
            raise Stopped
        return plain

    def _fail(self, error: Exception) -> NoReturn:
        self._failed = error
        raise Stopped

    def _different(self, how: str) -> DifferentError:
        return DifferentError(
            f"{self.what}: computed again, it {how} for the backward pass, and saved "
            f"{len(self._saved)} in the forward pass, so that the gradient would be wrong. It "
            "depends on something that is not the same any more, such as a variable that it could "
            "not be seen to read: give it as an argument, or keep it in an attribute."
        )


def _kind(tensor: torch.Tensor) -> Any:
    """What is the same when it is saved again; of a leaf, also its version."""
    version = tensor._version if tensor.is_leaf and tensor.requires_grad else None
    return tensor.shape, tensor.dtype, tensor.device, version


def _is_missing(place: _Place | None) -> bool:
    """Whether somebody may want a tensor that is not here."""
    return place is not None and place.held is None


def _unpack(place: _Place) -> torch.Tensor:
    return place.frame.take(place)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class _Inputs(torch.autograd.Function):
    """Saves tensors as an operation does, and so through the hooks that are there."""

    @staticmethod
    def forward(ctx: Any, mark: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return mark.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError("unspool.torch: nothing may go back through saved inputs.")


def saved_inputs(tensors: Sequence[torch.Tensor]) -> Callable[[], Sequence[torch.Tensor]]:
    """Saves tensors as autograd does, and returns what says them again."""
    if not tensors:
        return lambda: ()
    # The output keeps the node, and what that has saved.
    out = _Inputs.apply(torch.empty(0, requires_grad=True), *tensors)
    return lambda: out.grad_fn.saved_tensors


def recomputed(
    what: str,
    kind: Any,
    watch: Watch,
    run: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any,
    hooks: saved_tensors_hooks | None = None,
    around: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
) -> Any:
    """Calls a function of which only the arguments are saved, and that is computed again, within
    `around`; with `hooks`, tensors among the arguments go through those."""
    leaves, tree = flatten((tuple(args), dict(kwargs)))
    places = [n for n, each in enumerate(leaves) if isinstance(each, torch.Tensor)]
    with contextlib.nullcontext() if hooks is None else hooks:
        saved = saved_inputs([leaves[n] for n in places])
    others = [None if isinstance(each, torch.Tensor) else each for each in leaves]

    def again() -> Sequence[Any]:
        given = list(others)
        for n, each in zip(places, saved(), strict=True):
            given[n] = each
        args, kwargs = unflatten(given, tree)
        return flatten(run(*args, **kwargs))[0]

    moment = watch.moment(leaves)
    frame = Frame(what, kind, watch, moment, again)
    frame.around = around or frame.around
    with frame.saving():
        out = run(*args, **kwargs)
    if first_time(kind):
        frame.expected = held(flatten(out)[0])
    return out
