"""The options of `unspool-rtm`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from unspool import Gradient
from unspool.errors import OptionError
from unspool_studies.rtm.codec import FORMS, codec_of

__all__ = ["accuracy", "add_options", "counts_of_cells", "interval", "lengths", "numbers"]

DESCRIPTION = """\
Migrates seismic data: records every shot in a velocity model, propagates the source again through
the smoothed model while a spool keeps its wavefields, sends the records back in time while the
spool gives them back, and stacks the correlations. Without --model, a model is generated.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool-rtm` understands."""
    parser.description = DESCRIPTION
    _model_options(parser.add_argument_group("model"))
    _survey_options(parser.add_argument_group("survey"))
    _compute_options(parser.add_argument_group("computing"))
    _memory_options(parser.add_argument_group("history"))
    _resume_options(parser.add_argument_group("going on after a kill"))
    _output_options(parser.add_argument_group("output"))


def _model_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="P-wave velocities: .npy, .sgy/.segy, or raw little-endian float32, depth fastest",
    )
    group.add_argument(
        "--shape",
        type=counts_of_cells,
        metavar="NXx[NYx]NZ",
        help="cells of a raw file or of the generated model: 1601x401, or 256x256x256 with --gpu",
    )
    group.add_argument(
        "--spacing",
        type=lengths,
        metavar="D|DXx[DYx]DZ",
        help="metres between cells: 7.5, or 12.5x4",
    )
    group.add_argument("--units", choices=("auto", "m/s", "km/s"), default="auto")
    group.add_argument(
        "--smooth",
        type=float,
        metavar="METRES",
        help="the migration model is smoothed over this length (default: 8 cells)",
    )


def _survey_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--shots", type=int, default=8, help="evenly spread (default: 8)")
    group.add_argument(
        "--frequency",
        type=float,
        metavar="HZ",
        help="peak of the Ricker source (default: what the grid carries, at most 15)",
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="time steps of a shot")
    length.add_argument(
        "--time",
        type=float,
        metavar="SECONDS",
        help="recording time of a shot (default: 1.3 times the vertical echo of the bottom)",
    )
    group.add_argument(
        "--every",
        type=int,
        metavar="K",
        help="save every K-th wavefield (default: half the source's Nyquist interval)",
    )
    group.add_argument(
        "--layer", type=int, default=40, help="cells of the absorbing layer (default: 40)"
    )


def _compute_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--threads", type=int, default=0, help="of the CPU's propagator (default: one per core)"
    )
    group.add_argument(
        "--gpu",
        action="store_true",
        help="compute on a GPU, through CuPy; also in three dimensions",
    )
    group.add_argument(
        "--gpus",
        type=numbers,
        metavar="N,N",
        help="on these, one process each: 0,1 (default with --gpu: 0)",
    )
    group.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes, each with its own history (default: one for each GPU)",
    )
    elsewhere = group.add_mutually_exclusive_group()
    elsewhere.add_argument(
        "--mpi",
        action="store_true",
        help="every rank of mpirun or srun but the first migrates, with --gpu each on a GPU of its "
        "machine",
    )
    elsewhere.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="the workers of this Dask cluster migrate, or those of a scheduler file FILE.json",
    )


def _memory_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--schedule",
        default="all",
        metavar="NAME",
        help="which states are kept, the others are computed again: all, revolve, online, uniform, "
        "zcut, levels, auto (what unspool plan says is fastest), or trace:FILE (default: all)",
    )
    group.add_argument(
        "--snapshots",
        type=int,
        metavar="N",
        help="states kept at most: of revolve, online and uniform (default: 20), and of zcut",
    )
    group.add_argument(
        "--predict",
        action="store_true",
        help="say how long unspool plan predicts that both passes take; measures this machine",
    )
    cuts = group.add_mutually_exclusive_group()
    cuts.add_argument("--cuts", type=int, metavar="M", help="of zcut, instead of a length")
    cuts.add_argument("--cut-length", type=int, metavar="L", help="of zcut (default: 36)")
    group.add_argument(
        "--codec",
        type=codec_of,
        metavar="CODEC",
        help=f"what becomes of the states (default: none): {FORMS}",
    )
    group.add_argument(
        "--gradient",
        type=accuracy,
        metavar="ERROR",
        help="in place of --codec: the relative error that the image of a shot may have, as 1e-3; "
        "bounds are measured in the first shot, which is migrated several times",
    )
    group.add_argument("--device-memory", default="32MiB", metavar="SIZE", help="(default: 32MiB)")
    group.add_argument("--host-memory", default="96MiB", metavar="SIZE", help="(default: 96MiB)")
    group.add_argument("--disk", metavar="SIZE", help="at most (default: all that is free)")
    group.add_argument(
        "--disk-dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where the disk tier lies; nothing is left there (default: %(default)s)",
    )


def _resume_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="keep in DIR what the same command needs to go on after it was killed, and go on with "
        "what is there; it is removed at the end, and all workers have to see it",
    )
    group.add_argument(
        "--resume-every",
        type=interval,
        default="auto",
        metavar="WHEN",
        help="between two checkpoints of a shot: 10min, a number of groups of steps, or auto "
        "(default: auto)",
    )


def _output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        type=Path,
        default=Path("unspool-rtm"),
        metavar="DIR",
        help="for image.png, image.npy and report.json (default: %(default)s)",
    )
    group.add_argument(
        "--check",
        action="store_true",
        help="migrate again with the history in plain arrays: every bit must be the same, or with "
        "a lossy --codec, how far the image is from that one",
    )
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="write what happened when, for unspool-timeline"
    )
    group.add_argument("--json", action="store_true", help="print the report as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress and no table")


def accuracy(text: str) -> float:
    """`1e-3` as an error that `unspool.Gradient` takes."""
    try:
        return Gradient(float(text)).relative
    except (ValueError, OptionError) as why:
        raise argparse.ArgumentTypeError(f"{text!r} is no accuracy such as 1e-3: {why}") from None


def counts_of_cells(text: str) -> tuple[int, ...]:
    """`1601x401` as two counts, `256x256x256` as three."""
    parts = text.lower().split("x")
    if len(parts) not in (2, 3) or not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a pair of counts such as 1601x401, nor three such as 256x256x256"
        )
    return tuple(map(int, parts))


def numbers(text: str) -> tuple[int, ...]:
    """`0,2` as two numbers of devices."""
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 0,1")
    return tuple(map(int, parts))


def interval(text: str) -> int | str:
    """`100` as a number of steps; others, as `10min`, stay texts."""
    return int(text) if text.strip().isdigit() else text


def lengths(text: str) -> tuple[float, ...]:
    """`7.5` as one length, `12.5x4` as two, `12.5x12.5x4` as three."""
    try:
        found = tuple(float(part) for part in text.lower().split("x"))
    except ValueError:
        found = ()
    if len(found) not in (1, 2, 3):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length such as 7.5 or 12.5x4")
    return found
