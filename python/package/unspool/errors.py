"""What goes wrong, as exceptions.

Every exception of this package is an `Error`. Its text says what failed, why, and what to do. Where
Python has a class for the same thing (`KeyError`, `TimeoutError`, ...), the exception is one of
those too, so that programs which catch those go on working.
"""

from __future__ import annotations

__all__ = [
    "ArrayError",
    "CapacityError",
    "ClosedError",
    "CorruptCheckpointError",
    "DeviceError",
    "Error",
    "LostCheckpointError",
    "MessageError",
    "MissingLibraryError",
    "OptionError",
    "RefusedError",
    "ScheduleError",
    "StorageError",
    "UnknownVersionError",
    "VersionExistsError",
    "WaitTimeoutError",
]


def shown(value: object) -> str:
    """A value as an error shows it, cut where it is long."""
    try:
        text = repr(value)
    except Exception:
        # Such as that of an integer with more digits than Python writes.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


class Error(Exception):
    """The base of all exceptions of this package. Raised itself for a mistake in Unspool.

    Attributes:
        version: the version that the failing call named, or None.
        retryable: whether the same call may succeed later without any change of the options:
            after a discard, a restore, or when the medium works again.
    """

    version: int | None = None
    retryable: bool = False

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class VersionExistsError(Error, ValueError):
    """The version is already saved; discard it first, or use another number."""


class UnknownVersionError(Error, KeyError):
    """The version was never saved or was discarded; or another thread is saving it (retryable)."""


class CapacityError(Error):
    """No tier has room and none can be made, or the checkpoint is larger than every tier."""


class StorageError(Error, OSError):
    """A medium failed; the text names the file or directory and the bytes.

    Attributes:
        errno: the number of the operating system's error, or None.
        filename: the file or directory, or None where the text alone names it.
    """

    def __reduce__(self) -> tuple[object, ...]:
        state = {**self.__dict__, "errno": self.errno, "filename": self.filename}
        return type(self), self.args, state


class CorruptCheckpointError(Error):
    """The bytes that came back are not those that were saved. Nothing was given out.

    Raised also when what was encoded breaks its bound, which `check_codec` looks for; nothing was
    saved then.
    """


class LostCheckpointError(Error):
    """The last copy of the checkpoint is lost."""


class WaitTimeoutError(Error, TimeoutError):
    """A call waited for as long as the option `timeout` allows."""


class DeviceError(Error, RuntimeError):
    """CUDA refused a call, work on a GPU failed, or an array belongs to another GPU than the spool.

    Raised also where there is no CUDA driver or no such GPU (`unspool doctor` says what is
    missing), and for a stream that is being captured into a graph.
    """


class ClosedError(Error, ValueError):
    """The spool is closed, or it belongs to the process that forked this one."""


class OptionError(Error, ValueError, TypeError):
    """An option does not exist, or its value makes no sense.

    Raised also for what a spool cannot do at all: it cannot be copied, pickled or sent to another
    process.
    """


class RefusedError(Error, OSError):
    """The machine does not let this process do it; the text names the call and what it needs."""


class ScheduleError(Error, ValueError):
    """A schedule cannot be made, or its actions break a rule; the text names the action."""


class MessageError(Error, RuntimeError):
    """A message between ranks could not be sent or received; the text names rank, peer and tag.

    What came is damaged, out of order, not of a channel, or of another dtype or shape than the
    array that it is received into; or the communicator has failed. The array to receive into may
    have any values then.
    """


class MissingLibraryError(Error, ImportError):
    """A library that a call needs is not installed."""


class ArrayError(Error, ValueError, TypeError):
    """The arrays of a call are not those that it needs.

    What was given is not an array, or not one whose memory can be used from here; the number, the
    names, the shapes or the dtypes are not those that were saved; the target of a restore is
    read-only or its elements share memory; or the arrays exceed a limit of the format, such as
    65,536 arrays in a checkpoint.
    """
