"""Sizes of the checkpoints of an experiment: all alike, drawn, or from a trace."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from unspool_studies.words import SIZES, size_of, words_of

__all__ = ["SEED", "shot_kinds", "shot_sizes", "sizes_of"]

#: Seed of sizes and orders.
SEED = 2023

PAGE = 4096


def sizes_of(kind: str, history: int, mean: int, seed: int = SEED) -> tuple[int, ...]:
    """Bytes of each checkpoint: `history` in all, but for rounding.

    `"uniform"`: all have `mean` bytes. `"variable"`: after figure 4 of the paper on prefetching
    (Maurya et al., HPDC 2023), whose snapshots are compressed: small while the wave field is, then
    around a constant, with a spread.
    """
    count = max(2, history // mean)
    if kind == "uniform":
        return (mean // 4096 * 4096,) * count
    source = random.Random(seed)
    grown = [min(1.0, 0.15 + 3.0 * k / count) * source.lognormvariate(0, 0.3) for k in range(count)]
    scale = count * mean / sum(grown)
    return tuple(max(4096, round(size * scale) // 4096 * 4096) for size in grown)


def shot_sizes(kind: str, checkpoints: int, mean: int, process: int = 0) -> tuple[int, ...]:
    """Bytes of each checkpoint of a process, by version, in whole pages of 4 KiB.

    Args:
        kind: `"uniform"`; `"variable"`, drawn anew for each process as `sizes_of` draws; or the
            name of a trace: a text with a line for each checkpoint, and in it a size for each
            process, as the options of a spool take sizes; processes beyond the last begin with the
            first again. What follows a `#` is left out.
        checkpoints: how many; a trace has its own number.
        mean: their mean in bytes; a trace has its own.
        process: the number of the process.

    Raises:
        ValueError: the trace holds something else.
        OSError: the trace cannot be read.
    """
    if kind == "uniform":
        found: tuple[int, ...] = (mean,) * checkpoints
    elif kind == "variable":
        found = sizes_of("variable", checkpoints * mean, mean, SEED + process)
    else:
        found = _traced(Path(kind), process)
    return tuple(-(-size // PAGE) * PAGE for size in found)


def _traced(file: Path, process: int) -> tuple[int, ...]:
    lines = [line.split("#")[0].split() for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [words for words in lines if words]
    if not rows or any(len(words) != len(rows[0]) for words in rows):
        raise ValueError(f"{file}: a line for each checkpoint, with as many sizes, is needed")
    try:
        return tuple(size_of(words[process % len(words)]) for words in rows)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{file}: {error}") from error


def shot_kinds(text: str) -> tuple[str, ...]:
    """Kinds of sizes, with commas between them; traces are read, and mistakes told at once."""
    kinds = words_of(text)
    if not kinds:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(SIZES)}, or name a trace")
    for kind in kinds:
        try:
            shot_sizes(kind, 1, 1)
        except OSError as error:
            reason = f"{kind!r} is none of {', '.join(SIZES)}, and no trace: {error.strerror}"
            raise argparse.ArgumentTypeError(reason) from None
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return kinds
