"""What a spool has done so far, as plain figures: what `Spool.stats()` returns.

Bytes are payload bytes: those of the arrays, without heads and padding; of encoded arrays those
that are stored. Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AutoStats",
    "CodecStats",
    "CodecUse",
    "DirectionStats",
    "EnergyStats",
    "Lead",
    "LinkStats",
    "PagingStats",
    "Stall",
    "Stats",
    "TierStats",
    "TiledStats",
]


@dataclass(frozen=True, slots=True)
class Stall:
    """One wait of the application.

    Attributes:
        call: `"save"` or `"restore"`.
        version: the version that it named.
        seconds: how long it waited.
        awaited: what it waited for, in words.
    """

    call: str
    version: int
    seconds: float
    awaited: str


@dataclass(frozen=True, slots=True)
class Lead:
    """How far ahead of the restores the prefetches were: how many of the restores after each one
    had their bytes in the fastest tier already, without a break.

    Attributes:
        min: the fewest.
        median: the median.
        max: the most.
        mean: the mean.
    """

    min: int
    median: int
    max: int
    mean: float


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier.

    Attributes:
        name: `"device"`, `"host"` or `"disk"`.
        location: where it is: a directory, or `"memory"`.
        capacity: bytes that it may hold; None when only the medium itself sets a limit.
        used: bytes in use, reservations included.
        peak: the most bytes that were in use at once.
        copies: copies of checkpoints in it.
        evictions: copies that made room for others.
        restores: restores that were served from it.
        ready: for memory, bytes from its start that a GPU copies at full speed. Pinned memory is
            registered in the background, ahead of what is used by as much again; None for a disk.
        notes: what was found out about the medium, and what it fell back to.
    """

    name: str
    location: str
    capacity: int | None
    used: int
    peak: int
    copies: int
    evictions: int
    restores: int
    ready: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DirectionStats:
    """The movement in one direction between two tiers.

    Attributes:
        transfers: transfers that were completed.
        bytes: payload bytes of those.
        busy_seconds: the time that they took, summed over transfers, without time in a queue.
        cancelled: transfers that were cancelled before they took effect.
        failed: transfers that failed.
        retried: failed transfers that were tried again.
        in_flight: transfers that are under way now.
        bytes_per_second: the rate that was learned from the transfers.
    """

    transfers: int
    bytes: int
    busy_seconds: float
    cancelled: int
    failed: int
    retried: int
    in_flight: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class LinkStats:
    """The movement between two neighbouring tiers.

    Attributes:
        fast: the name of the faster tier.
        slow: the name of the slower tier.
        flush: movement to the slower tier.
        prefetch: movement to the faster tier.
        flushes_skipped: flushes that were not needed any more: nobody will read those bytes.
        last_failure: the last failure on this link, in words, or None.
    """

    fast: str
    slow: str
    flush: DirectionStats
    prefetch: DirectionStats
    flushes_skipped: int
    last_failure: str | None


@dataclass(frozen=True, slots=True)
class CodecUse:
    """What one codec has done.

    Attributes:
        name: `"twine"`, `"zfp"`, `"nvcomp"`, or `"raw"` for arrays beside encoded ones whose bytes
            were kept as they are.
        encodes: arrays that were encoded and saved.
        decodes: arrays that were decoded.
        raw_bytes: the bytes of the values that were encoded.
        stored_bytes: the bytes that were kept for them.
        ratio: how many times smaller they became; 1 before the first one.
        values: how many values there were, where the codec tells its error.
        max_error: the largest error of them, in their unit.
        rms_error: the root mean square of the error of all of them.
        outliers: values that were kept as they are, because the bound could not be held otherwise.
        encode_seconds: time of the host in encoders; on a GPU, until they were enqueued.
        decode_seconds: time of the host in decoders, likewise.
    """

    name: str
    encodes: int
    decodes: int
    raw_bytes: int
    stored_bytes: int
    ratio: float
    values: int
    max_error: float
    rms_error: float
    outliers: int
    encode_seconds: float
    decode_seconds: float


