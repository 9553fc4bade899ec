"""The options of `unspool-bench`, and what they ask for."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool_studies.accumulated.options import (
    Accumulated,
    accumulated_of,
    add_accumulated_options,
)
from unspool_studies.advice.options import Advising, add_advising_options, advising_of
from unspool_studies.bench.adjoint_options import (
    Gpuzip,
    Migration,
    add_adjoint_options,
    adjoint_plans,
)
from unspool_studies.bench.planned_options import Prediction, add_prediction_options, prediction_of
from unspool_studies.bench.rtm_codecs_options import (
    RtmCodecs,
    add_rtm_codecs_options,
    rtm_codecs_of,
)
from unspool_studies.bench.shapes_options import Shapes, add_shapes_options, shapes_of
from unspool_studies.bench.sizes import shot_kinds
from unspool_studies.messages.options import Messages, add_messages_options, messages_of
from unspool_studies.paging.options import Paging, add_paging_options, paging_of
from unspool_studies.rtm.codec import codec_of
from unspool_studies.scaling.options import Scaling, add_scaling_options, scaling_of
from unspool_studies.words import ORDERS, SIZES, count_of, counts_of, size_of, some_of, words_of

__all__ = ["GPU_PARTS", "PARTS", "PLAIN_PARTS", "Plan", "add_options", "plan_of", "size_of"]

DESCRIPTION = """\
Measures saves, restores and starts on this machine, each figure beside the raw operation that was
measured in the same run. Without a GPU and CuPy: the parts that need none. Figures are medians,
with the least and the greatest reading in brackets where there are several.
"""

#: What can be measured, in the order in which it is.
GPU_PARTS = (
    "raw", "copies", "sweep", "beside", "start", "shot", "node", "orders", "gpuzip",
    "accumulated-gpu",
)  # fmt: skip
PLAIN_PARTS = (
    "memory", "disk", "shapes", "codecs", "plan", "schedules", "bounds", "accumulated",
    "rates", "rtm-codecs", "advise", "failures", "scaling", "messages", "paging",
)  # fmt: skip
PARTS = GPU_PARTS + PLAIN_PARTS

LONG_GPU_PARTS = ("raw", "orders", "gpuzip", "accumulated-gpu")

#: Parts of a run that names none: `raw` repeats what the others measure beside themselves, and
#: the others take minutes.
DEFAULT_GPU_PARTS = tuple(part for part in GPU_PARTS if part not in LONG_GPU_PARTS)
DEFAULT_PLAIN_PARTS = ("memory", "disk")

#: Whether the restores of part `orders` wait until everything is flushed.
WAITS = ("no", "yes")

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Plan:
    """What is measured; sizes in bytes, times in seconds.

    Attributes:
        parts: names of `PARTS`; empty: all that this machine can.
        quick: fewer rounds, smaller sizes.
        device: the device's number.
        rounds: the most readings of one figure.
        budget: no further reading of a figure once it took so long.
        warm: bytes of host memory that are touched before everything; None: as many as are used.
        sizes: of `copies` and `memory`.
        copies_room: device memory that `copies` fills.
        history: bytes of a sweep.
        checkpoint: bytes of a checkpoint of a sweep and a shot.
        device_tier: bytes of the device tier of a sweep and a shot.
        host_tier: bytes of the host tier of a sweep; None: all of the history.
        intervals: of compute, in a sweep.
        codec: of the spools of a sweep and of orders.
        arenas: of the host, for `start`.
        raw_buffer: bytes of the host buffer of `raw`.
        everything: slow baselines, too.
        shot_checkpoints: of each process in the paper's shot; host buffers of so many.
        shot_sizes: of the checkpoints there: `SIZES`, or names of traces.
        shot_processes: there, each on a GPU of its own.
        shot_intervals: of compute there.
        shot_plot: a file for its picture.
        strategies: words that the names of strategies contain; empty: all.
        touch_threads: threads that touch pages in the baselines.
        processes: that share the node.
        share: host memory that they share.
        node_history: bytes of the sweep of each process.
        directory: for the disk tier.
        disk_history: bytes that go through the disk tier.
        orders: of restores, in part `orders`; `ORDERS`.
        order_sizes: of checkpoints there; `SIZES`.
        orders_history: bytes of the history there.
        orders_host: bytes of the host tier there, where `host_tier` says nothing.
        orders_wait: whether restores wait until all is flushed; of `WAITS`.
        orders_traces: files of sizes in place of `order_sizes`, the first for the first process.
        orders_device: bytes of the device tier there; empty: `device_tier`.
        orders_compute: of a step there.
        orders_limit: no further order is begun after so long.
        orders_cell_limit: the longest that one way may take there.
        orders_plot: a file for the plot of each restore there.
        orders_bars: a file for the picture of all rates there.
        node_shots: whether part `node` does the shots of part `orders`.
        shapes: what parts `shapes` and `codecs` do.
        gpuzip: what part `gpuzip` measures.
        migration: what part `schedules` measures.
        prediction: what part `plan` measures.
        accumulated: what parts `accumulated`, `accumulated-gpu` and `rates` do.
        rtm_codecs: what part `rtm-codecs` does.
        advising: what parts `advise` and `failures` do.
        scaling: what part `scaling` does.
        messages: what part `messages` does.
        paging: what part `paging` does.
    """

    parts: tuple[str, ...] = ()
    quick: bool = False
    device: int = 0
    rounds: int = 3
    budget: float = 3.0
    warm: int | None = None
    sizes: tuple[int, ...] = tuple(mib * MIB for mib in (1, 8, 32, 128, 512))
    copies_room: int = 4 * GIB
    history: int = 40 * 10**9
    checkpoint: int = 128 * MIB
    device_tier: int = 4 * GIB
    host_tier: int | None = None
    intervals: tuple[float, ...] = (0.0, 1e-3, 2e-3, 3e-3, 5e-3, 10e-3, 30e-3)
    codec: Any = None
    arenas: tuple[int, ...] = (4 * GIB, 16 * GIB, 64 * GIB)
    raw_buffer: int = 4 * GIB
    everything: bool = False
    shot_checkpoints: tuple[int, ...] = (256,)
    shot_sizes: tuple[str, ...] = ("uniform",)
    shot_processes: tuple[int, ...] = (1,)
    shot_intervals: tuple[float, ...] = (5e-3,)
    shot_plot: Path | None = None
    strategies: tuple[str, ...] = ()
    touch_threads: int = 8
    processes: tuple[int, ...] = (1, 2, 4, 8)
    share: int = 32 * GIB
    node_history: int = 4 * 10**9
    directory: Path = Path(tempfile.gettempdir())
    disk_history: int = 2 * GIB
    orders: tuple[str, ...] = ORDERS
    order_sizes: tuple[str, ...] = SIZES
    orders_history: int = 48 * GIB
    orders_host: int = 32 * GIB
    orders_wait: tuple[str, ...] = ("no",)
    orders_traces: tuple[Path, ...] = ()
    orders_device: tuple[int, ...] = ()
    orders_compute: tuple[float, ...] = (10e-3,)
    orders_limit: float = math.inf
    orders_cell_limit: float = 120.0
    orders_plot: Path | None = None
    orders_bars: Path | None = None
    node_shots: bool = False
    shapes: Shapes = field(default_factory=Shapes)
    gpuzip: Gpuzip = field(default_factory=Gpuzip)
    migration: Migration = field(default_factory=Migration)
    prediction: Prediction = field(default_factory=Prediction)
    accumulated: Accumulated = field(default_factory=Accumulated)
    rtm_codecs: RtmCodecs = field(default_factory=RtmCodecs)
    advising: Advising = field(default_factory=Advising)
    scaling: Scaling = field(default_factory=Scaling)
    messages: Messages = field(default_factory=Messages)
    paging: Paging = field(default_factory=Paging)


#: What `--quick` changes, where no option says otherwise.
QUICK = {
    "rounds": 2,
    "budget": 1.0,
    "copies_room": GIB,
    "history": 10 * 10**9,
    "intervals": (0.0, 3e-3),
    "arenas": (4 * GIB,),
    "raw_buffer": GIB,
    "shot_checkpoints": (64,),
    "processes": (1, 4),
    "share": 8 * GIB,
    "node_history": 10**9,
    "disk_history": GIB // 2,
    "orders_history": 12 * GIB,
    "orders_host": 4 * GIB,
}


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(size_of, text.split(",")))


def _milliseconds(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) / 1e3 for word in text.split(","))
    except ValueError:
        found = (-1.0,)
    if any(not 0 <= seconds <= 10 for seconds in found):
        raise argparse.ArgumentTypeError(f"{text!r}: milliseconds from 0 to 10000, as in 0,1,5")
    return found


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    for name in names:
        if name not in PARTS:
            known = ", ".join(PARTS)
            raise argparse.ArgumentTypeError(f"there is no part {name!r}: choose from {known}")
    return names


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool-bench` understands."""
    parser.description = DESCRIPTION
    parser.add_argument("--only", dest="parts", type=_parts, metavar="PART[,PART]", help=_ONLY)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--rounds", type=count_of, help="the most readings of one figure")
    _device_options(parser.add_argument_group("memory"))
    _history_options(parser.add_argument_group("copies and sweeps"))
    _start_options(parser.add_argument_group("starts"))
    _disk_options(parser.add_argument_group("disk"))
    _order_options(parser.add_argument_group("orders"))
    add_adjoint_options(parser)
    add_shapes_options(parser)
    add_prediction_options(parser)
    add_accumulated_options(parser)
    add_rtm_codecs_options(parser)
    add_advising_options(parser)
    add_scaling_options(parser)
    add_messages_options(parser)
    add_paging_options(parser)


