"""What paging would bring, from a sample of bytes: the model of D. Ibtesham's dissertation (2017,
chapter 3), with factors and speeds that are measured.

There alpha is one minus encoded over raw bytes, W the bytes of a program and D those that stay in
memory as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..codecs import decode, encode

__all__ = ["CodecSample", "best_of", "memory_saved", "miss_seconds", "try_codecs"]

#: Bytes that a chunk is encoded by, as paging does it.
PIECE = 128 << 10
#: What the bytes are taken for. LZ4 stands for all that is not a number.
KINDS = ("float64", "float32", "int64", "int32", "lz4")


def memory_saved(alpha: float, program: float, resident: float) -> float:
    """The part of a program's memory that is saved (Tables 3.4 to 3.6):
    alpha (W - D) / W."""
    return alpha * max(program - resident, 0.0) / program if program else 0.0


def miss_seconds(alpha: float, nbytes: float, codec: float, memory: float) -> float:
    """How long a miss takes (Equation 3.1): the bytes at the speed of the codec, and what is left
    of them at that of memory, both in bytes a second."""
    return nbytes / codec + (1 - alpha) * nbytes / memory


@dataclass(frozen=True, slots=True)
class CodecSample:
    """What one codec makes of a sample.

    Attributes:
        kind: what the bytes were taken for.
        alpha: one minus encoded over raw bytes; 0 where they do not get fewer.
        encoded: bytes that are encoded a second, by one thread.
        decoded: bytes that are decoded a second, by one thread.
    """

    kind: str
    alpha: float
    encoded: float
    decoded: float


def try_codecs(pieces: Iterable[bytes]) -> list[CodecSample]:
    """Every kind of item on the same pieces, of `PIECE` bytes each."""
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    return [_try(kind, arrays) for kind in KINDS]


def _try(kind: str, arrays: list[np.ndarray]) -> CodecSample:
    raw = sum(array.nbytes for array in arrays)
    stored, encoding, decoding = 0, 0.0, 0.0
    for array in arrays:
        begin = time.perf_counter()
        if kind == "lz4":
            made = encode(array, None, outer="lz4")
        else:
            made = encode(array.view(kind), "lossless")
        middle = time.perf_counter()
        decode(made)
        encoding += middle - begin
        decoding += time.perf_counter() - middle
        # What does not get shorter is kept as it is.
        stored += min(made.nbytes, array.nbytes)
    return CodecSample(kind, 1 - stored / raw, raw / encoding, raw / decoding)


def best_of(samples: Iterable[CodecSample]) -> CodecSample:
    """The one that saves most."""
    return max(samples, key=lambda sample: sample.alpha)
