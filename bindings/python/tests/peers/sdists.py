"""Source distributions of other projects, for the tests in them.

None of it is kept in this project: pip fetches each one once for an environment, in the version
that is installed there.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

CACHE = Path(sys.prefix) / "share" / "unspool-peers"
#: Seconds that a download may take.
PATIENCE = 120


def fetch(name: str) -> Path:
    """The unpacked source distribution of an installed project."""
    release = f"{name}-{metadata.version(name)}"
    place = CACHE / release
    if not place.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _unpacked(_downloaded(name, Path(folder))).rename(place)
    return place


def _downloaded(name: str, folder: Path) -> Path:
    """The archive, in a folder; the test is skipped where it cannot be had."""
    wanted = f"{name}=={metadata.version(name)}"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot fetch the sources of {wanted}: {done.stderr.strip()[-300:]}")
    (archive,) = folder.glob("*.tar.gz")
    return archive


def _unpacked(archive: Path) -> Path:
    """The only folder of an archive, beside it."""
    with tarfile.open(archive) as opened:
        opened.extractall(archive.parent, filter="data")
    (folder,) = (entry for entry in archive.parent.iterdir() if entry.is_dir())
    return folder


def load(path: Path) -> ModuleType:
    """A module of a source distribution, from its file."""
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
