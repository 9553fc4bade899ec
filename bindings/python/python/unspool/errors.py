"""What goes wrong, as exceptions.

Every exception of this package is an `Error`. Its text says what failed, why, and what to do. Where
Python has a class for the same thing (`KeyError`, `TimeoutError`, ...), the exception is one of
those too, so that programs which catch those go on working.
"""

from __future__ import annotations

__all__ = [
    "BoundViolatedError",
    "CheckpointTooLargeError",
    "ClosedError",
    "CorruptCheckpointError",
    "DeviceError",
    "DiscardedVersionError",
    "DtypeMismatchError",
    "Error",
    "ForkedError",
    "InternalError",
    "LayoutError",
    "LostCheckpointError",
    "MissingLibraryError",
    "NoDeviceError",
    "NotPicklableError",
    "NotYetSavedError",
    "OptionError",
    "OverlappingTargetError",
    "ReadOnlyTargetError",
    "RegionMismatchError",
    "ScheduleError",
    "ShapeMismatchError",
    "StorageError",
    "TierFullError",
    "UnknownOptionError",
    "UnknownVersionError",
    "UnsupportedArrayError",
    "VersionExistsError",
    "WaitTimeoutError",
    "WrongDeviceError",
]


class Error(Exception):
    """The base of all exceptions of this package.

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
    """The version was never saved."""


class DiscardedVersionError(Error, KeyError):
    """The version was saved and then discarded."""


class NotYetSavedError(Error):
    """Another thread is saving the version at this moment."""


class CheckpointTooLargeError(Error, ValueError):
    """The checkpoint is larger than every tier."""


class TierFullError(Error):
    """No room can be made in any tier."""


class StorageError(Error, OSError):
    """A medium failed; the text names the file or directory and the bytes.

    Attributes:
        errno: the number of the operating system's error, or None.
    """

    def __reduce__(self) -> tuple[object, ...]:
        state = {**self.__dict__, "errno": self.errno}
        return type(self), self.args, state


class CorruptCheckpointError(Error):
    """The bytes that came back are not those that were saved. Nothing was given out."""


class BoundViolatedError(Error, ArithmeticError):
    """What was encoded breaks its bound, which `check_codec` found. Nothing was saved."""


class LostCheckpointError(Error):
    """The last copy of the checkpoint is lost."""


class WaitTimeoutError(Error, TimeoutError):
    """A call waited for as long as the option `timeout` allows."""


class DeviceError(Error, RuntimeError):
    """CUDA refused a call, work on the GPU failed, or a stream is being captured into a graph."""


class NoDeviceError(DeviceError):
    """There is no CUDA driver, or no such GPU; `unspool doctor` says what is missing."""


class ClosedError(Error, ValueError):
    """The spool is closed."""


class ForkedError(Error, RuntimeError):
    """The spool belongs to the process that forked this one; open another one here."""


class OptionError(Error, ValueError):
    """A value of an option makes no sense."""


class ScheduleError(Error, ValueError):
    """A schedule cannot be made, or its actions break a rule; the text names the action."""


class UnknownOptionError(Error, TypeError):
    """There is no such option."""


class MissingLibraryError(Error, ImportError):
    """A library that a call needs is not installed."""


class NotPicklableError(Error, TypeError):
    """A spool cannot be copied, pickled or sent to another process."""


class InternalError(Error, RuntimeError):
    """A mistake in Unspool itself: please report it."""


class LayoutError(Error):
    """The arrays of a call are not those that it needs: the base of the classes below.

    Raised itself when arrays exceed a limit of the format, such as 65,536 arrays in a checkpoint.
    """


class UnsupportedArrayError(LayoutError, TypeError):
    """What was given is no array, or one whose memory cannot be used from here."""


class WrongDeviceError(UnsupportedArrayError):
    """An array or a stream belongs to another GPU than the spool: open a spool for each GPU."""


class RegionMismatchError(LayoutError, ValueError):
    """Other arrays were given than those that were saved: their number or their names differ."""


class ShapeMismatchError(LayoutError, ValueError):
    """The target of a restore has another shape than the array that was saved."""


class DtypeMismatchError(LayoutError, TypeError):
    """The target of a restore has another dtype than the array that was saved."""


class ReadOnlyTargetError(LayoutError, ValueError):
    """The target of a restore must not be written."""


class OverlappingTargetError(LayoutError, ValueError):
    """Elements of the targets of a restore share memory, so that they cannot all be right."""
