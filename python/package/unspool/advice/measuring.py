"""Measures this machine's links by a small spool with the tiers that a plan is for.

Checkpoints are as large as the application's, at most `LARGEST`. A first spool of smaller ones says
how much can be moved in time, and what a copy costs beside its bytes.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

from .._doctor import Facts, doctor
from ..errors import OptionError
from .links import Link, Links, LinksError, Rate
from .probe import ROUND, ROUNDS, Probe
from .sizes import Tiers, count_of, number

#: The most bytes of a checkpoint of the probe, and those of its first spool.
LARGEST, SMALLEST = 32 << 20, 1 << 20


def measure(
    tiers: Tiers,
    checkpoint_bytes: int,
    limit: float = 2.0,
    work: Callable[[], object] | None = None,
    arrays: int = 1,
) -> Links:
    """See `unspool.advice.measure_links`."""
    if "disk" in tiers.names and tiers.directory is None:
        raise OptionError(
            "The disk tier has no directory to measure: give one, as in "
            'disk=("/scratch", "200GiB"), or give links= of the machine that the plan is for.'
        )
    limit = number("limit", limit, 1e-9, 600.0)
    arrays = count_of("arrays", arrays, 65_536)
    begin = time.perf_counter()
    wanted, each = min(checkpoint_bytes, LARGEST), max(1, checkpoint_bytes // arrays)
    small = Probe(tiers, min(wanted, SMALLEST), each, limit / 2)
    small.run(1)
    size = _affordable(small, wanted, limit - (time.perf_counter() - begin))
    large = small
    if size > small.size or small.enough:
        left = max(0.1, limit - (time.perf_counter() - begin))
        large = Probe(tiers, size, each, left, work)
        large.run(ROUNDS)
    return _links(small, large, begin)


def _affordable(small: Probe, wanted: int, left: float) -> int:
    """Bytes of a checkpoint of which three rounds take no longer than what is left."""
    size = wanted
    rate = small.moved / max(small.seconds, 1e-6)
    while size > small.size and 3 * ROUND * size > left * rate:
        size //= 2
    return max(size, small.size)


def _links(small: Probe, large: Probe, begin: float) -> Links:
    """What both spools have shown; the clock said `begin` when all began."""
    rates = {lane: rate or small.rates()[lane] for lane, rate in large.rates().items()}
    speeds = _speeds(large.where)
    if speeds is not None:
        rates = _without_waits(rates, speeds)
    save, restore = _copies(small, large, speeds)
    missing = [lane for lane, rate in rates.items() if not rate]
    if save is None or restore is None or missing:
        raise LinksError(
            f"The tiers {', '.join(large.names)} are too slow to be measured in the time given "
            f"({', '.join(missing) or 'saves'} moved nothing): raise limit=, or give links=."
        )
    latencies = {lane: _latency(small, lane, rate or 1.0) for lane, rate in rates.items()}

    def rate(lane: str) -> Rate:
        return Rate(rates[lane] or 1.0, latencies[lane])

    pairs = itertools.pairwise(large.names)
    links = tuple(
        Link(a, b, rate(f"{a}-{b}"), rate(f"{b}-{a}"), slows)
        for (a, b), slows in zip(pairs, large.contention, strict=True)
    )
    return Links(
        device=large.where,
        tiers=large.names,
        save=save,
        restore=restore,
        links=links,
        first_touch=_first_touch(large, save),
        checkpoint_bytes=large.size,
        seconds=time.perf_counter() - begin,
    )


def _without_waits(rates: dict[str, float | None], speeds: Facts) -> dict[str, float | None]:
    """Transfers of the probe wait for its own copies on the GPU: those of an application that
    computes for longer than it copies do not, and reach what the link does.
    """
    raw = {"device-host": speeds.device_to_host, "host-device": speeds.host_to_device}
    return {lane: max(rate or 0.0, raw.get(lane, 0.0)) or None for lane, rate in rates.items()}


def _copies(small: Probe, large: Probe, speeds: Facts | None) -> tuple[Rate | None, Rate | None]:
    """Of the application's copies. On a GPU they are only enqueued, after its other work: what
    the host needs for a call is then their latency.
    """
    raw = None if speeds is None else _of_gpu(speeds, large.names[0])
    found: list[Rate | None] = []
    for place, few, many in ((0, small.saves, large.saves), (1, small.restores, large.restores)):
        short, long = few.usual(), many.usual()
        if short is None or long is None:
            found.append(None)
        elif raw is not None:
            found.append(Rate(raw[place], few.least()))
        else:
            found.append(_line((small.size, short), (large.size, long)))
    return found[0], found[1]


def _line(small: tuple[int, float], large: tuple[int, float]) -> Rate:
    """The rate and the latency of two readings: bytes and seconds."""
    gained = large[0] - small[0]
    if gained <= 0 or large[1] <= small[1]:
        return Rate(large[0] / large[1])
    rate = max(gained / (large[1] - small[1]), large[0] / large[1])
    return Rate(rate, max(0.0, large[1] - large[0] / rate))


def _latency(small: Probe, lane: str, rate: float) -> float:
    """What a transfer takes beside its bytes."""
    times = [span.end - span.begin for span in small.spans if span.lane == lane]
    return max(0.0, min(times) - small.size / rate) if times else 0.0


def _first_touch(probe: Probe, save: Rate) -> float:
    """Seconds per byte that the first save into a place takes longer than a later one."""
    if probe.where != "cpu" or probe.names[0] == "disk" or not probe.saves.warm:
        return 0.0
    cold = statistics.median(probe.saves.cold)
    return max(0.0, cold - save.seconds(probe.size)) / probe.size


def _speeds(where: str) -> Facts | None:
    """What the GPU `where` copies at, if it is one and says so."""
    if where == "cpu":
        return None
    devices = doctor(measure=True).devices
    return next((gpu.speeds for gpu in devices if where == f"cuda:{gpu.ordinal}"), None)


def _of_gpu(speeds: Facts, tier: str) -> tuple[float, float] | None:
    """Bytes per second of copies from arrays on a GPU into a memory tier and back."""
    if tier == "device":
        return speeds.within_device, speeds.within_device
    return None if tier == "disk" else (speeds.device_to_host, speeds.host_to_device)