_ONLY = "parts, of: " + ", ".join(PARTS)


def _device_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", type=int, metavar="N", help="the number of the GPU (default: 0)")
    group.add_argument(
        "--warm",
        type=_size_or_none,
        metavar="SIZE",
        help="touch so much host memory first, once: that of a virtual machine is slow when it is "
        "first touched; 0 for none (default: as much as is used)",
    )
    group.add_argument("--touch-threads", type=count_of, metavar="N", help="in baselines (8)")


def _size_or_none(text: str) -> int:
    return 0 if text.strip() == "0" else size_of(text)


def _add_size(group: argparse._ArgumentGroup, name: str, what: str) -> None:
    group.add_argument(name, type=size_of, metavar="SIZE", help=what)


def _add_sizes(group: argparse._ArgumentGroup, name: str, what: str) -> None:
    group.add_argument(name, type=_sizes, metavar="SIZE[,SIZE]", help=what)


def _history_options(group: argparse._ArgumentGroup) -> None:
    _add_sizes(group, "--sizes", "of copies (1MiB,8MiB,32MiB,128MiB,512MiB)")
    _add_size(group, "--copies-room", "device memory that copies fill (4GiB)")
    _add_size(group, "--history", "of a sweep (40GB)")
    _add_size(group, "--checkpoint", "of a sweep and a shot (128MiB)")
    _add_size(group, "--device-tier", "of a sweep and a shot (4GiB)")
    _add_size(group, "--host-tier", "of a sweep (the whole history)")
    group.add_argument(
        "--intervals", type=_milliseconds, metavar="MS[,MS]", help="of compute (0,1,2,3,5,10,30)"
    )
    group.add_argument(
        "--codec",
        type=codec_of,
        metavar="CODEC",
        help="of spools of sweep and orders (none)",
    )


