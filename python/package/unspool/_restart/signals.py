"""Signals that ask runs to stop, for as long as their Checkpointers are open.

All Checkpointers of a process share one handler a signal. A handler of somebody else may lie above
it or below it: one above it may call ours as long as it likes, so a handler of ours never goes out
of use. While no Checkpointer is open, it does with a signal what was done before it was installed.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ..errors import OptionError, shown

__all__ = ["Signals"]

Stop = Callable[[int], None]

#: What is to be called for each signal: a list of the open Checkpointers.
_asked: dict[int, list[Stop]] = {}

#: Signals that no process can handle.
_UNHANDLED = (signal.SIGKILL, signal.SIGSTOP)

#: More bytes than a `struct sigaction` has; the address of its handler comes first.
_ACTION_BYTES = 256


class Signals:
    """The signals of one Checkpointer: they call `stop` with their numbers from `install` to
    `restore`.

    Both may be called in any thread. Only the main thread can install a handler where there is
    none of ours yet: signals do nothing for a Checkpointer that is opened elsewhere.

    Raises:
        OptionError: there is no such signal, or nobody can handle it.
    """

    def __init__(self, names: str | Iterable[str]) -> None:
        listed = [names] if isinstance(names, str) else names
        if not isinstance(listed, Iterable):
            raise OptionError(f"signals={shown(names)}: write names, such as ('SIGTERM',), or ().")
        self._numbers = list(dict.fromkeys(map(_number, listed)))
        self._stop: Stop | None = None

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def install(self, stop: Stop) -> None:
        """Has signals call `stop`."""
        self._stop = stop
        for number in self._numbers:
            _asked.setdefault(number, []).append(stop)
            _install(number)

    def restore(self) -> None:
        """Has them call it no more. The last one puts back what was there before, unless somebody
        else has replaced it since."""
        stop, self._stop = self._stop, None
        if stop is None:
            return
        for number in self._numbers:
            if stop in _asked[number]:
                _asked[number].remove(stop)
            _remove(number)


class _Handler:
    """A handler that was installed for a signal, and what was there before it.

    Attributes:
        before: the handler as Python has it: a function, `SIG_DFL`, `SIG_IGN`; None for one that
            was not installed by Python.
        action: what the system had before.
        own: what the system has while this one is installed.
    """

    def __init__(self, number: int) -> None:
        self.number, self.action = number, _action(number)
        self.before = signal.getsignal(number)
        signal.signal(number, self)
        self.own = _action(number)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        stops = tuple(_asked.get(number, ()))
        for stop in stops:
            stop(number)
        if callable(self.before):
            self.before(number, frame)
        elif not stops or _function(self.action) > 1:
            self._act()

    def _act(self) -> None:
        """Has the system do with the signal what it did before."""
        above = _action(self.number)
        _set_action(self.number, self.action)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (self.number,))
        try:
            signal.raise_signal(self.number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _set_action(self.number, above)

    def reinstall(self) -> None:
        """Installs it once more, after `remove` in a thread that could not do all of it."""
        if _function(_action(self.number)) == _function(self.action):
            _set_action(self.number, self.own)

    def remove(self) -> bool:
        """Puts back what was before it, if it lies on top; whether it did so for Python as well."""
        on_top = _function(_action(self.number)) in (_function(self.own), _function(self.action))
        if not on_top:
            # Somebody has gone behind Python's back, and may call what Python has.
            return False
        if not callable(self.before):
            _set_action(self.number, self.action)
        try:
            signal.signal(self.number, signal.SIG_DFL if self.before is None else self.before)
        except ValueError:
            # Another thread than the main one: this handler goes on for what was before it.
            return False
        _set_action(self.number, self.action)
        return True


def _install(number: int) -> None:
    """Sees to it that a handler of ours is on top, where this thread can do so."""
    on_top = signal.getsignal(number)
    if isinstance(on_top, _Handler):
        on_top.reinstall()
        return
    try:
        _Handler(number)
    except ValueError:
        # Another thread than the main one.
        return


def _remove(number: int) -> None:
    """Takes handlers of ours away from the top while nobody needs them."""
    while not _asked[number]:
        on_top = signal.getsignal(number)
        if not isinstance(on_top, _Handler) or not on_top.remove():
            return


def _forget() -> None:
    """A forked process has no Checkpointer: signals act there as before."""
    for number, stops in _asked.items():
        stops.clear()
        _remove(number)


os.register_at_fork(after_in_child=_forget)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _action(number: int) -> bytes:
    """What the system does with a signal, as a `struct sigaction`."""
    buffer = ctypes.create_string_buffer(_ACTION_BYTES)
    if _libc().sigaction(number, None, buffer):
        raise OSError(ctypes.get_errno(), "sigaction failed")
    return buffer.raw


def _set_action(number: int, action: bytes) -> None:
    if _libc().sigaction(number, action, None):
        raise OSError(ctypes.get_errno(), "sigaction failed")


def _function(action: bytes) -> int:
    """The address of the handler in a `struct sigaction`; 0 and 1 are the default and none."""
    return int.from_bytes(action[: ctypes.sizeof(ctypes.c_void_p)], "little")


def _number(name: str) -> int:
    found = getattr(signal, name, None) if isinstance(name, str) else None
    if not isinstance(found, signal.Signals):
        raise OptionError(
            f"signals=...: {shown(name)} is not the name of a signal, such as 'SIGTERM'."
        )
    if found in _UNHANDLED:
        raise OptionError(f"signals=...: no process can handle {name}.")
    return found
