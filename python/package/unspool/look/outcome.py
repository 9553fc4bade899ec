"""What `unspool.look.diff` returns, and how it is shown: a table, and a picture over the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from .values import shown

__all__ = ["Comparison", "Difference"]

#: How many differences a table shows.
ROWS = 20

#: The columns of the picture, and its levels from the smallest difference to the largest.
WIDTH, LEVELS = 60, "▁▂▃▄▅▆▇█"

#: What stands in the picture for equal steps, and for those that cannot be compared by values.
EQUAL, OTHER = "·", "!"


@dataclass(frozen=True, slots=True)
class Difference:
    """One array, number or text of one step that differs, or a step that does.

    Attributes:
        step: the step.
        name: of the array; empty for the whole step.
        kind: `"values"`; `"missing"` from one of them; `"form"`, another dtype or shape; or
            `"unreadable"`, as `detail` says.
        a: the first value that differs, or what is there instead; None for nothing.
        b: the same in the other one.
        index: where the first value is that differs, or None.
        count: how many values differ.
        of: how many there are.
        largest: the largest distance of two values; infinite from a number to NaN; None for what
            are no numbers.
        detail: why it could not be read.
    """

    step: int
    name: str
    kind: Literal["values", "missing", "form", "unreadable"]
    a: Any = None
    b: Any = None
    index: tuple[int, ...] | None = None
    count: int = 0
    of: int = 0
    largest: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        what = f"step {self.step}" + (f", {self.name}" if self.name else "")
        if self.kind == "unreadable":
            return f"{what}: cannot be compared: {self.detail}"
        if self.kind == "missing":
            text = str(self.b if self.a is None else self.a)
            return f"{what}: {text} only in {'b' if self.a is None else 'a'}"
        if self.kind == "form":
            return f"{what}: {self.a} in a, {self.b} in b"
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        values = f"{shown(self.a, self.b)} in a, {shown(self.b, self.a)} in b"
        if self.of <= 1:
            return f"{what}{place}: {values}"
        largest = "" if self.largest is None else f", at most by {self.largest:.3g}"
        return f"{what}{place}: {values}; {self.count:,} of {self.of:,} differ{largest}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two histories or runs differ in.

    Attributes:
        a: the path of one.
        b: the path of the other.
        steps: those that were compared, or that one of them lacks.
        differences: by step, and then in the order of the arrays.
        faults: what else is damaged in a folder of a run, each as a sentence.
        bytes_read: the bytes of arrays that were read because their checksums did not say that they
            are equal.
    """

    a: str
    b: str
    steps: list[int]
    differences: list[Difference]
    faults: list[str]
    bytes_read: int

    @property
    def equal(self) -> bool:
        """Whether all was compared, and nothing differs."""
        return not self.differences and not self.faults

    @property
    def first(self) -> Difference | None:
        """The first difference."""
        return next(iter(self.differences), None)

    def __str__(self) -> str:
        lines = [f"a = {self.a}", f"b = {self.b}", *self.faults]
        lines += [str(one) for one in self.differences[:ROWS]]
        more = len(self.differences) - ROWS
        if more > 0:
            lines.append(f"and {more:,} more, up to step {self.differences[-1].step}")
        if len(self.steps) > 1 and self.differences:
            lines += ["", *self._picture()]
        return "\n".join([*lines, self._summary()])

    def largest(self, name: str) -> list[float]:
        """The largest distance of two values of an array in each of `steps`: 0.0 where it is equal,
        and NaN where it cannot be compared by values."""
        found = {one.step: one for one in self.differences if one.name in (name, "")}
        return [_height(found.get(step)) for step in self.steps]

    def _summary(self) -> str:
        steps = {one.step for one in self.differences}
        count = f"{len(self.steps):,} step{'' if len(self.steps) == 1 else 's'} compared"
        what = f"{len(steps):,} differ" if steps else "all equal"
        return f"{count}, {what}; {self.bytes_read:,} bytes read"

    def _picture(self) -> list[str]:
        names = list(dict.fromkeys(one.name for one in self.differences if one.name)) or [""]
        width = max(map(len, names))
        shown = [f"{name.ljust(width)} |{self._line(name)}" for name in names[:ROWS]]
        ends = f"{self.steps[0]}".ljust(_columns(len(self.steps)) - len(f"{self.steps[-1]}"))
        return [*shown, f"{' ' * width}  {ends}{self.steps[-1]}", ""]

    def _line(self, name: str) -> str:
        """The largest differences over the steps, on a scale of orders of magnitude."""
        heights = self.largest(name)
        columns = _columns(len(heights))
        cut = [at * len(heights) // columns for at in range(columns + 1)]
        bins = [heights[cut[at] : cut[at + 1]] for at in range(columns)]
        sizes = [math.log10(one) for one in heights if 0 < one < math.inf]
        low, high = min(sizes, default=0.0), max(sizes, default=0.0)
        line = "".join(_mark(of_bin, low, high) for of_bin in bins)
        scale = f" {LEVELS[0]} {10**low:.1e}  {LEVELS[-1]} {10**high:.1e}" if sizes else ""
        return f"{line}|{scale}"


def _columns(steps: int) -> int:
    return min(WIDTH, steps)


def _height(one: Difference | None) -> float:
    if one is None:
        return 0.0
    return math.nan if one.kind != "values" or one.largest is None else one.largest


def _mark(heights: list[float], low: float, high: float) -> str:
    if any(one != one or one == math.inf for one in heights):
        return OTHER
    most = max(heights, default=0.0)
    if most <= 0:
        return EQUAL if all(one == 0 for one in heights) else OTHER
    share = 1.0 if high <= low else (math.log10(most) - low) / (high - low)
    return LEVELS[min(int(share * len(LEVELS)), len(LEVELS) - 1)]