def _start_options(group: argparse._ArgumentGroup) -> None:
    _add_sizes(group, "--arenas", "of the host (4GiB,16GiB,64GiB)")
    _add_size(group, "--raw-buffer", "the host buffer of part raw (4GiB)")
    group.add_argument("--everything", action="store_true", help="the slow baselines, too")
    group.add_argument(
        "--shot-checkpoints", type=counts_of, metavar="N[,N]", help="of a process (256)"
    )
    group.add_argument(
        "--shot-sizes",
        type=shot_kinds,
        metavar="KIND[,KIND]",
        help=f"of checkpoints: {', '.join(SIZES)}, or a file with one a line (uniform)",
    )
    group.add_argument(
        "--shot-processes", type=counts_of, metavar="N[,N]", help="each on its own GPU (1)"
    )
    group.add_argument("--shot-intervals", type=_milliseconds, metavar="MS[,MS]", help="(5)")
    group.add_argument(
        "--shot-plot", type=Path, metavar="FILE", help="draw the shots there, as PNG and as SVG"
    )
    group.add_argument(
        "--strategies", type=words_of, metavar="WORD[,WORD]", help="those with such a word"
    )
    group.add_argument("--processes", type=counts_of, metavar="N[,N]", help="(1,2,4,8)")
    _add_size(group, "--share", "host memory that processes share (32GiB)")
    _add_size(group, "--node-history", "of each process (4GB)")
    group.add_argument(
        "--node-shots",
        action="store_true",
        help="the shots of part orders in each process, in step and not, in place of starts",
    )


