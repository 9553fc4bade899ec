"""What increments save, and what they cost, on states of six kinds of programs.

    python lab/benches/python/python_increments.py [--dir PATH] [--rounds 9] [--only NAME]

Each program is a small stand-in in NumPy that goes on between two checkpoints as its original
would. The first checkpoint, which is full, is left out; of the others the mean of the bytes counts,
as full ones come now and then, and the median of the times. Bytes are those of the frames in the
folder. `durable` is the time from the call of `save` until `flush` returns; methods take turns.
`chunks in Python` is what a program can do by itself: BLAKE2b over chunks of 64 KiB, and the
changed ones counted; no byte is written there. `zstd` packs whole frames on their way to the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import unspool
from unspool.types import Stop

State = dict[str, np.ndarray]

CHUNK = 1 << 16
MIB = 1 << 20


def trainer() -> Iterator[State]:
    """Fine-tuning: frozen layers, embeddings of which batches touch rows, a head that learns."""
    drawn = np.random.default_rng(1)
    table = drawn.standard_normal((200_000, 64), np.float32)
    moments = np.zeros_like(table)
    head = drawn.standard_normal((1024, 1024), np.float32)
    frozen = drawn.standard_normal((24, 1024, 512), np.float32)
    while True:
        yield {"frozen": frozen, "table": table, "moments": moments, "head": head}
        # Words come by Zipf's law: most batches touch the same rows.
        rows = np.unique(drawn.zipf(1.3, 20_000) % len(table))
        moments[rows] = 0.9 * moments[rows] + 0.1
        table[rows] -= 1e-3 * moments[rows]
        head *= np.float32(0.999)


def optimiser() -> Iterator[State]:
    """Pre-training with Adam: weights and both moments change everywhere."""
    drawn = np.random.default_rng(2)
    w, m, v = (drawn.standard_normal((4, 1024, 1024), np.float32) for _ in range(3))
    while True:
        yield {"w": w, "m": m, "v": v}
        g = drawn.standard_normal(w.shape, np.float32)
        m *= 0.9
        m += 0.1 * g
        v *= 0.999
        v += 0.001 * g * g
        w -= 1e-3 * m / (np.sqrt(np.abs(v)) + 1e-8)


def wave(steps: int) -> Iterator[State]:
    """An acoustic wave that spreads from a source, with the model that it runs in."""
    n = 1400
    c = np.full((n, n), 0.25, np.float32)
    c[n // 2 :] = 0.4
    u, before = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    for count in range(1_000_000):
        if count % steps == 0 and count:
            yield {"u": u, "before": before, "model": c}
        after = 2 * u - before
        after[1:-1, 1:-1] += c[1:-1, 1:-1] * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        )
        after[n // 2, n // 3] += np.float32(np.exp(-(((count - 20) / 8) ** 2)))
        u, before = after, u


def conjugate_gradients() -> Iterator[State]:
    """HPCCG's: a matrix of 27 points that stays, and four vectors that change."""
    n = 56
    size = n**3
    values = np.full((27, size), -1.0)
    values[13] = 26.01
    columns = (
        np.arange(size, dtype=np.int32)[None] + np.arange(-13, 14, dtype=np.int32)[:, None]
    ) % size
    x, b = np.zeros(size), np.random.default_rng(4).standard_normal(size)
    r, p = b.copy(), b.copy()
    while True:
        yield {"values": values, "columns": columns, "x": x, "b": b, "r": r, "p": p}
        for _ in range(2):
            q = (values * p[columns]).sum(0)
            alpha = (r @ r) / (p @ q)
            x += alpha * p
            old = r @ r
            r -= alpha * q
            p[:] = r + (r @ r) / old * p


def lennard_jones() -> Iterator[State]:
    """Atoms that move: positions, velocities and forces; types, charges and bonds stay."""
    drawn = np.random.default_rng(5)
    atoms = 250_000
    x, v, f = (drawn.standard_normal((atoms, 3)) for _ in range(3))
    types, bonds = drawn.integers(0, 4, atoms), drawn.integers(0, atoms, (atoms, 2))
    while True:
        yield {"x": x, "v": v, "f": f, "types": types, "bonds": bonds}
        # What a time step of Verlet does to the bytes; forces are those of springs.
        for _ in range(5):
            v += 0.005 * f
            x += 0.01 * v
            f = -x


def phase_field() -> Iterator[State]:
    """Allen-Cahn: a few drops in a bulk that has settled."""
    n = 2000
    y, x = np.mgrid[:n, :n].astype(np.float32)
    u = np.full((n, n), -1, np.float32)
    for cy, cx, radius in ((400, 500, 130), (1300, 1500, 200), (1500, 400, 90)):
        inside = np.hypot(y - cy, x - cx) - radius
        u = np.maximum(u, np.where(inside < 12, -np.tanh(inside / 2), -1)).astype(np.float32)
    steps = 0
    while True:
        if steps % 20 == 0 and steps:
            yield {"u": u}
        steps += 1
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + np.float32(0.1) * (around - 4 * u) + np.float32(0.1) * (u - u**3)
        u[np.abs(np.abs(u) - 1) < 1e-6] = np.sign(u[np.abs(np.abs(u) - 1) < 1e-6])


