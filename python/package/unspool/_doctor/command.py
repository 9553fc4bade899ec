"""`unspool doctor`.

The machine is examined in a process of its own: a driver that is broken in the worst way ends the
process that loads it, or never answers, and the doctor has to be able to say so.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from unspool._doctor import diagnose, libraries
from unspool._doctor.diagnosis import Diagnosis
from unspool._doctor.facts import Finding
from unspool.errors import Error

__all__ = ["doctor_options", "run_doctor"]

#: What `--require` understands.
NEEDS = ("cuda", "nvrtc", "direct-io", "io-uring", *libraries.PACKAGES)

#: The exit code when something is missing that was asked for.
MISSING = 1


def doctor_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool doctor` understands."""
    parser.description = (
        "Says what this machine has for a spool, and what to do about what is missing or poor."
    )
    parser.add_argument("--disk", metavar="DIR", help="look at a directory for the disk tier")
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        choices=NEEDS,
        metavar="NAME",
        help=f"exit with {MISSING} unless this works; may be repeated: {', '.join(NEEDS)}",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--no-measure",
        dest="measure",
        action="store_false",
        help="do not measure the links and the disk",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="the longest that the driver, and then the disk, may take to answer (default: 30)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("write seconds above 0 and at most 3600")
    return seconds


def run_doctor(options: argparse.Namespace) -> int:
    """Prints what was found; returns the exit code."""
    found = look(options.disk, options.measure, options.timeout)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    missing = [need for need in dict.fromkeys(options.require) if not found.has(need)]
    if missing:
        print(f"unspool doctor: required and not there: {', '.join(missing)}", file=sys.stderr)
    return MISSING if missing or not found.usable else 0


def look(disk: str | None, measure: bool, timeout: float) -> Diagnosis:
    """Examines the machine in a process of its own, a second time without CUDA when that ends it.

    Raises:
        Error: the second time went no better.
    """
    found = _in_a_process(disk, True, measure, timeout)
    if not isinstance(found, str):
        return diagnose(found)
    broken = _broken_driver(found)
    found = _in_a_process(disk, False, measure, timeout)
    if isinstance(found, str):
        raise Error(f"the machine could not be examined: the process that does it {found}")
    return diagnose(found, broken)


#: What the process runs: arguments as JSON come in, what was found goes out. It finds the same
#: packages as this one. It ends without clearing up: what hangs or is broken by then must not keep
#: it from ending.
PROGRAM = """\
import json, os, sys
disk, cuda, measure, timeout, sys.path[:] = json.loads(sys.argv[1])
from unspool._unspool import examine
from unspool._doctor import folders
print(json.dumps(examine(disk, cuda, measure, folders(), timeout)), flush=True)
os._exit(0)
"""


def _in_a_process(
    disk: str | None, cuda: bool, measure: bool, timeout: float
) -> Mapping[str, Any] | str:
    """What was found, or how the process ended."""
    arguments = json.dumps([disk, cuda, measure, timeout, sys.path])
    command = [sys.executable, "-P", "-c", PROGRAM, arguments]
    try:
        # The driver, the compiler and the disk each have their limit; starting takes a little.
        done = subprocess.run(command, capture_output=True, timeout=3 * timeout + 30, check=False)
    except subprocess.TimeoutExpired:
        return "gave no answer in time"
    try:
        # Drivers print what they like: the answer is the last line.
        found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (IndexError, ValueError):
        return _ending(done.returncode, done.stderr.decode(errors="replace"))


def _ending(code: int, errors: str) -> str:
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    last = errors.strip().splitlines()[-1:] or ["no message"]
    return f"ended with code {code}: {last[0]}"


def _broken_driver(how: str) -> Finding:
    return Finding(
        "missing",
        "CUDA",
        f"A process that loaded the CUDA driver and NVRTC {how}.",
        "Every program that uses the GPU may end in the same way; spools in main memory work with "
        'device="cpu".',
        "See whether nvidia-smi works. Reinstall the driver so that its library and its kernel "
        "module have the same version, reboot, and take folders with other copies of libcuda.so.1 "
        "out of LD_LIBRARY_PATH.",
    )
