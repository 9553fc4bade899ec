"""Equation 3.1 of the dissertation, with counts and speeds that were measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counts", "Speeds", "access_seconds", "memory_saved", "predicted"]


@dataclass(frozen=True)
class Speeds:
    """What a codec does to the bytes of a program on this machine.

    Attributes:
        alpha: one minus encoded over raw bytes.
        encode: bytes a second that one thread encodes.
        decode: bytes a second that one thread decodes.
        memory: bytes a second that come from memory.
    """

    alpha: float
    encode: float
    decode: float
    memory: float


@dataclass(frozen=True)
class Counts:
    """What paging did in one run.

    Attributes:
        loads: chunks that came back.
        decoded: their bytes.
        encoded: bytes that were put aside.
    """

    loads: float
    decoded: float
    encoded: float


def access_seconds(alpha: float, nbytes: float, codec: float, memory: float) -> float:
    """How long it takes to put bytes aside, or to bring them back (Equation 3.1): all of them at
    the speed of the codec, and what is left of them at that of memory, in bytes a second."""
    return nbytes / codec + (1 - alpha) * nbytes / memory


def memory_saved(alpha: float, program: float, resident: float) -> float:
    """The part of a program's bytes that is saved when `resident` of them stay as they are, as
    Tables 3.4 to 3.6 have it."""
    return alpha * max(program - resident, 0.0) / program


def predicted(
    plain: float, counts: Counts, speeds: Speeds, alpha: float, times_as_fast: float = 1.0
) -> float:
    """Seconds of a run by Equation 3.1: those without paging, and those of every chunk that comes
    and goes, as if the program waited for each.

    Arguments:
        plain: seconds of the run without paging.
        counts: what came and went in a run with paging.
        speeds: of the codec as it was measured.
        alpha: what the codec is taken to save.
        times_as_fast: how many times as fast the codec is taken to be.
    """
    encode, decode = speeds.encode * times_as_fast, speeds.decode * times_as_fast
    reads = access_seconds(alpha, counts.decoded, decode, speeds.memory)
    writes = access_seconds(alpha, counts.encoded, encode, speeds.memory)
    return plain + reads + writes
