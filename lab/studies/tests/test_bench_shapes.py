"""The parts `shapes` and `codecs` of `unspool-bench`: arrays that are drawn, and what they show."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from unspool.codecs import Bound, NvComp, Zfp
from unspool_studies import cli
from unspool_studies.bench import codecs, command, report, shapes, shapes_measure, shapes_tables
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.shapes_cases import (
    ARRAYS,
    BYTES,
    KINDS,
    LAYOUTS,
    LIMIT,
    MODES,
    STYLES,
    Case,
    _snapped,
    drawn,
    friendly,
    size_class,
)
from unspool_studies.bench.shapes_check import wrong_values
from unspool_studies.bench.shapes_data import arrays_of, blank, components, placed, values_of
from unspool_studies.bench.shapes_measure import WAYS, Figures, Pair
from unspool_studies.bench.shapes_place import OnCpu, OnGpu, Reading, reading

from bench_plans import column, plan
from driver_cuda import DriverCuda
from fake_cuda import FakeCuda
from fake_gpu import CaiArray, DlpackArray, Driver

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

#: DLPack's code, bits and lanes of bfloat16.
BFLOAT16 = (4, 16, 1)


def many(count: int = 500, most: int = GIB, seed: int = 37) -> list[Case]:
    return [drawn(seed, number, most) for number in range(count)]


# Which cases are drawn.


def test_a_case_follows_from_the_seed_and_its_number_alone() -> None:
    assert many(50) == many(500)[:50]
    assert many(50) != many(50, seed=38)


def test_every_codec_dtype_kind_layout_and_number_of_arrays_is_drawn() -> None:
    cases = many()
    assert {case.mode for case in cases} == set(MODES)
    assert {case.dtype for case in cases} == set(BYTES)
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.layout for case in cases} == set(LAYOUTS)
    assert {case.arrays for case in cases} == set(ARRAYS)
    assert {len(case.shape) for case in cases} == {1, 2, 3, 4, 5}
    assert {case.varied for case in cases} == {False, True}
    classes = {size_class(case.nbytes) for case in cases}
    assert classes >= {size_class(low) for low in (64 * KIB, MIB, 8 * MIB, 32 * MIB, 512 * MIB)}


def test_extents_are_of_all_sorts() -> None:
    extents = {size for case in many() for size in case.shape}
    assert {1, 63, 65, 127, 129, 255, 257} <= extents
    assert any(size % 64 == 0 for size in extents) and any(size % 2 for size in extents)


@pytest.mark.parametrize("most", [128 * KIB, 8 * MIB, GIB])
def test_cases_are_as_large_as_was_asked_for_and_have_no_long_extents(most: int) -> None:
    for case in many(300, most):
        assert 16 * KIB <= case.nbytes <= 1.5 * most, case
        if len(case.shape) > 2:
            assert max(case.shape) <= LIMIT, case
        assert all(size >= 1 for shape in case.shapes() for size in shape)


def test_codecs_get_only_what_they_take() -> None:
    for case in many(2000):
        if "=" in case.mode:
            assert case.dtype in BYTES and "int" not in case.dtype and case.dtype != "bool"
        if case.mode.startswith("zfp"):
            assert case.dtype in ("float32", "float64") and case.kind != "special"


@pytest.mark.parametrize(
    ("style", "size", "found"),
    [
        ("any", 400, 400),
        ("odd", 400, 399),
        ("odd", 1, 1),
        ("prime", 400, 397),
        ("prime", 1, 1),
        ("above", 400, 513),
        ("above", 4000, 2049),
        ("below", 400, 511),
        ("below", 1, 1),
        ("round", 400, 384),
        ("round", 7, 7),
    ],
)
def test_styles_change_an_extent_to_one_that_is_near(style: str, size: int, found: int) -> None:
    assert style in STYLES
    assert _snapped(style, size, LIMIT) == found


def test_the_friendly_case_has_the_same_bytes_dtype_data_and_codec() -> None:
    for case in many(300):
        friend = friendly(case)
        assert (friend.mode, friend.dtype, friend.kind) == (case.mode, case.dtype, case.kind)
        assert (friend.layout, friend.arrays, friend.varied) == ("contiguous", 1, False)
        assert friend.shape[0] % 16 == 0 and all(size % 64 == 0 for size in friend.shape[1:])
        assert 0.9 < friend.nbytes / case.nbytes < 1.1, (case, friend)
    assert friendly(Case("lossless", "float32", "noise", (400, 400, 400))).shape == (432, 384, 384)
    assert friendly(Case("lossless", "float32", "noise", (400, 400))).shape == (160_000,)


@pytest.mark.parametrize("edge", [64, 128, 192, 256, 320, 384, 512, 640])
def test_a_friendly_cube_is_its_own_friend(edge: int) -> None:
    cube = Case("lossless", "int8", "noise", (edge,) * 3)
    assert friendly(cube) == cube


def test_arrays_of_one_case_may_differ() -> None:
    case = Case("none", "int8", "ramp", (3, 20), arrays=9, varied=True)
    assert [shape[1] for shape in case.shapes()] == [20, 19, 18, 17, 16, 15, 14, 20, 19]
    assert case.nbytes == 3 * sum(shape[1] for shape in case.shapes())
    assert str(case) == "none int8 ramp 9 of 3x20 contiguous varied"


# The data.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", BYTES)
def test_data_have_their_dtype_and_are_finite_unless_they_are_special(
    kind: str, dtype: str
) -> None:
    if kind == "special" and ("int" in dtype or dtype == "bool"):
        return
    values = values_of(np, kind, dtype, (7, 33, 65))
    assert values.shape == (7, 33, 65) and values.itemsize == BYTES[dtype]
    if "int" in dtype or dtype == "bool":
        return
    real = components(np, values, dtype)
    assert real.size == values.size * (2 if dtype.startswith("complex") else 1)
    if kind == "special":
        assert np.isnan(real).any() and np.isposinf(real).any() and np.isneginf(real).any()
    else:
        assert np.isfinite(real).all() and abs(real).max() <= 8


def test_waves_fill_more_and_more() -> None:
    fields = [values_of(np, kind, "float32", (900, 800)) for kind in ("silent", "half", "filled")]
    quiet = [float(np.mean(field == 0)) for field in fields]
    assert quiet[0] > 0.75 > quiet[1] > 0.3 > quiet[2]


def test_bits_of_bfloat16_are_rounded_to_the_nearest() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = values_of(np, "noise", "float32", (10_000,))
    bits = values_of(np, "noise", "bfloat16", (10_000,))
    assert np.array_equal(bits, values.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(70,), (40, 3), (5, 64, 33), (2, 3, 4, 5, 40)])
def test_a_layout_changes_where_values_lie_and_nothing_else(
    layout: str, shape: tuple[int, ...]
) -> None:
    values = values_of(np, "noise", "float32", shape)
    array = placed(np, values, layout)
    assert np.array_equal(array, values) and not np.shares_memory(array, values)
    if layout == "contiguous":
        assert array.flags.c_contiguous
    elif layout == "interior":
        assert not array.flags.owndata
    elif len(shape) > 1:
        assert array.strides[0] == 4 and not array.flags.c_contiguous
    if layout == "fortran":
        assert array.flags.f_contiguous


# What is wrong.


def test_every_bit_counts_where_nothing_may_be_lost() -> None:
    for dtype, words in (("float32", 1), ("complex128", 2), ("bool", 1), ("int64", 1)):
        case = Case("lossless", dtype, "noise", (9, 40), "interior", 3)
        saved, again = arrays_of(np, case), arrays_of(np, case)
        assert wrong_values(np, saved, again, dtype, "lossless") == 0
        assert wrong_values(np, saved, again, dtype, NvComp("ans")) == 0
        again[1][3, 5] = ~again[1][3, 5] if dtype == "bool" else 7 + 7j if words == 2 else 7
        assert wrong_values(np, saved, again, dtype, None) == words
    zero = [np.zeros(3, np.float32)]
    assert wrong_values(np, zero, [-zero[0]], "float32", "lossless") == 3


@pytest.mark.parametrize(
    ("bound", "allowed"),
    [(Bound(abs=1e-3), 1e-3), (Bound(range=1e-3), 4e-3), (Bound(pointwise=1e-3), 2e-3)],
)
def test_a_bound_is_checked_for_every_value(bound: Bound, allowed: float) -> None:
    saved = np.array([-2.0, 0.0, 2.0, math.nan, math.inf] * 100)
    again = saved.copy()
    again[2] += 0.99 * allowed
    assert wrong_values(np, [saved], [again], "float64", bound) == 0
    again[7] -= 1.01 * allowed
    again[3], again[4], again[12] = 0.0, -math.inf, math.nan
    assert wrong_values(np, [saved], [again], "float64", bound) == 4


def test_values_below_a_floor_may_become_zero_and_no_more() -> None:
    saved, bound = np.array([1e-9, 1e-9, 1.0]), Bound(pointwise=1e-3, floor=1e-6)
    assert wrong_values(np, [saved], [np.array([0.0, -1e-9, 1.0])], "float64", bound) == 1


def test_parts_of_complex_numbers_and_bfloat16_are_checked_by_themselves() -> None:
    case = Case("abs=1e-4", "complex64", "turbulence", (50,))
    saved, again = arrays_of(np, case), arrays_of(np, case)
    again[0].imag[7] += 1
    assert wrong_values(np, saved, again, "complex64", Bound(abs=1e-4)) == 1
    saved, again = [np.array([0x3F80], np.uint16)], [np.array([0x3F81], np.uint16)]
    assert wrong_values(np, saved, again, "bfloat16", Bound(abs=1e-2)) == 0
    assert wrong_values(np, saved, again, "bfloat16", Bound(abs=1e-3)) == 1


def test_zfp_promises_nothing_and_lossy_bitcomp_a_bound() -> None:
    saved, again = [np.zeros(3, np.float32)], [np.full(3, 0.1, np.float32)]
    assert wrong_values(np, saved, again, "float32", Zfp(rate=8)) is None
    assert wrong_values(np, saved, again, "float32", NvComp("bitcomp", abs=0.2)) == 0
    assert wrong_values(np, saved, again, "float32", NvComp("bitcomp", abs=0.05)) == 3


# How it is measured.


def test_what_follows_a_call_does_not_count_and_each_call_is_undone() -> None:
    done: list[str] = []
    found = reading(OnCpu(), lambda: done.append("do"), lambda: done.append("undo"), 3, 1.0)
    assert done == ["do", "undo"] * 6
    assert len(found.whole.values) == len(found.device.values) == 3


def test_a_slow_call_is_made_once_for_each_figure() -> None:
    done: list[int] = []
    reading(OnCpu(), lambda: done.append(0), lambda: None, 3, 0.0)
    assert len(done) == 2


def test_the_device_is_busy_before_a_call_for_as_long_as_the_host_takes() -> None:
    class Cuda(FakeCuda):
        def spin(self, seconds: float, stream: object) -> None:
            spun.append(seconds)

    class Place(OnGpu):
        def _library(self) -> object:
            return np

    spun: list[float] = []
    cuda = Cuda()
    with contextlib.closing(Place(cuda)) as place:
        found = reading(place, lambda: None, lambda: None, 3, 1.0)
    assert len(spun) == 3 and all(2 * found.call.median < seconds < 0.06 for seconds in spun)
    assert cuda.leaked == 0


# The tables.


def figures(case: Case, save: float, restore: float, wrong: int | None = 0) -> Figures:
    """With these rates in GB/s; a whole call takes twice as long as the device."""
    seconds = [case.nbytes / rate / 1e9 for rate in (save, restore)]
    readings = [Reading(Sample.of([s]), Sample.of([s / 2]), Sample.of([2 * s])) for s in seconds]
    return Figures(case, case.nbytes // 2, dict(zip(WAYS, readings, strict=True)), wrong)


def pairs() -> list[Pair]:
    """Two cliffs, of which one is small, and one case without any."""
    cliff = Case("lossless", "float32", "noise", (400, 400, 400))
    plain = Case("lossless", "float32", "noise", (8000, 8000))
    small = Case("none", "int8", "ramp", (1000, 70), arrays=1)
    found = [
        (figures(cliff, 38, 432), figures(friendly(cliff), 900, 1000)),
        (figures(plain, 800, 1100), figures(friendly(plain), 1000, 1000)),
        (figures(small, 1, 5), figures(friendly(small), 10, 10)),
    ]
    return [Pair(number, *both) for number, both in enumerate(found)]


def test_the_worst_cases_come_first_with_their_friendly_ones() -> None:
    table = shapes_tables.worst(pairs())
    assert column(table, "draw")[:3] == [0, 2, 0]
    assert column(table, "way")[:3] == ["save", "save", "restore"]
    assert column(table, "GB/s")[0] == pytest.approx(38)
    assert column(table, "case/friendly")[0] == pytest.approx(38 / 900)
    assert column(table, "whole GB/s")[0] == pytest.approx(19)
    assert len(table.rows) == 6


def test_a_group_has_its_best_figure_its_worst_and_the_case_of_that() -> None:
    table = shapes_tables.groups(pairs())
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["codec"], first["dtype"], first["data"]) == ("lossless", "float32", "noise")
    assert first["cases"] == 2 and first["way"] == "save" and "400x400x400" in first["worst case"]
    assert first["best GB/s"] == pytest.approx(1000)
    assert first["worst/best"] == pytest.approx(0.038)
    assert len(table.rows) == 4


def test_groups_beyond_the_first_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes_tables, "GROUPS", 1)
    table = shapes_tables.groups(pairs())
    assert len(table.rows) == 1 and table.notes == ["3 further groups are at 0.10 or above"]


def test_what_is_below_the_aims_is_counted_from_32_mib_on() -> None:
    table = shapes_tables.modes(pairs(), gpu=True)
    assert column(table, "codec") == ["lossless", "none", "all"]
    assert column(table, "from 32 MiB") == [2, 0, 2]
    assert column(table, "below half") == [2, 0, 2]
    assert column(table, "below half of group") == [2, 0, 2]
    assert column(table, "below 150 GB/s") == [1, 0, 1]
    assert column(table, "worst save")[-1] == pytest.approx(38 / 900)
    assert column(shapes_tables.modes(pairs(), gpu=False), "below 150 GB/s")[-1] is None


# Whole runs.

FEW = ("--draws=12", "--shapes-most=128KiB")


def test_main_memory_is_measured_where_there_is_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shapes.json"
    assert command.run_parts(["shapes"], plan(*FEW), None, report.Report({}, file))
    shown = capsys.readouterr().out
    assert "The worst cases" in shown and "of 12 draws in" in shown
    tables = {one["name"]: one["rows"] for one in json.loads(file.read_text())["tables"]}
    assert set(tables) == {"shapes", "shapes-groups", "shapes-worst", "shapes-draws"}
    draws = tables["shapes-draws"]
    assert {row["case"] for row in draws} <= {str(case) for case in many(12, 128 * KIB)}
    assert len(draws) >= 8
    for row in draws:
        assert row["save GB/s"] > 0 < row["restore GB/s"] and not row["wrong values"]
    assert tables["shapes"][-1]["cases"] == len(draws)


def test_the_command_takes_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--shapes-words", "lossless", "--seed", "1", "--shapes-first", "3"]
    assert cli.bench(["--only", "shapes", "--quick", *FEW, *words]) == 0
    shown = capsys.readouterr().out
    assert "seed 1, from number 3" in shown and "pointwise" not in shown
    assert plan("--quick").shapes.draws == 20 and plan("--quick", "--draws=3").shapes.draws == 3


def test_words_choose_among_the_cases_and_do_not_change_them() -> None:
    every = dict(shapes.cases_of(plan("--draws=40").shapes, GIB))
    some = dict(shapes.cases_of(plan("--draws=40", "--shapes-words=float32").shapes, GIB))
    assert some == {n: case for n, case in every.items() if case.dtype == "float32"}
    assert 0 < len(some) < len(every) == 40


def test_time_ends_the_draws_and_the_table_says_how_many_there_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.run_parts(["shapes"], plan("--seconds=0"), None, report.Report({}))
    assert "(0 of 500 draws in" in capsys.readouterr().out


def test_a_codec_that_is_not_there_is_named_and_the_others_are_measured() -> None:
    collected = report.Report({})
    asked = plan("--draws=200", "--shapes-most=128KiB", "--shapes-words=nvcomp:bitcomp")
    assert command.run_parts(["shapes"], asked, None, collected)
    table = next(one for one in collected.tables if one.name == "shapes")
    assert any("could not be measured: nvcomp:bitcomp: " in note for note in table.notes)


def test_wrong_values_fail_the_part_after_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes_measure, "wrong_values", lambda *_: 3)
    collected = report.Report({})
    assert not command.run_parts(
        ["shapes"], plan("--draws=1", "--shapes-first=1", *FEW[1:]), None, collected
    )
    assert "values came back wrong: " in capsys.readouterr().out
    assert column(collected.tables[-1], "wrong")[-1] == 2


def test_codecs_are_compared_on_each_kind_of_data_and_on_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "SMALL_EDGES", (12,))
    file = tmp_path / "field.npy"
    np.save(file, values_of(np, "steps", "float64", (20, 30)))
    collected = report.Report({})
    assert command.run_parts(["codecs"], plan(f"--shapes-files={file}"), None, collected)
    (table,) = collected.tables
    assert set(column(table, "data")) == {*KINDS, str(file)}
    assert {"none", "lossless", "range=0.0001"} <= set(column(table, "codec"))
    assert set(column(table, "wrong values")) == {0}
    assert any(note.startswith("nvcomp:lz4 cannot be measured") for note in table.notes)
    ratios = dict(zip(column(table, "codec"), column(table, "ratio"), strict=True))
    assert ratios["none"] == 1


def test_time_ends_the_comparison_of_codecs() -> None:
    collected = report.Report({})
    assert command.run_parts(["codecs"], plan("--seconds=0"), None, collected)
    (table,) = collected.tables
    assert not table.rows and any("ended by --seconds" in note for note in table.notes)


class OnDriver(OnGpu):
    """Arrays on the driver of the tests, which NumPy makes and looks at."""

    def __init__(self, cuda: DriverCuda, driver: Driver) -> None:
        super().__init__(cuda)
        self._driver = driver
        # What exports by ctypes has to outlive the spool's last look at it.
        self._exported: list[object] = []

    def _library(self) -> object:
        return np

    def given(self, array: np.ndarray, dtype: str) -> object:
        if dtype != "bfloat16":
            return CaiArray(self._driver, array, self.stream)
        found = DlpackArray(self._driver, array, self.stream)
        found.exporter.dtype = BFLOAT16
        self._exported.append(found)
        return found

    def back(self, given: CaiArray, array: np.ndarray) -> np.ndarray:
        self._driver.synchronize()
        return given.numpy()

    def tidy(self) -> None:
        pass


@pytest.mark.fake_gpu
def test_a_spool_on_a_device_is_measured_on_its_stream(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes_measure, "place_on", lambda cuda: OnDriver(cuda, driver))
    cuda, collected = DriverCuda(), report.Report({})
    asked = plan("--draws=30", "--shapes-most=128KiB")
    assert command.run_parts(["shapes"], asked, cuda, collected)
    table = next(one for one in collected.tables if one.name == "shapes")
    assert column(table, "cases")[-1] >= 20 and column(table, "wrong")[-1] == 0
    assert {"lossless", "none", "abs=1e-4"} <= set(column(table, "codec"))
    assert cuda.leaked == 0


def test_blanks_differ_from_every_kind_of_data() -> None:
    for kind in KINDS:
        case = Case("lossless", "float32", kind, (30, 70), "fortran", 3, True)
        for array, target in zip(arrays_of(np, case), blank(np, case), strict=True):
            assert array.shape == target.shape and array.strides == target.strides
            assert not np.array_equal(array, target)
