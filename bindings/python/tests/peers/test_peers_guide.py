"""The examples of docs/howto/interop.md that need other packages run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")
pyadjoint = pytest.importorskip("pyadjoint", reason="pip install pyadjoint-ad")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning"),
]

GUIDE = Path(__file__).parents[4] / "docs" / "howto" / "interop.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) == 2
    namespace: dict[str, object] = {}
    with pyadjoint.set_working_tape():
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec"), namespace)
        pyadjoint.pause_annotation()
