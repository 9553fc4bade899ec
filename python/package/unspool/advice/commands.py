"""The commands `unspool plan`, `unspool advise` and `unspool accumulate`: each has a function that
adds its options, and one that calls what they ask for, prints the answer, as text or as JSON, and
returns the exit code.

Those raise an `Error` where an option makes no sense, nothing fits, or something cannot be
measured, and an `OSError` for a file that cannot be read or written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import errors
from ..codecs.values import Bound
from ..errors import OptionError
from . import accumulating
from .advising import advise
from .coding import Compression
from .jobs import Prices
from .links import Links, Rate
from .options import Costs, Failures, Waits
from .places import Place
from .planning import measure_links, plan, what_if
from .plans import what_if_table
from .power import Power
from .profile import NVCOMP, TWINE, CodecCost, Profile
from .sizes import bytes_of, rate_of

#: Steps from which on one schedule alone takes seconds, and how long others are looked at in
#: silence, in seconds.
MANY, QUIET = 10_000_000, 2.0


def _add(to: Any, name: str, metavar: str, text: str, **more: Any) -> None:
    to.add_argument(name, metavar=metavar, help=text, **more)


def _flag(to: Any, name: str, text: str, **more: Any) -> None:
    to.add_argument(name, action="store_true", help=text, **more)


def _json(parser: ArgumentParser) -> None:
    _flag(parser, "--json", "print everything as JSON")


def _print(found: Any, options: Namespace, **more: Any) -> int:
    """Prints the answer as text or as JSON, which has `more` as well; returns the exit code."""
    print(json.dumps({**found.to_dict(), **more}, indent=1) if options.json else found)
    return 0


def _compression(options: Namespace, alone: str) -> Compression | None:
    """What was said about a codec; `alone` is the error where its ratio was not."""
    encode, decode = (
        None if text is None else Rate(rate_of(name, text))
        for name, text in (("--encode", options.encode), ("--decode", options.decode))
    )
    if options.ratio is not None:
        return Compression(options.ratio, encode, decode)
    if encode or decode:
        raise OptionError(alone.format("--encode" if encode else "--decode"))
    return None


def plan_options(parser: ArgumentParser) -> None:
    """Adds everything that `unspool plan` understands."""
    parser.description = """\
