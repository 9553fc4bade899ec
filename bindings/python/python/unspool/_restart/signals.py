"""Signals that ask a run to stop, while a Checkpointer is open."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ..errors import OptionError

__all__ = ["Signals"]


class Signals:
    """Handlers of signals, which go when `restore` is called.

    They do nothing but call what `install` was given, and then what was there before. Only the main
    thread of a process may install handlers: elsewhere there are none.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._numbers = [_number(name) for name in names]
        self._before: dict[int, Any] = {}

    def install(self, stop: Callable[[], None]) -> None:
        """Has signals call `stop`."""
        self._stop = stop
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stop()
        before = self._before.get(number)
        if callable(before):
            before(number, frame)

    def restore(self) -> None:
        """Puts back what was there before, unless somebody else has replaced it since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}


def _number(name: str) -> int:
    found = getattr(signal, name, None) if isinstance(name, str) else None
    if not isinstance(found, signal.Signals):
        raise OptionError(f"signals=...: {name!r} is not the name of a signal such as 'SIGTERM'.")
    return found
