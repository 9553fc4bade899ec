"""What paging costs: programs on arrays of which 100 to 25 % are in memory.

    python benches/python/python_paging.py [--mib 192] [--rounds 2] [--only cg ...]

Each program runs on plain memory and on `unspool.paged`, without an order and with it; the best of
the rounds counts, and the ratio to plain memory of the same run is shown, also of the time of all
processors, the threads of paging included, which other work on the machine moves less. The
kernel's own swap, zram and zswap are in `python_paging_kernel.py`: they need root and a limit on
the process.

    cg       conjugate gradients, a matrix of 27 diagonals with smooth coefficients that is swept
             once an iteration; the vectors are plain. Bandwidth-bound.
    stencil  a 3-D heat equation in place, plane by plane: every byte is read and written once a
             sweep. Bandwidth-bound.
    tiles    the same, eight relaxations of a tile of planes before the next one.
    fe       a diffusion of trilinear elements: all matrices of elements are assembled, then
             conjugate gradients multiply by them one after the other. Bandwidth-bound.
    lj       Lennard-Jones atoms on a lattice, velocity Verlet: the list of 64 neighbours of each
             atom is paged and read once a step, the atoms are plain. Compute-bound.
    product  A @ B by panels of rows and tiles of B, both of random numbers, which hardly get
             smaller. Compute-bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import unspool

Array = np.ndarray[Any, Any]
SHARES = (100, 75, 50, 25)


@dataclass
class Program:
    """A program: the shape of what is paged, what is in it, its order, and one run."""

    shape: tuple[int, ...]
    dtype: type
    fill: Callable[[Array], None]
    run: Callable[[Array], float]
    order: Any = "sweep"


def conjugate_gradients(
    times: Callable[[Array], Array], shape: tuple[int, ...], iterations: int
) -> float:
    """The squared norm of the residual after `iterations` iterations; the right-hand side is 1."""
    x, r = np.zeros(shape), np.ones(shape)
    p, rr = r.copy(), float(r.size)
    for _ in range(iterations):
        q = times(p)
        alpha = rr / np.vdot(p, q)
        x += alpha * p
        r -= alpha * q
        rr, before = np.vdot(r, r), rr
        p = r + rr / before * p
    return float(rr)


def cg(mib: int) -> Program:
    n = round((mib * 2**20 / 27 / 8) ** (1 / 3))
    rows = np.linspace(0, 3, n)
    smooth = 1 + 0.1 * np.sin(rows)[:, None] * np.cos(rows)

    def fill(matrix: Array) -> None:
        for z in range(n):
            matrix[z] = -smooth * (1 + 0.01 * z)
            matrix[z, 13] = 27 * smooth * (1 + 0.01 * z)

    def times(matrix: Array, x: Array) -> Array:
        padded, y = np.pad(x, 1), np.empty_like(x)
        for z in range(n):
            near = np.lib.stride_tricks.sliding_window_view(padded[z : z + 3], (n, n), (1, 2))
            y[z] = np.einsum("kyx,kyx->yx", matrix[z], near.reshape(27, n, n))
        return y

    def run(matrix: Array) -> float:
        return conjugate_gradients(lambda p: times(matrix, p), (n, n, n), 6)

    return Program((n, 27, n, n), np.float64, fill, run)


def fe(mib: int) -> Program:
    n = round((mib * 2**20 / 512) ** (1 / 3))
    stiff, mass = np.array([[1.0, -1], [-1, 1]]), np.array([[2.0, 1], [1, 2]]) / 6
    parts = [(stiff, mass, mass), (mass, stiff, mass), (mass, mass, stiff), (mass, mass, mass)]
    element = sum(np.kron(a, np.kron(b, c)) for a, b, c in parts)
    # Where the eight corners of the elements of a layer are.
    ends = (slice(0, n), slice(1, n + 1))
    corners = [(dz, ends[dy], ends[dx]) for dz in (0, 1) for dy in (0, 1) for dx in (0, 1)]
    rows = np.linspace(0, 3, n)
    layer = 1 + 0.1 * np.sin(rows)[:, None] * np.cos(rows)

    def assemble(matrices: Array) -> None:
        for z in range(n):
            matrices[z] = (layer * (1 + 0.01 * z)).reshape(-1, 1, 1) * element

    def times(matrices: Array, x: Array) -> Array:
        y = np.zeros_like(x)
        for z in range(n):
            near = np.stack([x[z + dz, dy, dx].ravel() for dz, dy, dx in corners], 1)
            found = np.einsum("eij,ej->ei", matrices[z], near)
            for corner, (dz, dy, dx) in enumerate(corners):
                y[z + dz, dy, dx] += found[:, corner].reshape(n, n)
        return y

    def run(matrices: Array) -> float:
        assemble(matrices)
        return conjugate_gradients(lambda p: times(matrices, p), (n + 1, n + 1, n + 1), 5)

    return Program((n, n * n, 8, 8), np.float64, assemble, run)


def lj(mib: int) -> Program:
    n = round((mib * 2**20 / 256) ** (1 / 3))
    reach = np.arange(-3, 4)
    offsets = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), -1).reshape(-1, 3)
    distances = (offsets**2).sum(1)
    offsets = offsets[np.argsort(distances, kind="stable")[1:65]]
    lattice = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3)
    start = 1.1 * lattice + 0.02 * np.sin(np.arange(3 * n**3)).reshape(-1, 3)
    size = 1.1 * n

    def fill(neighbours: Array) -> None:
        for z in range(n):
            near = (lattice[z * n * n : (z + 1) * n * n, None] + offsets) % n
            neighbours[z] = (near[..., 0] * n + near[..., 1]) * n + near[..., 2]

    def forces(neighbours: Array, atoms: Array) -> Array:
        found = np.empty_like(atoms)
        for z in range(n):
            here = slice(z * n * n, (z + 1) * n * n)
            apart = atoms[here, None] - atoms[neighbours[z]]
            apart -= size * np.round(apart / size)
            inverse = 1 / (apart * apart).sum(-1)
            sixth = inverse * inverse * inverse
            pull = 24 * (2 * sixth * sixth - sixth) * inverse
            found[here] = (pull[..., None] * apart).sum(1)
        return found

    def run(neighbours: Array) -> float:
        atoms, speeds = start.copy(), np.zeros_like(start)
        pull = forces(neighbours, atoms)
        for _ in range(2):
            speeds += 0.0005 * pull
            atoms += 0.001 * speeds
            pull = forces(neighbours, atoms)
            speeds += 0.0005 * pull
        return float((speeds**2).sum())

    return Program((n, n * n, 64), np.int32, fill, run)


def wave(field: Array) -> None:
    z, y, x = (np.linspace(0, 6, extent, dtype=np.float32) for extent in field.shape)
    for plane, at in zip(field, z, strict=True):
        plane[:] = np.sin(at + y[:, None]) * np.cos(x)


def relax(before: Array, here: Array, after: Array) -> None:
    inner = before[1:-1, 1:-1] + after[1:-1, 1:-1] + here[:-2, 1:-1] + here[2:, 1:-1]
    inner += here[1:-1, :-2] + here[1:-1, 2:]
    here[1:-1, 1:-1] += (inner - 6 * here[1:-1, 1:-1]) * np.float32(0.1)


def stencil(mib: int) -> Program:
    n = 256

    def run(field: Array) -> float:
        for _ in range(4):
            for z in range(1, len(field) - 1):
                relax(field[z - 1], field[z], field[z + 1])
        return float(field[len(field) // 2].sum())

    return Program((mib * 4, n, n), np.float32, wave, run)


def tiles(mib: int) -> Program:
    n, deep = 256, 16

    def run(field: Array) -> float:
        for _ in range(2):
            for first in range(0, len(field), deep):
                tile = field[first : first + deep]
                for _ in range(8):
                    for z in range(1, len(tile) - 1):
                        relax(tile[z - 1], tile[z], tile[z + 1])
        return float(field[len(field) // 2].sum())

    firsts = range(0, mib * 4, deep)
    order = [slice(first, first + deep) for first in firsts for _ in range(8)]
    return Program((mib * 4, n, n), np.float32, wave, run, order)


def product(mib: int) -> Program:
    n = int((mib * 2**20 / 8) ** 0.5) // 64 * 64
    left = np.random.default_rng(3).normal(size=(4 * (n // 4), n))

    def fill(b: Array) -> None:
        random = np.random.default_rng(4)
        for row in range(0, n, 64):
            b[row : row + 64] = random.normal(size=(64, n))

    def run(b: Array) -> float:
        total = 0.0
        for panel in np.split(left, 4):
            c = np.zeros((len(panel), n))
            for row in range(0, n, 64):
                c += panel[:, row : row + 64] @ b[row : row + 64]
            total += float(c[0, 0])
        return total

    return Program((n, n), np.float64, fill, run)


PROGRAMS = {"cg": cg, "fe": fe, "lj": lj, "stencil": stencil, "tiles": tiles, "product": product}


def keep_temporaries() -> None:
    """Starts this program again with an allocator that keeps what is freed.

    Else a program's temporaries are mapped anew, and its first writes to them are faults, until
    the allocator has learned their size from what ran before in the same process.
    """
    keeping = {f"MALLOC_{which}_THRESHOLD_": str(1 << 30) for which in ("MMAP", "TRIM")}
    if keeping.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | keeping)


def timed(program: Program, array: Array, rounds: int) -> tuple[float, float, float]:
    """The shortest time of a run and of all processors in one, and the result of the first one."""
    program.fill(array)
    results, times, works = [], [], []
    for _ in range(rounds):
        begin, work = time.perf_counter(), time.process_time()
        results.append(program.run(array))
        times.append(time.perf_counter() - begin)
        works.append(time.process_time() - work)
    return min(times), min(works), results[0]


def cases(program: Program) -> Iterator[tuple[int, str, unspool.types.PagedArray]]:
    whole = int(np.prod(program.shape)) * np.dtype(program.dtype).itemsize
    for share in SHARES:
        for order in ("none", "given") if share < 100 else ("none",):
            array = unspool.paged(program.shape, program.dtype, whole * share // 100)
            if order == "given":
                array.expect(program.order)
            yield share, order, array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=192, help="MiB of the array")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    options = parser.parse_args()
    keep_temporaries()
    print("| program | in memory | order | time | to plain | cpu | loads | ahead | late | factor |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.only:
        program = PROGRAMS[name](options.mib)
        plain, work, expected = timed(
            program, np.zeros(program.shape, program.dtype), options.rounds
        )
        print(f"| {name} | plain | | {plain:.2f} s | 1.00 | 1.00 | | | | |", flush=True)
        for share, order, array in cases(program):
            took, worked, result = timed(program, array, options.rounds)
            assert result == expected, f"{name}: {result} is not {expected}"
            stats = array.paging()
            print(
                f"| {name} | {share} % | {order} | {took:.2f} s | {took / plain:.2f} | "
                f"{worked / work:.2f} | "
                f"{stats.loads} | {stats.loads_ahead} | {stats.late} | {stats.factor:.2f} |",
                flush=True,
            )
            del array


if __name__ == "__main__":
    main()
