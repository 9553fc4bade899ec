"""Functions of the CUDA driver that CuPy does not offer, or not for every driver, by ctypes."""

from __future__ import annotations

import ctypes
import os
from typing import Any

__all__ = ["Driver", "DriverError", "Location"]

#: Places of memory: `CU_MEM_LOCATION_TYPE_DEVICE`, `_HOST`, `_HOST_NUMA`.
ON_DEVICE, ON_HOST, ON_HOST_NODE = 1, 2, 3


class DriverError(RuntimeError):
    """The driver has no such function, or refused it; the text says which and why."""


class Location(ctypes.Structure):
    """`CUmemLocation`: a kind of place, and the number of the device or NUMA node."""

    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


class Driver:
    """The driver's library: that of the system, or the one that `UNSPOOL_CUDA_DRIVER` names.

    Raises:
        DriverError: it cannot be loaded.
    """

    def __init__(self) -> None:
        name = os.environ.get("UNSPOOL_CUDA_DRIVER") or "libcuda.so.1"
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise DriverError(f"the CUDA driver cannot be loaded: {error}") from error

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function; its arguments are ctypes of the right width.

        Raises:
            DriverError: there is no such function, or it failed.
        """
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise DriverError(f"this driver has no {name}") from None
        if code:
            raise DriverError(f"{name} failed with {code}: {self._text(code)}")

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"unknown").decode()
