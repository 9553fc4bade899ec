"""`unspool plan`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unspool.errors import OptionError
from unspool.planning import Links, Plan, plan, what_if
from unspool.planning.text import links_table, what_if_table

__all__ = ["run_command"]

#: The most bytes of a file that a codec is tried on.
SAMPLE = 256 << 20


def run_command(options: argparse.Namespace) -> int:
    """Prints a plan; returns the exit code.

    Raises:
        Error: an option makes no sense, nothing fits, or the links could not be measured.
        OSError: a file cannot be read or written.
    """
    target: Path | None = options.write_links
    if target is not None:
        _check_target(target)
    found = plan(
        options.steps,
        options.state,
        _milliseconds("--step-ms", options.step_ms),
        device=options.device,
        host=options.host,
        disk=_disk(options),
        reverse_seconds=_milliseconds("--reverse-ms", options.reverse_ms),
        reverse_bytes=options.reverse_state,
        links=None if options.links is None else Links.load_from(options.links),
        on=options.on,
        arrays=options.arrays,
        ratio=options.ratio,
        encode=options.encode,
        decode=options.decode,
        codec=options.codec,
        sample=None if options.sample is None else _sample(options.sample),
    )
    if target is not None:
        found.links.save_to(target)
    _show(found, options)
    return 0


def _sample(path: str) -> Any:
    """The array in a file, or the middle of one that is very large."""
    from unspool.codecs.source import read_source

    return read_source(path, None, None, SAMPLE).array


def _check_target(target: Path) -> None:
    """Before anything is measured."""
    if not target.absolute().parent.is_dir():
        raise OptionError(f"{target} cannot be written: there is no such directory")
    if target.is_dir():
        raise OptionError(f"{target} is a directory: name a file for --write-links")


def _milliseconds(name: str, value: float | None) -> Any:
    if value is not None and not 0 <= value <= 1e9:
        raise OptionError(f"{name}={value}: milliseconds from 0 are needed")
    return None if value is None else value / 1e3


def _disk(options: argparse.Namespace) -> Any:
    """A directory, a size, both, or nothing."""
    if options.disk is not None and options.disk_size is not None:
        return str(options.disk), options.disk_size
    if options.disk is not None:
        return options.disk
    if options.disk_size is not None and options.links is None:
        raise OptionError(
            "--disk-size alone is a disk that cannot be measured: add --disk DIRECTORY, or --links "
            "FILE with the speeds of the machine that the plan is for"
        )
    return options.disk_size


def _show(found: Plan, options: argparse.Namespace) -> None:
    rows = what_if(found) if options.what_if else ()
    if options.json:
        content = found.to_dict()
        if options.what_if:
            content["what_if"] = [row.to_dict() for row in rows]
        print(json.dumps(content, indent=1))
        return
    print(found)
    if options.links is None:
        print(f"\nlinks, measured in {found.links.seconds:.1f} s:\n{links_table(found.links)}")
    if options.what_if:
        print(f"\n{what_if_table(found, rows)}")
