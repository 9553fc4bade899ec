"""The options of the parts `shapes` and `codecs` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from unspool_studies.words import adder, count_of, given_as, size_of, words_of

__all__ = ["Shapes", "add_shapes_options", "shapes_of"]

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Shapes:
    """What parts `shapes` and `codecs` do.

    Attributes:
        seed: of the cases.
        first: number of the first case.
        draws: how many cases are measured.
        seconds: no further case is begun after so long.
        most: bytes of the largest case; None: `LARGEST` of a GPU, `SMALL` without one.
        words: a case is measured if its text has all of these.
        files: arrays of part `codecs`, beside its own.
    """

    seed: int = 37
    first: int = 0
    draws: int = 500
    seconds: float = 280.0
    most: int | None = None
    words: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


#: The largest case on a GPU; without one, and with `--quick`.
LARGEST, SMALL = GIB, 8 * MIB


def add_shapes_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of both parts."""
    add = adder(parser.add_argument_group("shapes, codecs"), "shapes")
    add("--seed", int, "N", "of the cases (37)")
    add("--draws", count_of, "N", "cases (500)")
    add("--seconds", float, "S", "begin no further case after so long (280)")
    add("--shapes-first", int, "N", "number of the first case (0)")
    add("--shapes-most", size_of, "SIZE", "of the largest case (1GiB; 8MiB without a GPU)")
    add("--shapes-words", words_of, "WORD[,WORD]", "only cases whose text has all of these")
    text = "arrays of part codecs, beside its own: .npy, .npz:NAME, .h5:DATASET"
    add("--shapes-files", words_of, "FILE[,FILE]", text)


def shapes_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of both parts; what they leave out is as in the class above."""
    given = given_as("shapes", options)
    if options.quick:
        given = {"draws": 20, "most": SMALL} | given
    return {"shapes": Shapes(**given)}
