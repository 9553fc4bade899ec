"""The options of `unspool-codecs`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.codecs.values import Bound, NvComp, Zfp
from unspool.errors import Error, OptionError
from unspool_studies.rtm.codec import codec_of

__all__ = ["Plan", "add_options", "plan_of"]

DESCRIPTION = """\
Runs every codec on arrays of yours and says how small they become, how fast, and how exact they
come back. FILE is .npy, .npz:NAME, HDF5 (FILE.h5:DATASET, with h5py), or raw numbers with --shape
and --dtype. With --cost the time of one codec by the bytes of its input is measured, as plans of
accumulated compression need it (`unspool accumulate --codec FILE`).
"""

#: What is tried.
FAMILIES = ("twine", "zfp", "lz4", "zstd", "archive")

DEFAULT_BOUNDS = "range=1e-3,range=1e-4,l2=1e-3"
DEFAULT_ZFP = "rate=8,rate=16"
DEFAULT_MOST = "1GiB"
DEFAULT_CODEC = "lossless"


@dataclass(frozen=True, slots=True)
class Plan:
    """What `unspool-codecs` is to do.

    Attributes:
        files: the files, as they were written.
        shape: that of raw files, or None.
        dtype: that of raw files, or None.
        bounds: bounds to try.
        zfp: settings of zfp to try besides.
        only: the families that are tried.
        most: the most bytes of one array that are read.
        gpu: whether the GPU runs them too.
        picture: where to draw the reconstructions, or None.
        json: whether figures go out as JSON.
        entropy: whether the entropy of the values is told, too.
        cost: where to write what a codec costs by the bytes of its input, or None.
        codec: the one whose cost is measured.
    """

    files: tuple[str, ...]
    shape: tuple[int, ...] | None
    dtype: str | None
    bounds: tuple[Bound, ...]
    zfp: tuple[Zfp, ...]
    only: frozenset[str]
    most: int
    gpu: bool
    picture: Path | None
    json: bool
    entropy: bool = False
    cost: Path | None = None
    codec: Any = DEFAULT_CODEC


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool-codecs` understands."""
    parser.description = DESCRIPTION
    parser.add_argument("files", nargs="*", metavar="FILE")
    raw = parser.add_argument_group("raw files")
    raw.add_argument("--shape", metavar="N[xN...]", help="slowest dimension first: 1000x401")
    raw.add_argument("--dtype", metavar="NAME", help="float32, <f8, >f4 (big-endian), int16, ...")
    what = parser.add_argument_group("codecs")
    what.add_argument(
        "--bound",
        action="append",
        metavar="KIND=NUMBER,...",
        help="abs, range, rms, psnr, l2 or pointwise (with floor= after it); several are tried "
        f"one after the other (default: {DEFAULT_BOUNDS})",
    )
    what.add_argument(
        "--zfp",
        action="append",
        metavar="KIND=NUMBER,...",
        help=f"rate, precision or tolerance of zfp (default: {DEFAULT_ZFP})",
    )
    what.add_argument("--only", metavar="NAME,...", help=", ".join(FAMILIES))
    what.add_argument("--gpu", action="store_true", help="on the GPU too (needs CuPy)")
    parser.add_argument(
        "--most",
        default=DEFAULT_MOST,
        metavar="SIZE",
        help=f"of one array; of a larger one the middle is taken (default: {DEFAULT_MOST})",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PNG",
        help="draw original, reconstruction and error of every codec that loses something",
    )
    parser.add_argument(
        "--entropy",
        action="store_true",
        help="say how far values, and each bit plane, can be compressed by themselves",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    _add_cost_options(parser.add_argument_group("the cost of a codec by the bytes of its input"))


def _add_cost_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--cost",
        type=Path,
        metavar="JSON",
        help="measure that on parts of FILE, or of a generated wavefield, from 64 KiB to --most, "
        "and write it there; with --gpu on the GPU instead",
    )
    group.add_argument(
        "--codec",
        type=codec_of,
        default=DEFAULT_CODEC,
        metavar="CODEC",
        help=f"{DEFAULT_CODEC}, range=1e-3, zfp:rate=8, nvcomp:bitcomp, ... ({DEFAULT_CODEC})",
    )


