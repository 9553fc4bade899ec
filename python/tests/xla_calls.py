"""Calls of XLA's interface for foreign functions, made by ctypes: what jaxlib does for a program on
a GPU, for tests without one.

The structures are those of `xla/ffi/api/c_api.h`, version 0.3, written down here once more: a field
that the extension has in another place shows.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np
from unspool._unspool import jax_handlers

CODES = {"float32": 11, "float64": 12, "int32": 4, "uint32": 8, "bool": 1}


def structure(name: str, *fields: tuple[str, Any]) -> Any:
    """A structure that begins with its size and its extensions, as all of them do."""
    head = [("size", c_size_t), ("extensions", c_void_p)]
    return type(name, (Structure,), {"_fields_": [*head, *fields]})


Version = structure("Version", ("major", c_int), ("minor", c_int))
ErrorCreate = structure("ErrorCreate", ("message", c_char_p), ("code", c_int))
Get = structure("Get", ("context", c_void_p), ("found", c_int64))
Buffer = structure(
    "Buffer", ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))
)
Values = structure("Values", ("count", c_int64), ("kinds", c_void_p), ("values", c_void_p))
Attributes = structure(
    "Attributes", ("count", c_int64), ("kinds", c_void_p), ("names", c_void_p), ("values", c_void_p)
)


class Metadata(Structure):
    _fields_ = (("size", c_size_t), ("version", Version), ("traits", ctypes.c_uint32))


class Extension(Structure):
    _fields_ = (("size", c_size_t), ("kind", c_int), ("next", c_void_p), ("metadata", c_void_p))


CREATE = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorCreate))
GET = ctypes.CFUNCTYPE(c_void_p, POINTER(Get))
#: The functions after the version, in their order.
NAMES = """error_create error_message error_destroy register stream_get type_register context_get
    state_set state_get allocate free schedule threads future_create future_set future_fail
    run_id_get device_ordinal_get""".split()
USED = {"error_create": CREATE, "stream_get": GET, "run_id_get": GET}
FUNCTIONS = [(name, USED.get(name, c_void_p)) for name in NAMES]
Api = structure("Api", ("version", Version), ("internal", c_void_p), *FUNCTIONS)
Frame = structure(
    "Frame",
    ("api", POINTER(Api)),
    ("context", c_void_p),
    ("stage", c_int),
    ("operands", Values),
    ("results", Values),
    ("attributes", Attributes),
    ("future", c_void_p),
)


class Span(Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", c_void_p))


class Failed(Exception):
    """What a handler has answered."""


def sized(made: Any) -> Any:
    made.size = ctypes.sizeof(made)
    return made


class Xla:
    """A program that runs: calls handlers for a GPU, on a stream, as one execution.

    Attributes:
        run: the number of the execution.
        stream: on which it enqueues.
    """

    def __init__(self, stream: int, *, cuda: bool = True) -> None:
        self.stream, self.run, self.errors = stream, 1, [b""]
        self.handlers = {}
        for name, host, device in jax_handlers():
            address = device if cuda else host
            self.handlers[name] = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))(address)
        self.api = sized(Api())
        self.api.version = sized(Version(major=0, minor=3))
        self.api.error_create = CREATE(self._fail)
        self.api.stream_get = GET(self._stream)
        self.api.run_id_get = GET(self._run)

    def _fail(self, given: Any) -> int:
        self.errors.append(given.contents.message)
        return len(self.errors) - 1

    def _stream(self, given: Any) -> None:
        given.contents.found = self.stream

    def _run(self, given: Any) -> None:
        given.contents.found = self.run

    def call(
        self, name: str, operands: list[Any], results: list[Any], *, loop: int, site: int = 1
    ) -> None:
        """Calls a handler; arrays are pairs of an address and a NumPy array that is like them."""
        kept: list[Any] = []
        frame = sized(Frame())
        frame.api = ctypes.pointer(self.api)
        frame.stage = 3
        frame.operands = self._values(operands, kept)
        frame.results = self._values(results, kept)
        frame.attributes = self._attributes({"loop": loop, "site": site}, kept)
        if error := self.handlers[f"unspool_{name}"](ctypes.byref(frame)):
            raise Failed(self.errors[error].decode())

    def _values(self, arrays: list[Any], kept: list[Any]) -> Any:
        pointers = (c_void_p * len(arrays))()
        for n, (address, like) in enumerate(arrays):
            dims = (c_int64 * like.ndim)(*like.shape)
            buffer = sized(Buffer(dtype=CODES[str(like.dtype)], data=address, rank=like.ndim))
            buffer.dims = ctypes.cast(dims, POINTER(c_int64))
            kept += [dims, buffer]
            pointers[n] = ctypes.addressof(buffer)
        kept.append(pointers)
        return sized(Values(count=len(arrays), values=ctypes.addressof(pointers)))

    def _attributes(self, numbers: dict[str, int], kept: list[Any]) -> Any:
        count = len(numbers)
        kinds = (c_int * count)(*[3] * count)
        names, values = (c_void_p * count)(), (c_void_p * count)()
        for n, (name, number) in enumerate(sorted(numbers.items())):
            value = c_int64(number)
            span = Span(name.encode(), len(name))
            scalar = Scalar(5, ctypes.addressof(value))
            kept += [value, span, scalar]
            names[n], values[n] = ctypes.addressof(span), ctypes.addressof(scalar)
        kept += [kinds, names, values]
        places = [ctypes.addressof(each) for each in (kinds, names, values)]
        return sized(Attributes(count=count, kinds=places[0], names=places[1], values=places[2]))


def token() -> np.ndarray:
    """What a token is like."""
    return np.zeros(2, np.uint32)
