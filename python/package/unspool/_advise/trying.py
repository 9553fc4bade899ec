"""What codecs make of a sample of somebody's own arrays, and how fast."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
from unspool._advise.problem import Coded
from unspool._unspool import Spool
from unspool.codecs.host import is_lossy_dtype, name_of
from unspool.codecs.values import Bound
from unspool.errors import OptionError
from unspool.planning import Compression

__all__ = ["codings", "copy_rate", "is_on_gpu", "sample_of"]

#: The most bytes of one array that are tried.
MOST = 64 << 20

#: Bytes that are copied in order to see how fast that is.
COPIED = 64 << 20


def sample_of(checkpoint: Any) -> dict[str, Any] | None:
    """The arrays of a checkpoint by name, or None where only its size was given."""
    if isinstance(checkpoint, Number | str):
        return None
    arrays = dict(_leaves("", checkpoint))
    if not arrays:
        raise OptionError(
            'advise(checkpoint): give the bytes of one rank\'s checkpoint, such as "80GB", or its '
            "arrays."
        )
    return arrays


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _leaves(f"{name}.{place}" if name else str(place), inner)
    elif not hasattr(value, "nbytes"):
        raise OptionError(f"advise(checkpoint): {name or repr(value)[:60]} is not an array.")
    elif value.nbytes:
        yield name, value


def is_on_gpu(arrays: Mapping[str, Any]) -> bool:
    """Whether most of the bytes are on a GPU."""
    there = sum(one.nbytes for one in arrays.values() if _is_there(one))
    return bool(2 * there > sum(one.nbytes for one in arrays.values()))


def _is_there(array: Any) -> bool:
    # Tensors of PyTorch that need a gradient refuse to show the interface.
    known = getattr(array, "is_cuda", None)
    return hasattr(array, "__cuda_array_interface__") if known is None else bool(known)


def _name_of(codec: Any) -> str:
    """For people: `lossless`, `Bound(range=0.0001)`."""
    return codec if isinstance(codec, str) else repr(codec)


def _coded(codec: Any, arrays: Mapping[str, Any] | None, on_gpu: bool) -> Coded:
    """A codec tried on all arrays, or as it was given with its figures.

    Raises:
        OptionError: the codec has to be tried and there are no arrays.
    """
    if isinstance(codec, Compression):
        return _settled(codec, on_gpu)
    if arrays is None:
        raise OptionError(
            f"codecs={codec!r:.60}: nothing is known of what it does to your arrays; give them in "
            "place of their size, or a Compression(ratio=...)."
        )
    total = stored = encoding = decoding = 0.0
    for array in arrays.values():
        found, count = _tried(codec, array, on_gpu), array.nbytes
        total, stored = total + count, stored + count / found.ratio
        encoding, decoding = encoding + count / found.encode, decoding + count / found.decode
    ratio = max(1.0, total / stored)
    source = found.source if len(arrays) == 1 else f"{found.source}, {len(arrays)} arrays"
    return Coded(_name_of(codec), codec, ratio, total / encoding, total / decoding, source)


def _tried(codec: Any, array: Any, on_gpu: bool) -> Coded:
    """What is measured on an array, or a part of it."""
    if isinstance(codec, Bound) and not is_lossy_dtype(name_of(array.dtype)):
        codec = "lossless"
    return _settled(Compression.of(codec, _part(array)), on_gpu)


def _part(array: Any) -> Any:
    """The middle of an array that is large, along its first dimension."""
    if array.nbytes <= MOST or not array.shape:
        return array
    rows = max(1, array.shape[0] * MOST // array.nbytes)
    first = (array.shape[0] - rows) // 2
    return array[first : first + rows]


def _settled(given: Compression, on_gpu: bool) -> Coded:
    found = given.settled(on_gpu)
    name = f"ratio {found.ratio:.3g}" if given.codec is None else _name_of(given.codec)
    rates = found.encode.bytes_per_second, found.decode.bytes_per_second
    source = "; ".join(dict.fromkeys(found.sources))
    return Coded(name, given.codec, found.ratio, *rates, source)


def codings(codecs: Sequence[Any], arrays: Mapping[str, Any] | None, on_gpu: bool) -> list[Coded]:
    """All that were asked for."""
    return [_coded(one, arrays, on_gpu) for one in codecs]


def copy_rate(on_gpu: bool) -> float:
    """Bytes per second of a copy that an asynchronous save makes: into main memory as measured
    here, within a GPU as on an H100."""
    if on_gpu:
        return 1.4e12
    source, best = np.ones(COPIED, np.uint8), 0.0
    with Spool(host=COPIED + (1 << 20), on="cpu") as spool:
        # The first one touches the memory.
        for version in range(4):
            begin = time.perf_counter()
            spool.save(version, source)
            best = max(best, COPIED / max(time.perf_counter() - begin, 1e-9))
            spool.discard(version)
    return best
