"""Which threads add to the gradients of leaves: those of other threads are not put back."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence

import torch
from unspool._history import at_death
from unspool.errors import ArrayError

from ._reached import hooks_of

__all__ = ["Adders", "Since"]

#: The name of what the threads of autograd know of the thread that began a backward pass.
_BEGAN = "unspool.torch: the thread that began a backward pass"

#: Turns of each thread in which one that has added to a gradient calls its hook.
TURNS = 4


class Adders:
    """Notes for each leaf which threads have added to its gradient, by hooks. There are none where
    the program has one thread."""

    def __init__(self) -> None:
        self.notes: dict[tuple[int, int], int] = {}
        self.clock = itertools.count(1)
        self.several = threading.active_count() > 1
        self._alone = Since(self)
        self._known = weakref.WeakValueDictionary[int, torch.Tensor]()

    def listen(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes notes for more leaves."""
        grown = [
            each
            for each in (tensors if self.several else ())
            if each.is_leaf and each.requires_grad and self._known.get(id(each)) is not each
        ]
        note = _Note(self.notes, self.clock)
        hooks = [each.register_post_accumulate_grad_hook(note) for each in grown]
        self._known.update((id(each), each) for each in grown)
        at_death(self, _remove, hooks)

    def since(self) -> Since:
        """What is noted from now on."""
        return Since(self) if self.several else self._alone


class Since:
    """What was noted since this was made, by the thread that made it and by others."""

    def __init__(self, adders: Adders) -> None:
        self._several, self._notes = adders.several, adders.notes
        self._thread, self._began = threading.get_ident(), next(adders.clock)
        self._until = 0.0
        if adders.several:
            torch._C._stash_obj_in_tls(_BEGAN, self._thread)

    def is_own(self, leaf: torch.Tensor) -> bool:
        """Whether this thread has changed a gradient that was changed.

        Raises:
            ArrayError: so has another thread; or it has called hooks of the user's for that.
        """
        if not self._several:
            return True
        threads = self._threads(leaf) or self._waited(leaf)
        if self._thread not in threads:
            return not threads
        self.check_alone([leaf])
        if any(type(each) is not _Note for each in hooks_of(leaf)):
            raise ArrayError(
                f"unspool.torch: a step adds to the gradient of a tensor of shape "
                f"{list(leaf.shape)} by backward(), which calls hooks of the tensor; they would be "
                "called again when the step is computed again, and what they change cannot be put "
                "back while the program has other threads. Take the gradient by "
                "torch.autograd.grad, or remove the hooks."
            )
        return True

    def _waited(self, leaf: torch.Tensor) -> set[int]:
        """The threads that have added to a gradient of which no hook was called: it was changed
        without a backward pass, or the thread that has added to it is about to call the hook."""
        now, turn = time.monotonic(), sys.getswitchinterval()
        # All leaves wait at the same time.
        self._until = self._until or now + TURNS * turn * threading.active_count()
        found = self._threads(leaf)
        while not found and time.monotonic() < self._until:
            time.sleep(turn)
            found = self._threads(leaf)
        return found

    def check_alone(self, leaves: Sequence[torch.Tensor]) -> None:
        """Only this thread has added to the gradients of leaves.

        Raises:
            ArrayError: so has another thread.
        """
        for leaf in leaves if self._several else ():
            if self._threads(leaf) - {self._thread}:
                raise ArrayError(
                    "unspool.torch: a step calls backward(), which adds to the gradient of a "
                    f"tensor of shape {list(leaf.shape)}, and another thread adds to the same "
                    "gradient meanwhile, so that it cannot be put back when the step is computed "
                    "again. Take the gradient within the step by torch.autograd.grad, or give each "
                    "thread tensors of its own."
                )

    def _threads(self, leaf: torch.Tensor) -> set[int]:
        notes = list(self._notes.items())
        return {thread for (key, thread), at in notes if key == id(leaf) and at > self._began}


class _Note:
    """The hook of a leaf."""

    __slots__ = ("_clock", "_notes")

    def __init__(self, notes: dict[tuple[int, int], int], clock: Iterator[int]) -> None:
        self._notes, self._clock = notes, clock

    def __call__(self, leaf: torch.Tensor) -> None:
        known = torch._C._is_key_in_tls(_BEGAN)
        # A thread of autograd works for several; one that is not known has another number than any.
        thread = torch._C._get_obj_in_tls(_BEGAN) if known else -threading.get_ident()
        self._notes[id(leaf), thread] = next(self._clock)


def _remove(hooks: Sequence[torch.utils.hooks.RemovableHandle]) -> None:
    for each in hooks:
        each.remove()