def plan_of(options: argparse.Namespace) -> Plan:
    """The options, understood.

    Raises:
        OptionError: one makes no sense.
    """
    _check_cost(options)
    picture: Path | None = options.output
    if picture is not None:
        _check_picture(picture, len(options.files))
    return Plan(
        files=tuple(options.files),
        shape=None if options.shape is None else _shape(options.shape),
        dtype=options.dtype,
        bounds=_bounds(",".join(options.bound or [DEFAULT_BOUNDS])),
        zfp=_zfp(",".join(options.zfp or [DEFAULT_ZFP])),
        only=_families(options.only),
        most=_size(options.most),
        gpu=options.gpu,
        picture=picture,
        json=options.json,
        entropy=options.entropy,
        cost=options.cost,
        codec=options.codec,
    )


def _check_cost(options: argparse.Namespace) -> None:
    """Whether files and the options of a cost fit together."""
    if options.cost is None:
        if not options.files:
            raise OptionError("a FILE with an array is needed (only --cost can do without)")
        if options.codec != DEFAULT_CODEC:
            raise OptionError("--codec names the codec of --cost; --only and --bound choose here")
        return
    others = ("bound", "zfp", "only", "output", "entropy")
    given = [name for name in others if getattr(options, name)]
    if given:
        name = "-o" if given[0] == "output" else f"--{given[0]}"
        raise OptionError(f"{name}: --cost measures the time of one codec, which --codec names")
    if len(options.files) > 1:
        raise OptionError("--cost measures one array: name one FILE")
    if options.codec in (None, "auto"):
        raise OptionError(
            f"--codec {options.codec or 'none'}: name one codec whose cost is measured, such as "
            "lossless or range=1e-3"
        )
    if isinstance(options.codec, NvComp) and not options.gpu:
        raise OptionError("nvCOMP works on a GPU only: add --gpu")
    _check_target("--cost", options.cost)


def _check_picture(picture: Path, files: int) -> None:
    if files > 1:
        raise OptionError("-o draws one array: name one FILE")
    if picture.suffix.lower() != ".png":
        raise OptionError(f"-o {picture}: pictures are written as .png")
    _check_target("-o", picture)


def _check_target(option: str, file: Path) -> None:
    """Whether a file can be written where an option says."""
    if not file.absolute().parent.is_dir():
        raise OptionError(f"{file} cannot be written: there is no such directory")
    if file.is_dir():
        raise OptionError(f"{file} is a directory: name a file for {option}")


def _shape(text: str) -> tuple[int, ...]:
    parts = re.split(r"[x,]", text)
    if not all(part.strip().isdecimal() for part in parts):
        raise OptionError(f"--shape {text}: write the dimensions, slowest first: 1000x401")
    return tuple(int(part) for part in parts)


def _size(text: str) -> int:
    from unspool.cli import size_in_bytes

    try:
        count = size_in_bytes(text)
    except ValueError as error:
        raise OptionError(f"--most {text}: {error}") from error
    if count < 1:
        raise OptionError(f"--most {text}: at least a byte is needed")
    return count


def _families(text: str | None) -> frozenset[str]:
    if text is None:
        return frozenset(FAMILIES)
    names = frozenset(part.strip() for part in text.split(","))
    wrong = sorted(names - set(FAMILIES))
    if wrong:
        raise OptionError(f"--only {wrong[0]}: there are {', '.join(FAMILIES)}")
    return names


def _pairs(option: str, text: str) -> list[tuple[str, float]]:
    pairs = []
    for part in text.split(","):
        kind, _, number = part.partition("=")
        try:
            pairs.append((kind.strip(), float(number)))
        except ValueError as error:
            example = "range=1e-3" if option == "--bound" else "rate=8"
            raise OptionError(f"{option} {part}: write it as {example}") from error
    return pairs


def _bounds(text: str) -> tuple[Bound, ...]:
    """A floor belongs to the bound before it."""
    given: list[dict[str, float]] = []
    for kind, number in _pairs("--bound", text):
        if kind == "floor" and given:
            given[-1]["floor"] = number
        else:
            given.append({kind: number})
    return tuple(_made(Bound, "--bound", one) for one in given)


def _zfp(text: str) -> tuple[Zfp, ...]:
    return tuple(_made(Zfp, "--zfp", {kind: number}) for kind, number in _pairs("--zfp", text))


def _made(kind: Any, option: str, given: dict[str, float]) -> Any:
    try:
        return kind(**given)
    except Error as error:
        raise OptionError(f"{option}: {error}") from error
    except TypeError as error:
        bounds, rates = "abs, range, rms, psnr, l2, pointwise", "rate, precision, tolerance"
        known = {"--bound": bounds, "--zfp": rates}
        text = f"{option} {next(iter(given))}=...: there are {known[option]}"
        raise OptionError(text) from error
