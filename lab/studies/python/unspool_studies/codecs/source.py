"""Arrays in files: `.npy`, `.npz`, HDF5 and raw bytes, read as far as they fit."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from unspool.codecs.host import host_array, name_of, numpy_dtype
from unspool.errors import Error
from unspool.stats import size as size_text

__all__ = ["ArrayFileError", "Source", "read_source"]

HDF5 = frozenset({".h5", ".hdf5", ".hdf", ".he5"})

#: What the names of raw files say about their items.
SUFFIXES = {".f16": "<f2", ".f32": "<f4", ".f64": "<f8", ".d64": "<f8"}


class ArrayFileError(Error, ValueError):
    """A file that holds no array which can be read here."""


@dataclass(frozen=True, slots=True)
class Source:
    """An array of a file.

    Attributes:
        name: the file, and where in it.
        array: its values, or a part of them, in C order.
        notes: what was done to them, in words.
    """

    name: str
    array: Any
    notes: tuple[str, ...]


def read_source(text: str, shape: tuple[int, ...] | None, dtype: str | None, most: int) -> Source:
    """Reads an array.

    Arguments:
        text: the file, for HDF5 and `.npz` with `:` and the name of the dataset.
        shape: that of a raw file; checked for others.
        dtype: that of a raw file.
        most: bytes; of a longer array a part is read.

    Raises:
        ArrayFileError: there is no such file or array, or it is none of numbers.
    """
    path, inside = _split(text)
    try:
        with _opened(path, inside, shape, dtype) as found:
            return _taken(text, found, shape, most)
    except OSError as error:
        why = error.strerror or str(error)
        raise ArrayFileError(f"{path} cannot be read: {why}") from error


def _split(text: str) -> tuple[Path, str | None]:
    """The file, and the name after a colon."""
    path = Path(text)
    if path.exists():
        inside = None
    else:
        name, colon, rest = text.rpartition(":")
        path, inside = (Path(name), rest) if colon and Path(name).exists() else (path, None)
    if path.is_dir():
        raise ArrayFileError(f"{path} is a directory: name a file in it")
    if not path.exists():
        raise ArrayFileError(f"there is no file {path}")
    return path, inside


@contextlib.contextmanager
def _opened(
    path: Path, inside: str | None, shape: tuple[int, ...] | None, dtype: str | None
) -> Iterator[Any]:
    """Something with shape, dtype and slices, whose items are read when they are asked for."""
    kind = path.suffix.lower()
    if kind in HDF5:
        with _hdf5(path) as file:
            yield _dataset(path, file, inside)
        return
    if inside is not None and kind != ".npz":
        raise ArrayFileError(f"{path}: only HDF5 and .npz files have parts such as :{inside}")
    if kind in {".npy", ".npz"}:
        yield _numpy(path, inside)
    else:
        yield _raw(path, shape, dtype)


def _hdf5(path: Path) -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        text = f"{path}: reading HDF5 needs the package h5py: pip install h5py"
        raise ArrayFileError(text) from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ArrayFileError(f"{path} is not an HDF5 file that can be read: {error}") from error


def _dataset(path: Path, file: Any, inside: str | None) -> Any:
    import h5py

    known: list[str] = []
    file.visititems(
        lambda name, item: known.append(name) if isinstance(item, h5py.Dataset) else None
    )
    if inside is None and len(known) == 1:
        inside = known[0]
    if inside is not None and inside.strip("/") in known:
        return file[inside]
    raise ArrayFileError(_no_such(path, inside, known))


def _no_such(path: Path, inside: str | None, known: list[str]) -> str:
    if not known:
        return f"{path} holds no array"
    shown = ", ".join(sorted(known)[:8]) + (", ..." if len(known) > 8 else "")
    what = "holds several arrays" if inside is None else f"holds no array {inside}"
    return f"{path} {what}: name one, such as {path}:{sorted(known)[0]} (it has {shown})"


def _numpy(path: Path, inside: str | None) -> Any:
    try:
        if path.suffix.lower() == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with np.load(path, allow_pickle=False) as archive:
            known = list(archive)
            if inside is None and len(known) == 1:
                inside = known[0]
            if inside in known:
                return archive[inside]
            raise ArrayFileError(_no_such(path, inside, known))
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, ArrayFileError):
            raise
        # NumPy's own text recommends pickles, which can run programs.
        kind = path.suffix.lower()
        raise ArrayFileError(f"{path} is no {kind} file that holds numbers") from error


def _raw(path: Path, shape: tuple[int, ...] | None, dtype: str | None) -> Any:
    spelled = dtype or SUFFIXES.get(path.suffix.lower())
    if spelled is None:
        raise ArrayFileError(
            f"{path} is taken for raw numbers: say which, such as --dtype float32 (<f4 for "
            "little-endian, >f4 for big-endian) and --shape 1000x401; .npy, .npz and HDF5 files "
            "say it themselves"
        )
    found = _dtype(spelled)
    count, rest = divmod(path.stat().st_size, found.itemsize)
    if shape is None and rest:
        raise ArrayFileError(
            f"{path} has {path.stat().st_size:,} bytes, no whole number of {found.name}: check "
            "--dtype"
        )
    shape = (count,) if shape is None else shape
    if (math.prod(shape), 0) != (count, rest):
        raise ArrayFileError(
            f"{path} has {path.stat().st_size:,} bytes; {_by(shape)} {found.name} are "
            f"{math.prod(shape) * found.itemsize:,}: check --shape and --dtype"
        )
    if not count:
        return np.zeros(shape, found)
    return np.memmap(path, found, "r", shape=shape)


def _dtype(spelled: str) -> Any:
    try:
        found = np.dtype(spelled)
    except TypeError:
        try:
            found = numpy_dtype(spelled)
        except Error as error:
            text = f"--dtype {spelled}: there is no such dtype; write float32, <f8, int16, ..."
            raise ArrayFileError(text) from error
    if found.hasobject or not found.itemsize:
        raise ArrayFileError(f"--dtype {spelled}: that is not a dtype of numbers")
    return found


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _taken(text: str, found: Any, shape: tuple[int, ...] | None, most: int) -> Source:
    """What is read of an open array."""
    try:
        name_of(np.dtype(found.dtype).newbyteorder("="))
    except (Error, TypeError) as error:
        raise ArrayFileError(f"{text} holds items of dtype {found.dtype}: no numbers") from error
    if shape is not None and tuple(found.shape) != shape:
        wrong = f"{text} holds {_by(tuple(found.shape))} items, and not {_by(shape)}"
        raise ArrayFileError(f"{wrong}: leave --shape out, the file says it")
    part, notes = _part(found, most)
    # Nothing of a file is copied before its part was chosen.
    array = host_array(np.asarray(part))
    if not np.dtype(found.dtype).isnative:
        notes.append("byte order turned to that of this machine")
    if isinstance(found, np.ndarray) and not found.flags.c_contiguous:
        notes.append("items put into C order")
    return Source(text, array, tuple(notes))


def _part(found: Any, most: int) -> tuple[Any, list[str]]:
    """The middle of an array that is too large: whole planes as long as one fits."""
    shape, words = tuple(found.shape), []
    at: list[Any] = []
    item = np.dtype(found.dtype).itemsize
    while shape and math.prod(shape) * item > most:
        plane = max(math.prod(shape[1:]) * item, 1)
        count = min(max(most // plane, 1), shape[0])
        begin = (shape[0] - count) // 2
        axis = len(at)
        if count == 1 and len(shape) > 1:
            at.append(begin)
            shape = shape[1:]
            words.append(f"index {begin:,} of axis {axis}")
        else:
            at.append(slice(begin, begin + count))
            words.append(f"{begin:,} to {begin + count:,} of {shape[0]:,} along axis {axis}")
            break
    if not at:
        return found[()], []
    whole = size_text(math.prod(found.shape) * item)
    return found[tuple(at)], [f"a sample of {whole}: {', '.join(words)}; --most takes more"]
