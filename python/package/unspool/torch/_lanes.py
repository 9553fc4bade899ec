"""Copies between a GPU and a spool beside computing, in stream order: nothing here waits on the
host but for room in the spool.

A tensor that leaves is held until its memory is needed; the stream that it is of waits for the copy
then, and the memory is free for what is enqueued after that. Whether it was changed in place before
that is seen by its version, as autograd sees it. A spool with a device tier on the GPU is given the
memory instead, and does that by itself. A tensor that comes back is allocated on the stream that
computes, which waits for the copy where the tensor is first used.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["Lanes"]


class Lanes:
    """The streams for copies into one spool and back.

    Attributes:
        bytes: of tensors that leave, and are held.
    """

    def __init__(self) -> None:
        self.bytes = 0
        # The backward passes of several GPUs are in threads of their own.
        self._lock = threading.Lock()
        self._leaving: deque[tuple[Any, Any, torch.Tensor, Sequence[Any]]] = deque()
        self._streams: dict[tuple[torch.device, bool], Any] = {}
        self._gives: dict[torch.device, bool] = {}

    def gives(self, spool: Any, device: torch.device) -> bool:
        """Whether the device tier of the spool can have the memory of tensors there."""
        if device not in self._gives:
            fastest = spool.stats().tiers[0].name
            self._gives[device] = spool.device == str(device) and fastest == "device"
        return self._gives[device]

    def _stream(self, device: torch.device, *, away: bool) -> Any:
        key = (device, away)
        if key not in self._streams:
            self._streams[key] = torch.cuda.Stream(device)
        return self._streams[key]

    @contextlib.contextmanager
    def _on(self, lane: Any, stream: Any) -> Iterator[None]:
        """Calls whose copies are on `lane`, after what is on `stream`. As it is PyTorch's current
        stream, and not one that the call is given, the spool holds no reference to the tensor."""
        lane.wait_stream(stream)
        try:
            with torch.cuda.stream(lane):
                yield
        except BaseException:
            # The memory may be free after this, and a copy be under way.
            stream.wait_stream(lane)
            raise

    def save(
        self,
        spool: Any,
        version: int,
        whole: torch.Tensor,
        moved: Sequence[Any],
        stream: Any,
        options: dict[str, Any],
    ) -> None:
        """Copies a tensor of `stream` into a spool, and holds it until there has to be room. Those
        of `moved` are told when they are let go of."""
        lane = self._stream(whole.device, away=True)
        with self._on(lane, stream):
            spool.save(version, whole, **options)
        with self._lock:
            self._leaving.append((lane.record_event(), stream, whole, moved))
            self.bytes += whole.untyped_storage().nbytes()

    def make_room(self, most: int) -> None:
        """Lets go of tensors that leave, the oldest first, until no more than `most` bytes of them
        are held."""
        while self.bytes > most:
            with self._lock:
                if not self._leaving:
                    return
                left, stream, whole, moved = self._leaving.popleft()
                self.bytes -= whole.untyped_storage().nbytes()
            stream.wait_event(left)
            for each in moved:
                each.left()

    def restore(self, spool: Any, version: int, whole: torch.Tensor, stream: Any) -> Any:
        """Copies from a spool into a new tensor of `stream`: the event after which it is there."""
        lane = self._stream(whole.device, away=False)
        # What had the memory before may still run.
        with self._on(lane, stream):
            spool.restore(version, whole)
        return lane.record_event()