def _disk_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dir", dest="directory", type=Path, metavar="DIRECTORY")
    group.add_argument("--disk-history", type=size_of, metavar="SIZE", help="(2GiB)")


def _order_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--orders", type=some_of(ORDERS), metavar="ORDER[,ORDER]", help=", ".join(ORDERS)
    )
    kinds = ", ".join(SIZES)
    group.add_argument("--order-sizes", type=some_of(SIZES), metavar="KIND", help=kinds)
    group.add_argument(
        "--orders-traces",
        type=_files,
        metavar="FILE[,FILE]",
        help="sizes in place of --order-sizes: one a line, or a spool's profile (.json); with "
        "--node-shots one file for each process",
    )
    group.add_argument(
        "--orders-wait",
        type=some_of(WAITS),
        metavar="WORD[,WORD]",
        help="no, yes: whether restores wait until everything is flushed (no)",
    )
    _add_size(group, "--orders-history", "(48GiB)")
    _add_sizes(group, "--orders-device", "the device tier (--device-tier)")
    _add_size(group, "--orders-host", "the host tier (32GiB)")
    group.add_argument(
        "--orders-compute", type=_milliseconds, metavar="MS[,MS]", help="of a step (10)"
    )
    group.add_argument("--orders-limit", type=float, metavar="S", help="begin nothing later")
    group.add_argument(
        "--orders-cell-limit",
        type=_limit,
        metavar="S",
        help="the longest that a way may take (120)",
    )
    group.add_argument(
        "--orders-plot", type=Path, metavar="FILE", help="time each restore, and draw them there"
    )
    group.add_argument(
        "--orders-bars", type=Path, metavar="FILE", help="draw all rates there, as PNG and as SVG"
    )


def _files(text: str) -> tuple[Path, ...]:
    return tuple(map(Path, words_of(text)))


def _limit(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds above 0")
    return seconds


def plan_of(options: argparse.Namespace) -> Plan:
    """What the options ask for; what they leave out is as in `Plan`, or as `--quick` says."""
    given = {
        name: value
        for name, value in vars(options).items()
        if name in Plan.__dataclass_fields__ and value is not None
    }
    threads = {"touch_threads": min(8, os.cpu_count() or 1)}
    parts = adjoint_plans(options) | shapes_of(options) | prediction_of(options)
    parts |= accumulated_of(options) | rtm_codecs_of(options) | advising_of(options)
    parts |= scaling_of(options) | messages_of(options) | paging_of(options)
    if parts["scaling"].asked:
        given["parts"] = ("scaling",)
    quick: dict[str, Any] = QUICK if options.quick else {}
    return Plan(**{**threads, **quick, **given, **parts})
