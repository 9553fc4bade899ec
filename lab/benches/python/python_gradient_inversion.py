"""An inversion with `unspool.Gradient`: estimates beside true errors, misfits beside exact ones.

Waves in two dimensions, receivers along a line, L-BFGS. The inversion runs twice: with bounds that
follow from the accuracy of the gradient, one `Gradient` for each shot, and with lossless states.
Each gradient with bounds is then computed once more with lossless states, for the true error.
Seconds are those of the processor. Run it in the repository with the package installed, for layers
and one shot, or for a velocity model as the other commands read it:

    python lab/benches/python/python_gradient_inversion.py [--iterations 20] [--target 1e-3]
    python lab/benches/python/python_gradient_inversion.py --model marmousi_vp.f32 --save FILE
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import unspool
from unspool.schedules import StoreAll

#: The row of sources and receivers, and the width of the layer that absorbs waves.
DEPTH, EDGE = 12, 10

#: Cells that a wave crosses in a step where it is fastest.
FASTEST = 0.5


class Survey(NamedTuple):
    """What is shot.

    Attributes:
        true, start: speeds in cells a step, z first.
        sources: columns.
        wavelet: of each of them, by step.

    """

    true: Any
    start: Any
    sources: tuple[int, ...]
    wavelet: Any


def ricker(steps: int, frequency: float) -> Any:
    """A Ricker wavelet of `steps` steps, with `frequency` periods in a step."""
    phase = (np.pi * frequency * (np.arange(steps) - 1.2 / frequency)) ** 2
    return (1 - 2 * phase) * np.exp(-phase)


def layers() -> Survey:
    """Two layers and a body."""
    z, x = np.meshgrid(np.arange(80), np.arange(80), indexing="ij")
    body = 0.04 * np.exp(-((x - 40) ** 2 + (z - 30) ** 2) / 60)
    true = 0.3 + 0.1 * (z > 40) + 0.05 * (z > 60) + body
    start = 0.3 + 0.1 * np.clip((z - 25) / 40, 0, 1)
    return Survey(true, start, (40,), ricker(240, 0.04))


def marmousi(path: Path, thin: int, shots: int, steps: int) -> Survey:
    """Every so-manieth point of 1601 x 401, and a model that is smooth below the water."""
    speed = np.fromfile(path, "<f4").reshape(1601, 401)[::thin, ::thin].T.astype(float)
    true = speed * FASTEST / speed.max()
    start, water = 1 / true, np.minimum.accumulate(speed < 1.51, axis=0)
    for _ in range(8):
        start = sum(np.roll(np.pad(start, 2, "edge"), n, 0) for n in range(-2, 3))[2:-2, 2:-2] / 5
        start = sum(np.roll(np.pad(start, 2, "edge"), n, 1) for n in range(-2, 3))[2:-2, 2:-2] / 5
    start = np.where(water, true, 1 / start)
    columns = np.linspace(EDGE + 5, true.shape[1] - EDGE - 5, shots).round().astype(int)
    return Survey(true, start, tuple(columns.tolist()), ricker(steps, 0.015))


def damping(shape: tuple[int, int]) -> Any:
    """What waves keep of themselves near the edges."""
    sides = []
    for size in shape:
        near = np.minimum(np.arange(size), np.arange(size)[::-1])
        sides.append(1 - 0.02 * np.clip(1 - near / EDGE, 0, 1) ** 2)
    return sides[0][:, None] * sides[1]


def _lap(u: Any) -> Any:
    return sum(np.roll(u, 1, axis) + np.roll(u, -1, axis) - 2 * u for axis in (0, 1))


class Shot:
    """One source, whose waves are compared with data."""

    def __init__(self, survey: Survey, column: int) -> None:
        shape, self.column, self.wavelet = survey.true.shape, column, survey.wavelet
        self.damp, self.data = damping(shape), np.zeros((len(survey.wavelet), shape[1]))
        self.residual = np.zeros_like(self.data)
        self.gradient, self.after = np.zeros(shape), np.zeros((2, *shape))
        self.run(survey.true, "lossless")
        self.data = self.residual.copy()

    def forward(self, u: Any, start: int, stop: int) -> None:
        """Takes steps, and notes how far the traces are from the data."""
        for n in range(start, stop):
            new = self.damp * (2 * u[1] - self.damp * u[0] + self.speed**2 * _lap(u[1]))
            new[DEPTH, self.column] += self.wavelet[n]
            u[0], u[1] = u[1].copy(), new
            self.residual[n] = new[DEPTH] - self.data[n]

    def at_end(self, u: Any) -> None:
        """Says the misfit, and clears the adjoint."""
        self.gradient[...], self.after[...] = 0, 0
        self.misfit = float((self.residual**2).sum()) / 2

    def reverse(self, u: Any, n: int) -> None:
        """Takes the adjoint back over a step."""
        self.after[1, DEPTH] += self.residual[n]
        old, new = self.after[0].copy(), self.damp * self.after[1]
        self.gradient += 2 * self.speed * _lap(u[1]) * new
        self.after[0], self.after[1] = -self.damp * new, old + 2 * new + _lap(self.speed**2 * new)

    def run(self, speed: Any, codec: Any) -> tuple[Any, Any, tuple[int, int]]:
        """Gradient, what a `Gradient` says of it, and bytes before and after the codec."""
        self.speed = speed
        # The residual is what the adjoint begins with: the estimate follows its norm.
        held = {"gradient": self.gradient, "after": self.after, "residual": self.residual}
        with unspool.Spool(host_memory="2GiB", device="cpu") as spool:
            report = unspool.adjoint(
                StoreAll(len(self.wavelet)),
                spool,
                self.forward,
                self.reverse,
                np.zeros_like(self.after),
                at_end=self.at_end,
                adjoint_state=held,
                access=unspool.types.Access(codec=codec),
            )
            coded = spool.stats().codec
        found, said = self.gradient.copy(), report.fidelity
        whole = coded.raw_bytes, coded.stored_bytes
        return found, said, (said.raw_bytes, said.stored_bytes) if said else whole


@dataclass
class Ran:
    """An inversion.

    Attributes:
        misfits: before each iteration, and the last one.
        seconds: of the processor, in all gradients.
        first: those of the first gradient.
        bytes: before and after the codec, of all gradients but the first.
        gradients: how many there were.

    """

    model: Any = None
    misfits: list[float] = field(default_factory=list)
    seconds: float = 0.0
    first: float = 0.0
    bytes: tuple[int, int] = (0, 0)
    gradients: int = 0


class Sum:
    """The misfit of all shots, and its gradient.

    Attributes:
        said: what each shot's `Gradient` says of the last one.
        each: the gradient of each shot.

    """

    def __init__(self, shots: list[Shot], codecs: list[Any], ran: Ran) -> None:
        self.shots, self.codecs, self.ran = shots, codecs, ran

    def run(self, speed: Any) -> tuple[float, Any]:
        """Misfit and gradient."""
        begun = time.process_time()
        pairs = zip(self.shots, self.codecs, strict=True)
        self.each, self.said, bytes_ = zip(
            *(one.run(speed, codec) for one, codec in pairs), strict=True
        )
        took, ran = time.process_time() - begun, self.ran
        ran.seconds, ran.gradients = ran.seconds + took, ran.gradients + 1
        if ran.gradients == 1:
            ran.first = took
        else:
            ran.bytes = tuple(map(sum, zip(ran.bytes, *bytes_, strict=True)))
        return sum(one.misfit for one in self.shots), sum(self.each)


class Lbfgs:
    """Directions of L-BFGS from the last changes of model and gradient."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def direction(self, gradient: Any) -> Any:
        """Where to go from a gradient."""
        found = gradient.ravel().copy()
        if not self.pairs:
            return (0.02 / abs(found).max() * found).reshape(gradient.shape)
        parts = []
        for s, y in reversed(self.pairs):
            parts.append(s @ found / (s @ y))
            found -= parts[-1] * y
        s, y = self.pairs[-1]
        found *= s @ y / (y @ y)
        for (s, y), part in zip(self.pairs, reversed(parts), strict=True):
            found += (part - y @ found / (s @ y)) * s
        return found.reshape(gradient.shape)

    def add(self, s: Any, y: Any) -> None:
        """Notes one step."""
        if s @ y > 0:
            self.pairs = [*self.pairs, (s, y)][-8:]


