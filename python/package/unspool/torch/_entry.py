"""One storage that autograd has saved, and the tensors over it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
from unspool._history import reserve

from ._changed import Held, refuse
from ._layout import Layout

__all__ = ["Entry", "movable"]


def movable(
    tensor: torch.Tensor, stay: frozenset[int], min_bytes: int
) -> torch.UntypedStorage | None:
    """The storage of a tensor that may be moved: none of a parameter or of a view of one, and none
    at an address in `stay`."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    base = tensor if tensor._base is None else tensor._base
    if (base.requires_grad and base.is_leaf) or tensor.is_quantized:
        return None
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        # A tensor of a transformation of functions has none of its own.
        return None
    if storage.nbytes() < min_bytes or storage._cdata in stay:
        return None
    return storage if storage.nbytes() and tensor.device.type in ("cpu", "cuda") else None


class _Moved:
    """A tensor whose storage was moved: what makes it again.

    Attributes:
        tensor: the one that was made since the storage came back, if there is one.
        changed: the version that it had when its storage was moved, if it was not as it had been
            saved by then.
        held: what is there until the copy is made, if that is made beside computing; where the copy
            has the memory itself, what remains of it: its version.
        given: whether the copy has the memory of the tensor.
    """

    __slots__ = (
        "changed",
        "conjugated",
        "dtype",
        "given",
        "held",
        "negated",
        "offset",
        "size",
        "stride",
        "tensor",
    )

    def __init__(self, held: Held) -> None:
        tensor = held.tensor
        self.held: Held | None = held
        self.given = False
        self.changed: tuple[int, int] | None = None
        self.dtype, self.size, self.stride = tensor.dtype, tensor.shape, tensor.stride()
        self.offset = tensor.storage_offset()
        self.conjugated, self.negated = tensor.is_conj(), tensor.is_neg()
        self.tensor: torch.Tensor | None = None

    def left(self) -> None:
        """Lets go of the tensor that was there, and notes in `changed` whether it was written to
        since it was saved: the copy may have either. Where the copy has the memory itself, that
        may happen later too, and is looked at again."""
        held = self.held
        if not self.given:
            self.held = None
        if held is not None and held.tensor._version != held.version:
            self.changed = (held.version, held.tensor._version)

    def give(self) -> None:
        """Lets go of the tensor, whose memory is the copy."""
        assert self.held is not None
        self.given = True
        self.held.let_go()

    def over(self, whole: torch.Tensor) -> torch.Tensor:
        """The tensor over a copy of the storage, with the version counter of that copy."""
        self.left()
        if self.changed is not None:
            like = torch.empty(self.size, dtype=self.dtype, device="meta")
            refuse(like, *self.changed)
        if self.tensor is None:
            flat = whole.view(-1)
            if self.dtype != flat.dtype:
                flat = flat.view(self.dtype)
            made = flat.as_strided(self.size, self.stride, self.offset)
            made = made.conj() if self.conjugated else made
            self.tensor = torch._neg_view(made) if self.negated else made
        return self.tensor


