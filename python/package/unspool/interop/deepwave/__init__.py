"""Deepwave's wavefield histories in a spool.

Deepwave's compiled propagators keep, for each model that needs a gradient, one array a step for the
backward pass. `history` lends them memory of a spool for that: the kernels write there and read
from there, so that the history may be larger than the memory, and nothing is copied for it.

Neither Deepwave nor PyTorch is imported before `history` is entered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from unspool._history import checked
from unspool.errors import OptionError

__all__ = ["history"]


@contextlib.contextmanager
def history(
    spool: Any,
    segment: int = 8,
    *,
    once: bool = False,
    codec: Any = None,
    fidelity: Callable[[Any], Any] | None = None,
) -> Iterator[None]:
    """A `with` block in which Deepwave's propagators keep their history in `spool`.

        with history(spool):
            received = deepwave.scalar(v, dx, dt, ...)[-1]
        loss(received).backward()

    The gradient is that of Deepwave's device mode in chunks of `segment` steps
    (`callback_frequency=segment`), bit for bit, where the spool has no codec with a bound. The
    backward pass may come after the block, several times (with `retain_graph=True`), and in any
    order of graphs. What a graph has in the spool is discarded when the graph is gone, and with
    `once=True` as soon as it was gone back through.

    Blocks nest, and each thread has its own. Callbacks are called as without the block. While no
    block is entered, and no graph of one is alive, Deepwave is as it was.

    Arguments:
        spool: a `Spool` whose fastest tier lies where the models do: main memory, or their GPU.
        segment: how many steps of the history are one checkpoint. With a larger number the kernels
            are called less often, and checkpoints are larger: the fastest tier needs room for a
            few of them.
        once: each graph is gone back through once.
        codec: an `unspool.Gradient`, which chooses bounds from the accuracy that the gradient has
            to have, in place of the codec of the spool. The first backward pass runs several times.
            Checkpoints are then copied into the spool.
        fidelity: is called with what it has found in a backward pass, an `unspool.types.Fidelity`,
            whose arrays have the names of the models.

    Raises:
        OptionError: `spool`, `segment` or `codec` makes no sense; or a `Gradient` is `strict`, or
            on an IncrementalSpool.
        MissingLibraryError: Deepwave is not installed, or not in a version that is known here.

    A propagator raises, within the block:
        OptionError: it was asked for another place for its history, or compression, or for two
            histories; or the spool has its fastest tier elsewhere; with a `Gradient`, in the
            backward pass, it is not `deepwave.scalar`, or has a `backward_callback`.
        All that `Spool.writing` raises; and, in the backward pass, all that `Spool.reading` raises.
    """
    checked("history", spool, "writing")
    if isinstance(segment, bool) or not isinstance(segment, int) or segment < 1:
        raise OptionError(f"history(segment={segment!r}): write a number of steps, 1 or more.")
    if not isinstance(once, bool):
        raise OptionError(f"history(once={once!r}): write True or False.")
    from unspool.interop.deepwave import _known

    _known.check()
    from unspool.interop.deepwave import _engine, _ordered

    _ordered.check_history(codec, fidelity, spool)
    with _engine.entered(spool, segment, once, codec, fidelity):
        yield
