"""What `unspool.torch.scan` tells of its choice: the lengths of segments with this budget and with
others, and on a CPU what the process has grown by."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from unspool.errors import OptionError
from unspool.stats import size, table

from ._segments import Segments, Sizes

__all__ = ["Resident", "ScanReport", "Teller"]

#: What a process may grow by for other reasons, such as libraries that are loaded when first used.
OTHER = 64 << 20

#: The smallest tensors for which a mapping of their own is advised.
MAPPED = 64 << 10


class Resident(NamedTuple):
    """The memory of this process.

    Attributes:
        bytes: that are resident.
        freed: those of them that the program has freed, and that glibc keeps; 0 with another one.
    """

    bytes: int
    freed: int

    @classmethod
    def now(cls) -> Self | None:
        """None where the system does not say."""
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return None
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), _freed())


class _Heap(ctypes.Structure):
    """`struct mallinfo2` of glibc: ten sizes, of which the ninth is of what is free."""

    _fields_ = (
        ("before", ctypes.c_size_t * 8),
        ("free", ctypes.c_size_t),
        ("top", ctypes.c_size_t),
    )


def _freed() -> int:
    # Not there in glibc before 2.33 and in other libraries; with another allocator it says 0.
    with contextlib.suppress(AttributeError, OSError):
        asked = ctypes.CDLL(None).mallinfo2
        asked.restype = _Heap
        return int(asked().free)
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class ScanReport:
    """How `scan` has cut a loop, and what other budgets would change; `print` it.

    Attributes:
        budget: bytes; None where the length of a segment was given.
        sizes: what the loop takes.
        cut: what was chosen; None where everything is kept.
        grown_bytes: what the resident memory of the process grew by while the loop ran forwards;
            None on a GPU, and where the system does not say.
        freed_bytes: those of them that were freed, and that glibc keeps.
    """

    budget: int | None
    sizes: Sizes
    cut: Segments | None
    grown_bytes: int | None = None
    freed_bytes: int = 0

    @property
    def expected_bytes(self) -> int | None:
        """The most bytes at once that count for the budget, as far as is known."""
        return self.sizes.bytes(self.cut)

    def __str__(self) -> str:
        parts = [self._head(), "", table([_HEAD, *self._rows()])]
        if self.grown_bytes is not None:
            parts += ["", f"Resident memory grew by {size(self.grown_bytes)}.{self._helps()}"]
        return "\n".join(parts)

    def _head(self) -> str:
        of = self.sizes
        steps = "steps" if of.steps is None else f"{of.steps:,} steps"
        within = "" if self.budget is None else f" within {size(self.budget)}"
        saves = f", and a step saves {size(of.saved)} for its gradient" if of.saved else ""
        return f"{steps}{within}: a state has {size(of.state)}{saves}"

    def _rows(self) -> list[tuple[str, ...]]:
        if self.budget is None:
            return [_row(self.sizes, "as given", self.cut)]
        others = (self.budget // 2, 2 * self.budget)
        cuts = [(self.budget, self.cut), *((each, self.sizes.cut(each)) for each in others)]
        return [_row(self.sizes, size(budget), cut) for budget, cut in cuts]

    def _helps(self) -> str:
        """A sentence of what would keep the memory of the process smaller, if something would."""
        if self.budget is None or self.grown_bytes is None:
            return ""
        if self.grown_bytes < 1.5 * self.budget + OTHER or self.freed_bytes < self.grown_bytes // 2:
            return ""
        largest = self.sizes.largest
        setting = ""
        if largest >= MAPPED:
            threshold = 1 << (largest // 2).bit_length() - 1
            setting = f"start the program with MALLOC_MMAP_THRESHOLD_={threshold}, or "
        return (
            f" Of that, {size(self.freed_bytes)} were freed, and glibc keeps them: {setting}use "
            "unspool.torch.adjoint, which takes the gradient step by step."
        )


_HEAD = ("budget", "bytes at once", "recomputed", "steps in a segment")


def _row(of: Sizes, budget: str, cut: Segments | None) -> tuple[str, ...]:
    most, again = of.bytes(cut), of.recomputed(cut)
    return (
        budget,
        "-" if most is None else size(most),
        "-" if again is None else f"{again:,}",
        "all" if cut is None else f"{cut.segment:,}",
    )


class Teller:
    """What tells of a choice once the loop has run.

    Attributes:
        chosen: the budget, what the loop takes, and how it was cut; None as long as nothing is.
    """

    def __init__(self, report: Callable[[ScanReport], Any] | None) -> None:
        if not (report is None or callable(report)):
            raise OptionError(f"scan(report={report!r:.60}): give a function, such as print.")
        self._report = report
        self.chosen: tuple[int | None, Sizes, Segments | None] | None = None
        self._before = None if report is None else Resident.now()

    def __call__(self, result: Any, place: torch.device) -> Any:
        """Tells of the choice, if there was one, and returns the result."""
        if self._report is not None and self.chosen is not None:
            self._report(ScanReport(*self.chosen, *self._grown(place)))
        return result

    def _grown(self, place: torch.device) -> tuple[int | None, int]:
        now = Resident.now() if place.type == "cpu" else None
        if now is None or self._before is None:
            return None, 0
        grown = max(0, now.bytes - self._before.bytes)
        return grown, min(grown, max(0, now.freed - self._before.freed))