class Entry:
    """One storage, here or in the spool.

    Attributes:
        lock: taken while it is moved or brought back.
        number: how many others were saved before it in this step.
        turn: its place in the order of those that are here.
        node: the thread that saved it last, and the number of the node for which it did.
        version: what the spool calls its copy; None before there is one.
    """

    def __init__(self, kept: Any, storage: torch.UntypedStorage, number: int) -> None:
        self.kept, self.key, self.nbytes = kept, storage._cdata, storage.nbytes()
        self.device, self.number = storage.device, number
        self.lock = threading.Lock()
        self.turn, self.node = -1, (0, 0)
        self.version: int | None = None
        # The tensors over it, in the order in which they were saved.
        self._seen: list[Held | _Moved] = []
        # The copy that came back, and its version then.
        self._whole: torch.Tensor | None = None
        self._fresh = 0
        self._shape: tuple[int, ...] = ()
        self._dtype = torch.uint8
        self._stream = None if self.device.type == "cpu" else _stream(self.device)
        # After this event the copy is there, where it came back beside computing.
        self._ready: Any = None

    def see(self, tensor: torch.Tensor) -> int:
        """Notes a tensor over the storage; its place among those."""
        self._seen.append(Held(tensor))
        return len(self._seen) - 1

    def at_once(self, place: int) -> torch.Tensor | None:
        """A tensor, if it was never moved. Needs no lock: what is held stays what it is."""
        seen = self._seen[place]
        if type(seen) is not Held:
            return None
        if self._stream is not None:
            self._join(seen.tensor)
        return seen.get()

    def away(self) -> bool:
        """Whether it has to come back: it was moved, or somebody has changed the copy."""
        if self._whole is None:
            return self.version is not None
        return self._whole._version != self._fresh

    def get(self, place: int) -> torch.Tensor:
        """A tensor, of an entry that is not away."""
        seen = self._seen[place]
        if type(seen) is Held:
            return seen.get()
        assert isinstance(seen, _Moved) and self._whole is not None
        if self._ready is not None:
            _stream(self.device).wait_event(self._ready)
        self._join(self._whole)
        return seen.over(self._whole)

    def move(self, spool: Any, codec: Any, lanes: Any = None) -> bool:
        """Lets go of the memory, which is copied into the spool unless it was before. Whether this
        was the first time. With `lanes`, the copy is made beside computing."""
        first = self.version is None
        if first:
            moved = [_Moved(seen) for seen in self._seen if isinstance(seen, Held)]
            self._save(spool, codec, lanes, moved)
            self._seen = list(moved)
        self._forget()
        return first

    def _forget(self) -> None:
        self._settle()
        self._whole = None
        for seen in self._seen:
            seen.tensor = None

    def _settle(self) -> None:
        """Memory that a copy still writes to is given back only after it."""
        if self._ready is not None and self._stream is not None:
            self._stream.wait_event(self._ready)
            self._ready = None

    def _save(self, spool: Any, codec: Any, lanes: Any, moved: list[_Moved]) -> None:
        one = self._seen[0].tensor
        assert one is not None
        self._join(one)
        whole = self._plain(one)
        self._shape, self._dtype = tuple(whole.shape), whole.dtype
        version = reserve()
        options = {} if codec is None else {"codec": codec}
        if lanes is None or self._stream is None:
            spool.save(version, whole, **options)
            for each in moved:
                each.left()
        elif codec is None and lanes.gives(spool, self.device):
            # On the stream that computes: it is the one that has the memory next.
            spool.save(version, whole, donate=True)
            for each in moved:
                each.give()
        else:
            lanes.save(spool, version, whole, moved, _stream(self.device), options)
        self.version = version

    def _plain(self, one: torch.Tensor) -> torch.Tensor:
        """The storage as dense numbers, in the shape of a tensor that has all of it: codecs make
        use of that."""
        kinds = {seen.tensor.dtype for seen in self._seen if seen.tensor is not None}
        mixed = len(kinds) > 1 or self.nbytes % one.dtype.itemsize != 0
        dtype = torch.uint8 if mixed else one.dtype
        count = self.nbytes // dtype.itemsize
        flat = torch.empty(0, dtype=dtype, device=self.device)
        flat.set_(one.untyped_storage(), 0, (count,), (1,))
        if mixed or one.numel() != count or one.storage_offset():
            return flat
        layout = Layout.of(flat.as_strided(one.shape, one.stride()))
        return flat.view([layout.size[each] for each in layout.order])

    def restore(self, spool: Any, lanes: Any = None) -> None:
        """Brings it back from the spool; with `lanes`, beside computing."""
        whole = torch.empty(self._shape, dtype=self._dtype, device=self.device)
        ready = None
        if lanes is None or self._stream is None:
            spool.restore(self.version, whole)
        else:
            ready = lanes.restore(spool, self.version, whole, _stream(self.device))
        self._forget()
        self._whole, self._fresh, self._ready = whole, whole._version, ready
        self._stream = None if self.device.type == "cpu" else _stream(self.device)

    def _join(self, memory: torch.Tensor) -> None:
        """What is enqueued now comes after what was on the stream that the memory is of."""
        if self._stream is None:
            return
        current = _stream(self.device)
        if current != self._stream:
            current.wait_stream(self._stream)
            memory.record_stream(current)

    def __del__(self, *, exiting: Any = sys.is_finalizing) -> None:
        if not exiting():
            self._settle()
            self.kept.forget(self)


def _stream(device: torch.device) -> Any:
    return torch.cuda.current_stream(device)
