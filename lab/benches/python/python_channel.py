"""A halo exchange through `unspool.messages.Channel`, beside `torch.distributed` alone.

    python lab/benches/python/python_channel.py --device cuda
    python lab/benches/python/python_channel.py --orders

The first prints the time of an exchange between two processes (each sends one array and receives
one) and the bytes on the wire, for arrays of a wave: plain through pinned memory, without loss,
and with a bound. Both share one device, and the backend is gloo over the loopback. It takes less
than a minute. Needs PyTorch.

The second encodes the halos of programs on the processor, each alone and as its difference to the
messages before, and prints what is left of the bytes: whether prediction in time would pay.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

#: Seconds for one line of the table, and the exchanges in it at least and at most.
SECONDS, LEAST, MOST = 2.0, 3, 200
SIZES_MIB = (1, 8, 64)
LIMIT = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--orders", action="store_true", help="prediction in time, on the CPU")
    options = parser.parse_args()
    if options.orders:
        orders()
        return
    import torch

    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        torch.multiprocessing.spawn(rank_main, args=(options.device, store), nprocs=2)


def rank_main(rank: int, device: str, store: str) -> None:
    """The work of one process."""
    from datetime import timedelta

    import torch
    from torch import distributed
    from unspool import Bound
    from unspool.messages import Channel

    limit = timedelta(seconds=LIMIT)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit
    )
    where = torch.cuda.get_device_name() if device == "cuda" else "processor"
    say(rank, f"{where}, float32, two processes, gloo")
    say(rank, f"{'MiB':>4} {'way':<16} {'ms':>8} {'wire %':>7} {'GB/s of arrays, one way':>24}")
    for number, mebibytes in enumerate(SIZES_MIB):
        sent, out = halo(mebibytes, rank, device), halo(mebibytes, rank, device)
        ways: list[tuple[str, Any, Bound | None]] = [
            ("plain", None, None),
            ("lossless", Channel, None),
            ("1e-4 of range", Channel, Bound(range=1e-4)),
        ]
        for place, (name, kind, bound) in enumerate(ways):
            tag = 10 * number + place
            if kind is None:
                exchange, wire = plain(rank, tag, sent, out), lambda: 1.0
            else:
                channel = kind(None, 1 - rank, tag=tag, bound=bound, timeout=LIMIT)
                exchange = functools.partial(coded, channel, sent, out)
                wire = functools.partial(wire_of, channel)
            out.zero_()
            seconds = timed(exchange, device)
            check(out, halo(mebibytes, 1 - rank, device), bound)
            speed = mebibytes * 2**20 / seconds / 1e9
            line = (
                f"{mebibytes:>4} {name:<16} {1e3 * seconds:8.2f} {100 * wire():7.1f} {speed:24.2f}"
            )
            say(rank, line)
    distributed.destroy_process_group()


def say(rank: int, text: str) -> None:
    if rank == 0:
        print(text, flush=True)


def halo(mebibytes: int, rank: int, device: str) -> Any:
    """A plane of a wave of several directions, which differs between ranks."""
    import torch

    rows, columns = 256, mebibytes * 1024
    x = torch.arange(columns, device=device, dtype=torch.float32) / 100
    y = torch.arange(rows, device=device, dtype=torch.float32)[:, None] / 30
    fronts = ((1.0, 0.3), (0.2, 1.1), (-0.7, 0.9), (0.4, -0.5))
    return sum(torch.sin(a * x + b * y + rank) for a, b in fronts).contiguous()


def plain(rank: int, tag: int, sent: Any, out: Any) -> Callable[[], None]:
    """An exchange through pinned memory, which is made before."""
    import torch
    from torch import distributed

    is_gpu = sent.is_cuda
    to_send, received = (torch.empty(sent.shape, pin_memory=is_gpu) for _ in range(2))

    def exchange() -> None:
        to_send.copy_(sent, non_blocking=True)
        if is_gpu:
            torch.cuda.current_stream().synchronize()
        sending = distributed.isend(to_send, 1 - rank, tag=tag)
        distributed.irecv(received, 1 - rank, tag=tag).wait()
        out.copy_(received, non_blocking=True)
        sending.wait()

    return exchange


def coded(channel: Any, sent: Any, out: Any) -> None:
    """An exchange through a channel."""
    sending = channel.isend(sent)
    channel.recv(out)
    sending.wait()


def wire_of(channel: Any) -> float:
    return channel.wire_bytes / channel.sent_bytes


def timed(exchange: Callable[[], None], device: str) -> float:
    """The median of the seconds of an exchange, of as many as both ranks agree on."""
    import torch
    from torch import distributed

    def once() -> float:
        begin = time.perf_counter()
        exchange()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once()
    first = once()
    count = torch.tensor([min(MOST, max(LEAST, int(SECONDS / first)))])
    distributed.broadcast(count, 0)
    return statistics.median(once() for _ in range(int(count)))


def check(out: Any, wanted: Any, bound: Any) -> None:
    """What came is what was sent, or within the bound of it."""
    import torch

    if bound is None:
        assert torch.equal(out.view(torch.int32), wanted.view(torch.int32))
    else:
        reach = bound.value * float(wanted.max() - wanted.min())
        assert float((out.double() - wanted.double()).abs().max()) <= reach


def orders() -> None:
    """Prints what is left of halos, by the order of prediction in time."""
    print(f"{'% of the bytes':<36} {'alone':>7} {'order 1':>8} {'order 2':>8} {'best':>6}")
    for name, frames in (
        ("wave 64^3 float32", wave(np.float32)),
        ("wave 64^3 float64", wave(np.float64)),
        ("diffusion 64^3 float32", diffusion(np.float32)),
        ("CG 48^3 float64, 27 points", conjugate_gradients()),
    ):
        halos = [np.ascontiguousarray(frame) for frame in frames]
        print(f"{name + ', lossless':<36}", left_of(halos, [ordered(one) for one in halos]))
        # Twice the bound, as a value is rounded to the nearest multiple.
        step = 2e-4 * max(np.ptp(one) for one in halos)
        rounded = [np.round(one / step).astype("i4") for one in halos]
        print(f"{name + ', 1e-4 of range':<36}", left_of(halos, rounded))


def left_of(halos: list[np.ndarray], whole: list[np.ndarray]) -> str:
    """The coded parts of the bytes: alone, as differences of order 1 and 2, and the smallest."""
    alone_of = halos if is_bits(whole, halos) else whole
    totals = np.zeros(4)
    for at in range(2, len(whole)):
        before, last = whole[at - 2], whole[at - 1]
        with np.errstate(over="ignore"):
            ways = [alone_of[at], whole[at] - last, whole[at] - 2 * last + before]
        sizes = [coded_bytes(one) for one in ways]
        totals += [*sizes, min(sizes)]
    parts = 100 * totals / sum(one.nbytes for one in halos[2:])
    return f"{parts[0]:7.1f} {parts[1]:8.1f} {parts[2]:8.1f} {parts[3]:6.1f}"


def is_bits(whole: list[np.ndarray], halos: list[np.ndarray]) -> bool:
    """Whether the whole numbers are the bits of the values, which Twine takes as values."""
    return np.array_equal(whole[0], ordered(halos[0]))


def ordered(values: np.ndarray) -> np.ndarray:
    """The bits of floats as integers in the order of the values."""
    bits = values.view(f"i{values.itemsize}")
    return np.where(bits < 0, ~bits ^ np.iinfo(bits.dtype).min, bits)


def coded_bytes(values: np.ndarray) -> int:
    from unspool import codecs

    return min(codecs.encode(values).nbytes, values.nbytes)


def neighbours(u: np.ndarray) -> np.ndarray:
    """The sum of the six neighbours less six times the value."""
    return sum(np.roll(u, way, axis) for axis in range(3) for way in (1, -1)) - 6 * u


def wave(dtype: type, n: int = 64, steps: int = 240) -> Iterator[np.ndarray]:
    """A plane beside the source of an acoustic wave, after every step."""
    before, now = np.zeros((2, n, n, n), dtype)
    for step in range(steps):
        before, now = now, (2 * now - before + dtype(0.25) * neighbours(now)).astype(dtype)
        phase = (np.pi * 0.06 * (step - 20)) ** 2
        now[n // 2, n // 2, n // 3] += dtype((1 - 2 * phase) * np.exp(-phase))
        if step >= 40:
            yield now[n // 4]


def diffusion(dtype: type, n: int = 64, steps: int = 120) -> Iterator[np.ndarray]:
    """A plane of noise that spreads, after every step."""
    u = np.random.default_rng(0).normal(size=(n, n, n)).astype(dtype)
    for step in range(steps):
        u = (u + dtype(0.1) * neighbours(u)).astype(dtype)
        if step >= 20:
            yield u[0]


def conjugate_gradients(n: int = 48, steps: int = 60) -> Iterator[np.ndarray]:
    """A plane of the search direction, in every iteration; 27 points as in HPCCG."""
    shifts = [(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)]
    r = np.random.default_rng(1).normal(size=(n, n, n))
    p, norm = r.copy(), (r * r).sum()
    for _ in range(steps):
        q = 27 * p - 0.99 * sum(np.roll(p, shift, (0, 1, 2)) for shift in shifts)
        r = r - norm / (p * q).sum() * q
        last, norm = norm, (r * r).sum()
        p = r + norm / last * p
        yield p[0]


if __name__ == "__main__":
    main()
