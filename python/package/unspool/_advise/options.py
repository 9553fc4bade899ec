"""The options of `unspool advise`."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_options"]

DESCRIPTION = """\
Says how a long job should keep its checkpoints: how often, where, with which codec, and what each
way costs. What is not given is measured: the directories, and the codecs on arrays of yours.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool advise` understands."""
    parser.description = DESCRIPTION
    _checkpoint_options(parser.add_argument_group("checkpoint of one rank"))
    _place_options(parser.add_argument_group("places"))
    _job_options(parser.add_argument_group("job"))
    _cost_options(parser.add_argument_group("costs"))
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw it: PNG or SVG (needs Matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _checkpoint_options(group: argparse._ArgumentGroup) -> None:
    what = group.add_mutually_exclusive_group(required=True)
    what.add_argument("--bytes", metavar="SIZE", help="its size: 80GB")
    what.add_argument(
        "--sample",
        type=Path,
        action="append",
        metavar="FILE",
        help=".npy or .npz with its arrays, on which codecs are tried; may be repeated",
    )
    group.add_argument(
        "--bound",
        metavar="KIND=NUMBER",
        help="try a codec with this bound besides, such as range=1e-4 (abs, range, rms, psnr, l2)",
    )
    group.add_argument("--ratio", type=float, metavar="R", help="a codec makes it R times smaller")
    group.add_argument("--encode", metavar="SPEED", help='of that codec: "2 GB/s" (that of Twine)')
    group.add_argument("--decode", metavar="SPEED", help="likewise")
    group.add_argument(
        "--increments", type=float, metavar="SHARE", help="the part that changes: 0.2 for a fifth"
    )
    group.add_argument("--on-gpu", action="store_true", default=None, help="it is on a GPU")


def _place_options(group: argparse._ArgumentGroup) -> None:
    speeds = 'a directory, or the speeds of one rank: "2 GB/s" or "2 GB/s,4 GB/s" (read)'
    group.add_argument("--disk", required=True, metavar="PLACE", help=speeds)
    group.add_argument(
        "--remote", metavar="PLACE", help="a place that survives what the disk does not"
    )
    group.add_argument(
        "--healed",
        type=float,
        default=0.9,
        metavar="SHARE",
        help="of the failures that the disk survives (0.9)",
    )
    group.add_argument("--writers", type=int, default=1, metavar="N", help="ranks of a node (1)")


def _job_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--ranks", type=int, default=1, metavar="N", help="processes of the job (1)")
    group.add_argument("--mtbf", metavar="TIME", help="between two failures of the job: 12h")
    group.add_argument("--rank-mtbf", metavar="TIME", help="between two of one rank: 2000d")
    group.add_argument("--work", default="7d", metavar="TIME", help="that the job computes (7d)")
    group.add_argument(
        "--restart", default="60s", metavar="TIME", help="until a restart begins to read (60s)"
    )
    group.add_argument(
        "--blocking", action="store_true", help="a save returns only when it is durable"
    )
    group.add_argument("--blocked", metavar="TIME", help="what a save blocks otherwise (a copy)")


def _cost_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--endurance", metavar="SIZE", help='bytes that the disk may be written: 600TB, or "auto"'
    )
    group.add_argument(
        "--watts", metavar="W[,SAVE,RESTORE,ENCODE]", help='of a rank, or "now" to measure it'
    )
    group.add_argument("--node-price", type=float, metavar="P", help="without the drive")
    group.add_argument("--drive-price", type=float, default=0.0, metavar="P", help="of a drive (0)")
    group.add_argument("--kwh-price", type=float, default=0.0, metavar="P", help="of a kWh (0)")
    group.add_argument(
        "--weeks", type=float, default=260.0, metavar="N", help="that a node is used (260)"
    )
