"""`unspool plan`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from unspool._plan.sizes import bytes_of, rate_of
from unspool._plan.text import links_table, what_if_table
from unspool.errors import OptionError
from unspool.planning import Compression, Links, Plan, Rate, measure_links, plan, what_if

__all__ = ["ShownProgress", "run_command"]

#: Steps from which on one schedule alone takes seconds, and how long others are looked at in
#: silence, in seconds.
MANY, QUIET = 10_000_000, 2.0


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
        on=options.on,
        compression=_compression(options),
        links=_links(options),
        progress=ShownProgress(options.steps).show,
    )
    if target is not None:
        found.links.save_to(target)
    _show(found, options)
    return 0


class ShownProgress:
    """Says on the error stream which schedule is looked at, where that takes long."""

    def __init__(self, steps: int) -> None:
        self._from = 0.0 if steps >= MANY else time.monotonic() + QUIET

    def show(self, name: str) -> None:
        if time.monotonic() >= self._from:
            print(f"looking at {name}", file=sys.stderr, flush=True)


def _links(options: argparse.Namespace) -> Links | None:
    """Speeds of the links for the plan: from the file of `--links`, or measured on this machine for
    checkpoints of several arrays. None lets `plan` measure them after it has checked its arguments.
    """
    if options.links is not None:
        return Links.load_from(options.links)
    if options.arrays == 1:
        return None
    tiers = {"device": options.device, "host": options.host, "disk": _disk(options)}
    state = bytes_of("--state", options.state)
    return measure_links(**tiers, on=options.on, checkpoint_bytes=state, arrays=options.arrays)


def _compression(options: argparse.Namespace) -> Compression | None:
    """What was said about a codec."""
    encode, decode = _speed("--encode", options.encode), _speed("--decode", options.decode)
    if options.ratio is not None:
        return Compression(options.ratio, encode, decode)
    if encode or decode:
        raise OptionError(
            f"{'--encode' if encode else '--decode'} says nothing of how small states become: add "
            "--ratio, as the command unspool-codecs measures it."
        )
    return None


def _speed(name: str, text: str | None) -> Rate | None:
    """Bytes in a second, or nothing."""
    return None if text is None else Rate(rate_of(name, text))


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