@dataclass(frozen=True, slots=True)
class CodecStats:
    """What all codecs have done together: the sums of `codecs`, whose fields these are.

    Attributes:
        encodes: arrays that were encoded and saved.
        decodes: arrays that were decoded.
        raw_bytes: the bytes of the values that were encoded.
        stored_bytes: the bytes that were kept for them.
        ratio: how many times smaller they became; 1 before the first one.
        values: how many values there were, where the codec tells its error.
        max_error: the largest error of them; of arrays in one unit, that is.
        rms_error: the root mean square of the error of all of them.
        outliers: values that were kept as they are.
        encode_seconds: time of the host in encoders.
        decode_seconds: time of the host in decoders.
        codecs: each codec that was used.
        launches: calls of encoders on a GPU.
        launched: checkpoints that they took.
        most_together: the most checkpoints of one of them.
    """

    encodes: int = 0
    decodes: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    ratio: float = 1.0
    values: int = 0
    max_error: float = 0.0
    rms_error: float = 0.0
    outliers: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    codecs: tuple[CodecUse, ...] = ()
    launches: int = 0
    launched: int = 0
    most_together: int = 0


@dataclass(frozen=True, slots=True)
class AutoStats:
    """What `codec="auto"` has decided so far, for checkpoints.

    Attributes:
        stays: kept as they are because the history stays in the fastest tier.
        keeps_up: kept as they are because the link keeps up with the application.
        not_worth_it: kept as they are because the lossless codec was not worth its time, or was
            not measured yet.
        chosen: encoded because that costs less.
        tried: encoded in order to measure the codec.
        ratio: how many times smaller they became; None before that was measured.
        encode_seconds: how long it takes to encode a checkpoint like the latest, by the clock of
            the GPU where there is one; None before that was measured.
        decode_seconds: how long to decode it; that of the encoder before it was measured.
        latest: why the latest checkpoint got what it got.
    """

    stays: int
    keeps_up: int
    not_worth_it: int
    chosen: int
    tried: int
    ratio: float | None
    encode_seconds: float | None
    decode_seconds: float | None
    latest: str


