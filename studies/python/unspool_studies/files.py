"""Files that are there completely or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["whole", "write_json"]


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends well, and else vanishes."""
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Writes a file of JSON.

    Raises:
        OSError: it cannot be written.
    """
    with whole(path) as part:
        part.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")
