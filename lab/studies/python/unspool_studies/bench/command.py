"""What `unspool-bench` does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable

from unspool.errors import Error
from unspool.stats import size as size_text
from unspool_studies.accumulated import gpu as accumulated_gpu
from unspool_studies.accumulated import virtual as accumulated
from unspool_studies.advice import failures, figures
from unspool_studies.bench import (
    bounds,
    codecs,
    copies,
    disk_tier,
    gpuzip,
    memory_tier,
    node,
    node_shots,
    orders,
    paper,
    planned,
    programs,
    raw,
    schedules,
    shapes,
    start,
    sweep,
)
from unspool_studies.bench.cuda import Cuda, NoCuda
from unspool_studies.bench.machine import about, available_memory, fits, warm_memory
from unspool_studies.bench.options import (
    DEFAULT_GPU_PARTS,
    DEFAULT_PLAIN_PARTS,
    GPU_PARTS,
    Plan,
    plan_of,
)
from unspool_studies.bench.report import Report, Table
from unspool_studies.messages import study as messages
from unspool_studies.paging import study as paging
from unspool_studies.scaling import figures as scaling

__all__ = ["BenchError", "host_memory_needed", "parts_of", "run_command", "run_parts"]


class BenchError(Error, ValueError):
    """A measurement that this machine cannot make."""


def _node(cuda: Cuda, plan: Plan, report: Report) -> None:
    (node_shots if plan.node_shots else node).run(cuda, plan, report)


#: The parts that need a GPU.
GPU: dict[str, Callable[[Cuda, Plan, Report], None]] = {
    "raw": raw.run,
    "copies": copies.run,
    "sweep": sweep.run,
    "beside": programs.run,
    "start": start.run,
    "shot": paper.run,
    "node": _node,
    "orders": orders.run,
    "gpuzip": gpuzip.run,
    "accumulated-gpu": accumulated_gpu.run,
}


def _rtm_codecs(plan: Plan, report: Report) -> None:
    # It needs SciPy, as the other parts do not.
    from unspool_studies.bench import rtm_codecs

    rtm_codecs.run(plan, report)


def _rates(plan: Plan, report: Report) -> None:
    # It needs SciPy, too.
    from unspool_studies.accumulated import rates

    rates.run(plan, report)


#: Parts that run in main memory on a machine without a GPU.
EITHER: dict[str, Callable[[Cuda | None, Plan, Report], None]] = {
    "shapes": shapes.run,
    "codecs": codecs.run,
}

#: The parts that need none.
PLAIN: dict[str, Callable[[Plan, Report], None]] = {
    "memory": memory_tier.run,
    "disk": disk_tier.run,
    "plan": planned.run,
    "schedules": schedules.run,
    "bounds": bounds.run,
    "accumulated": accumulated.run,
    "rates": _rates,
    "rtm-codecs": _rtm_codecs,
    "advise": figures.run,
    "failures": failures.run,
    "scaling": scaling.run,
    "messages": messages.run,
    "paging": paging.run,
}


def run_command(options: argparse.Namespace) -> int:
    """Measures what was asked for; returns the exit code: 1 when a part failed.

    Raises:
        BenchError: a part needs a GPU and there is none, or the file cannot be written.
    """
    plan = plan_of(options)
    for file in (options.json, plan.shot_plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise BenchError(f"{file} cannot be written: there is no such directory")
    try:
        cuda, why = Cuda(plan.device), ""
    except NoCuda as error:
        cuda, why = None, str(error)
    parts = parts_of(plan, cuda is not None, why)
    report = Report(about(cuda), options.json)
    _head(report, why)
    return 0 if run_parts(parts, plan, cuda, report) else 1


def parts_of(plan: Plan, gpu: bool, why: str) -> tuple[str, ...]:
    """What is measured.

    Raises:
        BenchError: a part was named that needs a GPU, and there is none.
    """
    if not plan.parts:
        return DEFAULT_GPU_PARTS if gpu else DEFAULT_PLAIN_PARTS
    missing = [part for part in plan.parts if part in GPU_PARTS]
    if missing and not gpu:
        raise BenchError(f"{', '.join(missing)} cannot be measured here: {why}")
    return plan.parts


def run_parts(parts: Iterable[str], plan: Plan, cuda: Cuda | None, report: Report) -> bool:
    """Measures these parts, one after the other; whether all went well.

    A part that fails says why, and the next one begins: what was measured is not lost.
    """
    begin, parts = time.perf_counter(), tuple(parts)
    if cuda is not None:
        cuda.enter()
        _warm(parts, plan, report)
    failed = [part for part in parts if not _measured(part, plan, cuda, report)]
    print(f"\nall in {time.perf_counter() - begin:.0f} s")
    return not failed


def _measured(part: str, plan: Plan, cuda: Cuda | None, report: Report) -> bool:
    try:
        if part in EITHER:
            EITHER[part](cuda, plan, report)
        elif part in PLAIN:
            PLAIN[part](plan, report)
        else:
            assert cuda is not None
            GPU[part](cuda, plan, report)
    except (Error, RuntimeError, OSError) as error:
        # CuPy's errors are of the second kind.
        print(f"\n{part} failed: {type(error).__name__}: {error}", flush=True)
        return False
    return True


def _head(report: Report, why: str) -> None:
    facts = report.about
    memory = facts["host_memory_available_bytes"]
    words = [f"unspool {facts['unspool']}", facts["device"] or f"no GPU: {why}"]
    words += [f"{facts['cores']} cores", f"{size_text(memory or 0)} of memory free"]
    print("; ".join(words), flush=True)


def host_memory_needed(part: str, plan: Plan) -> int:
    """The most host memory that a part uses at once, in bytes."""
    return {
        "raw": plan.raw_buffer,
        "sweep": plan.host_tier or plan.history,
        "beside": max(plan.arenas[0], plan.history // 2),
        "start": max(plan.arenas),
        "shot": max(plan.shot_checkpoints) * plan.checkpoint * max(plan.shot_processes),
        "node": _node_memory(plan),
        "orders": plan.orders_history,
    }.get(part, 0)


def _node_memory(plan: Plan) -> int:
    return max(plan.processes) * plan.orders_host if plan.node_shots else plan.share


def _warm(parts: tuple[str, ...], plan: Plan, report: Report) -> None:
    """Touches host memory once, and shows what that took."""
    count = plan.warm
    if count is None:
        needed = sorted(host_memory_needed(part, plan) for part in parts)
        available = available_memory()
        count = next((one for one in reversed(needed) if fits(one, available)), 0)
    if not count:
        return
    title = f"Touching {size_text(count)} of host memory, huge pages, {plan.touch_threads} threads"
    table = Table("warm", title, ("when", "s", "GB/s"))
    for when in ("first, maybe cold", "again"):
        seconds = warm_memory(count, plan.touch_threads)
        table.add(when, seconds, count / seconds / 1e9)
    table.note("the memory of a virtual machine is slow when it is touched for the first time")
    report.show(table)
