"""The examples of docs/howto/jax.md run, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guide_blocks

pytest.importorskip("jax", "0.10", reason="JAX is not installed: pip install jax")


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = guide_blocks("jax.md")
    assert len(blocks) == 7
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        exec(block, namespace)
