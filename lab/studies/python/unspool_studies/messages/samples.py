"""The payloads that the listener of `unspool-messages` has kept, and what the dissertation's tools
make of them.

The tools are `bzip2` for a message by itself (section 4.3.2) and `bsdiff` for differences (4.3.3),
whose patches are compressed with bzip2 themselves. Without the package `bsdiff4` differences are
taken byte by byte and compressed with bzip2, which is what bsdiff comes down to for messages of one
length in which nothing moves.
"""

from __future__ import annotations

import bz2
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

try:
    import bsdiff4
except ImportError:
    bsdiff4 = None

__all__ = ["Sizes", "difference_name", "runs_of", "sizes_of"]

#: Messages that follow a base before the next one becomes it (section 4.3.3).
WINDOW = 5

#: The layout of a part, as docs/reference/messages.md has it: words of 8 bytes.
HEADER, CALLS, COMM, CHANNEL, PAYLOAD, EVENT = 64, 512, 12, 16, 3, 5
HEAD = struct.Struct("<8s5Q")


def runs_of(part: Path) -> Iterator[list[bytes]]:
    """The runs of consecutive messages of one channel that a rank has kept, of equal length.

    Messages longer than 256 KiB are kept up to there. A torn end is left out.
    """
    data = part.read_bytes()
    words = struct.unpack_from("<6Q", data)
    comms, channels, payloads, events = words[2:6]
    rows = comms * COMM + channels * CHANNEL + payloads * PAYLOAD + events * EVENT
    place = 8 * (HEADER + CALLS + rows)
    last: dict[int, int] = {}
    runs: dict[int, list[bytes]] = {}
    while place + HEAD.size <= len(data):
        magic, row, number, _, kept, _ = HEAD.unpack_from(data, place)
        payload = data[place + HEAD.size : place + HEAD.size + kept]
        if magic != b"UNSPSAMP" or len(payload) < kept:
            break
        place += HEAD.size + -(-kept // 8) * 8
        run = runs.setdefault(row, [])
        if run and (last[row] + 1 != number or len(run[0]) != kept or len(run) > 2 * WINDOW + 1):
            yield run
            run = runs[row] = []
        run.append(payload)
        last[row] = number
    yield from runs.values()


def difference_name() -> str:
    """What takes differences here."""
    return "bsdiff" if bsdiff4 is not None else "bytes' differences and bzip2"


@dataclass
class Sizes:
    """What became of messages, in bytes, one number for each.

    Attributes:
        originals: all that were looked at.
        alone: each by bzip2.
        one: each but the first of a run, as a difference to the message before it.
        one_of: those messages.
        two: differences between two differences to the base of a window.
        two_of: those messages.
        window: all that two levels send: bases by bzip2, first differences, and `two`.
        window_of: those messages.
    """

    originals: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    one: list[int] = field(default_factory=list)
    one_of: list[int] = field(default_factory=list)
    two: list[int] = field(default_factory=list)
    two_of: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)
    window_of: list[int] = field(default_factory=list)


def factors(coded: Sequence[int], originals: Sequence[int]) -> list[float]:
    """The compression factors of messages, in percent: equation 4.1."""
    return [100 * (1 - one / of) for one, of in zip(coded, originals, strict=True)]


def volume(coded: Sequence[int], originals: Sequence[int]) -> float:
    """The part of all bytes that is saved, in percent."""
    return 100 * (1 - sum(coded) / sum(originals)) if originals else float("nan")


def sizes_of(runs: Sequence[list[bytes]], most: int) -> Sizes:
    """Codes at most so many messages, of runs that are spread evenly over all."""
    sizes = Sizes()
    whole = [run for run in runs if len(run) > WINDOW and run[0]]
    count = most // (2 * WINDOW + 2)
    for run in whole[:: -(-len(whole) // count)] if whole and count else ():
        _code(run, sizes)
    return sizes


def _code(run: list[bytes], sizes: Sizes) -> None:
    alone = [len(bz2.compress(message)) for message in run]
    sizes.originals += map(len, run)
    sizes.alone += alone
    for before, message in pairwise(run):
        sizes.one.append(len(_checked(before, message)))
        sizes.one_of.append(len(message))
    for first in range(0, len(run), WINDOW + 1):
        _code_window(run[first : first + WINDOW + 1], alone[first], sizes)


def _code_window(window: list[bytes], base: int, sizes: Sizes) -> None:
    """Two levels: the base, then its first difference, then differences of differences."""
    sent = [base]
    levels = [_level(window[0], message) for message in window[1:]]
    if levels:
        sent.append(len(_checked(window[0], window[1])))
    for before, level in pairwise(levels):
        sent.append(len(_checked(before, level)))
        sizes.two.append(sent[-1])
        sizes.two_of.append(len(window[0]))
    sizes.window += sent
    sizes.window_of += [len(window[0])] * len(sent)


def _checked(before: bytes, message: bytes) -> bytes:
    """The difference, which gives the message back."""
    take, give = _tools()
    patch = take(before, message)
    if give(before, patch) != message:
        raise ValueError("a difference does not give the message back: this is a mistake here")
    return patch


def _level(base: bytes, message: bytes) -> bytes:
    """A difference of which differences are taken: as bsdiff writes it, or bytes' differences."""
    return bsdiff4.diff(base, message) if bsdiff4 is not None else _minus(message, base)


def _tools() -> tuple[Callable[[bytes, bytes], bytes], Callable[[bytes, bytes], bytes]]:
    if bsdiff4 is not None:
        return bsdiff4.diff, bsdiff4.patch
    return _take, _give


def _take(before: bytes, message: bytes) -> bytes:
    return bz2.compress(_minus(message, before))


def _give(before: bytes, patch: bytes) -> bytes:
    plain = np.frombuffer(bz2.decompress(patch), np.uint8)
    return (plain + np.frombuffer(before, np.uint8)).tobytes()


def _minus(message: bytes, before: bytes) -> bytes:
    return (np.frombuffer(message, np.uint8) - np.frombuffer(before, np.uint8)).tobytes()
