"""`unspool accumulate`: the best schedule for a recorded run, or for one that is described."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from unspool._plan.links import Rate
from unspool._plan.sizes import bytes_of
from unspool.accumulate.costs import NVCOMP, TWINE, CodecCost
from unspool.accumulate.planning import DEVICE_COPY, plan
from unspool.accumulate.profile import Profile
from unspool.errors import OptionError

__all__ = ["add_options", "run_command"]

DESCRIPTION = """\
Says which checkpoints of a run to compress, and which of them together, so that the application is
blocked the least: each goes raw, is compressed alone, is held for later, or is compressed together
with what is held. The run is a profile that a spool has recorded (Spool(profile=...)), or one of
equal checkpoints. The costs of twine and nvcomp are those of an H100: `unspool codecs --cost FILE`
measures those of a machine.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool accumulate` understands."""
    parser.description = DESCRIPTION
    parser.add_argument("profile", nargs="?", type=Path, metavar="PROFILE", help="a recorded run")
    run = parser.add_argument_group("a run of equal checkpoints")
    run.add_argument("--checkpoints", type=int, default=100, metavar="N", help="(100)")
    run.add_argument("--size", default="2MB", metavar="SIZE", help="of each (2MB)")
    run.add_argument("--ratio", type=float, default=10.0, help="raw over compressed bytes (10)")
    run.add_argument("--rate", default="100GB", metavar="SIZE", help="made in a second (100GB)")
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--codec",
        metavar="NAME",
        help="twine, nvcomp, or a file of costs (the profile's, or twine)",
    )
    machine.add_argument(
        "--keep", action="store_true", help="write the costs into PROFILE, for spools to plan with"
    )
    machine.add_argument("--cache", metavar="SIZE", help="on the device (the profile's, or 128MiB)")
    machine.add_argument("--link", metavar="SIZE", help="a second, to the host (profile, or 25GB)")
    machine.add_argument("--copy", metavar="SIZE", help="a second, within the device (1.49TB)")
    machine.add_argument("--most-together", type=int, metavar="N", help="in one call of the codec")
    machine.add_argument("--until", choices=("flushed", "application"), default="flushed")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run_command(options: argparse.Namespace) -> int:
    """Prints a plan; returns the exit code.

    Raises:
        Error: an option makes no sense, or a file holds something else.
        OSError: a file cannot be read.
    """
    profile = _profile(options)
    copy = DEVICE_COPY
    if options.copy is not None:
        copy = Rate(bytes_of("--copy", options.copy), DEVICE_COPY.latency)
    codec = _codec(options, profile)
    found = plan(
        profile,
        codec=codec,
        cache=options.cache or profile.cache or "128MiB",
        link=_link(options, profile),
        copy=copy,
        most_together=options.most_together,
        until=options.until,
    )
    if options.keep:
        replace(profile, cost=codec).save_to(options.profile)
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    return 0


def _profile(options: argparse.Namespace) -> Profile:
    if options.keep and options.profile is None:
        raise OptionError("--keep writes costs into a recorded run: name its file as PROFILE.")
    if options.profile is not None:
        return Profile.load_from(options.profile)
    size, rate = bytes_of("--size", options.size), bytes_of("--rate", options.rate)
    if not 1 <= options.checkpoints <= 1_000_000 or not options.ratio > 0:
        raise OptionError("--checkpoints is from 1 to a million, and --ratio above zero")
    if not rate:
        raise OptionError(f"--rate {options.rate}: bytes in a second, at least one, are needed")
    return Profile.of([size] * options.checkpoints, ratio=options.ratio, interval=size / rate)


def _codec(options: argparse.Namespace, profile: Profile) -> CodecCost:
    name: str | None = options.codec
    if name is None:
        return profile.cost or TWINE
    known = {"twine": TWINE, "nvcomp": NVCOMP}
    return known[name] if name in known else CodecCost.load_from(name)


def _link(options: argparse.Namespace, profile: Profile) -> Rate:
    if options.link is not None:
        return Rate(bytes_of("--link", options.link))
    return profile.link or Rate(25e9)
