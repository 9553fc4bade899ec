"""Which checkpoints pay on a machine, before the run: `unspool.advise`, `unspool advise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._advise.choosing import Choice, LeftOut
from unspool._advise.outcome import Advice
from unspool._advise.power import Meter
from unspool._advise.problem import Place, Power, Prices

__all__ = ["Advice", "Choice", "LeftOut", "Meter", "Place", "Power", "Prices", "advise"]


def advise(
    checkpoint: Any,
    disk: Any,
    *,
    remote: Any = None,
    ranks: int = 1,
    mtbf: float | str | None = None,
    rank_mtbf: float | str | None = None,
    healed: float = 0.9,
    work: float | str = "7d",
    blocking: bool = False,
    blocked: float | str | None = None,
    restart: float | str = "60s",
    codecs: Sequence[Any] | None = None,
    increments: float | None = None,
    on_gpu: bool | None = None,
    writers: int = 1,
    endurance: int | str | None = None,
    power: Power | None = None,
    prices: Prices | None = None,
) -> Advice:
    """Says how a long job should keep its checkpoints: how often, where, with which codec, and what
    each way costs in time, wear, money and energy.

    `print` the result for a table and a line to copy. What is given is not measured: with sizes and
    speeds alone it is arithmetic, for any machine.

    Arguments:
        checkpoint: the bytes of one rank's checkpoint, such as `"80GB"`, or its arrays (one, or a
            dictionary, or lists of them), on which the codecs are tried.
        disk: the directory where checkpoints go, which is measured with files that vanish, or
            `Place(write, read)`.
        remote: a second place, which survives the loss of the first, likewise.
        ranks: processes of the job, usually one a GPU; every one writes such a checkpoint.
        mtbf: the mean time between two failures of the whole job.
        rank_mtbf: that of one rank: the job fails `ranks` times as often. Without both it is what
            `Checkpointer` assumes: five years for a rank, and at most a day for a job.
        healed: the share of failures after which `disk` is still there; only with `remote`.
        work: the time that the job computes, without checkpoints and failures.
        blocking: whether a save returns only when it is durable. A `Checkpointer` does not block.
        blocked: the time for which a save makes the application wait otherwise; without it, that of
            a copy of the arrays.
        restart: from a failure to where the restart begins to read: to notice, queue and start.
        codecs: what to try on the arrays: `"lossless"`, a `Bound`, ... or
            `unspool.planning.Compression` with its figures. Without it, `"lossless"` where there
            are arrays.
        increments: the share of a checkpoint that changes until the next one, 0.2 for a fifth, to
            see what writing only that would bring.
        on_gpu: whether the arrays are on a GPU; without it, where they are now.
        writers: ranks of a node, which write to the same disk at the same time.
        endurance: bytes that may be written to that disk, such as `"600TB"` from its data sheet, or
            `"auto"` to ask the drive for its wear.
        power: of a rank, for the energy.
        prices: of a node, for the work that a price buys.

    Raises:
        OptionError: a figure makes no sense, or every way takes longer to save a checkpoint than
            the job goes on between two failures.
        StorageError: a directory cannot be measured; the text says why.
        ArrayError, MissingLibraryError: the arrays cannot be encoded.
    """
    from unspool._advise.asking import Asked

    return Asked(
        checkpoint=checkpoint,
        disk=disk,
        remote=remote,
        ranks=ranks,
        mtbf=mtbf,
        rank_mtbf=rank_mtbf,
        healed=healed,
        work=work,
        blocking=blocking,
        blocked=blocked,
        restart=restart,
        codecs=codecs,
        increments=increments,
        on_gpu=on_gpu,
        writers=writers,
        endurance=endurance,
        power=power,
        prices=prices,
    ).advice()
