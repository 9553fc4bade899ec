"""Increments of a state on a GPU: what leaves the GPU, and how long a checkpoint takes.

    python lab/benches/python/gpu_increments.py [--gib 1] [--rounds 3] [--dir PATH]

The state is arrays of CuPy with `--gib` GiB together; before each checkpoint but the first, which
is full, one byte in each of a share of its chunks of 64 KiB changes, here and there. `main memory`
compares in the host tier, `GPU` in a device tier with room for two checkpoints. `left` is what came
from the GPU: in main memory the whole state; else the frame of the increment and a hash of 16 bytes
for each chunk. `save` is the time of the call, `stream` the time from it until the application's
stream goes on, and `durable` that until `flush` returns; medians. The speed of the kernel beside a
copy within the device is printed by
`cargo run --release --package unspool-gpu-tests --bin gpu_codec -- hashes`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import unspool
from unspool.types import Stop

CHUNK = 1 << 16
GIB = 1 << 30
ARRAYS = 8
SHARES = (0.0, 0.001, 0.01, 0.1)


def change(arrays: dict[str, Any], share: float, seed: int) -> None:
    """Changes one byte in each of a share of all chunks."""
    drawn = np.random.default_rng(seed)
    for array in arrays.values():
        chunks = array.size // CHUNK
        places = drawn.choice(chunks, int(share * chunks), replace=False)
        array[cupy.asarray(places * CHUNK + 7)] += 1
    cupy.cuda.get_current_stream().synchronize()


def measure(place: str, share: float, options: argparse.Namespace, folder: Path) -> None:
    """One line of the table."""
    size = int(options.gib * GIB) // ARRAYS // CHUNK * CHUNK
    words = cupy.random.default_rng(1).random((ARRAYS, size // 8)).view("u1")
    arrays = {f"a{index}": words[index] for index in range(ARRAYS)}
    state = ARRAYS * size
    device = 2 * state + state // 4 if place == "GPU" else None
    with unspool.Checkpointer(
        folder,
        every=None,
        increments=1000,
        device_memory=device,
        host_memory=state + state // 4,
        device="cuda",
        stop=Stop(signals=()),
    ) as checkpoints:
        data = folder / "rank-0000-of-0001" / "data"
        left, times = [], []
        seen: set[str] = set()
        for step in range(options.rounds + 1):
            change(arrays, share, step)
            hashed = checkpoints._core.hashed_on_gpu
            begin = time.perf_counter()
            checkpoints.save(step, **arrays)
            saved = time.perf_counter() - begin
            cupy.cuda.get_current_stream().synchronize()
            streamed = time.perf_counter() - begin
            checkpoints.flush()
            times.append((saved, streamed, time.perf_counter() - begin))
            frames = {path.name: path.stat().st_size for path in data.glob("frame-*")}
            new = sum(count for name, count in frames.items() if name not in seen)
            seen |= set(frames)
            was_hashed = checkpoints._core.hashed_on_gpu > hashed
            left.append(new + state // CHUNK * 16 if was_hashed else state)
        flushed = sum(link.flush.bytes for link in checkpoints.spool.stats().links)
        target = {name: cupy.zeros_like(array) for name, array in arrays.items()}
        step = checkpoints.restore(**target)
        same = all(bool((target[name] == array).all()) for name, array in arrays.items())
        assert step == options.rounds and same
    cells = [place, f"{100 * share:g}", f"{statistics.median(left[1:]) / 1e6:.1f}"]
    cells += [f"{flushed / 1e6:.0f}"]
    for part in range(3):
        cells.append(f"{1e3 * statistics.median(one[part] for one in times[1:]):.1f}")
    cells.append(f"{1e3 * times[0][2]:.0f}")
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir")
    options = parser.parse_args()
    print(f"{options.gib:g} GiB")
    heads = ["compared in", "changed %", "left MB", "flushed, all rounds MB", "save ms"]
    heads += ["stream ms", "durable ms", "first, full: durable ms"]
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (len(heads) - 1))
    for share in SHARES:
        for place in ("main memory", "GPU"):
            with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                measure(place, share, options, Path(folder) / "run")
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
