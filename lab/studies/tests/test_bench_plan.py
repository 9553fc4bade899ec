"""Part `plan` of `unspool-bench`: predictions beside real runs. Nothing is asserted about time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import unspool
from unspool import schedules
from unspool.advice import Links, Rate
from unspool_studies import cli
from unspool_studies.bench.options import DEFAULT_PLAIN_PARTS, PLAIN_PARTS
from unspool_studies.bench.planned import COLUMNS, Application, run_candidate

#: Sizes that take no time.
TINY = ["--plan-cells=32", "--plan-steps=9", "--plan-device=64KiB", "--plan-host=256KiB"]

LINKS = Links("cpu", ("host",), Rate(1e9), Rate(1e9))


def test_predictions_are_only_measured_when_they_are_asked_for() -> None:
    assert "plan" in PLAIN_PARTS and "plan" not in DEFAULT_PLAIN_PARTS


def test_every_schedule_of_the_plan_is_run_and_gives_the_same_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    words = [*TINY, "--plan-disk=4MiB", f"--dir={tmp_path}", f"--json={file}"]
    assert cli.bench(["--only", "plan", *words]) == 0
    (table,) = json.loads(file.read_text())["tables"]
    rows = table["rows"]
    assert table["name"] == "plan" and set(rows[0]) == set(COLUMNS)
    kinds = {row["schedule"].partition("(")[0] for row in rows}
    assert {"StoreAll", "Revolve", "ZCut", "Uniform"} <= kinds
    assert {row["image"] for row in rows} == {"same"}
    assert all(row["measured s"] > 0 and row["predicted s"] > 0 for row in rows)
    assert all(0 < row["bound s"] <= row["predicted s"] * (1 + 1e-6) for row in rows)
    assert list(tmp_path.iterdir()) == [file]
    assert "StoreAll(9)" in capsys.readouterr().out


def test_schedules_can_be_chosen_and_long_ones_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "--plan-disk=4MiB", f"--dir={tmp_path}", "--only=plan"]
    assert cli.bench([*words, "--plan-names=Revolve"]) == 0
    shown = capsys.readouterr().out
    assert "Revolve(9" in shown and "StoreAll" not in shown
    assert cli.bench([*words, "--plan-limit=0"]) == 0
    assert "s are predicted" in capsys.readouterr().out


def test_what_is_computed_again_is_what_was_predicted() -> None:
    application = Application(32)
    found = unspool.plan(
        12,
        application.state_bytes,
        1e-4,
        host_memory=5 * application.state_bytes,
        links=LINKS,
        device="cpu",
    )
    for candidate in found.candidates:
        outcome = run_candidate(application, candidate)
        assert outcome.again == candidate.recomputed_steps
        assert outcome.peak["host"] <= 5 * application.state_bytes
    assert any(isinstance(one.schedule, schedules.Revolve) for one in found.candidates)