@dataclass(frozen=True, slots=True)
class EnergyStats:
    """Joules since the spool was opened, by counters of the machine: of all that ran there, by
    whomever. Those of a pass are the difference of two.

    Attributes:
        gpu: of the whole GPU that the spool is on, its memory included, by NVML, whose counter
            moves on some ten times a second and is read as often at most. None where the spool is
            on none, there is no NVML, or the GPU does not count, as those before Volta; and from
            when it has stopped.
        processors: of all packages of processors, by RAPL. None where the kernel has no such
            counter or lets only root read it, and from when one has stopped.
    """

    gpu: float | None = None
    processors: float | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """What a spool has done since it was opened; `print` it for a table.

    Attributes:
        saves: saves that were completed.
        saved_bytes: their bytes.
        restores: restores that were completed, `load` included.
        restored_bytes: their bytes.
        save_stall_seconds: time that saves waited for room.
        restore_stall_seconds: time that restores waited for their data.
        longest_stall: the longest single wait, or None.
        prefetch_lead: how far ahead the prefetches were, over the restores that `expect`
            announced, or None before the first one.
        hinted_restores: restores that `expect` announced.
        hints: entries of the restore order that are still to come.
        discards: checkpoints that were discarded, by `discard` or after their last restore.
        checkpoints: checkpoints that are saved and not discarded.
        dropped_spans: spans that did not fit into the trace.
        notes: what went wrong without stopping anything.
        tiers: every tier, fastest first.
        links: `links[i]` lies between `tiers[i]` and `tiers[i + 1]`.
        codec: what encoding has brought and cost.
        auto: what `codec="auto"` has decided, or None where nothing was left to it.
        kernels_seconds: what of both stalls was for kernels of a GPU to be loaded: a few
            milliseconds each, or seconds on a GPU that none were shipped for, where they are
            compiled once a machine.
        unflushed: checkpoints that are not in the slowest tier that can hold them yet: what
            `flush`, and `close` of a durable spool, still wait for.
        unflushed_bytes: their bytes.
        energy: what the machine took meanwhile; it does not count when statistics are compared.
    """

    saves: int
    saved_bytes: int
    restores: int
    restored_bytes: int
    save_stall_seconds: float
    restore_stall_seconds: float
    longest_stall: Stall | None
    prefetch_lead: Lead | None
    hinted_restores: int
    hints: int
    discards: int
    checkpoints: int
    dropped_spans: int
    notes: tuple[str, ...]
    tiers: tuple[TierStats, ...]
    links: tuple[LinkStats, ...]
    codec: CodecStats = CodecStats()
    auto: AutoStats | None = None
    kernels_seconds: float = 0.0
    unflushed: int = 0
    unflushed_bytes: int = 0
    energy: EnergyStats = field(default=EnergyStats(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers, ready for `json.dump`; None for
        what is not finite.
        """
        found: dict[str, Any] = plain(dataclasses.asdict(self))
        return found

    def __str__(self) -> str:
        blocks = [_calls(self), _tiers(self.tiers)]
        if self.links:
            blocks.append(_links(self.links))
        if self.codec.codecs:
            blocks.append(_codecs(self.codec))
        if self.auto is not None:
            blocks.append(_auto(self.auto))
        if energy := _energy(self.energy):
            blocks.append(energy)
        notes = list(_notes(self))
        if notes:
            blocks.append("\n".join(notes))
        return "\n\n".join(blocks)


def plain(value: Any) -> Any:
    """Dictionaries, lists and numbers as JSON knows them: None for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _calls(stats: Stats) -> str:
    rows = [
        ("calls", "count", "bytes", "stall"),
        ("save", f"{stats.saves:,}", size(stats.saved_bytes), time(stats.save_stall_seconds)),
        (
            "restore",
            f"{stats.restores:,}",
            size(stats.restored_bytes),
            time(stats.restore_stall_seconds),
        ),
    ]
    lines = [table(rows)]
    if stats.longest_stall is not None:
        stall = stats.longest_stall
        lines.append(
            f"longest stall: {time(stall.seconds)} in {stall.call}({stall.version}), "
            f"waiting for {stall.awaited}"
        )
    if stats.kernels_seconds > 0:
        lines.append(
            f"{time(stats.kernels_seconds)} of the stalls were for kernels to be loaded or compiled"
        )
    if stats.prefetch_lead is not None:
        lead = stats.prefetch_lead
        lines.append(
            f"prefetched ahead of restores: min {lead.min:,}, median {lead.median:,}, "
            f"mean {lead.mean:,.1f} checkpoints"
        )
    return "\n".join(lines)


def _tiers(tiers: Sequence[TierStats]) -> str:
    rows = [("tier", "capacity", "used", "peak", "copies", "evictions", "restores")]
    rows += [
        (
            tier.name,
            "-" if tier.capacity is None else size(tier.capacity),
            size(tier.used),
            size(tier.peak),
            f"{tier.copies:,}",
            f"{tier.evictions:,}",
            f"{tier.restores:,}",
        )
        for tier in tiers
    ]
    return table(rows)


def _links(links: Sequence[LinkStats]) -> str:
    rows: list[tuple[str, ...]] = [
        ("movement", "count", "bytes", "rate", "skipped", "cancelled", "failed", "retried")
    ]
    for link in links:
        rows.append(_movement(f"{link.fast} -> {link.slow}", link.flush, link.flushes_skipped))
        rows.append(_movement(f"{link.slow} -> {link.fast}", link.prefetch, 0))
    return table(rows)


def _movement(name: str, moved: DirectionStats, skipped: int) -> tuple[str, ...]:
    rate = f"{moved.bytes / moved.busy_seconds / 1e9:.2f} GB/s" if moved.busy_seconds else "-"
    counts = (skipped, moved.cancelled, moved.failed, moved.retried)
    return (
        name,
        f"{moved.transfers:,}",
        size(moved.bytes),
        rate,
        *(f"{count:,}" for count in counts),
    )


def _codecs(codec: CodecStats) -> str:
    rows: list[tuple[str, ...]] = [
        ("codec", "arrays", "bytes", "stored", "ratio", "max error", "outliers", "encode", "decode")
    ]
    for use in codec.codecs:
        told = use.name != "raw" and use.values > 0
        rows.append(
            (
                use.name,
                f"{use.encodes:,}",
                size(use.raw_bytes),
                size(use.stored_bytes),
                f"{use.ratio:.2f}",
                f"{use.max_error:.3g}" if told else "-",
                f"{use.outliers:,}" if told else "-",
                time(use.encode_seconds),
                time(use.decode_seconds),
            )
        )
    return table(rows)


def _auto(auto: AutoStats) -> str:
    rows: list[tuple[str, ...]] = [("auto", "chosen", "tried", "ratio", "encode", "decode")]
    kept = {
        "as it is: stays in memory": auto.stays,
        "as it is: link keeps up": auto.keeps_up,
        "as it is: not worth it": auto.not_worth_it,
    }
    rows += [(name, f"{count:,}", "-", "-", "-", "-") for name, count in kept.items() if count]
    times = (auto.encode_seconds, auto.decode_seconds)
    if auto.chosen or auto.tried:
        rows.append(
            (
                "lossless",
                f"{auto.chosen:,}",
                f"{auto.tried:,}",
                "-" if auto.ratio is None else f"{auto.ratio:.2f}",
                *("-" if seconds is None else time(seconds) for seconds in times),
            )
        )
    return f"{table(rows)}\nlatest: {auto.latest}"


def _energy(energy: EnergyStats) -> str:
    parts = {"the GPU": energy.gpu, "the processors": energy.processors}
    known = [f"{joules:,.0f} J of {part}" for part, joules in parts.items() if joules is not None]
    return f"energy: {', '.join(known)}" if known else ""


def _notes(stats: Stats) -> Iterator[str]:
    yield from (f"note: {note}" for note in stats.notes)
    for tier in stats.tiers:
        yield from (f"note on {tier.name}: {note}" for note in tier.notes)
    for link in stats.links:
        if link.last_failure is not None:
            yield f"last failure of {link.fast} -> {link.slow}: {link.last_failure}"
    if stats.dropped_spans:
        yield f"note: {stats.dropped_spans:,} spans did not fit into the trace"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest entry: the first to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: tuple[str, ...]) -> str:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def size(count: int) -> str:
    """Bytes for people: `1.50 GiB`."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 5)
    return f"{count / (1 << 10 * power):.2f} {'KMGTP'[power - 1]}iB"


def time(seconds: float) -> str:
    """A duration for people: `12.3 ms`."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


@dataclass(frozen=True, slots=True)
class PagingStats:
    """What paging has done for one array, from `PagedArray.paging()`. Bytes are those of the array
    unless they are said to be stored ones.

    Attributes:
        bytes: bytes of the array.
        resident_limit: the most of them that may be in memory; all, where it is not paged.
        resident: those that are in memory now, as the kernel counts.
        chunk_bytes: bytes that are moved at a time; 0 where it is not paged.
        kernel_faults: whether system calls may be given a part that is not in memory.
        faults: times that a thread waited for a part, or to be let write to it for the first time.
        write_faults: of these, the first writes to a chunk since it was loaded.
        late: of these, those for a chunk that was being loaded ahead and was not there yet.
        wait_seconds: from taking in a fault to its answer, over all threads.
        loads: chunks that were loaded.
        loads_ahead: of these, ahead of the program.
        ahead_hits: of these, those that the program has come to.
        evictions: chunks that were evicted.
        dropped_clean: of these, those that had not changed and were not encoded again.
        refusals: evictions that failed: the chunk stayed, and memory may be over its limit.
        lost: chunks whose bytes could not be had back.
        bytes_encoded: bytes that were encoded.
        bytes_stored: stored bytes that were made of them.
        bytes_decoded: bytes that were decoded.
        lossy_most: the most often that one chunk was encoded with a bound: no value is farther from
            the one that was written than so many times the bound.
        stored_in_memory: stored bytes in memory now.
        stored_on_disk: stored bytes on the disk now.
        order: `"given"`, `"detected"`, or None where no order is gone by.
        last_refusal: why the last eviction failed; empty when none did.
    """

    bytes: int
    resident_limit: int
    resident: int
    chunk_bytes: int
    kernel_faults: bool
    faults: int
    write_faults: int
    late: int
    wait_seconds: float
    loads: int
    loads_ahead: int
    ahead_hits: int
    evictions: int
    dropped_clean: int
    refusals: int
    lost: int
    bytes_encoded: int
    bytes_stored: int
    bytes_decoded: int
    lossy_most: int
    stored_in_memory: int
    stored_on_disk: int
    order: str | None
    last_refusal: str

    @property
    def factor(self) -> float:
        """Bytes that were encoded for each stored byte that was made of them; 1 at first."""
        return self.bytes_encoded / self.bytes_stored if self.bytes_stored else 1.0


@dataclass(frozen=True, slots=True)
class TiledStats:
    """What was done with the tiles of one array, from `TiledArray.stats()`.

    Attributes:
        tiles: the number of its tiles.
        never_written: of these, those that still hold what they were filled with.
        reads: tiles that were read.
        writes: tiles that were written.
        lossy_most: the most often that one tile was encoded with a bound since it was written
            without being read. With `Bound(abs=...)`, a value that no block changes is at most so
            many bounds from the one that was written. 0 where nothing is lost.
        corrections: times that what was announced was not what came, and was announced once more.
    """

    tiles: int
    never_written: int
    reads: int
    writes: int
    lossy_most: int
    corrections: int
