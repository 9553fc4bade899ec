"""The examples of docs/howto/torch.md run, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guide_blocks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = guide_blocks("torch.md")
    assert len(blocks) == 6
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        exec(block, namespace)
