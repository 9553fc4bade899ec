"""Moments in the work of a device: of a GPU, without waiting for it."""

from __future__ import annotations

import time
from typing import Any

import torch

__all__ = ["Clock"]


class Clock:
    """The clock of one device."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None

    def mark(self) -> Any:
        """This moment: of a GPU, when it has done what was enqueued so far."""
        if self._gpu is None:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._gpu))
        return event

    def passed(self, mark: Any) -> bool:
        """Whether the moment is over."""
        return self._gpu is None or bool(mark.query())

    def seconds(self, one: Any, other: Any) -> float:
        """From one moment to a later one, which is waited for."""
        if self._gpu is None:
            return float(other - one)
        other.synchronize()
        return float(one.elapsed_time(other)) / 1e3
