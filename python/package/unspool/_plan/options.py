"""The options of `unspool plan`."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_options"]

DESCRIPTION = """\
Says which schedule is fastest for an adjoint computation: every candidate is run by the core of a
spool in virtual time, at the speeds of this machine's links, which are measured first.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool plan` understands."""
    parser.description = DESCRIPTION
    _problem_options(parser.add_argument_group("computation"))
    _tier_options(parser.add_argument_group("tiers"))
    _codec_options(parser.add_argument_group("codec of the spool"))
    parser.add_argument("--links", type=Path, metavar="FILE", help="speeds; measures nothing")
    parser.add_argument("--write-links", type=Path, metavar="FILE", help="keep the speeds there")
    parser.add_argument(
        "--what-if", action="store_true", help="the best time with half and twice of each memory"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _problem_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--steps", type=_count, required=True, metavar="N", help="of the forward pass"
    )
    group.add_argument("--state", required=True, metavar="SIZE", help="of one state: 256MiB")
    group.add_argument(
        "--step-ms", type=float, required=True, metavar="MS", help="of one forward step"
    )
    group.add_argument(
        "--reverse-ms", type=float, metavar="MS", help="of one reverse step (default: --step-ms)"
    )
    group.add_argument(
        "--reverse-state",
        metavar="SIZE",
        help="of the part of a state that a reverse step reads (default: all)",
    )
    group.add_argument("--arrays", type=_count, default=1, metavar="N", help="of a state (1)")


def _codec_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--ratio", type=float, metavar="R", help="states become so many times smaller"
    )
    group.add_argument(
        "--encode", metavar="SPEED", help='bytes of the arrays: "500 GB/s" (default: that of Twine)'
    )
    group.add_argument("--decode", metavar="SPEED", help="likewise")


def _count(text: str) -> int:
    try:
        number = float(text) if "e" in text.lower() else int(text)
    except ValueError:
        number = 0
    if not (1 <= number < 2**63 and number == int(number)):
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers from 1 are needed")
    return int(number)


def _tier_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", metavar="SIZE", help="memory of the GPU, or what stands for it")
    group.add_argument("--host", metavar="SIZE", help="main memory")
    group.add_argument("--disk", metavar="DIR", help="the directory of the disk tier")
    group.add_argument(
        "--disk-size", metavar="SIZE", help="at most so much of it (default: all that is free)"
    )
    group.add_argument("--on", default="auto", metavar="PLACE", help="auto, cpu, cuda or cuda:1")
