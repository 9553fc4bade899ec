"""Part `shapes`: saves and restores of arrays that are drawn, each beside a friendly array of the
same bytes, dtype, data and codec. A case that is much slower than that is a cliff.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from unspool.errors import Error
from unspool.stats import size as size_text
from unspool_studies.bench import shapes_tables as tables
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report
from unspool_studies.bench.shapes_cases import Case, drawn, friendly
from unspool_studies.bench.shapes_measure import Bench, Pair, opened
from unspool_studies.bench.shapes_options import Shapes

__all__ = ["ShapesError", "cases_of", "run"]


class ShapesError(Error, RuntimeError):
    """Values did not come back as they should."""


def run(cuda: Cuda | None, plan: Plan, report: Report) -> None:
    """Three tables; a fourth, of every draw, goes to standard error and to the file.

    Raises:
        ShapesError: values came back wrong.
    """
    pairs, refused = list[Pair](), Counter[str]()
    every = report.begin(tables.draws())
    begin = time.perf_counter()
    with opened(cuda, plan.shapes) as bench:
        most = bench.most
        for pair in _pairs(bench, plan.shapes, refused):
            pairs.append(pair)
            tables.add_draw(every, pair)
    first = tables.modes(pairs, cuda is not None)
    seconds = time.perf_counter() - begin
    first.note(
        f"{len(pairs)} of {plan.shapes.draws} draws in {seconds:.0f} s, up to {size_text(most)}, "
        f"seed {plan.shapes.seed}, from number {plan.shapes.first}"
    )
    tables.refused(first, refused)
    for table in (tables.groups(pairs), tables.worst(pairs), first):
        report.show(table)
    wrong = [str(one.case) for pair in pairs for one in (pair.case, pair.friend) if one.wrong]
    if wrong:
        raise ShapesError(f"values came back wrong: {'; '.join(wrong)}")


def cases_of(wishes: Shapes, most: int) -> Iterator[tuple[int, Case]]:
    """The cases that were asked for, with their numbers."""
    for number in range(wishes.first, wishes.first + wishes.draws):
        case = drawn(wishes.seed, number, most)
        if all(word in str(case).split() for word in wishes.words):
            yield number, case


def _pairs(bench: Bench, wishes: Shapes, refused: Counter[str]) -> Iterator[Pair]:
    """Measures case after case until the time is over."""
    end = time.perf_counter() + wishes.seconds
    for number, case in cases_of(wishes, bench.most):
        if time.perf_counter() > end:
            return
        try:
            yield Pair(number, bench.measured(case), bench.measured(friendly(case)))
        except (Error, MemoryError) as error:
            refused[f"{case.mode}: {error}"] += 1
