"""Sizes of the checkpoints of an experiment: all alike, drawn, or from a trace."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from pathlib import Path

from unspool.accumulate import Profile
from unspool.errors import Error
from unspool_studies.words import SIZES, size_of, words_of

__all__ = ["PAGE", "SEED", "SizesError", "shot_kinds", "shot_sizes", "sizes_of", "traced_sizes"]

#: Seed of sizes and orders.
SEED = 2023

#: Checkpoints have a multiple of so many bytes, as files past the page cache need.
PAGE = 4096


class SizesError(Error, ValueError):
    """A file that does not say the sizes of checkpoints."""


def sizes_of(kind: str, history: int, mean: int, seed: int = SEED) -> tuple[int, ...]:
    """Bytes of each checkpoint: `history` in all, but for rounding.

    `"uniform"`: all have `mean` bytes. `"variable"`: after figure 4 of the paper on prefetching
    (Maurya et al., HPDC 2023), whose snapshots are compressed: small while the wave field is, then
    around a constant, with a spread.
    """
    count = max(2, history // mean)
    if kind == "uniform":
        return (mean // PAGE * PAGE,) * count
    source = random.Random(seed)
    grown = [min(1.0, 0.15 + 3.0 * k / count) * source.lognormvariate(0, 0.3) for k in range(count)]
    scale = count * mean / sum(grown)
    return tuple(max(PAGE, round(size * scale) // PAGE * PAGE) for size in grown)


def shot_sizes(kind: str, checkpoints: int, mean: int, process: int = 0) -> tuple[int, ...]:
    """Bytes of each checkpoint of a process, by version, in whole pages of 4 KiB.

    Args:
        kind: `"uniform"`; `"variable"`, drawn anew for each process as `sizes_of` draws; or the
            name of a file that `traced_sizes` reads.
        checkpoints: how many; a trace has its own number.
        mean: their mean in bytes; a trace has its own.
        process: the number of the process.

    Raises:
        SizesError: the trace cannot be read, or holds something else.
    """
    if kind == "uniform":
        found: tuple[int, ...] = (mean,) * checkpoints
    elif kind == "variable":
        found = sizes_of("variable", checkpoints * mean, mean, SEED + process)
    else:
        return traced_sizes(Path(kind), process)
    return _whole_pages(found)


def traced_sizes(file: Path, process: int = 0) -> tuple[int, ...]:
    """Bytes of each checkpoint of a process from a file, rounded up to whole pages.

    The file is a profile that a `Batched(profile="run.json")` has recorded, of which the
    stored bytes count, or a text with a line for each checkpoint, and in it a size for each
    process, as `1.5MiB` or in bytes; processes beyond the last begin with the first again. What
    follows a `#` is left out.

    Raises:
        SizesError: it cannot be read, or has something else in it or fewer than two sizes.
    """
    try:
        if file.suffix == ".json":
            rows = [[str(one.stored)] for one in Profile.load_from(file).checkpoints]
        else:
            lines = file.read_text(encoding="utf-8").splitlines()
            rows = [words for line in lines if (words := line.partition("#")[0].split())]
        found = [size_of(words[process % len(words)]) for words in rows]
    except (OSError, ValueError, argparse.ArgumentTypeError) as error:
        raise SizesError(f"{file} gives no sizes of checkpoints: {error}") from error
    if any(len(words) != len(rows[0]) for words in rows):
        raise SizesError(f"{file}: a line for each checkpoint, with as many sizes, is needed")
    if len(found) < 2:
        raise SizesError(f"{file} has {len(found)} sizes of checkpoints, at least two are needed")
    return _whole_pages(found)


def _whole_pages(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(max(1, -(-size // PAGE)) * PAGE for size in sizes)


def shot_kinds(text: str) -> tuple[str, ...]:
    """Kinds of sizes, with commas between them; traces are read, and mistakes told at once."""
    kinds = words_of(text)
    if not kinds:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(SIZES)}, or name a trace")
    for kind in kinds:
        try:
            shot_sizes(kind, 1, 1)
        except SizesError as error:
            reason = f"{kind!r} is none of {', '.join(SIZES)}, and {error}"
            raise argparse.ArgumentTypeError(reason) from None
    return kinds
