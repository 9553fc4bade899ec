"""An exporter of DLPack written with ctypes, which can lie in every way and counts its deleter."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
CPU, CUDA, CUDA_HOST, ROCM = 1, 2, 3, 10


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Plain(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = (("plain", Plain), ("context", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("plain", Plain),
    )


# Not that of `ctypes.pythonapi`: JAX gives that one argument types of its own.
_new = ctypes.PyDLL(None).PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass
class Exporter:
    """Exports the memory of a NumPy array by DLPack."""

    array: np.ndarray
    versioned: bool = True
    flags: int = 0
    major: int = 1
    device: int = CPU
    dtype: tuple[int, int, int] | None = None
    strides: bool = True
    offset: int = 0
    ndim: int | None = None
    null: bool = False
    address: int | None = None
    without_arguments: bool = False
    raises: BaseException | None = None
    exported: int = 0
    deleted: int = 0
    _alive: list[Any] = field(default_factory=list)

    def __dlpack__(self, **options: object) -> object:
        if self.raises is not None:
            raise self.raises
        if options and self.without_arguments:
            raise TypeError("__dlpack__() takes no keyword arguments")
        self.exported += 1
        return self._capsule()

    def _plain(self) -> Plain:
        array = self.array
        numbers = ctypes.c_int64 * array.ndim
        shape = numbers(*array.shape)
        strides = numbers(*(s // array.itemsize for s in array.strides))
        self._alive += [shape, strides]
        code = self.dtype or (CODES[array.dtype.kind], 8 * array.itemsize, 1)
        first = array.ctypes.data if self.address is None else self.address
        data = None if self.null else first - self.offset
        pointer = ctypes.POINTER(ctypes.c_int64)
        return Plain(
            data,
            self.device,
            0,
            array.ndim if self.ndim is None else self.ndim,
            DataType(*code),
            ctypes.cast(shape, pointer),
            ctypes.cast(strides, pointer) if self.strides else None,
            self.offset,
        )

    def _capsule(self) -> object:
        deleter = DELETER(self._delete)
        if self.versioned:
            tensor = Versioned(self.major, 0, None, deleter, self.flags, self._plain())
        else:
            tensor = Legacy(self._plain(), None, deleter)
        self._alive += [deleter, tensor]
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self._alive.append(name)
        return _new(ctypes.addressof(tensor), name, None)

    def _delete(self, _address: int) -> None:
        self.deleted += 1