def invert(survey: Survey, shots: list[Shot], codecs: list[Any], count: int, watch: Any) -> Ran:
    """An inversion of `count` iterations."""
    ran, way, model = Ran(), Lbfgs(), survey.start
    both, limits = Sum(shots, codecs, ran), (0.8 * survey.true.min(), 1.1 * survey.true.max())
    misfit, gradient = both.run(model)
    ran.misfits.append(misfit)
    for n in range(count):
        direction, length = way.direction(gradient), 1.0
        while True:
            tried = np.clip(model - length * direction, *limits)
            found, other = both.run(tried)
            if found < ran.misfits[-1] or length < 1e-3:
                break
            length /= 2
        watch(n, tried, both)
        way.add((tried - model).ravel(), (other - gradient).ravel())
        model, gradient = tried, other
        ran.misfits.append(found)
    ran.model = model
    return ran


def apart(found: Any, right: Any) -> float:
    """The error of a gradient."""
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


class Watch:
    """A line for each iteration."""

    def __init__(self, shots: list[Shot]) -> None:
        self.beside, self.lines = Sum(shots, ["lossless"] * len(shots), Ran()), []
        print("| iteration | norm of the gradient | true error | estimate | of the sum | bytes |")
        print("| --- | --- | --- | --- | --- | --- |")

    def __call__(self, n: int, tried: Any, both: Sum) -> None:
        """Prints that of an iteration, with the model that it has tried."""
        _, right = self.beside.run(tried)
        pairs = zip(both.each, self.beside.each, strict=True)
        line = {
            "iteration": n + 1,
            "norm": float(np.linalg.norm(right)),
            "error": max(apart(*pair) for pair in pairs),
            "estimate": max(one.estimate for one in both.said),
            "error_of_the_sum": apart(sum(both.each), right),
            "bytes": sum(one.stored_bytes for one in both.said)
            / sum(one.raw_bytes for one in both.said),
            "trials": sum(one.trials for one in both.said),
        }
        self.lines.append(line)
        print(
            "| {iteration} | {norm:.1f} | {error:.1e} | {estimate:.1e} | {error_of_the_sum:.1e} "
            "| {bytes:.3f} |".format(**line),
            flush=True,
        )


