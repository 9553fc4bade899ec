"""Programs that go through one large array again and again, for studies of paging.

Only that array is paged; vectors and atoms are plain arrays. All are reproducible: the same array
gives the same result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["PROGRAMS", "Array", "Program", "timed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """A program and the array that it goes through.

    Attributes:
        shape: of that array.
        dtype: of that array.
        fill: writes all of the array, from its first plane to its last.
        sweep: reads it as often as the program does; the result, a sum of what was computed. Like
            `fill`, it takes what is indexed and assigned to as an array is.
        order: in which `sweep` goes through it, as for `PagedArray.expect`.
        refills: whether each run begins with `fill`.
    """

    shape: tuple[int, ...]
    dtype: type
    fill: Callable[[Any], None]
    sweep: Callable[[Any], float]
    order: Any = "sweep"
    refills: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def run(self, array: Any) -> float:
        """One run on an array that was filled; its result."""
        if self.refills:
            self.fill(array)
        return self.sweep(array)


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


def cg(mib: float) -> Program:
    """Conjugate gradients, a matrix of 27 diagonals with smooth coefficients that is swept once an
    iteration. Bandwidth-bound."""
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


def fe(mib: float) -> Program:
    """A diffusion of trilinear elements: all matrices of elements are assembled, then conjugate
    gradients multiply by them one after the other. Bandwidth-bound."""
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
        return conjugate_gradients(lambda p: times(matrices, p), (n + 1, n + 1, n + 1), 5)

    return Program((n, n * n, 8, 8), np.float64, assemble, run, refills=True)


def lj(mib: float) -> Program:
    """Lennard-Jones atoms on a lattice, velocity Verlet: the list of 64 neighbours of each atom is
    paged and read once a step. Compute-bound."""
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
    """Fills a field with a smooth wave."""
    z, y, x = (np.linspace(0, 6, extent, dtype=np.float32) for extent in field.shape)
    for plane, at in zip(field, z, strict=True):
        plane[:] = np.sin(at + y[:, None]) * np.cos(x)


def relax(before: Array, here: Array, after: Array) -> None:
    """One relaxation of a plane between its neighbours, in place."""
    inner = before[1:-1, 1:-1] + after[1:-1, 1:-1] + here[:-2, 1:-1] + here[2:, 1:-1]
    inner += here[1:-1, :-2] + here[1:-1, 2:]
    here[1:-1, 1:-1] += (inner - 6 * here[1:-1, 1:-1]) * np.float32(0.1)


def stencil(mib: int) -> Program:
    """A 3-D heat equation in place, plane by plane: every byte is read and written once a sweep.
    Bandwidth-bound."""
    n = 256

    def run(field: Array) -> float:
        for _ in range(4):
            for z in range(1, len(field) - 1):
                relax(field[z - 1], field[z], field[z + 1])
        return float(field[len(field) // 2].sum())

    return Program((mib * 4, n, n), np.float32, wave, run)


def tiles(mib: int) -> Program:
    """As `stencil`, eight relaxations of a tile of planes before the next one."""
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
    """A @ B by panels of rows and tiles of B, both of random numbers, which hardly get smaller.
    Compute-bound."""
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


PROGRAMS: dict[str, Callable[[Any], Program]] = {
    "cg": cg,
    "fe": fe,
    "lj": lj,
    "stencil": stencil,
    "tiles": tiles,
    "product": product,
}


def timed(program: Program, array: Array, rounds: int) -> tuple[float, float, float]:
    """Runs a program on an array that was filled.

    Returns:
        the shortest time of a run and of all processors in one, in seconds, and the result of the
        first one.
    """
    results, times, works = [], [], []
    for _ in range(rounds):
        begin, work = time.perf_counter(), time.process_time()
        results.append(program.run(array))
        times.append(time.perf_counter() - begin)
        works.append(time.process_time() - work)
    return min(times), min(works), results[0]
