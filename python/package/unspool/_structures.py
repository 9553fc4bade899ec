"""Layouts of structured items: as text that a checkpoint keeps, and back.

The text is what NumPy takes for a dtype, written as a Python literal: a list of fields where they
follow one another, with the padding between them, and else a dictionary with the offset of each.
Equal layouts have equal texts, and layouts whose fields lie elsewhere have other ones.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ._unspool import Exporter
from .errors import ArrayError

# What `ast.literal_eval` and NumPy raise for a text that is not a layout.
_UNREADABLE = (KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError)

# One item of the buffer protocol that is not a structure: `>d`, `5s`, `Zg`.
_PLAIN = re.compile(r"[@=<>!^]?(\d*[a-zA-Z?]|Z[fdg])")

# The kinds of NumPy's type strings, by the codes of ctypes.
_KINDS = {
    **dict.fromkeys("bhilq", "i"),
    **dict.fromkeys("BHILQ", "u"),
    **dict.fromkeys("fdg", "f"),
    "?": "b",
    "c": "S",
}


class _Field(NamedTuple):
    """One field: `form` is its text, or the literal of a structure; `size` counts its `shape`."""

    name: str
    form: Any
    shape: tuple[int, ...]
    offset: int
    size: int
    title: str | None = None


def of_dtype(dtype: Any) -> str:
    """The layout of a structured dtype of NumPy."""
    return repr(_of_dtype(dtype))


def of_buffer(exporter: Any, form: str, itemsize: int) -> str:
    """What a checkpoint calls the items of a buffer whose format is `form`.

    Raises:
        ArrayError: where the fields lie cannot be known, or they are addresses.
    """
    while isinstance(exporter, memoryview):
        exporter = exporter.obj
    element = _ctypes_element(type(exporter))
    if element is not None:
        return f"numpy:{_of_ctypes(element)!r}"
    if _PLAIN.fullmatch(form):
        _check_size(form, itemsize)
        return form
    return f"numpy:{of_dtype(_read_by_numpy(form, itemsize))}"


def dtype_of(text: str, leaf: Callable[[str], Any]) -> Any:
    """The dtype of NumPy with this layout; `leaf` makes those of single values from their names.

    Raises:
        ArrayError: the text is not a layout.
    """
    numpy = importlib.import_module("numpy")
    try:
        return _to_dtype(numpy, ast.literal_eval(text), leaf)
    except _UNREADABLE as cause:
        message = f"NumPy cannot read the layout {text[:200]!r}; restore() into an array"
        raise ArrayError(message) from cause


# NumPy's dtypes.


@functools.lru_cache(maxsize=256)
def _of_dtype(dtype: Any) -> Any:
    if dtype.names is None:
        own = importlib.import_module("numpy").dtype(dtype.str) == dtype
        return dtype.str if own else dtype.name
    fields = []
    for name in dtype.names:
        inner, offset, *title = dtype.fields[name]
        base, shape = inner.subdtype or (inner, ())
        form, size = _of_dtype(base), inner.itemsize
        text = title[0] if title and isinstance(title[0], str) else None
        fields.append(_Field(name, form, tuple(shape), offset, size, text))
    return _spelled(fields, dtype.itemsize)


def _to_dtype(numpy: Any, literal: Any, leaf: Callable[[str], Any]) -> Any:
    if isinstance(literal, str):
        return leaf(literal)
    if isinstance(literal, tuple):
        base, shape = literal
        return numpy.dtype((_to_dtype(numpy, base, leaf), shape))
    described = literal if isinstance(literal, dict) else _with_offsets(numpy, literal, leaf)
    if not described["names"] and described["itemsize"]:
        return numpy.dtype((numpy.void, described["itemsize"]))
    formats = [
        _to_dtype(numpy, form, leaf) if isinstance(form, (str, tuple, list, dict)) else form
        for form in described["formats"]
    ]
    return numpy.dtype({**described, "formats": formats})


def _with_offsets(numpy: Any, rows: list[Any], leaf: Callable[[str], Any]) -> dict[str, Any]:
    """Fields that follow one another, each with its offset."""
    found: dict[str, Any] = {"names": [], "formats": [], "offsets": [], "titles": []}
    end = 0
    for name, form, *shape in rows:
        dtype = _to_dtype(numpy, (form, *shape) if shape else form, leaf)
        title, name = name if isinstance(name, tuple) else (None, name)
        if name:
            for key, value in zip(found, (name, dtype, end, title), strict=True):
                found[key].append(value)
        end += dtype.itemsize
    if not any(found["titles"]):
        del found["titles"]
    return {**found, "itemsize": end}


def _spelled(fields: list[_Field], itemsize: int) -> Any:
    rows: list[Any] = []
    end = 0
    for field in fields:
        if field.offset < end:
            return _by_offset(fields, itemsize)
        if field.offset > end:
            rows.append(("", f"|V{field.offset - end}"))
        name = field.name if field.title is None else (field.title, field.name)
        rows.append((name, field.form, field.shape) if field.shape else (name, field.form))
        end = field.offset + field.size
    return [*rows, ("", f"|V{itemsize - end}")] if itemsize > end else rows


def _by_offset(fields: list[_Field], itemsize: int) -> dict[str, Any]:
    titles = [field.title for field in fields]
    return {
        "names": [field.name for field in fields],
        "formats": [(field.form, field.shape) if field.shape else field.form for field in fields],
        "offsets": [field.offset for field in fields],
        **({"titles": titles} if any(titles) else {}),
        "itemsize": itemsize,
    }


# ctypes, whose formats leave padding, unions and packed structures out.


def _ctypes_element(kind: Any) -> Any:
    """The class of the structures in an object of `ctypes`, or None."""
    ctypes: Any = importlib.import_module("ctypes")
    while issubclass(kind, ctypes.Array):
        kind = kind._type_
    return kind if issubclass(kind, (ctypes.Structure, ctypes.Union)) else None


def _of_ctypes(kind: Any) -> Any:
    ctypes: Any = importlib.import_module("ctypes")
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return _spelled(_ctypes_fields(ctypes, kind), ctypes.sizeof(kind))
    form, size = memoryview(kind()).format or "", ctypes.sizeof(kind)
    letter = _KINDS.get(form[-1:])
    if letter is None or len(form) > 2:
        raise ArrayError(
            f"its items hold a {kind.__name__}, which is not a number (addresses mean nothing "
            f"after they are read back): copy the numbers to arrays and save those"
        )
    order = "|" if size == 1 else ">" if form.startswith(">") else "<"
    return f"{order}{letter}{size}"


def _ctypes_fields(ctypes: Any, kind: Any) -> list[_Field]:
    fields: dict[str, _Field] = {}
    for base in reversed(kind.__mro__):
        for name, inner, *bits in vars(base).get("_fields_", ()):
            if bits or name in fields:
                why = "is made of bits" if bits else "is there twice"
                raise ArrayError(
                    f"its field {name!r} {why}, which NumPy has no words for: save a copy with "
                    f"whole numbers, or its bytes by bytes(it)"
                )
            size, shape = ctypes.sizeof(inner), []
            while issubclass(inner, ctypes.Array):
                shape.append(inner._length_)
                inner = inner._type_
            offset = getattr(kind, name).offset
            fields[name] = _Field(name, _of_ctypes(inner), tuple(shape), offset, size)
    return list(fields.values())


# Other exporters of the buffer protocol.


def _check_size(form: str, itemsize: int) -> None:
    try:
        expected = struct.calcsize(form)
    except struct.error:
        return
    if expected != itemsize:
        raise ArrayError(
            f"its items have {itemsize} bytes and the format {form!r} of {expected}, so that where "
            f"its fields lie cannot be known: pass a NumPy array of it, or its bytes"
        )


def described_dtype(numpy: Any, size: int, tag: str) -> Any:
    """The dtype with this format. NumPy leaves the padding at the end of a structure out when it
    writes a format, and insists on it when it reads one: as much is added as it takes."""
    for padding in range(size):
        described = f"{tag[:-1]}{'x' * padding}}}" if padding else tag
        with contextlib.suppress(RuntimeError, ValueError):
            return numpy.asarray(Exporter(described, size)).dtype
    message = f"NumPy cannot read the item format {tag!r} of {size} bytes; restore() into an array"
    raise ArrayError(message)


def _read_by_numpy(form: str, itemsize: int) -> Any:
    try:
        dtype = described_dtype(importlib.import_module("numpy"), itemsize, form)
    except ImportError:
        why = "only NumPy can read it, and it is not installed: pip install numpy"
    except ArrayError:
        why = "NumPy cannot read it: pass a NumPy array of it, or its bytes"
    else:
        if dtype.itemsize == itemsize and dtype.names is not None:
            return dtype
        why = "NumPy reads it as something else: pass a NumPy array of it, or its bytes"
    raise ArrayError(f"its items have the format {form!r}, which says where fields lie; {why}")
