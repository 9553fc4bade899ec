"""Source distributions of other projects, for the tests in them.

None of it is kept in this project: each is fetched once for an environment, and is what its
checksum says.
"""

from __future__ import annotations

import importlib.util
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from package_index import Unavailable, download

CACHE = Path(sys.prefix) / "share" / "unspool-peers"
#: The SHA-256 of the source distribution of each release that requirements.txt asks for.
CHECKSUMS = {
    "checkpoint-schedules-1.0.4": (
        "aaa9191a6da910fd1b1e0526df2ca7ecea04823fe5106360e3e23d2413dcfeeb"
    ),
    "pyrevolve-2.2.8": "6ef6d6a405a9b17b042abd1688b5d669fd7d0f27231b27a8a8c1eb8286cfd4c4",
}


def fetch(name: str) -> Path:
    """The unpacked source distribution of an installed project."""
    return unpacked(f"{name}-{metadata.version(name)}")


def unpacked(release: str) -> Path:
    """The folder of a release; the test is skipped where it cannot be fetched, and fails where
    the checksum is unknown or another."""
    assert release in CHECKSUMS, f"sdists.py has no checksum for {release}: add it"
    place = CACHE / release
    if not place.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _unpacked(_downloaded(release, Path(folder))).rename(place)
    return place


def _downloaded(release: str, folder: Path) -> Path:
    try:
        return download(release, CHECKSUMS[release], folder)
    except Unavailable as error:
        pytest.skip(str(error))


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