def nothing() -> Iterator[State]:
    """A state that stays as it is: what finding that out takes."""
    state = {"u": np.random.default_rng(7).standard_normal((32, MIB))}
    while True:
        yield state


PROGRAMS: dict[str, Callable[[], Iterator[State]]] = {
    "trainer, frozen layers": trainer,
    "optimiser, Adam": optimiser,
    "wave, early": lambda: wave(40),
    "wave, late": lambda: late(wave(150), 6),
    "CG, as HPCCG": conjugate_gradients,
    "Lennard-Jones": lennard_jones,
    "phase field": phase_field,
    "nothing changes": nothing,
}


def late(states: Iterator[State], skipped: int) -> Iterator[State]:
    """The states without the first `skipped` of them."""
    for _ in range(skipped):
        next(states)
    return states


#: The methods that write, by what a Checkpointer is opened with.
METHODS: dict[str, dict[str, object]] = {
    "full": {},
    "increments": {"increments": True},
    "lossless": {"codec": "lossless"},
    "both": {"codec": "lossless", "increments": True},
}


class Writer:
    """A Checkpointer under measurement."""

    def __init__(self, folder: Path, options: dict[str, object]) -> None:
        self.checkpoints = unspool.Checkpointer(
            folder,
            every=None,
            stop=Stop(signals=()),
            device="cpu",
            host_memory="800MiB",
            keep=2,
            **options,
        )
        self.data = folder / "rank-0000-of-0001" / "data"
        self.seen: set[str] = set()
        self.blocked: list[float] = []
        self.durable: list[float] = []
        self.bytes: list[int] = []

    def save(self, step: int, state: State) -> None:
        """Saves a checkpoint and waits until it is durable."""
        begin = time.perf_counter()
        self.checkpoints.save(step, **state)
        self.blocked.append(time.perf_counter() - begin)
        self.checkpoints.flush()
        self.durable.append(time.perf_counter() - begin)
        frames = {path.name: path.stat().st_size for path in self.data.glob("frame-*")}
        new = [size for name, size in frames.items() if name not in self.seen]
        self.seen |= set(frames)
        self.bytes.append(sum(new))


def zstd_bytes(state: State, folder: Path) -> int:
    """The bytes of a frame that zstd packs."""
    disk = unspool.Disk(folder, durable=True, compress="zstd")
    with unspool.Spool(device="cpu", disk=disk) as spool:
        spool.save(0, **state)
        spool.flush()
        return max(path.stat().st_size for path in folder.glob("frame-*"))


class Hashes:
    """Chunks found to have changed, by BLAKE2b."""

    def __init__(self) -> None:
        self.known: dict[str, list[bytes]] = {}

    def changed(self, state: State) -> tuple[int, float]:
        """The bytes that have, and the seconds that it took."""
        begin, total = time.perf_counter(), 0
        for name, array in state.items():
            data = memoryview(np.ascontiguousarray(array)).cast("B")
            pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
            found = [hashlib.blake2b(piece, digest_size=16).digest() for piece in pieces]
            old = self.known.get(name, [b""] * len(found))
            total += sum(len(p) for p, a, b in zip(pieces, found, old, strict=True) if a != b)
            self.known[name] = found
        return total, time.perf_counter() - begin


def measure(name: str, rounds: int, where: str | None) -> None:
    """One line of the table."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        writers = {
            method: Writer(Path(folder) / method, dict(options))
            for method, options in METHODS.items()
        }
        states, hashes, hashed = PROGRAMS[name](), Hashes(), []
        for step in range(1, rounds + 1):
            state = next(states)
            for writer in writers.values():
                writer.save(step, state)
            hashed.append(hashes.changed(state))
        zstd = zstd_bytes(state, Path(folder) / "zstd")
        total = sum(array.nbytes for array in state.values())
        cells = [name, f"{total / MIB:.0f}"]
        for writer in writers.values():
            # The mean, as full frames come now and then; the first one is left out.
            cells.append(f"{100 * statistics.mean(writer.bytes[1:]) / total:.0f}")
            cells.append(f"{1e3 * statistics.median(writer.durable[1:]):.0f}")
        cells += [f"{100 * zstd / total:.0f}"]
        cells += [f"{100 * statistics.median(h[0] for h in hashed[1:]) / total:.0f}"]
        cells += [f"{1e3 * statistics.median(h[1] for h in hashed[1:]):.0f}"]
        for method in ("full", "increments"):
            cells.append(f"{1e3 * statistics.median(writers[method].blocked[1:]):.0f}")
        print("| " + " | ".join(cells) + " |", flush=True)
        for writer in writers.values():
            writer.checkpoints.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only")
    options = parser.parse_args()
    heads = ["program", "MiB"]
    for method in METHODS:
        heads += [f"{method} %", f"{method} durable ms"]
    heads += ["zstd %", "chunks in Python %", "its hashing ms", "full blocked ms"]
    heads += ["increments blocked ms"]
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (len(heads) - 1))
    for name in PROGRAMS:
        if options.only is None or options.only in name:
            measure(name, options.rounds, options.dir)


if __name__ == "__main__":
    main()
