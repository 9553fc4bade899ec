"""`unspool show`: statistics, histograms and pictures of checkpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unspool import Bound, Disk, Spool, cli
from unspool.look import comparing, show
from unspool.look.summary import Summary, histogram, numbers_of
from unspool.look.terminal import picture


@pytest.fixture
def history(tmp_path: Path) -> Path:
    y, x = np.mgrid[-3:3:60j, -5:5:100j]
    u = np.exp(-(x**2 + y**2)) + 1
    waves = np.stack([u * number for number in range(7)]).astype("f4")
    arrays = {
        "u": u,
        "waves": waves,
        "z": u * 3j,
        "line": np.arange(200) ** 2,
        "records": np.zeros(2, [("a", "i4")]),
        "none": np.zeros((0, 3)),
        "t": 0.5,
        "name": "a long text " * 20,
    }
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        spool.save(5, arrays, codec={"waves": Bound(abs=1e-3), "*": None})
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main(["show", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_all_arrays_of_a_step_with_statistics(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, history, "last")
    assert code == 0 and text.startswith("step 5\n")
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert "float64[60, 100]" in rows["u"] and "1.99" in rows["u"]
    assert "twine" in rows["waves"] and "float32[7, 60, 100]" in rows["waves"]
    assert "t = 0.5" in text and "name = 'a long text" in text and len(rows["name"]) < 80


def test_one_array_with_a_histogram_and_a_slice(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, history, 5, "waves")
    assert code == 0 and "twine, abs 0.001" in text and "slice 3,:,:" in text
    counts = [int(line.split()[-1].replace(",", "")) for line in text.splitlines() if "█" in line]
    assert sum(counts) == 7 * 60 * 100
    lines = text.splitlines()[-24:]
    # The middle is high, and the corners are low.
    assert lines[12][40] == "@" and lines[0][0] == " "
    _, text = run(capsys, history, 5, "line")
    assert text.splitlines()[-1][0] == "▁" and text.splitlines()[-1][-1] == "█"


def test_of_a_region_nothing_else_is_read(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    plain = show.Checkpoints.read

    def watched(self: Any, step: int, name: str, region: Any = ...) -> Any:
        asked.append(region)
        return plain(self, step, name, region)

    monkeypatch.setattr(show.Checkpoints, "read", watched)
    code, text = run(capsys, history, 5, "u", "--region", "2:4,:")
    assert code == 0 and "region 2:4,:: [2, 100]" in text
    assert asked == [(slice(2, 4), slice(None, None))]


def test_what_has_no_numbers(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no numbers" in run(capsys, history, 5, "records")[1]
    assert "no items" in run(capsys, history, 5, "none")[1]
    assert "max 5.9" in run(capsys, history, 5, "z")[1]


def test_mistakes(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in (
        ((history, 6), "no step 6"),
        ((history, "x"), "neither a step"),
        ((history, 5, "y"), "no array 'y', but 'u'"),
        ((history, 5, "--png", "x.png"), "of an array"),
        ((history, 5, "u", "--region", "70"), "70"),
        ((history / "no", 5), "not a directory"),
    ):
        code, said = run(capsys, *words)
        assert code == 2 and text in said


def test_colours_are_half_blocks(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, history, 5, "u", "--color", "always")
    rows = [line for line in text.splitlines() if "▀" in line]
    colours = [
        re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m▀", line) for line in rows
    ]
    # Two rows of square pixels in each line.
    assert len(rows) == 24 and {len(line) for line in colours} == {80}
    assert sum(map(int, colours[12][40][:3])) > sum(map(int, colours[0][0][:3]))


def test_pictures_of_any_size_and_of_what_is_not_finite() -> None:
    for shape in ((1, 1), (1, 50), (50, 1), (3, 500), (500, 3), (200, 200), (7,), ()):
        for value in (0.0, np.nan, np.inf, 1e308, -1e308):
            for colours in (False, True):
                values = np.full(shape, value)
                values.reshape(-1)[0] = 1.0
                lines = picture(values, 40, 10, colours=colours)
                assert 1 <= len(lines) <= 10
    assert picture(np.zeros((0, 3)), 40, 10, colours=False) == []


def test_statistics_block_by_block_are_those_of_numpy() -> None:
    made = np.random.default_rng(1)
    x = made.normal(3, 2, size=10_000)
    x[:3] = np.nan, np.inf, 0
    found = Summary()
    for block in np.split(x, [10, 11, 5000]):
        found.add(block)
    finite = x[np.isfinite(x)]
    assert (found.nan, found.infinite, found.zeros, found.finite) == (1, 1, 1, 9998)
    assert (found.least, found.most) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.mean()) and found.deviation == pytest.approx(
        finite.std()
    )
    counts = [int(line.split()[-1].replace(",", "")) for line in histogram([x], found)]
    assert counts == np.histogram(finite, 12)[0].tolist()
    assert numbers_of(np.zeros(2, [("a", "i4")])) is None


def test_large_arrays_are_read_block_by_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).normal(size=(300, 200))
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        spool.save(0, x=x)
    whole = run(capsys, tmp_path, 0, "x")
    monkeypatch.setattr(show, "BLOCK", 100_000)
    monkeypatch.setattr(comparing, "BLOCK", 100_000)
    assert run(capsys, tmp_path, 0, "x") == whole
