"""`history(codec=unspool.Gradient(...))`: one history that is gone back through several times.

The kernels write each checkpoint into memory of PyTorch, from which it is saved with its bound. In
a trial they read checkpoints that were saved again with a bound, from lossless ones: the waves that
go forwards are the same whatever the codec is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from unspool._adjoint.accumulated import in_numpy
from unspool._adjoint.measured import Found, Loop, Seen, encoded
from unspool._adjoint.ordered import Ordered, check_order
from unspool._adjoint.report import Fidelity
from unspool._gradient import Gradient, Learned, norm_of
from unspool._history import discard_quietly, reserve
from unspool.errors import OptionError

__all__ = ["Order", "check_history"]

#: Memory in which a checkpoint is computed or read.
Block = contextlib.AbstractContextManager[dict[str, torch.Tensor]]


def check_history(order: Any, fidelity: Any, spool: Any) -> None:
    """Whether bounds can be chosen for histories.

    Raises:
        OptionError: they cannot.
    """
    if order is None and fidelity is not None:
        raise OptionError("history(fidelity=...): give codec=unspool.Gradient(...) as well.")
    if order is None:
        return
    call = f"history(codec={order!r})"
    if not isinstance(order, Gradient):
        raise OptionError(f"{call}: give an unspool.Gradient; other codecs are those of the spool.")
    if fidelity is not None and not callable(fidelity):
        raise OptionError(f"history(fidelity={fidelity!r}): that is not a function.")
    if order.strict:
        raise OptionError(
            f"{call}: with strict=True the waves would have to be propagated again, and the "
            "history is not what propagates them: leave it away."
        )
    check_order(call, spool, None)


class Order:
    """What is chosen for one history.

    Attributes:
        trial: the bounds of the trial that runs; None where checkpoints are read as they are.
    """

    def __init__(self, order: Gradient, told: Callable[[Fidelity], Any] | None, spool: Any) -> None:
        self.order, self.told, self.spool = order, told, spool
        self.trial: Learned | None = None
        self.key: Any = None
        self._learned: Learned | None = None
        self._begun = self._measured = False
        self._before: Any = None

    @property
    def learns(self) -> bool:
        """Whether the next backward pass measures."""
        return self._begun and self._learned is None and not self._measured

    def begin(self, key: Any, pieces: int) -> None:
        """The first checkpoint is about to be computed."""
        if self._begun:
            return
        self._begun, self.key, self._before = True, key, self.spool.stats().codec
        self._learned = Ordered(_History(self, pieces, None, {}), key).due()

    @contextlib.contextmanager
    def writing(
        self, version: int, piece: int, shapes: dict[str, tuple[int, ...]], options: Any
    ) -> Iterator[dict[str, torch.Tensor]]:
        """A block in which a checkpoint is computed."""
        tensors = {name: torch.empty(shape, **options) for name, shape in shapes.items()}
        yield tensors
        codec = "lossless" if self._learned is None else self._learned.bound(piece)
        self.spool.save(version, **tensors, codec=codec)

    @contextlib.contextmanager
    def reading(self, plain: Block, piece: int) -> Iterator[dict[str, torch.Tensor]]:
        """A block in which a checkpoint is read as the trial has it."""
        assert self.trial is not None
        version = reserve()
        with plain as tensors:
            self.spool.save(version, **tensors, codec=self.trial.bound(piece))
        try:
            with self.spool.reading(version, to="torch") as lossy:
                yield lossy
        finally:
            discard_quietly(self.spool, version)

    def back(self, pieces: int, run: Callable[[], Any], name: str, named: dict[str, Any]) -> Any:
        """What `run` returns of a backward pass of a propagator.

        Raises:
            OptionError: it cannot be measured.
        """
        if name != "scalar":
            raise OptionError(
                f"history(codec=Gradient): deepwave.{name} computes with other models than those "
                "that it is given, and errors in their gradients are not those of yours: only "
                "deepwave.scalar is measured. Give the spool a Bound, and compare two gradients."
            )
        if named["backward_callback"] is not None:
            raise OptionError(
                "history(codec=Gradient): a backward_callback would be called in trials too: leave "
                "it away."
            )
        loop = _History(self, pieces, run, named)
        one = Ordered(loop, self.key)
        if self._learned is not None:
            fidelity = one.go(self._learned)
        elif self.learns:
            self._measured = True
            fidelity = one.go(None)
        else:
            return run()
        if self.told is not None:
            self.told(fidelity)
        return loop.state

    def coded(self) -> tuple[int, int]:
        """The bytes of the history, and what they became."""
        return encoded(self._before, self.spool.stats().codec)


class _History(Loop):
    """One backward pass over a history.

    Attributes:
        state: what the engine returned of the pass whose gradient is returned.
    """

    def __init__(self, of: Order, pieces: int, run: Any, named: dict[str, Any]) -> None:
        super().__init__("interop.deepwave.history", of.order, pieces)
        self.of, self._run = of, run
        self.state: Any = None
        given = [*named.get("grad_receivers", ()), *named.get("grad_wavefields", ())]
        self.source = math.hypot(*(norm_of(each) for each in given))
        self._coded = (0, 0) if run is None else of.coded()
        self._sources = named.get("sources_i", ())
        self._there: dict[str, Any] = {}

    def run(self, learned: Learned | None, quietly: bool = False) -> Found:
        """A pass of the kernels, over lossless checkpoints where there are no bounds."""
        self.of.trial = learned
        try:
            self.state = self._run()
        finally:
            self.of.trial = None
        # Copies, as the engine may use the memory again.
        found = {name: in_numpy(each) for name, each in self._gradients().items()}
        if not self._there:
            self._there = {name: each - self._elsewhere(each) for name, each in found.items()}
        found = {name: each - self._there[name] for name, each in found.items()}
        begun = {"receivers": self.source}
        return Found(found, begun, begun, frozenset(), None, self._coded)

    def follow(self, learned: Learned) -> Seen:
        """The pass with bounds that are known."""
        self.state = self._run()
        found = self._gradients().items()
        sizes = {name: self.order.norm(self._elsewhere(each)) for name, each in found}
        return Seen(sizes, self.source, None, self._coded)

    def _gradients(self) -> dict[str, torch.Tensor]:
        state = self.state
        names = state.spec.model_names(state.ndim)
        pairs = zip(names, state.grad_models, strict=False)
        widths = [
            one + other for one, other in zip(state.pml_width, state.fd_pad_list, strict=True)
        ]
        return {name: _folded(each, widths) for name, each in pairs if each.numel()}

    def _elsewhere(self, gradient: Any) -> Any:
        """The gradient without the cells of the sources: what Deepwave adds there later, as it
        scales sources by the model, has no error, and may cancel most of it."""
        found, first = gradient + 0, self.state.pml_width[::2]
        lasts = self.state.fd_pad_list[::2]
        places = torch.cat([each[each >= 0].flatten().cpu() for each in self._sources])
        cells = torch.unravel_index(places, self.state.model_shape)
        sizes = found.shape[-len(cells) :]
        at = tuple(
            (cell - before - more).clamp(0, size - 1).numpy()
            for cell, before, more, size in zip(cells, first, lasts, sizes, strict=True)
        )
        found[(..., *at)] = 0
        return found

    def copies(self) -> Any:
        """What the engine returned."""
        return self.state

    def put(self, copies: Any) -> None:
        """What the engine returned before is what counts."""
        self.state = copies


def _folded(gradient: torch.Tensor, widths: list[int]) -> torch.Tensor:
    """The gradient of a model before it was padded by copies of its outermost cells: their errors
    add up in these."""
    axes = len(widths) // 2
    for number in range(axes):
        axis = gradient.ndim - axes + number
        first, last = widths[2 * number : 2 * number + 2]
        size = gradient.shape[axis] - first - last
        inner = gradient.narrow(axis, first, size).clone()
        inner.narrow(axis, 0, 1).add_(gradient.narrow(axis, 0, first).sum(axis, keepdim=True))
        after = gradient.narrow(axis, first + size, last).sum(axis, keepdim=True)
        inner.narrow(axis, size - 1, 1).add_(after)
        gradient = inner
    return gradient
