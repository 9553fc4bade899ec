"""The examples of the guide to PyTorch and of its lessons run, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guide_blocks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


@pytest.mark.parametrize(
    ("page", "folder", "count"),
    [
        ("torch.md", "howto", 6),
        ("long-loops.md", "tutorial", 5),
        ("train-within-a-budget.md", "tutorial", 4),
    ],
)
def test_the_examples_run(
    page: str, folder: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = guide_blocks(page, folder)
    assert len(blocks) == count
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        exec(block, namespace)
