"""Fixtures and helpers of all tests."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import numpy as np
import pytest
import unspool

import fake_gpu

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.load_profile("default")


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    """A spool with room for everything that a test saves: in main memory, or, where the
    environment asks for it (`UNSPOOL_TEST_ON=cuda`), on a GPU."""
    place = os.environ.get("UNSPOOL_TEST_ON")
    tiers = {"device": "64MiB", "host": "64MiB", "on": place} if place else {"host": "64MiB"}
    with unspool.Spool(**tiers) as opened:
        yield opened


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fake_gpu.Driver]:
    """The driver in plain memory, for tests that are marked `fake_gpu`. It is a compiler too, and
    what that makes is kept apart from real kernels."""
    monkeypatch.setenv("UNSPOOL_NVRTC", os.environ.get("UNSPOOL_CUDA_DRIVER", ""))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = fake_gpu.load()
    if found is None:
        pytest.skip("UNSPOOL_CUDA_DRIVER names no driver: `make test-python` sets it")
    yield found
    found.control("reset")
    found.synchronize()


def gpu_library(name: str) -> ModuleType:
    """A library of arrays on a GPU; the tests of the module are skipped where it is missing."""
    # JAX would take most of the GPU's memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays have the same dtype, shape and bits; NaNs of the same bits are equal."""
    same_kind = left.dtype == right.dtype and left.shape == right.shape
    return same_kind and left.tobytes() == right.tobytes()


def random_array(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """An array of random bits: every pattern, NaNs included."""
    count = int(np.prod(shape)) * dtype.itemsize
    bits = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    if dtype.kind == "b":
        bits &= 1
    return bits.view(dtype).reshape(shape)


def python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that can import the package; bounded in time."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run(command, check=False, **options)


def children(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(os.listdir(directory))
