"""The report of a job: one nested dictionary for machines, and a table of it for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Table
from unspool import __version__
from unspool.stats import DirectionStats, LinkStats, Stats, plain
from unspool_studies.rtm.codec import name_of_codec
from unspool_studies.rtm.image import PROCESSING
from unspool_studies.rtm.job import Job
from unspool_studies.rtm.outcome import Kernels, Outcome
from unspool_studies.rtm.schedule import name_of

__all__ = ["build", "show"]


def build(job: Job, outcome: Outcome, seconds: float, peak: int, agrees: float) -> dict[str, Any]:
    """Everything that a run has measured.

    Args:
        job: what was done.
        outcome: what came out.
        seconds: how long recording and migrating took.
        peak: the most memory that the process has had until then, in bytes.
        agrees: the correlation of the image with a perfect one.
    """
    return {
        "unspool": __version__,
        "model": _model(job),
        "survey": _survey(job),
        "history": _history(job, outcome.stats),
        "schedule": _schedule(job, outcome),
        "codec": _codec(job, outcome.stats),
        "gradient": _gradient(outcome),
        "time": _time(outcome, seconds),
        "peak_resident_bytes": peak,
        "image": {
            "processing": list(PROCESSING),
            "agreement": agrees,
            "shot_sha256": list(outcome.migrated.digests),
        },
        "spool": outcome.stats.to_dict(),
    }


def _model(job: Job) -> dict[str, Any]:
    return {
        "name": job.model.name,
        "notes": list(job.model.notes),
        "shape": list(job.model.shape),
        "spacing_metres": list(job.model.spacing),
        "slowest_metres_per_second": job.model.slowest,
        "fastest_metres_per_second": job.model.fastest,
        "migrated_with": job.background.name,
    }


def _survey(job: Job) -> dict[str, Any]:
    timing = job.survey.timing
    return {
        "shots": len(job.survey.sources),
        "receivers": len(job.survey.receivers),
        "steps": timing.steps,
        "step_seconds": timing.dt,
        "recorded_seconds": timing.steps * timing.dt,
        "peak_frequency_hertz": timing.frequency,
        "save_every_steps": timing.every,
        "absorbing_cells": job.layer,
        "warnings": list(job.survey.warnings),
    }


def _history(job: Job, stats: Stats) -> dict[str, Any]:
    memory = sum(tier.capacity or 0 for tier in stats.tiers if tier.name != "disk")
    shot = job.kept.peak_bytes
    return {
        "wavefield_bytes": job.field_bytes,
        "wavefields_a_shot": shot // job.field_bytes,
        "shot_bytes": shot,
        "job_bytes": stats.saved_bytes,
        "memory_bytes": memory,
        "shot_over_memory": shot / memory if memory else None,
    }


def _schedule(job: Job, outcome: Outcome) -> dict[str, Any]:
    """Counts are of all shots, in groups of steps; peaks in bytes."""
    followed, kept = outcome.followed, job.kept
    stats = outcome.stats
    return {
        "name": name_of(job.follows),
        "groups_a_shot": kept.steps,
        "snapshots": kept.peak_copies,
        "advances": followed.advances,
        "recomputed": followed.recomputed,
        "recomputed_steps": followed.recomputed * job.survey.timing.every,
        "saves": followed.saves,
        "restores": followed.restores,
        "peak_bytes": {tier.name: tier.peak for tier in stats.tiers},
        "stall_seconds": stats.save_stall_seconds + stats.restore_stall_seconds,
        "seconds": followed.seconds,
        "predicted_seconds": outcome.predicted,
    }


def _codec(job: Job, stats: Stats) -> dict[str, Any]:
    """Bytes of all states that were saved, and the largest error of a value in them."""
    used = stats.codec
    return {
        "name": name_of_codec(job.memory.codec) if job.order is None else "by --gradient",
        "raw_bytes": used.raw_bytes,
        "stored_bytes": used.stored_bytes,
        "ratio": used.ratio,
        "max_error": used.max_error,
        "encode_seconds": used.encode_seconds,
        "decode_seconds": used.decode_seconds,
    }


def _gradient(outcome: Outcome) -> dict[str, Any] | None:
    """What `--gradient` has chosen and estimated: shots in the order in which they were done, and
    the newest of those that went by bounds, by time, with a picture of it."""
    found = outcome.followed.fidelity
    if not found:
        return None
    # Bytes of states that went by bounds are known of them alone.
    bounded = [one for one in found if not one.trials] or list(found)
    return {
        "target": found[0].target,
        "estimates": [one.estimate for one in found],
        "trials": [one.trials for one in found],
        "raw_bytes": sum(one.raw_bytes for one in bounded),
        "stored_bytes": sum(one.stored_bytes for one in bounded),
        "by_time": [plain(dataclasses.asdict(one)) for one in bounded[-1].times],
        "picture": bounded[-1].picture(),
        "said": str(bounded[-1]),
    }


def _time(outcome: Outcome, seconds: float) -> dict[str, Any]:
    stats = outcome.stats
    stall = stats.save_stall_seconds + stats.restore_stall_seconds
    return {
        "run_seconds": seconds,
        "shot_seconds": list(outcome.migrated.seconds),
        "shots_done_before": outcome.before,
        "propagator": outcome.propagator,
        **{f"{name}_seconds": seconds for name, seconds in outcome.times.items()},
        "stall_seconds": stall,
        "stall_fraction": stall / seconds if seconds else 0.0,
        "kernels": _kernels(outcome.kernels),
    }


def _kernels(kernels: Kernels | None) -> dict[str, Any] | None:
    if kernels is None or kernels.seconds == 0.0:
        return None
    rate = kernels.steps * kernels.step_bytes / kernels.seconds
    return {
        "steps": kernels.steps,
        "seconds": kernels.seconds,
        "milliseconds_a_step": 1e3 * kernels.seconds / kernels.steps,
        "step_bytes": kernels.step_bytes,
        "bytes_per_second": rate,
        "copy_bytes_per_second": kernels.copy_bandwidth,
        "of_copy_bandwidth": rate / kernels.copy_bandwidth,
    }


def show(report: dict[str, Any], stats: Stats, console: Console) -> None:
    """Prints the table."""
    table = Table(title="Reverse time migration through a spool", title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("remarks", style="dim")
    blocks = (_history_rows(report), _tier_rows(stats), _link_rows(stats))
    for block in (*blocks, _time_rows(report, stats)):
        for row in block:
            table.add_row(*row)
        table.add_section()
    console.print(table)
    if report["gradient"] is not None:
        console.print(report["gradient"]["said"], highlight=False, soft_wrap=True)
        console.print(report["gradient"]["picture"], highlight=False, soft_wrap=True)
    for warning in report["survey"]["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False)


def _history_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    history = report["history"]
    shots = report["survey"]["shots"] - report["time"]["shots_done_before"]
    ratio = history["shot_over_memory"]
    fields = f"{history['wavefields_a_shot']} wavefields of {_mega(history['wavefield_bytes'])}"
    every = report["survey"]["save_every_steps"]
    rows = [
        ("states kept at most", f"{report['schedule']['snapshots']:,}", report["schedule"]["name"]),
        ("history of one shot", _giga(history["shot_bytes"]), f"{fields}, every {every} steps"),
        (f"saved for {shots} shots", _giga(history["job_bytes"]), _again(report["schedule"])),
        (
            "memory given to it",
            _giga(history["memory_bytes"]),
            f"one shot's history is {ratio:.1f} times as large" if ratio else "",
        ),
    ]
    used = report["codec"]
    if used["raw_bytes"]:
        remark = f"{_giga(used['stored_bytes'])} of {_giga(used['raw_bytes'])}"
        rows.append((f"codec {used['name']}", f"{used['ratio']:.2f} times smaller", remark))
    return rows


def _again(schedule: dict[str, Any]) -> str:
    return f"{schedule['recomputed_steps']:,} steps computed again"


def _tier_rows(stats: Stats) -> list[tuple[str, str, str]]:
    total = max(1, stats.restores)
    return [
        (
            f"restores from {tier.name}",
            f"{100.0 * tier.restores / total:.1f} %",
            f"{tier.restores:,} of {stats.restores:,}; {_capacity(tier.capacity)}, "
            f"at most {_giga(tier.peak)} in use",
        )
        for tier in stats.tiers
    ]


def _capacity(capacity: int | None) -> str:
    return "no limit of its own" if capacity is None else f"{_mega(capacity)} given"


def _link_rows(stats: Stats) -> list[tuple[str, str, str]]:
    return [row for link in stats.links for row in _directions(link)]


def _directions(link: LinkStats) -> list[tuple[str, str, str]]:
    needless = f"; {link.flushes_skipped:,} never needed" if link.flushes_skipped else ""
    return [
        _movement(f"{link.fast} -> {link.slow}", link.flush, needless),
        _movement(f"{link.slow} -> {link.fast}", link.prefetch, ""),
    ]


def _movement(name: str, moved: DirectionStats, more: str) -> tuple[str, str, str]:
    rate = f" at {moved.bytes / moved.busy_seconds / 1e9:.1f} GB/s" if moved.busy_seconds else ""
    return f"moved {name}", _giga(moved.bytes), f"{moved.transfers:,} transfers{rate}{more}"


def _time_rows(report: dict[str, Any], stats: Stats) -> list[tuple[str, str, str]]:
    time = report["time"]
    return [
        ("run time", f"{time['run_seconds']:.1f} s", _computing(time)),
        *_kernel_rows(time["kernels"]),
        (
            "stalled",
            f"{100.0 * time['stall_fraction']:.2f} %",
            f"{stats.save_stall_seconds:.2f} s in saves, "
            f"{stats.restore_stall_seconds:.2f} s in restores",
        ),
        *_predicted_rows(report["schedule"]),
        _lead_row(stats),
        ("peak resident memory", _giga(report["peak_resident_bytes"]), "whole process"),
        ("image against the model", f"{report['image']['agreement']:.2f}", "correlation"),
    ]


def _computing(time: dict[str, Any]) -> str:
    """A CPU computes while the application waits; a GPU has its own time."""
    if time["kernels"] is None:
        return f"computing {time['compute_seconds']:.1f} s"
    return f"kernels of the propagator {time['kernels']['seconds']:.1f} s"


def _kernel_rows(kernels: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    if kernels is None:
        return []
    remark = (
        f"{kernels['bytes_per_second'] / 1e9:,.0f} GB/s of what a step must move; a copy on the "
        f"GPU does {kernels['copy_bytes_per_second'] / 1e9:,.0f}"
    )
    return [("kernels of one step", f"{kernels['milliseconds_a_step']:.4f} ms", remark)]


def _predicted_rows(schedule: dict[str, Any]) -> list[tuple[str, str, str]]:
    if schedule["predicted_seconds"] is None:
        return []
    took = f"{schedule['seconds']:.2f} s"
    return [("both passes", took, f"{schedule['predicted_seconds']:.2f} s were predicted")]


def _lead_row(stats: Stats) -> tuple[str, str, str]:
    lead = stats.prefetch_lead
    if lead is None:
        return "prefetch lead", "-", ""
    return "prefetch lead", f"{lead.median} restores", f"from {lead.min} to {lead.max}"


def _giga(count: float) -> str:
    return f"{count / 1e9:.2f} GB"


def _mega(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