def summary(survey: Survey, ran: Ran, exact: Ran) -> dict[str, Any]:
    """What is compared of the two inversions."""
    change = np.linalg.norm(exact.model - survey.start)
    off = [np.linalg.norm(each.model - survey.true) for each in (exact, ran)]
    pairs = zip(ran.misfits, exact.misfits, strict=True)
    return {
        "misfits": [one / ran.misfits[0] for one in ran.misfits],
        "exact_misfits": [one / exact.misfits[0] for one in exact.misfits],
        "misfits_apart": max(abs(a / b - 1) for a, b in pairs),
        "model_apart_of_its_change": float(np.linalg.norm(ran.model - exact.model) / change),
        "distance_to_the_true_model": [float(one / change) for one in off],
        "gradients": [exact.gradients, ran.gradients],
        "seconds": [exact.seconds, ran.seconds],
        "first_gradient_seconds": [exact.first, ran.first],
        "bytes_of_lossless": ran.bytes[1] / ran.gradients / (exact.bytes[1] / exact.gradients),
        "bytes_of_raw": ran.bytes[1] / max(ran.bytes[0], 1),
    }


def draw(found: dict[str, Any], survey: Survey, ran: Ran, path: Path) -> None:
    """Misfits, errors and models."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 5), layout="constrained")
    axes[0, 0].semilogy(found["exact_misfits"], "o", mfc="none", label="lossless states")
    axes[0, 0].semilogy(found["misfits"], ".-", label="bounds that were chosen")
    axes[0, 0].set(xlabel="iteration", ylabel="misfit, as part of the first")
    for name, style in (("error", "o"), ("estimate", ".-")):
        pairs = [(one["iteration"], one[name]) for one in found["iterations"] if one[name]]
        axes[0, 1].semilogy(*zip(*pairs, strict=True), style, mfc="none", label=name)
    axes[0, 1].axhline(found["target"], color="k", lw=0.8, label="target")
    axes[0, 1].set(xlabel="iteration", ylabel="largest error of a shot's gradient")
    for each in axes[0]:
        each.legend(frameon=False, fontsize="small")
    for each, model, name in zip(axes[1], (survey.true, ran.model), ("true", "found"), strict=True):
        limits = {"vmin": survey.true.min(), "vmax": survey.true.max()}
        each.imshow(model, aspect="auto", **limits)
        each.set(title=f"{name} model", xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Prints a line for each iteration, and what is compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--target", type=float, default=1e-3)
    parser.add_argument("--model", type=Path, help="raw float32 of 1601 x 401 points, x first")
    parser.add_argument("--thin", type=int, default=10, help="take every so-manieth point")
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--save", type=Path, help="a JSON file for what is printed")
    parser.add_argument("--picture", type=Path, help="an image file, with matplotlib")
    options = parser.parse_args()
    of_model = options.model, options.thin, options.shots, options.steps
    survey = layers() if options.model is None else marmousi(*of_model)
    shots = [Shot(survey, column) for column in survey.sources]
    lossless = ["lossless"] * len(shots)
    exact = invert(survey, shots, lossless, options.iterations, lambda *_: None)
    orders = [unspool.Gradient(options.target, of="gradient") for _ in shots]
    watch = Watch(shots)
    ran = invert(survey, shots, orders, options.iterations, watch)
    found = summary(survey, ran, exact)
    for name, value in found.items():
        print(f"{name}: {value}")
    print(*orders, sep="\n")
    shape = {"cells": survey.true.shape, "steps": len(survey.wavelet), "shots": len(shots)}
    whole = {"target": options.target, **shape, **found, "iterations": watch.lines}
    if options.save:
        options.save.write_text(json.dumps(whole, indent=1) + "\n")
    if options.picture:
        draw(whole, survey, ran, options.picture)
    assert all(math.isfinite(one) for one in ran.misfits)


if __name__ == "__main__":
    main()
