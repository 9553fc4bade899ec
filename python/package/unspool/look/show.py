"""`unspool show`: one checkpoint, or one of its arrays, in a terminal or as a picture."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _arrays
from .._partial import region_of
from ..errors import OptionError
from ..stats import size
from .checkpoints import Array, Checkpoints
from .comparing import BLOCK, blocks_of
from .summary import Summary, histogram, numbers_of
from .terminal import picture

__all__ = ["run_show", "show_options"]

#: The most rows of a picture, and the columns where no terminal says how many it has.
ROWS, COLUMNS = 30, 80

HEAD = ("array", "", "codec", "stored", "min", "max", "mean", "std", "NaN")

#: Numbers and texts are cut after so many letters.
TEXT = 60


def show_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `unspool show`."""
    parser.description = """Shows a checkpoint: its arrays with their statistics, or one array with
    a histogram and a picture of a slice of it."""
    parser.add_argument("place", metavar="DIR", help="a directory, or a place of copies")
    parser.add_argument("step", metavar="STEP", help="a step, or `last`")
    parser.add_argument("array", metavar="ARRAY", nargs="?", help="one of its arrays")
    parser.add_argument(
        "--region",
        metavar="INDEX",
        type=region_of,
        help="only this part of the array, which alone is read: 3,0:100",
    )
    parser.add_argument("--png", metavar="FILE", help="write the picture (needs matplotlib)")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="of the picture"
    )


def run_show(options: argparse.Namespace) -> int:
    """Prints what was asked for; returns 0."""
    if options.array is None and (options.region or options.png):
        raise OptionError("--region and --png are of an array: name it")
    with Checkpoints(options.place) as checkpoints:
        for fault in checkpoints.faults:
            print(f"unspool show: {fault}", file=sys.stderr)
        step = _step(checkpoints, options.step)
        if options.array is None:
            _show_all(checkpoints, step)
        else:
            _show_array(checkpoints, step, options)
    return 0


def _step(checkpoints: Checkpoints, text: str) -> int:
    """The step that a text names.

    Raises:
        OptionError: it is not there.
    """
    if text == "last":
        text = str(max(checkpoints.steps, default="last"))
    try:
        step = int(text)
    except ValueError:
        raise OptionError(f"{text!r} is neither a step nor `last`") from None
    if step not in checkpoints.steps and step not in checkpoints.lost:
        raise OptionError(f"{checkpoints.place} has no step {step} (unspool ls lists them)")
    return step


def _show_all(checkpoints: Checkpoints, step: int) -> None:
    rows: list[tuple[str, ...]] = [HEAD]
    for name, about in checkpoints.arrays(step).items():
        summary = _summary(_blocks(checkpoints, step, name, about))
        codec, stored = about.achieved.codec, size(about.achieved.stored_bytes)
        rows.append((name, about.text, codec, stored, *_cells(summary)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(f"step {step}")
    for row in rows:
        cells = [one.ljust(width) for one, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
    for name, value in checkpoints.values(step).items():
        text = repr(value)
        print(f"{name} = {text if len(text) <= TEXT else text[: TEXT - 3] + '...'}")


def _cells(summary: Summary | None) -> tuple[str, ...]:
    if summary is None or not summary.finite:
        return ("", "", "", "", str(summary.nan) if summary and summary.nan else "")
    values = (summary.least, summary.most, summary.mean, summary.deviation)
    return (*(f"{value:.4g}" for value in values), str(summary.nan or ""))


def _show_array(checkpoints: Checkpoints, step: int, options: argparse.Namespace) -> None:
    name, region = options.array, options.region
    about = checkpoints.arrays(step).get(name)
    if about is None:
        names = ", ".join(map(repr, list(checkpoints.arrays(step))[:8]))
        raise OptionError(f"step {step} has no array {name!r}, but {names}")
    print(f"step {step}, {name}: {about.text}{_coded(about)}")
    if region is None:
        blocks = functools.partial(_blocks, checkpoints, step, name, about)
        region = _middle(about.region.shape)
        part = None
    else:
        part = checkpoints.read(step, name, region)
        blocks = functools.partial(iter, [part])
        print(f"region {_written(region)}: {list(part.shape)}")
    if not _print_numbers(blocks):
        return
    if part is None:
        part = checkpoints.read(step, name, region or ...)
        if len(region) > 2:
            print(f"\nslice {_written(region)}")
    _draw(part[_middle(part.shape)], f"{name}, step {step}", options)


def _print_numbers(blocks: Callable[[], Iterator[Any]]) -> bool:
    """Whether they are numbers."""
    summary = _summary(blocks())
    if summary is None:
        print("no numbers")
        return False
    print("\n".join([*summary.lines(), *histogram(map(numbers_of, blocks()), summary)]))
    return True


def _draw(values: Any, title: str, options: argparse.Namespace) -> None:
    numbers: Any = numbers_of(values)
    shown = numbers.reshape(values.shape)
    columns = shutil.get_terminal_size((COLUMNS, ROWS)).columns
    print("\n".join(picture(shown, columns, ROWS, colours=_has_colours(options.color))))
    if options.png:
        from .figures import plot_array

        plot_array(shown, title, options.png)


def _coded(about: Array) -> str:
    stream = about.stream()
    bound = f", {stream.kind} {stream.bound:g}" if stream and stream.bound else ""
    error = f", largest error {stream.max_error:g}" if stream and stream.max_error else ""
    codec = about.achieved.codec
    return "" if codec == "raw" else f", {codec}{bound}{error}"


def _blocks(checkpoints: Checkpoints, step: int, name: str, about: Array) -> Iterator[Any]:
    """The items of an array, some at a time where they can be read so."""
    if not about.is_in_parts or about.region.nbytes <= BLOCK:
        yield checkpoints.read(step, name)
        return
    dtype = _arrays.numpy_dtype(about.region.dtype)
    every = [range(about.region.nbytes)]
    for first, end in blocks_of(every, dtype.itemsize, about.region.nbytes):
        yield checkpoints.read_bytes(step, name, about.at, first, end).view(dtype)


def _summary(blocks: Iterator[Any]) -> Summary | None:
    """None for what are no numbers."""
    found = Summary()
    for block in blocks:
        numbers = numbers_of(block)
        if numbers is None:
            return None
        found.add(numbers)
    return found


def _middle(shape: Sequence[int]) -> tuple[Any, ...]:
    """The last two axes, in the middle of all others."""
    return (*(length // 2 for length in shape[:-2]), *[slice(None)] * len(shape[-2:]))


def _written(region: Sequence[Any]) -> str:
    def text(one: Any) -> str:
        if not isinstance(one, slice):
            return "..." if one is ... else str(one)
        ends = [one.start, one.stop] + ([one.step] if one.step is not None else [])
        return ":".join("" if end is None else str(end) for end in ends)

    return ",".join(map(text, region))


def _has_colours(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return bool(choice == "always")
