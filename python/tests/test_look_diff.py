"""`unspool.look.diff` and `unspool diff`: planted differences are found where they are."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, Disk, Spool, cli
from unspool.errors import OptionError
from unspool.look.values import Tolerance, scan

import rank_processes

#: Arrays of several pieces of 64 KiB, of a few bytes, and of none.
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "u": ((200, 100), "f4"),
    "v": ((41, 31, 9), "f8"),
    "w": ((7,), "c16"),
    "k": ((40_001,), "i2"),
    "e": ((0, 3), "f4"),
    "s": ((), "f8"),
}
STEPS = range(0, 200, 2)


def state(step: int) -> dict[str, Any]:
    made = np.random.default_rng(step)
    arrays = {
        name: np.asarray(made.normal(size=shape) * 100).astype(dtype)
        for name, (shape, dtype) in SHAPES.items()
    }
    return {**arrays, "t": 0.1 * step, "note": "run"}


def write(path: Path, states: dict[int, dict[str, Any]], **options: Any) -> Path:
    disk = Disk(path, durable=True, **options)
    with Spool(host_memory="64MiB", device="cpu", disk=disk) as spool:
        for step, one in states.items():
            spool.save(step, one)
    return path


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    return write(folder / "a", {step: state(step) for step in STEPS})


def few(count: int) -> dict[int, dict[str, Any]]:
    return {step: state(step) for step in STEPS[:count]}


def test_nothing_is_read_of_what_is_equal(reference: Path, tmp_path: Path) -> None:
    same = write(tmp_path, few(10))
    found = unspool.look.diff(reference, same, which="common")
    assert found.equal and found.first is None and found.bytes_read == 0
    assert found.steps == list(STEPS[:10])


def plant(draw: random.Random, states: dict[int, dict[str, Any]], step: int) -> tuple[Any, ...]:
    """Changes something in a step; gives the name, the kind and the index of the difference."""
    one = states[step]
    kind = draw.choice("bit bit bit nan zero payload last array more form step number text".split())
    if kind == "step":
        del states[step]
        return "", "missing", None
    if kind == "array":
        name = draw.choice(list(SHAPES))
        del one[name]
        return name, "missing", None
    if kind == "more":
        one["x"] = np.zeros(3)
        return "x", "missing", None
    if kind == "form":
        one["k"] = one["k"].astype("i4") if draw.random() < 0.5 else one["k"][1:]
        return "k", "form", None
    if kind in ("number", "text"):
        name = "t" if kind == "number" else "note"
        one[name] = 99.5 if kind == "number" else "another run"
        return name, "values", ()
    name = draw.choice("usv" if kind in ("nan", "zero", "payload") else "uvwks")
    flat = one[name].reshape(-1)
    place = flat.size - 1 if kind == "last" else draw.randrange(flat.size)
    if kind in ("nan", "zero", "payload"):
        flat[place] = {"nan": np.nan, "zero": -0.0, "payload": np.nan}[kind]
    if kind in ("bit", "last", "payload"):
        # One bit of it, of the fraction.
        flat[place : place + 1].view("u1")[0] ^= 1 << draw.randrange(8)
    return name, "values", tuple(map(int, np.unravel_index(place, SHAPES[name][0])))


@pytest.mark.parametrize("compress", [None, "lz4"])
def test_a_hundred_planted_differences_are_found_where_they_are(
    reference: Path, tmp_path: Path, compress: str | None
) -> None:
    draw = random.Random(44)
    states = {step: state(step) for step in STEPS}
    planted = {step: plant(draw, states, step) for step in STEPS}
    changed = write(tmp_path, states, compress=compress)
    found = unspool.look.diff(reference, changed)
    places = {one.step: (one.name, one.kind, one.index) for one in found.differences}
    assert places == planted and len(found.differences) == len(STEPS) == 100
    # Two pieces of one array in each step at most, but where arrays lie elsewhere than they did.
    assert found.bytes_read < 100 * 2 * 2 * 65536
    for one in found.differences:
        if one.index and one.kind == "values":
            here, there = state(one.step)[one.name], states[one.step][one.name]
            assert one.a.tobytes() == here[one.index].tobytes()
            assert one.b.tobytes() == there[one.index].tobytes()
            assert one.count == 1 and one.of == here.size


def test_counts_and_places_agree_with_numpy_wherever_arrays_lie(tmp_path: Path) -> None:
    made = np.random.default_rng(9)
    a, b = {}, {}
    for step in range(24):
        # What lies before the array moves it against the pieces, in both or in one of them.
        before = int(made.integers(0, 3)) * 4096 + int(made.integers(0, 99))
        moved = before + (65536 if step % 3 == 1 else 100 if step % 3 == 2 else 0)
        dtype = made.choice(["u1", "f4", "c16", "S3"])
        u = np.frombuffer(made.bytes(120_000 * (1 + step % 2)), dtype).copy()
        v = u.copy()
        places = made.integers(0, len(u), size=made.integers(0, 4))
        v.view("u1").reshape(len(v), -1)[places, -1] ^= 1
        a[step] = {"before": np.zeros(before, "u1"), "u": u}
        b[step] = {"before": np.zeros(moved, "u1"), "u": v}
    pair = write(tmp_path / "a", a), write(tmp_path / "b", b)
    found = {one.step: one for one in unspool.look.diff(*pair, arrays=["u"]).differences}
    for step in range(24):
        u, v = (one[step]["u"].view("u1").reshape(len(one[step]["u"]), -1) for one in (a, b))
        places = np.flatnonzero((u != v).any(1))
        assert (step in found) == bool(places.size)
        if places.size:
            assert (found[step].index, found[step].count) == ((places[0],), places.size)


def test_minus_zero_and_payloads_of_nan_are_differences_of_bits_alone(tmp_path: Path) -> None:
    nans = np.array([0x7FC00001, 0x7FC00002], "u4").view("f4")
    a = write(tmp_path / "a", {0: {"u": np.array([0.0, nans[0], 1.0], "f4")}})
    b = write(tmp_path / "b", {0: {"u": np.array([-0.0, nans[1], 1.0], "f4")}})
    found = unspool.look.diff(a, b)
    assert found.first is not None and (found.first.index, found.first.count) == ((0,), 2)
    assert "0.0 in a, -0.0 in b" in str(found)
    assert unspool.look.diff(a, b, atol=0).equal and unspool.look.diff(a, b, ulp=0).equal
    c = write(tmp_path / "c", {0: {"u": np.array([0.0, nans[1], 1.0], "f4")}})
    assert "nan (0x7fc00001) in a, nan (0x7fc00002) in b" in str(unspool.look.diff(a, c))


def test_tolerances_agree_with_numpy() -> None:
    made = np.random.default_rng(5)
    for dtype in ("f2", "f4", "f8"):
        a = made.normal(size=2000).astype(dtype)
        b = (a * (1 + made.normal(size=2000) * 1e-3)).astype(dtype)
        a[:8] = [np.nan, np.inf, -np.inf, np.nan, 1, 0.0, np.inf, -0.0]
        b[:8] = [np.nan, np.inf, np.inf, 1, np.nan, -0.0, 5, 1e-9]
        for rtol, atol in ((0, 1e-3), (1e-3, 0), (2e-4, 3e-4), (0, 0), (10, 10)):
            wide = np.float64
            close = np.isclose(a.astype(wide), b.astype(wide), rtol, atol, equal_nan=True)
            found = scan(a, b, Tolerance(rtol=rtol, atol=atol))
            assert found.count == (~close).sum()
            assert found.place == (np.flatnonzero(~close)[0] if found.count else -1)
            assert found.largest == np.inf if found.count else found.largest is None


def test_representable_numbers_apart() -> None:
    for dtype, kind in (("f2", "i2"), ("f4", "i4"), ("f8", "i8")):
        a = np.array([1.0, -1.0, 0.0, -0.0, 5e3], dtype)
        b = (a.view(kind) + np.array([3, 3, 1, 1, 4], kind)).view(dtype)
        assert scan(a, b, Tolerance(ulp=4)).count == 0
        assert scan(a, b, Tolerance(ulp=3)).place == 4
        assert scan(a[2:3], -b[2:3], Tolerance(ulp=1)).count == 0
        # Through zero: one on each side of it.
        assert scan(b[2:3], -b[2:3], Tolerance(ulp=2)).count == 0
        assert scan(b[2:3], -b[2:3], Tolerance(ulp=1)).count == 1
    assert scan(np.array([np.inf], "f4"), np.finfo("f4").max[None], Tolerance(ulp=9)).count == 1


def test_types_that_numpy_does_not_have() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = getattr(ml_dtypes, name)
        a = np.array([1.0, -2.0, 3.5, np.nan], dtype)
        bits = a.view(f"u{a.dtype.itemsize}").copy()
        bits[2] += 2
        b = bits.view(dtype)
        found = scan(a, b, Tolerance())
        assert (found.place, found.count) == (2, 1)
        assert found.largest == float(b[2]) - float(a[2])
        assert scan(a, b, Tolerance(ulp=2)).count == 0 and scan(a, b, Tolerance(ulp=1)).count == 1
        assert scan(a, b, Tolerance(rtol=0.5)).count == 0


def test_integers_are_compared_exactly() -> None:
    ends = np.iinfo("i8")
    a, b = np.array([ends.max, 5], "i8"), np.array([ends.min, 5], "i8")
    found = scan(a, b, Tolerance(atol=1.0))
    assert found.count == 1 and found.largest == 2.0**64
    a, b = np.array([2**60, 7], "i8"), np.array([2**60 + 1, 9], "i8")
    assert scan(a, b, Tolerance()).largest == 2.0
    assert scan(a, b, Tolerance(atol=1.9)).place == 1
    assert scan(a, b, Tolerance(atol=2)).count == 0


@pytest.mark.parametrize("codec", [Bound(abs=1e-3), Bound(range=1e-4), Bound(pointwise=1e-3)])
def test_bounds_of_codecs(tmp_path: Path, codec: Any) -> None:
    u = np.random.default_rng(3).normal(size=(400, 300)).astype("f4")
    moved = u.copy()
    moved[7, 9] += 1
    for name, values, how in (("a", u, codec), ("b", u, None), ("c", moved, codec)):
        disk = Disk(tmp_path / name, durable=True)
        with Spool(host_memory="64MiB", device="cpu", disk=disk, codec=how) as spool:
            spool.save(0, u=values)
    a, b, c = (tmp_path / name for name in "abc")
    assert not unspool.look.diff(a, b).equal
    assert unspool.look.diff(a, b, bounds=True).equal and unspool.look.diff(b, a, bounds=True).equal
    for pair in ((a, c), (c, b)):
        first = unspool.look.diff(*pair, bounds=True).first
        assert first is not None and (first.index, first.count) == ((7, 9), 1)


def test_streams_that_are_equal_are_not_decoded(tmp_path: Path) -> None:
    u = np.random.default_rng(3).normal(size=(400, 300)).astype("f4")
    for name in "ab":
        disk = Disk(tmp_path / name, durable=True)
        with Spool(device="cpu", host_memory="64MiB", disk=disk, codec="lossless") as spool:
            spool.save(0, u=u)
            spool.save(1, u=u + (name == "b"))
    found = unspool.look.diff(tmp_path / "a", tmp_path / "b")
    assert [one.step for one in found.differences] == [1]
    assert found.bytes_read == 2 * u.nbytes


def test_steps_of_one_only_and_the_first_one(tmp_path: Path) -> None:
    states = few(6)
    a = write(tmp_path / "a", states)
    states[40] = states.pop(2)
    states[8]["u"][5, 6] += 1
    b = write(tmp_path / "b", states)
    every = unspool.look.diff(a, b)
    assert [(one.step, one.kind) for one in every.differences] == [
        (2, "missing"),
        (8, "values"),
        (40, "missing"),
    ]
    assert [one.step for one in unspool.look.diff(a, b, which="common").differences] == [8]
    first = unspool.look.diff(a, b, which="first")
    assert first.steps == [0, 2] and len(first.differences) == 1
    assert unspool.look.diff(a, b, steps=[8], arrays=["v", "k"]).equal
    assert every.largest("u")[4] == pytest.approx(1.0)
    for wrong in ({"which": "last"}, {"steps": [1]}, {"rtol": -1}):
        with pytest.raises(OptionError):
            unspool.look.diff(a, b, **wrong)


def test_runs_of_a_checkpointer_with_increments(tmp_path: Path) -> None:
    for name in "ab":
        big = np.zeros(100_000)
        with unspool.Checkpointer(tmp_path / name, every=1, keep=9, increments=2) as run:
            for step in range(1, 5):
                big[step] = step
                big[-1] = name == "b" and step == 3
                run.save(step, u=big, t=step + (name == "b" and step == 4))
    found = unspool.look.diff(tmp_path / "a", tmp_path / "b")
    assert [(one.step, one.name, one.index) for one in found.differences] == [
        (3, "u", (99_999,)),
        (4, "t", ()),
    ]


def _rank(ranks: Any, path: Path, change: int) -> None:
    with unspool.Checkpointer(path, every=1, ranks=ranks, keep=9) as checkpoints:
        for step in (1, 2, 3):
            u = np.full(20_000, step + 10 * ranks.rank)
            u[-1] += change * (step == 2 and ranks.rank == 1)
            checkpoints.save(step, u=u)


def test_a_difference_of_one_rank(tmp_path: Path) -> None:
    for change, name in enumerate("ab"):
        for process in rank_processes.start(2, _rank, tmp_path / name, change):
            process.join(60)
            assert process.exitcode == 0
    found = unspool.look.diff(tmp_path / "a", tmp_path / "b")
    (one,) = found.differences
    assert (one.step, one.name, one.index) == (2, "rank-0001/u", (19_999,))
    assert (one.a, one.b) == (12, 13) and found.bytes_read <= 2 * 65536


def damage(path: Path, step: int) -> None:
    file = sorted(path.glob("frame-*"))[step]
    with file.open("r+b") as opened:
        opened.seek(5000)
        opened.write(b"damaged")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main(["diff", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_exit_codes_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = few(4)
    a, same = write(tmp_path / "a", states), write(tmp_path / "same", states)
    assert run(capsys, a, same)[0] == 0
    states[6]["u"][1, 2] += 2.0
    other = write(tmp_path / "other", states)
    code, text = run(capsys, a, other, "--array", "u", "--first")
    assert code == 1 and "step 6, u[1, 2]:" in text and "4 steps compared, 1 differ" in text
    assert run(capsys, a, other, "--atol", "3")[0] == 0
    code, text = run(capsys, a, other, "--json")
    found = json.loads(text)
    assert code == 1 and not found["equal"] and found["differences"][0]["index"] == [1, 2]
    assert run(capsys, a, tmp_path / "nothing")[0] == 2
    # What is damaged, and has to be read because the other one differs, cannot be compared.
    damage(other, 3)
    code, text = run(capsys, a, other, "--step", "6")
    assert code == 2 and "cannot be compared" in text
    sorted(other.glob("frame-*"))[1].unlink()
    code, text = run(capsys, a, other, "--step", "2")
    assert code == 2 and "step 2: cannot be compared" in text


def test_the_picture_shows_the_growth_of_a_difference(tmp_path: Path) -> None:
    for name in "ab":
        states = {step: {"u": np.zeros(5)} for step in range(9)}
        for step in range(3, 9):
            states[step]["u"][2] = 10.0**step * (name == "b")
        write(tmp_path / name, states)
    text = str(unspool.look.diff(tmp_path / "a", tmp_path / "b"))
    assert "u |···▁▂▄▅▇█| ▁ 1.0e+03  █ 1.0e+08" in text
