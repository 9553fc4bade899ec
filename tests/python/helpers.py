"""Functions that the tests of all Python packages share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import CodeType, ModuleType

import numpy as np
import pytest


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


def guide_blocks(name: str, folder: str = "howto") -> list[CodeType]:
    """The blocks of a page of docs that need another package, fenced as `py`, compiled."""
    guide = Path(__file__).parents[2] / "docs" / folder / name
    blocks = re.findall(r"^```py\n(.*?)^```$", guide.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [compile(block, str(guide), "exec") for block in blocks]


def children(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(os.listdir(directory))
