"""The two passes of Deepwave's engine, in calls of its kernels that stay within one checkpoint."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from deepwave import _engine as _theirs
from unspool.errors import OptionError
from unspool.interop.deepwave._known import WRAPPED
from unspool.interop.deepwave._store import Store, Window

__all__ = ["entered"]

#: The arguments of the innermost block of this thread: the spool, the steps in a checkpoint,
#: whether each graph is gone back through once, the codec, and what is told of it.
_current: contextvars.ContextVar[tuple[Any, int, bool, Any, Any] | None] = contextvars.ContextVar(
    "unspool.interop.deepwave", default=None
)


@contextlib.contextmanager
def entered(spool: Any, segment: int, once: bool, codec: Any, told: Any) -> Iterator[None]:
    """See `unspool.interop.deepwave.history`."""
    with _patches.needed():
        token = _current.set((spool, segment, once, codec, told))
        try:
            yield
        finally:
            _current.reset(token)


def _storage_manager(*arguments: Any) -> Any:
    """In place of the class that Deepwave's engine makes for each propagation."""
    current = _current.get()
    if current is None:
        return _patches.plain["StorageManager"](*arguments)
    store = Store(*current, *arguments)
    store.keep_until_gone(_patches.need())
    return store


def _forward(plain: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """In place of `run_forward_engine`."""
    if _current.get() is None:
        return plain(*arguments, **named)
    other = named.get("raw_forward_storage_manager")
    if other is not None and any(one.store_1a.numel() for one in other.storages):
        raise OptionError(
            "this propagation keeps two histories, and unspool's history() has room for one: "
            "leave backward_callback_needs_forward_wavefield away, or propagate outside the block."
        )
    with Window(forward=True) as window:
        call, swap = named.pop("make_call", _default_call(plain)), named.pop("swap", None)
        return plain(*arguments, make_call=_Pieces(window, call, swap, ()), swap=None, **named)


def _backward(plain: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """In place of `run_backward_core`."""
    store = named["storage_manager"]
    if not isinstance(store, Store) or not store.slots:
        return plain(*arguments, **named)
    call, swap = named.pop("make_call", _default_call(plain)), named.pop("swap")
    scratch = named.get("extra_grad_scratch") or ()

    def run(trial: bool = False) -> Any:
        with Window(forward=False) as window:
            store.announce()
            pieces = _Pieces(window, call, swap, scratch)
            # Where they need no padding, the engine works in these themselves.
            fields = [each.clone() for each in named["grad_wavefields"]]
            given = named | {"grad_wavefields": fields} if store.order else named
            return plain(*arguments, make_call=pieces, swap=_nothing, **given)

    with store.backward_lock:
        return run() if store.order is None else store.back(run, arguments[0].name, named)


def _default_call(plain: Callable[..., Any]) -> Callable[..., int]:
    """What `plain` calls where it is given no `make_call`."""
    default: Callable[..., int] = inspect.signature(plain).parameters["make_call"].default
    return default


def _nothing(_: Any) -> None:
    """In place of a `swap` that is done here."""


class _Pieces:
    """A call of a kernel over many steps, as calls that stay within one checkpoint each.

    Between two calls, the propagator's buffers change places where the first had an odd number of
    steps, and gradients that each call adds up for itself start again from zero.
    """

    def __init__(
        self, window: Window, call: Callable[..., int], swap: Any, scratch: Sequence[torch.Tensor]
    ) -> None:
        self._window, self._call, self._swap, self._scratch = window, call, swap, scratch

    def __call__(self, state: Any, step: int, steps: int) -> int:
        """What Deepwave calls `make_call`: `step` is the first of a forward, and one past the last
        of a backward pass."""
        store = state.storage_manager
        if not isinstance(store, Store) or not store.slots:
            return self._run(state, step, steps)
        forward = self._window.forward
        pieces = store.pieces(*((step, step + steps) if forward else (step - steps, step)))
        for number, (piece, begin, end) in enumerate(pieces if forward else reversed(pieces)):
            if number and not forward:
                self._clear(state)
            self._window.show(store, piece, state.fd_pad)
            status = self._run(state, begin if forward else end, end - begin)
            if status:
                return status
        return 0

    def _run(self, state: Any, step: int, steps: int) -> int:
        status = self._call(state, step, steps)
        if status == 0 and self._swap is not None and steps % 2:
            self._swap(state)
        return status

    def _clear(self, state: Any) -> None:
        for scratch in (*state.grad_models_tmp, *self._scratch):
            scratch.zero_()


class _Patches:
    """The names of Deepwave's engine that are others while anybody needs that.

    Attributes:
        plain: what Deepwave has under these names.
    """

    def __init__(self) -> None:
        self.plain = {name: getattr(_theirs, name) for name in ("StorageManager", *WRAPPED)}
        self._ours = {
            "StorageManager": _storage_manager,
            "run_forward_engine": self._wrapped("run_forward_engine", _forward),
            "run_backward_core": self._wrapped("run_backward_core", _backward),
        }
        self._lock = threading.RLock()
        self._needs: set[object] = set()

    def _wrapped(self, name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
        plain = self.plain[name]
        return functools.wraps(plain)(functools.partial(ours, plain))

    def need(self) -> Callable[[], None]:
        """Puts ours in place until what is returned is called. The garbage collector may call it,
        also in the midst of this: so a need is noted first, and what follows may happen twice."""
        one = object()
        with self._lock:
            self._needs.add(one)
            self._put(self._ours)
        return functools.partial(self._release, one)

    def _release(self, one: object) -> None:
        with self._lock:
            self._needs.discard(one)
            if not self._needs:
                self._put(self.plain)

    @contextlib.contextmanager
    def needed(self) -> Iterator[None]:
        """A block in which ours are in place."""
        release = self.need()
        try:
            yield
        finally:
            release()

    def _put(self, functions: dict[str, Any]) -> None:
        for name, function in functions.items():
            setattr(_theirs, name, function)


_patches = _Patches()
