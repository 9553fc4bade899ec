"""A 3-D acoustic wave whose state is larger than a card: what a step takes, by several ways.

    python lab/benches/python/python_tiled_wave.py [--gb 100] [--device-memory 60] [--deep 8]
    python lab/benches/python/python_tiled_wave.py --device cpu --gb 0.06 --device-memory 0.03

Two fields in float32, second order in time and space, speeds in layers. They are swept tile by tile
with `--deep` planes of the neighbours, so that each visit takes as many steps; a sweep is a lap.

- `plain`: two arrays of NumPy or CuPy, one step over all at a time; only where they fit.
- `raw`, `lossless`, `bound`: two arrays of `unspool.tiled`, with `--device-memory` GB of the card
  and `--host-memory` GB of main memory for both. On a processor `--device-memory` is main memory,
  the rest a disk.
- `copies`: the same visits by hand. As many tiles as `--device-memory` holds stay on the card,
  spread over the lap; the others lie in pinned memory and are copied by two streams, ahead and
  behind.
- `managed`: unified memory, at most 1.2 times what the card has free, one step over all at a time.

The bound of a lap is the larger one of its visits with all tiles encoded and decoded once, as
measured on one tile that stays, and of moving what does not fit into `--device-memory`, encoded, at
the measured rate of the link with both directions busy. All but `bound` and `managed` must come to
the same bytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import unspool

WAYS = ("plain", "raw", "lossless", "bound", "copies", "managed")
CODECS = {"raw": None, "lossless": "lossless", "bound": unspool.Bound(abs=1e-4)}
STEP = r"""
extern "C" __global__ void step(float* prev, const float* cur, const float* model, int low,
                                int high, int n) {
    const int x = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    const int y = 1 + blockIdx.y, z = low + blockIdx.z;
    if (x >= n - 1 || z >= high) return;
    const long long row = n, plane = row * n, at = z * plane + y * row + x;
    const float near = cur[at - plane] + cur[at + plane] + cur[at - row] + cur[at + row]
                       + cur[at - 1] + cur[at + 1];
    prev[at] = 2.0f * cur[at] - prev[at] + model[z] * (near - 6.0f * cur[at]);
}
"""


class Machine:
    """NumPy or CuPy as `xp`, and one step of the wave on it."""

    def __init__(self, on: str) -> None:
        self.on_gpu = on != "cpu"
        self.xp: Any = np
        if self.on_gpu:
            import cupy

            self.xp = cupy
            self._step = cupy.RawKernel(STEP, "step")

    def settle(self) -> None:
        """Waits until all that was enqueued is done."""
        if self.on_gpu:
            self.xp.cuda.Device().synchronize()

    def step(self, prev: Any, cur: Any, model: Any, low: int, high: int) -> None:
        """Puts the next step into the planes `low` to `high` of `prev`."""
        n = cur.shape[-1]
        if self.on_gpu:
            grid = ((n + 125) // 128, n - 2, high - low)
            self._step(grid, (128,), (prev, cur, model, np.int32(low), np.int32(high), np.int32(n)))
            return
        old, mid = prev[low:high, 1:-1, 1:-1], cur[low:high, 1:-1, 1:-1]
        near = cur[low - 1 : high - 1, 1:-1, 1:-1] + cur[low + 1 : high + 1, 1:-1, 1:-1]
        near += cur[low:high, :-2, 1:-1] + cur[low:high, 2:, 1:-1]
        near += cur[low:high, 1:-1, :-2] + cur[low:high, 1:-1, 2:]
        old[...] = 2 * mid - old + model[low:high, None, None] * (near - 6 * mid)


class Problem:
    """Sizes, the initial wave and the visits of tiles."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.machine = Machine(options.device)
        self.rows, self.side, self.deep = options.rows, options.side, options.deep
        plane = self.side**2 * 4
        self.tiles = max(3, round(options.gb * 1e9 / (2 * plane * self.rows)))
        self.planes = self.tiles * self.rows
        self.tile_bytes = self.rows * plane
        self.bytes = 2 * self.planes * plane
        xp = self.machine.xp
        self.model = xp.linspace(0.08, 0.16, self.planes, dtype="float32")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Points of the whole wave."""
        return self.planes, self.side, self.side

    def initial(self, first: int, late: float) -> Any:
        """One tile of the wave, `late` steps after the begin."""
        xp = self.machine.xp
        along = xp.arange(self.side, dtype="float32") * 0.11
        z = xp.arange(first, first + self.rows, dtype="float32") * 0.07 - 0.05 * late
        across = xp.sin(along)[:, None] * xp.cos(0.7 * along)
        return xp.sin(z)[:, None, None] * across + xp.float32(0.1) * xp.cos(3 * z)[:, None, None]

    def visit(self, index: int, prev: Any, cur: Any) -> tuple[Any, Any]:
        """A tile `deep` steps later, from both fields of it with the planes of its neighbours."""
        begin = index * self.rows
        above, below = min(self.deep, begin), index + 1 < self.tiles
        model = self.model[begin - above :]
        for step in range(1, self.deep + 1):
            low = step if above else 1
            high = len(cur) - (step if below else 1)
            self.machine.step(prev, cur, model, low, high)
            prev, cur = cur, prev
        inner = slice(above, above + self.rows)
        return prev[inner], cur[inner]

    def visit_seconds(self) -> float:
        """The time of the visits of a lap, where nothing moves."""
        xp, planes = self.machine.xp, self.rows + 2 * self.deep
        prev, cur = (xp.zeros((planes, self.side, self.side), "float32") for _ in range(2))
        self.visit(1, prev, cur)
        return self.tiles * min(timed(lambda: self.visit(1, prev, cur), self.machine, 5))


def timed(action: Callable[[], object], machine: Machine, times: int) -> list[float]:
    """Seconds of each of `times` calls of `action`; the GPU is idle before and after each."""
    found = []
    for _ in range(times):
        machine.settle()
        begin = time.perf_counter()
        action()
        machine.settle()
        found.append(time.perf_counter() - begin)
    return found


class Tiled:
    """The wave in two arrays of tiles."""

    def __init__(
        self, problem: Problem, codec: Any, options: argparse.Namespace, disk: str
    ) -> None:
        self._problem = problem
        names = ("device_memory", "host_memory")
        half = {name: int(getattr(options, name) * 1e9) // 2 for name in names}
        on_a_processor = {"host_memory": half["device_memory"], "disk": disk}
        tiers = half if problem.machine.on_gpu else on_a_processor
        self.fields = [
            unspool.tiled(
                problem.shape,
                "float32",
                tile=problem.rows,
                codec=codec,
                device=options.device,
                **tiers,
            )
            for _ in range(2)
        ]
        for late, field in zip((0.0, 1.0), self.fields, strict=True):
            for index, tile in field.sweep("w"):
                tile[...] = problem.initial(index * problem.rows, late)
            field.expect(cycle=range(field.tiles))

    def lap(self) -> None:
        """Visits each tile once."""
        sweeps = [field.sweep(halo=self._problem.deep) for field in self.fields]
        for (index, prev), (_, cur) in zip(*sweeps, strict=True):
            after = self._problem.visit(index, prev, cur)
            for field, values in zip(self.fields, after, strict=True):
                with field.tile(index, "w") as tile:
                    tile[...] = values

    def sample(self) -> np.ndarray[Any, Any]:
        """A plane of the wave."""
        middle = self.fields[1].shape[0] // 2
        return np.asarray(self.fields[1][middle])

    def figures(self) -> Any:
        """So far: seconds of waiting in saves and restores, bytes that went down and came back."""
        all_stats = [field.spool.stats() for field in self.fields]
        waits = [(one.save_stall_seconds, one.restore_stall_seconds) for one in all_stats]
        moved = [(one.links[0].flush.bytes, one.links[0].prefetch.bytes) for one in all_stats]
        return np.array([*np.sum(waits, axis=0), *np.sum(moved, axis=0)])

    def stored(self) -> float:
        """Bytes of the state as it is stored."""
        ratios = [field.spool.stats().codec.ratio or 1.0 for field in self.fields]
        return sum(self._problem.bytes / 2 / ratio for ratio in ratios)

    def close(self) -> None:
        """Gives all memory back."""
        for field in self.fields:
            field.close()
        unspool.trim()


class Copies:
    """The wave in tiles that stay on the card, and tiles in pinned memory that are copied."""

    SLOTS = 4

    def __init__(self, problem: Problem, room: float) -> None:
        self._problem, self._cupy = problem, problem.machine.xp
        count, tile = problem.tiles, 2 * problem.tile_bytes
        stays = min(count, max(0, int(room // tile) - self.SLOTS))
        shape = (2, problem.rows, problem.side, problem.side)
        self._up, self._down = (self._cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self._slots = [self._cupy.empty(shape, "float32") for _ in range(self.SLOTS)]
        self._freed = [self._cupy.cuda.Event(disable_timing=True) for _ in self._slots]
        self._tiles: list[Any] = []
        for index in range(count):
            values = [problem.initial(index * problem.rows, late) for late in (0.0, 1.0)]
            here = self._cupy.stack(values)
            resident = (index + 1) * stays // count > index * stays // count
            self._tiles.append(here if resident else self._pinned(here))
        self.moved = tile * (count - stays)

    def _pinned(self, values: Any) -> np.ndarray[Any, Any]:
        memory = self._cupy.cuda.alloc_pinned_memory(values.nbytes)
        host = np.frombuffer(memory, np.float32, values.size).reshape(values.shape)
        values.get(out=host)
        return host

    def _loads(self) -> Iterator[tuple[Any, int | None]]:
        """Each tile on the card in its turn, with its slot; the stream waits for the copy."""
        used = 0
        for tile in self._tiles:
            if not isinstance(tile, np.ndarray):
                yield tile, None
                continue
            slot = used % self.SLOTS
            used += 1
            self._up.wait_event(self._freed[slot])
            self._slots[slot].set(tile, stream=self._up)
            arrived = self._up.record()
            self._cupy.cuda.get_current_stream().wait_event(arrived)
            yield self._slots[slot], slot

    def lap(self) -> None:
        """Visits each tile once."""
        xp, deep, problem = self._cupy, self._problem.deep, self._problem
        loads, before = self._loads(), None
        coming: list[tuple[Any, int | None]] = []
        for index in range(problem.tiles):
            while len(coming) < min(2, problem.tiles - index):
                coming.append(next(loads))
            here, slot = coming.pop(0)
            parts = [before, here, coming[0][0][:, :deep] if coming else None]
            fields = [xp.concatenate([p[f] for p in parts if p is not None]) for f in range(2)]
            before = here[:, -deep:].copy()
            here[0], here[1] = problem.visit(index, *fields)
            if slot is not None:
                done = xp.cuda.get_current_stream().record()
                self._down.wait_event(done)
                here.get(stream=self._down, out=self._tiles[index], blocking=False)
                self._freed[slot].record(self._down)
        problem.machine.settle()

    def sample(self) -> np.ndarray[Any, Any]:
        """A plane of the wave."""
        middle = self._problem.planes // 2
        plane = self._tiles[middle // self._problem.rows][1][middle % self._problem.rows]
        return host_copy(plane)


class Whole:
    """The wave in two plain arrays, in unified memory or where it fits; each step is over all."""

    def __init__(self, problem: Problem, managed: bool) -> None:
        xp = problem.machine.xp
        planes = problem.planes
        if managed:
            free = xp.cuda.runtime.memGetInfo()[0]
            planes = min(planes, int(1.2 * free) // (problem.bytes // planes))
        self._planes = planes - planes % problem.rows
        shape = (self._planes, problem.side, problem.side)
        size = self._planes * problem.tile_bytes // problem.rows
        self.bytes, self._problem = 2 * size, problem
        made = (xp.cuda.malloc_managed(size) if managed else None for _ in range(2))
        self._fields = [
            xp.ndarray(shape, "float32", memptr=one) if managed else xp.empty(shape, "float32")
            for one in made
        ]
        for late, field in zip((0.0, 1.0), self._fields, strict=True):
            for first in range(0, self._planes, problem.rows):
                field[first : first + problem.rows] = problem.initial(first, late)

    def lap(self, steps: int) -> None:
        """Advances the wave by `steps` steps."""
        for _ in range(steps):
            self._problem.machine.step(*self._fields, self._problem.model, 1, self._planes - 1)
            self._fields.reverse()

    def sample(self) -> np.ndarray[Any, Any]:
        """A plane of the wave."""
        return host_copy(self._fields[1][self._planes // 2])


def host_copy(plane: Any) -> np.ndarray[Any, Any]:
    return plane.copy() if isinstance(plane, np.ndarray) else plane.get()


def link_rate(machine: Machine) -> float:
    """Bytes a second of a link that copies both ways at once, each way."""
    if not machine.on_gpu:
        return float("nan")
    cupy, size = machine.xp, 1 << 28
    memory = [cupy.cuda.alloc_pinned_memory(size) for _ in range(2)]
    hosts = [np.frombuffer(one, np.uint8, size) for one in memory]
    devices = [cupy.zeros(size, "uint8") for _ in range(2)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def both() -> None:
        for _ in range(4):
            devices[0].set(hosts[0], stream=streams[0])
            devices[1].get(stream=streams[1], out=hosts[1], blocking=False)

    both()
    return 4 * size / min(timed(both, machine, 3))


def coding_seconds(problem: Problem, codec: Any) -> float:
    """The time of encoding and decoding all tiles once, one after the other where nothing moves."""
    machine, tile = problem.machine, problem.initial(0, 0.0)
    room, on = 4 * tile.nbytes, "cuda" if machine.on_gpu else "cpu"
    tiers = {"device_memory": room} if machine.on_gpu else {"host_memory": room}
    with unspool.Spool(**tiers, codec=codec, device=on) as spool:

        def again() -> None:
            for _ in range(8):
                spool.save(0, tile)
                spool.restore(0, tile)
                spool.discard(0)

        return 2 * problem.tiles * min(timed(again, machine, 5)) / 8


def report(way: str, state: float, laps: list[float], steps: int, bound: float) -> None:
    lap = min(laps)
    print(
        f"| {way} | {state / 1e9:.2f} | {lap:.3f} | {lap / steps * 1e3:.1f} | "
        f"{state * steps / lap / 1e9:.1f} | {bound:.3f} | {100 * bound / lap:.0f} |",
        flush=True,
    )


def run_tiled(way: str, problem: Problem, options: argparse.Namespace, limits: Any) -> Any:
    with tempfile.TemporaryDirectory() as disk:
        begin = time.perf_counter()
        wave = Tiled(problem, CODECS[way], options, disk)
        try:
            problem.machine.settle()
            print(f"# {way}: filled in {time.perf_counter() - begin:.1f} s", flush=True)
            wave.lap()
            problem.machine.settle()
            before = wave.figures()
            laps = timed(wave.lap, problem.machine, options.laps)
            figures = (wave.figures() - before) / options.laps
            stored, (visits, rate) = wave.stored(), limits
            coding = coding_seconds(problem, CODECS[way])
            over = max(0.0, stored - options.device_memory * 1e9)
            bound = np.nanmax([visits + coding, over / rate])
            report(way, problem.bytes, laps, problem.deep, bound)
            waits, moved = figures[:2], figures[2:] / 1e9
            print(
                f"# {way}: {stored / 1e9:.2f} GB stored; a lap codes for {coding:.3f} s, "
                f"waits in saves for {waits[0]:.3f} s and in restores for {waits[1]:.3f} s, "
                f"moves {moved[0]:.2f} GB down and {moved[1]:.2f} GB up",
                flush=True,
            )
            return wave.sample()
        finally:
            wave.close()


def run_copies(problem: Problem, options: argparse.Namespace, limits: Any) -> Any:
    wave = Copies(problem, options.device_memory * 1e9)
    laps = timed(wave.lap, problem.machine, options.laps + 1)[1:]
    report("copies", problem.bytes, laps, problem.deep, max(limits[0], wave.moved / limits[1]))
    return wave.sample()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=100, help="GB of the state")
    parser.add_argument("--device-memory", type=float, default=60, help="GB of the card for tiles")
    parser.add_argument("--fits", type=float, default=60, help="GB that plain arrays may take")
    parser.add_argument("--host-memory", type=float, default=60, help="GB of main memory for tiles")
    parser.add_argument("--side", type=int, default=1024, help="points along the other two axes")
    parser.add_argument("--rows", type=int, default=16, help="planes of a tile")
    parser.add_argument("--deep", type=int, default=8, help="steps in a visit, at most --rows")
    parser.add_argument("--laps", type=int, default=3, help="laps that count, after a first one")
    parser.add_argument("--device", default="cuda", help='"cuda" or "cpu"')
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    problem = Problem(options)
    limits = problem.visit_seconds(), link_rate(problem.machine)
    print(f"# {problem.tiles} tiles of 2 x {problem.tile_bytes / 2**20:.1f} MiB")
    print(f"# visits of a lap {limits[0]:.3f} s, link {limits[1] / 1e9:.1f} GB/s each way")
    print("| way | state GB | a lap s | a step ms | GB/s | bound s | of bound % |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    samples = {way: run(way, problem, options, limits) for way in options.only}
    compare({way: sample for way, sample in samples.items() if sample is not None})


def run(way: str, problem: Problem, options: argparse.Namespace, limits: Any) -> Any:
    """Runs one way; gives a plane of the wave where it took as many steps as others."""
    machine = problem.machine
    if way in CODECS:
        return run_tiled(way, problem, options, limits)
    if way in ("copies", "managed") and not machine.on_gpu:
        print(f"# {way}: needs a GPU")
        return None
    if way == "plain" and problem.bytes > options.fits * 1e9:
        print("# plain: does not fit")
        return None
    try:
        if way == "copies":
            return run_copies(problem, options, limits)
        return run_whole(way, problem, options, limits)
    finally:
        if machine.on_gpu:
            machine.xp.get_default_memory_pool().free_all_blocks()
            machine.xp.get_default_pinned_memory_pool().free_all_blocks()


def run_whole(way: str, problem: Problem, options: argparse.Namespace, limits: Any) -> Any:
    wave, managed = Whole(problem, way == "managed"), way == "managed"
    steps, laps = (1, 1) if managed else (problem.deep, options.laps)
    found = timed(lambda: wave.lap(steps), problem.machine, laps + 1)[1:]
    report(way, wave.bytes, found, steps, float("nan") if managed else limits[0])
    return None if managed else wave.sample()


def compare(samples: dict[str, Any]) -> None:
    """Says how far the ways are apart."""
    exact = [way for way in samples if way != "bound"]
    for way in exact[1:]:
        assert np.array_equal(samples[exact[0]], samples[way]), f"{way} differs from {exact[0]}"
    if exact and "bound" in samples:
        error = np.abs(samples["bound"] - samples[exact[0]]).max()
        print(f"# bound: {error:.2e} away at most in the plane that was compared")


if __name__ == "__main__":
    main()
