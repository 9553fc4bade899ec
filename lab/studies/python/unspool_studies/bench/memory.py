"""Plain host memory: mapped, touched and given back, with the system's calls.

What the paper on fast starts (Maurya et al., HiPC 2022, section V-B) does with a host buffer
before it is registered: pages of 4 KiB or huge ones, touched by one write a page or by writing
everything (`memset`).
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["HUGE_PAGE", "Mapping", "Touch", "byte_at", "in_parallel", "write_all", "write_pages"]

SMALL_PAGE, HUGE_PAGE = 4096, 2 << 20

#: From so many items on, NumPy releases the interpreter's lock while it writes them.
MANY = 1000

#: What one thread takes at a time.
PIECE = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.memset.restype = ctypes.c_void_p


class Mapping:
    """Anonymous memory of this process, zero and not there until it is touched.

    Attributes:
        address: of the first byte, at a border of a huge page.
        count: bytes.
        page: bytes of its pages: huge ones are asked for, or forbidden.
    """

    def __init__(self, count: int, huge: bool) -> None:
        self.count, self.page = count, HUGE_PAGE if huge else SMALL_PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, count + HUGE_PAGE, flags=flags)
        self._map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        skip = -begin % HUGE_PAGE
        self.address = begin + skip
        self.bytes = np.frombuffer(self._map, np.uint8, count, skip)

    def close(self) -> None:
        """Gives the memory back; nothing may use it any more."""
        del self.bytes
        self._map.close()


#: Makes the pages of some bytes of a mapping present.
Touch = Callable[[Mapping, int, int], None]


def write_pages(mapping: Mapping, begin: int, end: int) -> None:
    """One byte of each page: all that is needed to make it present."""
    if mapping.page == SMALL_PAGE and end - begin >= MANY * SMALL_PAGE:
        mapping.bytes[begin:end:SMALL_PAGE] = 0
        return
    # Few pages, each of which takes long: NumPy would keep the interpreter's lock meanwhile.
    for place in range(mapping.address + begin, mapping.address + end, mapping.page):
        _libc.memset(place, 0, 1)


def write_all(mapping: Mapping, begin: int, end: int) -> None:
    """Every byte."""
    _libc.memset(mapping.address + begin, 0, end - begin)


def byte_at(address: int) -> int:
    """The byte at an address of this process, which has to be there."""
    return ctypes.c_uint8.from_address(address).value


@dataclass
class _Pieces:
    """Pieces that threads take one after the other."""

    count: int
    piece: int
    _next: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> tuple[int, int] | None:
        with self._lock:
            begin = self._next
            self._next += self.piece
        return (begin, min(begin + self.piece, self.count)) if begin < self.count else None


def in_parallel(
    mapping: Mapping, touch: Touch, threads: int, piece: int = PIECE, first: int = 0
) -> None:
    """Touches a mapping from byte `first` on by several threads; returns when all is there."""
    pieces = _Pieces(mapping.count - first, piece)

    def work() -> None:
        while (taken := pieces.take()) is not None:
            touch(mapping, first + taken[0], first + taken[1])

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
