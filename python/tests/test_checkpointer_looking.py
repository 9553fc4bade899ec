"""What a Checkpointer shows of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool._restart import looking


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    return flat.checkpointer(path, **{"host_memory": "4MiB", "device": "cpu", **options})


def test_a_checkpointer_shows_where_it_is_and_how_far(tmp_path: Path) -> None:
    path = tmp_path / "a <run>"
    checkpoints = opened(path, every=100)
    start = f"<unspool.Checkpointer {str(path)!r}: "
    assert repr(checkpoints) == f"{start}open, no checkpoint that counts, next due at step 100>"
    assert checkpoints.steps() == [] and "<table>" not in checkpoints._repr_html_()
    for step in (100, 230):
        checkpoints.save(step, u=np.ones(1 << 17))
    checkpoints.flush()
    said = "2 checkpoints of 2.00 MiB, the newest of step 230, 0 s old, next due at step 300>"
    assert re.sub(r"\d s old", "0 s old", repr(checkpoints)) == f"{start}open, {said}"
    assert checkpoints.steps() == [100, 230]
    html = checkpoints._repr_html_()
    assert "a &lt;run&gt;" in html and html.count("<tr>") == 3 and "<td>1.00 MiB</td>" in html
    checkpoints.stop()
    assert checkpoints.stopping and ": stopping, " in repr(checkpoints)
    checkpoints.close()
    assert repr(checkpoints).startswith(f"{start}closed, 2 checkpoints") and "due" not in repr(
        checkpoints
    )
    assert checkpoints.steps() == [100, 230]


def test_a_checkpoint_that_does_not_count_yet_is_shown(tmp_path: Path) -> None:
    checkpoints = opened(tmp_path / "run", every=None, on_error="warn")
    checkpoints.save(1, u=np.ones(3))
    checkpoints.flush()
    (tmp_path / "run" / "rank-0000-of-0001" / "step-2.manifest" / "x").mkdir(parents=True)
    checkpoints.save(2, u=np.ones(3))
    assert re.search(r"newest of step 1, \d s old, step 2 on its way>$", repr(checkpoints))
    with pytest.warns(RuntimeWarning, match="step 2 does not count"):
        checkpoints.close()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (119, "119 s"), (121, "2 min"), (7199, "120 min"), (7200, "2 h"), (3e5, "3 days")],
)
def test_ages_are_in_the_largest_unit_that_tells_them_apart(seconds: float, said: str) -> None:
    assert looking.age(1e9, lambda: 1e9 + seconds) == said
    assert looking.age(1e9 + 5, lambda: 1e9) == "0 s", "the clock of another machine"


def test_the_next_checkpoint_is_due_by_steps_or_by_time() -> None:
    assert looking.due_text(100, None, 5.0, 230) == "at step 300"
    assert looking.due_text("10min", 600.0, 121.0, 230) == "in 8 min"
    assert looking.due_text("auto", 600.0, 601.0, None) == "now"
    assert looking.due_text(None, None, 5.0, 230) == ""