Says which schedule is fastest for an adjoint computation: every candidate is run by the core of a
spool in virtual time, at the speeds of this machine's links, which are measured first.
"""
    of = parser.add_argument_group("computation")
    _add(of, "--steps", "N", "of the forward pass", type=_count, required=True)
    _add(of, "--state", "SIZE", "of one state: 256MiB", required=True)
    _add(of, "--step-ms", "MS", "of one forward step", type=float, required=True)
    _add(of, "--reverse-ms", "MS", "of one reverse step (default: --step-ms)", type=float)
    part = "of the part of a state that a reverse step reads (default: all)"
    _add(of, "--reverse-state", "SIZE", part)
    _add(of, "--arrays", "N", "of a state (1)", type=_count, default=1)
    tiers = parser.add_argument_group("tiers")
    _add(tiers, "--device-memory", "SIZE", "memory of the GPU, or what stands for it")
    _add(tiers, "--host-memory", "SIZE", "main memory")
    _add(tiers, "--disk", "DIR", "the directory of the disk tier")
    _add(tiers, "--disk-size", "SIZE", "at most so much of it (default: all that is free)")
    _add(tiers, "--device", "PLACE", "auto, cpu, cuda or cuda:1", default="auto")
    codec = parser.add_argument_group("codec of the spool")
    _add(codec, "--ratio", "R", "states become so many times smaller", type=float)
    speed = 'bytes of the arrays: "500 GB/s" (default: that of Twine)'
    _add(codec, "--encode", "SPEED", speed)
    _add(codec, "--decode", "SPEED", "likewise")
    _add(parser, "--links", "FILE", "speeds; measures nothing", type=Path)
    _add(parser, "--write-links", "FILE", "keep the speeds there", type=Path)
    _flag(parser, "--what-if", "the best time with half and twice of each memory")
    _json(parser)


def _count(text: str) -> int:
    try:
        number = float(text) if "e" in text.lower() else int(text)
    except ValueError:
        number = 0
    if not (1 <= number < 2**63 and number == int(number)):
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers from 1 are needed")
    return int(number)


def run_plan(options: Namespace) -> int:
    """`unspool plan`."""
    target: Path | None = options.write_links
    if target is not None:
        _check_target(target)
    seconds = _milliseconds("--step-ms", options.step_ms)
    memory = {"device_memory": options.device_memory, "host_memory": options.host_memory}
    tiers = {**memory, "disk": _disk(options)}
    found = plan(
        options.steps,
        options.state,
        seconds,
        **tiers,
        reverse_seconds=_milliseconds("--reverse-ms", options.reverse_ms),
        reverse_bytes=options.reverse_state,
        device=options.device,
        compression=_compression(
            options,
            "{} says nothing of how small states become: add --ratio, as the command "
            "unspool-codecs measures it.",
        ),
        links=_links(options, tiers),
        progress=ShownProgress(options.steps).show,
    )
    if target is not None:
        found.links.save_to(target)
    rows = what_if(found) if options.what_if else ()
    more = {"what_if": [row.to_dict() for row in rows]} if options.what_if else {}
    _print(found, options, **more)
    if not options.json and options.links is None:
        print(f"\nlinks, measured in {found.links.seconds:.1f} s:\n{found.links}")
    if not options.json and options.what_if:
        print(f"\n{what_if_table(found, rows)}")
    return 0


class ShownProgress:
    """Says on the error stream which schedule is looked at, where that takes long."""

    def __init__(self, steps: int) -> None:
        self._from = 0.0 if steps >= MANY else time.monotonic() + QUIET

    def show(self, name: str) -> None:
        if time.monotonic() >= self._from:
            print(f"looking at {name}", file=sys.stderr, flush=True)


def _links(options: Namespace, tiers: dict[str, Any]) -> Links | None:
    """Speeds of the links for the plan: from the file of `--links`, or measured on this machine for
    checkpoints of several arrays. None lets `plan` measure them after it has checked its arguments.
    """
    if options.links is not None:
        return Links.load_from(options.links)
    if options.arrays == 1:
        return None
    state = bytes_of("--state", options.state)
    return measure_links(
        **tiers, device=options.device, checkpoint_bytes=state, arrays=options.arrays
    )


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


def _disk(options: Namespace) -> Any:
    """A directory, a size, both, or nothing."""
    if options.disk is not None and options.disk_size is not None:
        return options.disk, options.disk_size
    if options.disk is None and options.disk_size is not None and options.links is None:
        raise OptionError(
            "--disk-size alone is a disk that cannot be measured: add --disk DIRECTORY, or --links "
            "FILE with the speeds of the machine that the plan is for"
        )
    return options.disk_size if options.disk is None else options.disk


def advise_options(parser: ArgumentParser) -> None:
    """Adds everything that `unspool advise` understands."""
    parser.description = """\
