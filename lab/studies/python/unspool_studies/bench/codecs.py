"""Part `codecs`: Twine beside the formats of nvCOMP on the data of the part `shapes` and on arrays
from files, each as a whole save and restore of one array.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from unspool.errors import Error
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.shapes_cases import KINDS, Case
from unspool_studies.bench.shapes_data import values_of
from unspool_studies.bench.shapes_measure import WAYS, Bench, Figures, opened
from unspool_studies.bench.shapes_options import SMALL, Shapes
from unspool_studies.codecs.source import read_source

__all__ = ["Field", "fields_of", "formats_of", "run"]

COLUMNS = (
    "data", "shape", "codec", "ratio", "save GB/s", "restore GB/s", "whole save GB/s",
    "whole restore GB/s", "wrong values",
)  # fmt: skip

NOTES = (
    "GB/s of the array by the device's time; whole: from the call until its work is done; without "
    "a GPU both are the call",
    "abs=: about a ten-thousandth of the range of the data; wrong values: those that broke the "
    "bound or, without one, have other bits",
    "unspool.codecs.NvComp has neither Snappy nor the float32 mode of ANS",
)

#: Edges of cubes, to which encoders are friendly and not; and where sizes are small.
EDGES, SMALL_EDGES = (256, 400), (64, 50)

#: The bound in parts of the range.
BOUND = 1e-4


@dataclass(frozen=True, slots=True)
class Field:
    """One array.

    Attributes:
        name: its kind, or its file.
        values: the array, of NumPy; None: data of that kind.
        shape: of the array.
        dtype: of its items.
        span: the largest minus the smallest finite value.
    """

    name: str
    values: Any
    shape: tuple[int, ...]
    dtype: str
    span: float


def run(cuda: Cuda | None, plan: Plan, report: Report) -> None:
    """One table."""
    wishes = plan.shapes
    table = report.begin(Table("codecs", "Codecs by data", COLUMNS, notes=list(NOTES)))
    end = time.perf_counter() + wishes.seconds
    with opened(cuda, wishes) as bench:
        for field, mode in _each(fields_of(wishes, bench.most)):
            if time.perf_counter() > end:
                table.note(f"ended by --seconds before {mode} of {field.name}")
                break
            _add(table, bench, field, mode)
    report.show(table)


def _each(fields: Iterable[Field]) -> Iterator[tuple[Field, str]]:
    return ((field, mode) for field in fields for mode in formats_of(field))


def fields_of(wishes: Shapes, most: int) -> Iterator[Field]:
    """Each kind of data as cubes, and what the files hold."""
    for edge in SMALL_EDGES if most <= SMALL else EDGES:
        for kind in KINDS:
            shape = (edge,) * 3
            # The range hardly depends on the size.
            values = values_of(np, kind, "float32", (SMALL_EDGES[0],) * 3)
            yield Field(kind, None, shape, "float32", _span(values))
    for name in wishes.files:
        values = read_source(name, None, None, most).array
        yield Field(name, values, values.shape, str(values.dtype), _span(values))


def _span(values: Any) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max() - finite.min()) if finite.size else 0.0


def formats_of(field: Field) -> Iterator[str]:
    """Codecs as `unspool-rtm` takes them."""
    yield from ("none", "lossless")
    bound = f"abs={BOUND * field.span:.6g}"
    lossy = field.span > 0
    if lossy:
        yield from (bound, f"range={BOUND:g}")
    yield from ("nvcomp:ans", "nvcomp:bitcomp")
    if lossy:
        yield f"nvcomp:bitcomp,{bound}"
    yield from ("nvcomp:cascaded", "nvcomp:lz4", "nvcomp:gdeflate", "nvcomp:zstd")


def _add(table: Table, bench: Bench, field: Field, mode: str) -> None:
    case = Case(mode, field.dtype, field.name, field.shape)
    try:
        figures = bench.measured(case, field.values)
    except (Error, MemoryError) as error:
        table.note(f"{mode.partition(',')[0]} cannot be measured: {error}")
        return
    table.add(field.name, "x".join(map(str, field.shape)), mode, *_cells(figures))


def _cells(figures: Figures) -> Iterator[Cell]:
    yield figures.case.nbytes / max(1, figures.stored)
    yield from map(figures.rate, WAYS)
    yield from map(figures.whole_rate, WAYS)
    yield figures.wrong
