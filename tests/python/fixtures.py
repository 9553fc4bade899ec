"""Fixtures that the tests of all Python packages share: each `conftest.py` imports its own."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fake_gpu
import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.load_profile("default")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fake_gpu.Driver]:
    """The driver in plain memory, for tests that are marked `fake_gpu`.

    It is a compiler too, and what that makes is kept apart from real kernels.
    """
    monkeypatch.setenv("UNSPOOL_NVRTC", os.environ.get("UNSPOOL_CUDA_DRIVER", ""))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = fake_gpu.load()
    if found is None:
        pytest.skip("UNSPOOL_CUDA_DRIVER names no driver: `make test-python` sets it")
    yield found
    found.control("reset")
    found.synchronize()


def own_cache() -> None:
    """Keeps the user's cache folder out of the tests, here and in child processes."""
    folder = tempfile.TemporaryDirectory(prefix="unspool-cache-")
    atexit.register(folder.cleanup)
    os.environ["XDG_CACHE_HOME"] = folder.name


def default_ctrl_c() -> None:
    """Lets Ctrl-C raise `KeyboardInterrupt` here and in child processes.

    A shell starts background processes with SIGINT ignored, and what is ignored is inherited.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