Says how a long job should keep its checkpoints: how often, where, with which codec, and what each
way costs. Enough to ask is: --bytes 80GB --mtbf 12h --disk DIRECTORY. What is not given is measured
(directories, and codecs on arrays of yours), or has the default in brackets.
"""
    of = parser.add_argument_group("checkpoint of one rank")
    what = of.add_mutually_exclusive_group(required=True)
    _add(what, "--bytes", "SIZE", "its size: 80GB")
    sample = ".npy or .npz with its arrays, on which codecs are tried; may be repeated"
    _add(what, "--sample", "FILE", sample, type=Path, action="append")
    kinds = "(abs, range, rms, psnr, l2)"
    bound = f"try a codec with this bound besides, such as range=1e-4 {kinds}"
    _add(of, "--bound", "KIND=NUMBER", bound)
    _add(of, "--ratio", "R", "a codec makes it R times smaller", type=float)
    _add(of, "--encode", "SPEED", 'of that codec: "2 GB/s" (that of Twine)')
    _add(of, "--decode", "SPEED", "likewise")
    _add(of, "--increments", "SHARE", "the part that changes: 0.2 for a fifth", type=float)
    _flag(of, "--on-gpu", "it is on a GPU", default=None)
    places = parser.add_argument_group("places")
    speeds = 'a directory, or the speeds of one rank: "2 GB/s" or "2 GB/s,4 GB/s" (read)'
    _add(places, "--disk", "PLACE", f"{speeds} (this directory)", default=".")
    _add(places, "--remote", "PLACE", "a place that survives what the disk does not")
    share = "of the failures that the disk survives (0.9)"
    _add(places, "--healed", "SHARE", share, type=float, default=0.9)
    _add(places, "--writers", "N", "ranks of a node (1)", type=int, default=1)
    _job_options(parser.add_argument_group("job"))
    _cost_options(parser.add_argument_group("costs"))
    _add(parser, "--figure", "FILE", "draw it: PNG or SVG (needs Matplotlib)", type=Path)
    _json(parser)


def _job_options(job: Any) -> None:
    _add(job, "--ranks", "N", "processes of the job (1)", type=int, default=1)
    _add(job, "--mtbf", "TIME", "between two failures of the job: 12h")
    _add(job, "--rank-mtbf", "TIME", "between two of one rank: 2000d")
    _add(job, "--work", "TIME", "that the job computes (7d)", default="7d")
    _add(job, "--restart", "TIME", "until a restart begins to read (60s)", default="60s")
    _flag(job, "--blocking", "a save returns only when it is durable")
    _add(job, "--blocked", "TIME", "what a save blocks otherwise (a copy)")


def _cost_options(costs: Any) -> None:
    _add(costs, "--endurance", "SIZE", 'bytes that the disk may be written: 600TB, or "auto"')
    _add(costs, "--watts", "W[,SAVE,RESTORE,ENCODE]", 'of a rank, or "now" to measure it')
    _add(costs, "--node-price", "P", "without the drive", type=float)
    _add(costs, "--drive-price", "P", "of a drive (0)", type=float, default=0.0)
    _add(costs, "--kwh-price", "P", "of a kWh (0)", type=float, default=0.0)
    _add(costs, "--weeks", "N", "that a node is used (260)", type=float, default=260.0)


#: Options of `unspool advise` that are arguments of `advise`.
SAME = ("ranks", "work", "increments", "on_gpu", "writers")


def run_advise(options: Namespace) -> int:
    """`unspool advise`."""
    figure: Path | None = options.figure
    if figure is not None and (
        not figure.absolute().parent.is_dir() or figure.suffix.lower() not in (".png", ".svg")
    ):
        raise OptionError(
            f"--figure {figure}: a .png or .svg in a directory that exists is needed."
        )
    found = advise(
        options.bytes if options.sample is None else _arrays(options.sample),
        _place("--disk", options.disk),
        remote=None if options.remote is None else _place("--remote", options.remote),
        failures=Failures(options.mtbf, options.rank_mtbf, options.healed),
        waits=Waits(options.blocking, options.blocked, options.restart),
        codecs=_codecs(options),
        costs=Costs(options.endurance, _power(options.watts), _prices(options)),
        **{name: getattr(options, name) for name in SAME},
    )
    _print(found, options)
    if figure is not None:
        found.draw(figure)
    return 0


def _arrays(paths: list[Path]) -> dict[str, Any]:
    """The arrays of files of NumPy."""
    import numpy

    found: dict[str, Any] = {}
    for path in paths:
        try:
            loaded = numpy.load(path, mmap_mode="r", allow_pickle=False)
            names = getattr(loaded, "files", None)
            if names is None:
                found[path.stem] = loaded
            else:
                found |= {f"{path.stem}.{name}": loaded[name] for name in names}
        except ValueError as why:
            raise OptionError(f"--sample {path}: {why}") from why
    return found


def _place(name: str, text: str) -> Any:
    """Speeds, or a directory; a directory of such a name goes first."""
    if not text.rstrip().endswith("/s") or Path(text).is_dir():
        return text
    words = text.split(",")
    if len(words) > 2:
        raise OptionError(
            f'{name} {text}: write "2 GB/s" or "2 GB/s,4 GB/s", the second for reading.'
        )
    rates = [rate_of(name, word) for word in words]
    return Place(rates[0], rates[-1])


def _codecs(options: Namespace) -> list[Any] | None:
    """What is tried, or None for what `advise` takes by itself."""
    found: list[Any] = [] if options.sample is None else ["lossless"]
    if options.bound is not None:
        found.append(_bound(options.bound))
    given = _compression(options, "--encode and --decode are those of --ratio: give that as well.")
    return [*found, given] if given is not None else found or None


def _bound(text: str) -> Bound:
    kind, _, number = text.partition("=")
    try:
        return Bound(**{kind.strip(): float(number)})
    except errors.Error:
        raise
    except (TypeError, ValueError) as why:
        raise OptionError(f"--bound {text}: write it as range=1e-4.") from why


def _power(text: str | None) -> Power | None:
    if text is None or text.strip() == "now":
        return None if text is None else Power.now()
    try:
        return Power(*(float(word) for word in text.split(",")))
    except errors.Error:
        raise
    except (TypeError, ValueError) as why:
        raise OptionError(f'--watts {text}: write "700", "700,500,400,60" or "now".') from why


def _prices(options: Namespace) -> Prices | None:
    if options.node_price is not None:
        return Prices(options.node_price, options.drive_price, options.weeks, options.kwh_price)
    if options.drive_price or options.kwh_price:
        raise OptionError("--drive-price and --kwh-price go with --node-price: give that as well.")
    return None


def run_options(parser: ArgumentParser) -> None:
    """Adds everything that `unspool accumulate` understands."""
    parser.description = """\
