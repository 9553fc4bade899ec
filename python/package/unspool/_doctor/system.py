"""What files of the system say: settings of the kernel, and the spools in a directory."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from glob import glob
from pathlib import Path
from typing import Any

from unspool._doctor.facts import Facts

#: The directory of an ephemeral spool, as the disk tier names it: its process, and noise.
SPOOL = re.compile(r"unspool-(\d+)-[0-9a-fA-F]{16}")


def settings(locks: str, root: Path = Path("/")) -> dict[str, Any]:
    """What belongs to main memory beside its sizes; `locks` is a pattern for those of turns."""
    pages = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", pages)
    return {
        "huge_pages": chosen[1] if chosen else None,
        "strict_overcommit": _text(root / "proc/sys/vm/overcommit_memory") == "2",
        "turns_problem": next(filter(None, map(_problem_of_lock, sorted(glob(locks)))), None),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _problem_of_lock(path: str) -> str | None:
    """Why this process cannot use it. The first process that pins memory makes it."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            # Opening it is refused then: links in shared directories may be traps.
            return "it is a symbolic link"
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    except OSError as cause:
        return str(cause.strerror)
    return None


def spools(directory: str) -> tuple[Facts, ...]:
    """The directories of ephemeral spools in a directory, in the order of their names."""
    try:
        # A link is not what a spool has made.
        inner = [entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()
    named = [(entry.path, SPOOL.fullmatch(entry.name)) for entry in inner]
    return tuple(
        Facts(path=path, bytes=_bytes(path), owner=_owner(path), pid=int(match[1]))
        for path, match in sorted(named, key=lambda one: one[0])
        if match is not None
    )


def _owner(path: str) -> str:
    """Who holds the lock in it is alive. It is asked for in the shared mode and given back at once;
    owners and cleaners both bear that.
    """
    try:
        with open(os.path.join(path, "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "alive"
    except OSError:
        return "unknown"
    return "dead"


def _bytes(path: str) -> int:
    try:
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(path))
    except OSError:
        return 0
