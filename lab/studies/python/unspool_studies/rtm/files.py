"""Files that are there completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unspool_studies.files import whole
from unspool_studies.rtm.errors import MigrationError

__all__ = ["check_writable", "complete"]


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends well, and else vanishes.

    Directories on the way are made when the block begins; the last one goes again when the block
    fails and nothing else is in it.
    """
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with whole(path) as part:
            yield part
    except BaseException:
        if made:
            with suppress(OSError):
                path.parent.rmdir()
        raise


def check_writable(path: Path, what: str) -> None:
    """Refuses a path that cannot be written later. Nothing is created.

    Raises:
        MigrationError: `path` or a parent is not a directory, or must not be written.
    """
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() and nearest != path:
        raise MigrationError(f"{what} {path} cannot be made: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK):
        raise MigrationError(f"{what} {path} cannot be written: no permission for {nearest}")