Says which checkpoints of a run to compress, and which of them together, so that the application is
blocked the least: each goes raw, is compressed alone, is held for later, or is compressed together
with what is held. The run is a profile that was recorded (Batched(profile=...)), or one of
equal checkpoints. The costs of twine and nvcomp are those of an H100: `unspool codecs --cost FILE`
measures those of a machine.
"""
    _add(parser, "profile", "PROFILE", "a recorded run", nargs="?", type=Path)
    run = parser.add_argument_group("a run of equal checkpoints")
    _add(run, "--checkpoints", "N", "(100)", type=int, default=100)
    _add(run, "--size", "SIZE", "of each (2MB)", default="2MB")
    run.add_argument("--ratio", type=float, default=10.0, help="raw over compressed bytes (10)")
    _add(run, "--rate", "SIZE", "made in a second (100GB)", default="100GB")
    of = parser.add_argument_group("machine")
    codec = "twine, nvcomp, or a file of costs (the profile's, or twine)"
    _add(of, "--codec", "NAME", codec)
    _flag(of, "--keep", "write the costs into PROFILE, for spools to plan with")
    _add(of, "--cache", "SIZE", "on the device (the profile's, or 128MiB)")
    _add(of, "--link", "SIZE", "a second, to the host (profile, or 25GB)")
    _add(of, "--copy", "SIZE", "a second, within the device (1.49TB)")
    _add(of, "--most-together", "N", "in one call of the codec", type=int)
    of.add_argument("--until", choices=("flushed", "application"), default="flushed")
    _json(parser)


def run_accumulate(options: Namespace) -> int:
    """`unspool accumulate`."""
    profile, copy, link = _profile(options), accumulating.DEVICE_COPY, options.link
    if options.copy is not None:
        copy = replace(copy, bytes_per_second=bytes_of("--copy", options.copy))
    codec = _cost(options.codec, profile)
    found = accumulating.plan(
        profile,
        codec=codec,
        cache=options.cache or profile.cache or "128MiB",
        link=profile.link or Rate(25e9) if link is None else Rate(bytes_of("--link", link)),
        copy=copy,
        most_together=options.most_together,
        until=options.until,
    )
    if options.keep:
        replace(profile, cost=codec).save_to(options.profile)
    return _print(found, options)


def _profile(options: Namespace) -> Profile:
    if options.keep and options.profile is None:
        raise OptionError("--keep writes costs into a recorded run: name its file as PROFILE.")
    if options.profile is not None:
        return Profile.load_from(options.profile)
    size, rate = bytes_of("--size", options.size), bytes_of("--rate", options.rate)
    if not 1 <= options.checkpoints <= 1_000_000 or not options.ratio > 0:
        raise OptionError("--checkpoints is from 1 to a million, and --ratio above zero")
    return Profile.of([size] * options.checkpoints, ratio=options.ratio, interval=size / rate)


def _cost(name: str | None, profile: Profile) -> CodecCost:
    if name is None:
        return profile.cost or TWINE
    known = {"twine": TWINE, "nvcomp": NVCOMP}
    return known[name] if name in known else CodecCost.load_from(name)
