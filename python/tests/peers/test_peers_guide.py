"""The examples of docs/howto/interop.md that need other packages run, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guide_blocks

pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")
pyadjoint = pytest.importorskip("pyadjoint", reason="pip install pyadjoint-ad")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning"),
]


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = guide_blocks("interop.md")
    assert len(blocks) == 2
    namespace: dict[str, object] = {}
    with pyadjoint.set_working_tape():
        for block in blocks:
            exec(block, namespace)
        pyadjoint.pause_annotation()
