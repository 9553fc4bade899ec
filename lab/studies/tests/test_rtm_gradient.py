"""`unspool-rtm --gradient`: the image of each shot as accurate as it was asked for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli
from unspool_studies.rtm import command
from unspool_studies.rtm.job import run
from unspool_studies.rtm.options import add_options
from unspool_studies.rtm.progress import Silence

SMALL = ["--shape", "61x41", "--spacing", "15", "--steps", "260", "--every", "1", "--layer", "10"]
SMALL += ["--shots", "2", "--device-memory", "1MiB", "--host-memory", "2MiB"]


def images(*more: str) -> tuple[Any, Any]:
    """The sum of the images of two shots before any processing, and what was said of each."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    found = run(command._job(parser.parse_args([*SMALL, *more])), Silence())
    return found.migrated.image, found.followed.fidelity


def test_the_image_is_as_accurate_as_asked_for() -> None:
    target = 1e-3
    exact, _ = images()
    found, (first, second) = images("--gradient", "1e-3")
    assert first.trials > 0 and first.estimate == 0 and second.trials == 0
    assert 0 < second.estimate <= target and second.stored_bytes < second.raw_bytes / 4
    assert 0 < np.linalg.norm(found - exact) <= target * np.linalg.norm(exact)


def test_the_report_has_errors_and_bytes_by_time(tmp_path: Path, capsys: Any) -> None:
    places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
    assert cli.rtm([*SMALL, *places, "--gradient", "1e-2", "--check"]) == 0
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    chosen = found["gradient"]
    assert chosen["target"] == 1e-2 and chosen["trials"][0] and not chosen["trials"][1]
    assert chosen["by_time"][0]["first"] == 0 and len(chosen["by_time"]) >= 2
    assert sum(one["stored_bytes"] for one in chosen["by_time"]) == chosen["stored_bytes"]
    assert found["check"]["codec"] == "--gradient 0.01"
    printed = capsys.readouterr().out
    assert "gradient to 0.01: off by about" in printed and "#" in printed


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--codec", "lossless"], "leave out --codec"),
        (["--jobs", "2"], "leave out --jobs"),
        (["--resume", "x"], "leave out --resume"),
        (["--schedule", "auto"], "not auto"),
    ],
)
def test_what_it_cannot_be_combined_with(tmp_path: Path, more: Any, says: str, capsys: Any) -> None:
    places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
    assert cli.rtm([*SMALL, *places, "--gradient", "1e-2", *more]) != 0
    assert says in capsys.readouterr().err


def test_what_is_no_accuracy(capsys: Any) -> None:
    for wrong in ("much", "2", "nan"):
        with pytest.raises(SystemExit):
            cli.rtm([*SMALL, "--gradient", wrong])
        assert "is no accuracy such as 1e-3" in capsys.readouterr().err
