"""Values of options as people write them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from unspool.cli import size_in_bytes

__all__ = [
    "ORDERS",
    "SIZES",
    "adder",
    "count_of",
    "counts_of",
    "given_as",
    "size_of",
    "some_of",
    "words_of",
]

#: Orders of restores and sizes of checkpoints, as experiments have them.
ORDERS = ("sequential", "reverse", "irregular")
SIZES = ("uniform", "variable")


def adder(
    group: argparse._ArgumentGroup, part: str, prefix: str | None = None
) -> Callable[[str, Any, str, str], None]:
    """What adds options of a part to a group: by name, type, metavar and help. `given_as` finds
    them: each is named after the part and its own name, without the prefix (that of the part).
    """

    def add(name: str, kind: Any, metavar: str, text: str) -> None:
        own = name.removeprefix("--").removeprefix(f"{prefix or part}-").replace("-", "_")
        group.add_argument(name, dest=f"{part}_{own}", type=kind, metavar=metavar, help=text)

    return add


def given_as(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """The options of a part that were given: those whose names begin with its own, without it."""
    return {
        name.removeprefix(f"{part}_"): value
        for name, value in vars(options).items()
        if name.startswith(f"{part}_") and value is not None
    }


def size_of(text: str) -> int:
    """Bytes: `1.5GB`, `512MiB`, as in the options of a spool, or only their number."""
    try:
        count = int(text) if text.strip().isdecimal() else size_in_bytes(text)
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from None
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least one byte is needed")
    return count


def count_of(text: str) -> int:
    """A whole number from 1."""
    if not text.strip().isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers from 1 are needed")
    return int(text)


def counts_of(text: str) -> tuple[int, ...]:
    """Some, with commas between them."""
    return tuple(map(count_of, text.split(",")))


def words_of(text: str) -> tuple[str, ...]:
    """Some, with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Words of which each is known."""

    def choose(text: str) -> tuple[str, ...]:
        names = words_of(text)
        for name in names:
            if name not in known:
                reason = f"there is no {name!r}: choose from {', '.join(known)}"
                raise argparse.ArgumentTypeError(reason)
        return names

    return choose
