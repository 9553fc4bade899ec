"""Values of options as people write them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

__all__ = ["count_of", "counts_of", "size_of", "some_of", "words_of"]

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*([kmgt]i?b|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def size_of(text: str) -> int:
    """Bytes: `4096`, `1.5GB`, `512MiB`, as in the options of a spool."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 512MiB, 1.5GB or 4096")
    unit = (match[2] or "b").lower()
    base = 1024 if "i" in unit else 1000
    power: int = _POWERS.get(unit[0], 0)
    count = round(float(match[1]) * float(base**power))
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
