"""`unspool diff`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from typing import Any

from ..errors import Error, MissingLibraryError, OptionError
from .comparing import diff
from .outcome import Comparison, Difference
from .values import shown

__all__ = ["diff_options", "run_diff"]

#: Exit codes of `unspool diff`, as those of `diff` and `cmp`.
SAME, DIFFERENT, TROUBLE = 0, 1, 2


def diff_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `unspool diff`."""
    parser.description = """Compares two durable histories, runs or places of copies. Without a
    tolerance equal means the same bits. Arrays whose checksums are equal are not read."""
    parser.epilog = "The exit code is 0 for equal, 1 for different, and 2 for an error."
    parser.add_argument("a", metavar="A", help="a directory, or a place such as s3://bucket/run")
    parser.add_argument("b", metavar="B", help="the other one, such as a reference")
    parser.add_argument(
        "--array", metavar="NAME", action="append", help="only this one; may be given repeatedly"
    )
    parser.add_argument("--step", metavar="N", type=int, action="append", help="only this step")
    parser.add_argument("--rtol", type=float, help="relative tolerance")
    parser.add_argument("--atol", type=float, help="absolute tolerance")
    parser.add_argument("--ulp", type=int, help="tolerance in representable numbers")
    parser.add_argument(
        "--bounds", action="store_true", help="tolerate what the bounds of the codecs allow"
    )
    which = parser.add_mutually_exclusive_group()
    for name, text in (
        ("common", "leave out steps that only one of them has"),
        ("first", "stop at the first step that differs"),
    ):
        which.add_argument(
            f"--{name}", dest="which", action="store_const", const=name, default="all", help=text
        )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", metavar="FILE", help="write a picture (needs matplotlib)")


def run_diff(options: argparse.Namespace) -> int:
    """Compares, and prints what differs."""
    try:
        found = diff(
            options.a,
            options.b,
            arrays=options.array,
            steps=options.step,
            which=options.which,
            rtol=options.rtol,
            atol=options.atol,
            ulp=options.ulp,
            bounds=options.bounds,
        )
        if options.plot:
            from .figures import plot_comparison

            plot_comparison(found, options.plot)
    except (OptionError, MissingLibraryError):
        raise
    except (Error, OSError) as why:
        print(f"unspool diff: {why}", file=sys.stderr)
        return TROUBLE
    print(json.dumps(_spelled(found), indent=2) if options.json else found)
    return _code(found)


def _code(found: Comparison) -> int:
    if any(one.kind != "unreadable" for one in found.differences):
        return DIFFERENT
    return SAME if found.equal else TROUBLE


def _spelled(found: Comparison) -> dict[str, Any]:
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    return {**fields, "equal": found.equal, "differences": list(map(_row, found.differences))}


def _row(one: Difference) -> dict[str, Any]:
    fields = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    finite = one.largest is None or math.isfinite(one.largest)
    values = {
        "a": None if one.a is None else shown(one.a, one.b),
        "b": None if one.b is None else shown(one.b, one.a),
    }
    return {**fields, **values, "largest": one.largest if finite else str(one.largest)}
