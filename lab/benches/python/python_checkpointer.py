"""How long a program waits for a checkpoint, and how long until it is durable.

`Checkpointer` and what people use instead, on the same arrays in the same run:

    python lab/benches/python/python_checkpointer.py [--gib 2] [--device cuda] [--dir PATH]

Needs PyTorch. Every file is synced before it counts as durable. The median of the rounds counts;
the methods take turns, and the disk is at rest before each. `blocked` is the time until the call
has returned and the arrays may change, on a GPU in the order of its stream. The bounds are a copy
of the arrays where they are, and the same bytes written and synced from main memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torch.distributed.checkpoint as dcp
import unspool

GIB = 1 << 30
ARRAYS = 16
# The call under measurement, and what waits until its checkpoint is durable.
Method = Callable[[dict[str, torch.Tensor], Path, int], Callable[[], None]]


def nothing_left() -> None:
    """Nothing is on its way when the call returns."""


def synced(path: Path) -> None:
    for name in (path, path.parent):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def write_plainly(arrays: dict[str, torch.Tensor], folder: Path, step: int) -> Callable[[], None]:
    path = folder / f"{step}.raw"
    with path.open("wb", buffering=0) as file:
        for array in arrays.values():
            data = memoryview(array.cpu().numpy()).cast("B")
            while data:
                data = data[file.write(data) :]
    synced(path)
    return nothing_left


def numpy_savez(arrays: dict[str, torch.Tensor], folder: Path, step: int) -> Callable[[], None]:
    path = folder / f"{step}.npz"
    np.savez(path, **{name: array.cpu().numpy() for name, array in arrays.items()})
    synced(path)
    return nothing_left


def torch_save(arrays: dict[str, torch.Tensor], folder: Path, step: int) -> Callable[[], None]:
    path = folder / f"{step}.pt"
    torch.save(arrays, path)
    synced(path)
    return nothing_left


def dcp_save(arrays: dict[str, torch.Tensor], folder: Path, step: int) -> Callable[[], None]:
    dcp.save(arrays, checkpoint_id=folder / str(step))
    return nothing_left


def dcp_async(arrays: dict[str, torch.Tensor], folder: Path, step: int) -> Callable[[], None]:
    future = dcp.async_save(arrays, checkpoint_id=folder / str(step))
    return lambda: future.result() and None


class WithCheckpointer:
    """One `Checkpointer` over all rounds, as in a program."""

    def __init__(self, device: str, size: int, codec: str | None) -> None:
        room = size + size // 64 + (64 << 20)
        tiers = {"device_memory": room, "device": "cuda"} if device == "cuda" else {}
        self.options = {**tiers, "host_memory": room, "codec": codec, "keep": 1}
        self.open: unspool.Checkpointer | None = None

    def __call__(
        self, arrays: dict[str, torch.Tensor], folder: Path, step: int
    ) -> Callable[[], None]:
        """Saves; what comes back waits until the checkpoint is durable."""
        if self.open is None:
            self.open = unspool.Checkpointer(folder / "run", every=None, **self.options)
        self.open.save(step, **arrays)
        return self.open.flush

    def close(self) -> None:
        """Closes what was opened by the first save."""
        if self.open is not None:
            self.open.close()


def seconds(action: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(
    method: Method, arrays: dict[str, torch.Tensor], folder: Path, step: int, device: str
) -> tuple[float, float, float]:
    """Seconds until the call returns, until the arrays may change, and until all is durable."""
    os.sync()
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    wait = method(arrays, folder, step)
    returned = time.perf_counter() - begin
    if device == "cuda":
        torch.cuda.current_stream().synchronize()
    blocked = time.perf_counter() - begin
    wait()
    return returned, blocked, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="blocking time of a checkpoint")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    size = int(given.gib * GIB) // ARRAYS // 4 * 4 * ARRAYS
    make = torch.Generator(device=given.device).manual_seed(1)
    arrays = {
        f"u{i}": torch.rand(size // ARRAYS // 4, generator=make, device=given.device)
        for i in range(ARRAYS)
    }
    with tempfile.TemporaryDirectory(dir=given.dir, prefix="checkpoints-") as name:
        folder = Path(name)
        store = torch.distributed.FileStore(str(folder / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        compare(arrays, size, folder, given.device, given.rounds)
        torch.distributed.destroy_process_group()


def compare(
    arrays: dict[str, torch.Tensor], size: int, folder: Path, device: str, rounds: int
) -> None:
    ours = WithCheckpointer(device, size, None)
    methods: dict[str, Method] = {
        "write and fsync": write_plainly,
        "np.savez": numpy_savez,
        "torch.save": torch_save,
        "dcp.save": dcp_save,
        "dcp.async_save": dcp_async,
        "unspool.Checkpointer": ours,
    }
    like = [torch.empty_like(array) for array in arrays.values()]
    host = {name: array.cpu() for name, array in arrays.items()}
    copies, writes = [], []
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in methods}
    # The first round touches memory and prepares tiers.
    for step in range(1, rounds + 2):
        copies.append(
            seconds(
                lambda: [a.copy_(b) for a, b in zip(like, arrays.values(), strict=True)], device
            )
        )
        writes.append(measure(write_plainly, host, folder, 1_000 + step, "cpu")[2])
        clean(folder)
        for name, method in methods.items():
            times[name].append(measure(method, arrays, folder, step, device))
            if method is not ours:
                clean(folder)
    ours.close()
    print(f"{size / GIB:.2f} GiB in {ARRAYS} arrays on {device}; seconds, medians of {rounds}")
    print(f"{'':24}{'first':>8}{'returned':>10}{'blocked':>9}{'durable':>9}{'GB/s':>7}")
    copy, write = statistics.median(copies[1:]), statistics.median(writes[1:])
    print(f"{'bound: copy':24}{copies[0]:8.3f}{copy:10.3f}{copy:9.3f}")
    print(f"{'bound: disk':24}{writes[0]:8.3f}{'':19}{write:9.3f}{size / write / 1e9:7.2f}")
    for name, rows in times.items():
        returned, blocked, durable = (
            statistics.median(column) for column in zip(*rows[1:], strict=True)
        )
        rate = size / durable / 1e9
        print(f"{name:24}{rows[0][1]:8.3f}{returned:10.3f}{blocked:9.3f}{durable:9.3f}{rate:7.2f}")


def clean(folder: Path) -> None:
    """Deletes what the other methods have written."""
    for path in folder.iterdir():
        if path.name in ("run", "store"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
