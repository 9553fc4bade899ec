"""The history of one propagation in a spool, in checkpoints of some steps each."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from deepwave import _storage as _theirs
from unspool._history import discard_quietly, reserve
from unspool.errors import CapacityError, OptionError
from unspool.interop.deepwave._ordered import Order

__all__ = ["Store", "Window"]

#: The pointers of one slot among `storage_ptrs`, of which the first is that of the history.
_POINTERS = 5
#: The first axis of a checkpoint's arrays that is one of space, after steps and shots.
_SPACE = 2


class Store(_theirs.StorageManager):
    """Deepwave's account of where a history lies, with that history in a spool.

    A slot is the history of one model. The kernels find the array of step i at the slot's pointer
    plus i strides, and a call of them touches the steps of one checkpoint only, so each call gets
    the pointer of that checkpoint's memory less the strides of all steps before it.

    Attributes:
        spool: where it is.
        segment: steps in a checkpoint.
        once: whether it is gone back through once.
        slots: the numbers of the slots that have a history.
        order: what is chosen for it, with a `Gradient`.
    """

    def __init__(
        self, spool: Any, segment: int, once: bool, codec: Any, told: Any, *arguments: Any
    ) -> None:
        super().__init__(*arguments)
        _check(self)
        self.order = None if codec is None else Order(codec, told, spool)
        self.spool, self.segment, self.once = spool, segment, once
        self.slots: list[int] = []
        self._count = self.nt // self.step_ratio
        self._pieces = -(-self._count // segment)
        self._first = reserve(self._pieces)

    def allocate(self, requires_grad: bool) -> None:
        """Adds a slot. No memory is taken before a kernel needs it."""
        if requires_grad and self.storage_mode == _theirs.StorageMode.DEVICE:
            self.slots.append(len(self.storages))
        super().allocate(False)

    def keep_until_gone(self, released: Callable[[], None]) -> None:
        """What is in the spool is discarded, and `released` called, when this is referred to no
        more: by the graph of the propagation."""
        versions = range(self._first, self._first + self._pieces)
        weakref.finalize(self, _forget, self.spool, versions, released).atexit = False

    def pieces(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """The internal time steps from `first` to before `last`, by the checkpoints in which they
        lie: the number of each, its first step and the one after its last."""
        length = self.segment * self.step_ratio
        return [
            (piece, max(first, piece * length), min(last, (piece + 1) * length))
            for piece in range(first // length, -(-last // length))
        ]

    def open(self, piece: int, *, forward: bool) -> tuple[Any, dict[str, torch.Tensor]]:
        """Enters the block in which a checkpoint is computed, or read: the block, and the
        checkpoint's memory as tensors.

        Raises:
            OptionError: it was discarded by an earlier backward pass.
            CapacityError: it has no room in the fastest tier.
        """
        block = self._writing(piece) if forward else self._reading(piece)
        try:
            return block, block.__enter__()
        except CapacityError as error:
            raise CapacityError(
                f"history(segment={self.segment}): that many steps of this history are "
                f"{math.prod(self._shape(0)) * self.dtype_size * len(self.slots)} bytes, and the "
                f"spool has no room for them ({error}) Write a smaller `segment`, propagate fewer "
                "shots at once, or open the spool with larger tiers."
            ) from error

    def _shape(self, piece: int) -> tuple[int, ...]:
        steps = min(self.segment, self._count - piece * self.segment)
        return (steps, self.n_shots, *self.shot_shape)

    def back(self, run: Any, name: str, named: dict[str, Any]) -> Any:
        """What `run` returns of the backward pass of a propagator, with a `Gradient`."""
        assert self.order is not None
        found = self.order.back(self._pieces, run, name, named)
        if self.once:
            for piece in range(self._pieces):
                discard_quietly(self.spool, self._first + piece)
        return found

    def _writing(self, piece: int) -> Any:
        if self.order is not None:
            loop = self.nt, self.step_ratio, self.n_shots, tuple(self.shot_shape), str(self.dtype)
            self.order.begin((*loop, self.segment, tuple(self.slots)), self._pieces)
            shapes = {f"model{slot}": self._shape(piece) for slot in self.slots}
            options = {"dtype": self.dtype, "device": self.device}
            return self.order.writing(self._first + piece, piece, shapes, options)
        dtype = str(self.dtype).removeprefix("torch.")
        arrays = {f"model{slot}": (self._shape(piece), dtype) for slot in self.slots}
        return self.spool.writing(self._first + piece, stream=self._stream(), to="torch", **arrays)

    def _reading(self, piece: int) -> Any:
        version = self._first + piece
        if self.once and version not in self.spool:
            raise OptionError(
                "this history was gone back through before: write history(once=False) for more "
                "than one backward pass through a graph."
            )
        plain = self.spool.reading(version, stream=self._stream(), to="torch")
        if self.order is None or self.order.trial is None:
            return plain
        return self.order.reading(plain, piece)

    def announce(self) -> None:
        """Tells the spool that all of it is about to be read, from the last checkpoint on."""
        versions = range(self._first, self._first + self._pieces)
        order = [each for each in reversed(versions) if each in self.spool]
        self.spool.expect(order, once=self.once and self.order is None)

    def point(self, tensors: dict[str, torch.Tensor], piece: int) -> None:
        """Lets the kernels find the history of a checkpoint in `tensors`.

        Raises:
            OptionError: these lie where the kernels cannot reach them.
        """
        before = piece * self.segment * self.n_shots * self.shot_bytes_uncomp
        for slot in self.slots:
            tensor = tensors[f"model{slot}"]
            if tensor.device != self.device:
                raise OptionError(
                    f"the models are on {self.device} and the fastest tier of the spool is on "
                    f"{tensor.device}: open the spool with its fastest tier there (device_memory= "
                    "and device= for a GPU, host_memory= alone for main memory)."
                )
            self.storage_ptrs[_POINTERS * slot] = (tensor.data_ptr() - before) % 2**64

    def point_nowhere(self) -> None:
        """Takes the pointers away: the kernels report an error where they would use one."""
        for slot in self.slots:
            self.storage_ptrs[_POINTERS * slot] = 0

    def _stream(self) -> Any:
        return torch.cuda.current_stream(self.device) if self.is_cuda else None


def _check(store: Store) -> None:
    if store.storage_mode not in (_theirs.StorageMode.DEVICE, _theirs.StorageMode.NONE):
        mode = store.storage_mode.name.lower()
        raise OptionError(
            f'storage_mode="{mode}" within unspool\'s history(): leave it at "device"; the tiers '
            "of the spool say where the history goes."
        )
    if store.storage_compression and store.storage_mode != _theirs.StorageMode.NONE:
        raise OptionError(
            "storage_compression within unspool's history(): leave it away, and open the spool "
            'with a codec, such as codec="lossless".'
        )


def _forget(spool: Any, versions: range, released: Callable[[], None]) -> None:
    for version in versions:
        discard_quietly(spool, version)
    released()


class Window:
    """The one checkpoint of a history that the kernels can reach, in one pass over it.

    It stays open between calls of the kernels within the checkpoint, also while callbacks run.

    Attributes:
        forward: whether the pass computes the history, or reads it from the end on.
    """

    def __init__(self, *, forward: bool) -> None:
        self.forward = forward
        self._store: Store | None = None
        self._block: Any = None
        self._piece = -1

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *error: Any) -> None:
        self._leave(*error)

    def show(self, store: Store, piece: int, margin: int) -> None:
        """Moves to a checkpoint. Of one that is computed, the outermost `margin` cells are set to
        zero, as the kernels write nothing there that a codec should see."""
        if piece == self._piece:
            return
        self._leave(None, None, None)
        self._store, self._piece = store, piece
        self._block, tensors = store.open(piece, forward=self.forward)
        store.point(tensors, piece)
        if self.forward:
            _clear_margin(tensors.values(), margin)

    def _leave(self, *error: Any) -> None:
        block, self._block, self._piece = self._block, None, -1
        if block is not None:
            assert self._store is not None
            self._store.point_nowhere()
            block.__exit__(*error)


def _clear_margin(tensors: Iterable[torch.Tensor], margin: int) -> None:
    for tensor in tensors:
        for axis in range(_SPACE, tensor.ndim):
            width = min(margin, tensor.shape[axis])
            tensor.narrow(axis, 0, width).zero_()
            tensor.narrow(axis, tensor.shape[axis] - width, width).zero_()
