"""Whether a checkpoint is smaller as the difference to the one before, by Twine.

    python lab/benches/python/python_deltas.py [--only NAME] [--states 2] [--arrays]

An array is taken to its coefficients, which are whole numbers: ordered integers without loss, and
with a bound multiples of a step. `alone` is Twine of the array; `delta` is Twine of the difference
of its coefficients to those of the state before, from which it comes back exactly; `best` is what
increments store: for each 1,024 values nothing where they are as before, else the smaller of the
two. Arrays that have not changed at all count as nothing in all three. The bound is 1e-4 of the
range of an array in the first state. `zstd` and `zstd, before` are the command `zstd -3` for the
bytes of all arrays, alone and with those of the state before as a dictionary (`--patch-from`),
where it is installed. Percent of the bytes of the state, the mean over states after the first.
The network is a small transformer that learns the text of docs/, and needs PyTorch.
"""

from __future__ import annotations

import argparse
import itertools
import runpy
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from python_increments import PROGRAMS, State, late, wave
from unspool.codecs import Bound, encode

#: Bytes of a stream before its table, and of a chunk in the table of a stream and of a difference.
HEADER, ENTRY, FORM = 64, 4, 2


def network(apart: int, skipped: int = 100) -> Iterator[State]:
    """A network in training, every `apart` steps: its weights, and AdamW's two moments of each."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.set_num_threads(1)
    text = "".join(path.read_text() for path in sorted(Path("docs").rglob("*.md")))
    data = torch.tensor(list(text.encode()), dtype=torch.long)
    width, length = 128, 64
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.ModuleDict(
        {"table": nn.Embedding(256, width), "body": body, "head": nn.Linear(width, 256)}
    )
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    count = 0
    while True:
        if count >= skipped and (count - skipped) % apart == 0:
            found = {f"w {name}": p.detach().numpy().copy() for name, p in model.named_parameters()}
            for name, p in model.named_parameters():
                found[f"m {name}"] = adam.state[p]["exp_avg"].numpy().copy()
                found[f"v {name}"] = adam.state[p]["exp_avg_sq"].numpy().copy()
            yield found
        begin = torch.randint(len(data) - length - 1, (8,))
        rows = torch.stack([data[at : at + length + 1] for at in begin])
        states = model["body"](model["table"](rows[:, :-1]), mask, is_causal=True)
        loss = nn.functional.cross_entropy(
            model["head"](states).flatten(0, 1), rows[:, 1:].flatten()
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        count += 1


def liquid(apart: int, cells: int = 10) -> Iterator[State]:
    """A Lennard-Jones liquid near its triple point, in reduced units, in float64."""
    from scipy.spatial import cKDTree

    drawn = np.random.default_rng(8)
    side = cells * (4 / 0.8442) ** (1 / 3)
    corners = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    grid = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    x = ((grid + corners) * side / cells).reshape(-1, 3)
    v = drawn.standard_normal(x.shape) * np.sqrt(1.44)
    v -= v.mean(0)

    def forces(x: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        d = x[pairs[:, 0]] - x[pairs[:, 1]]
        d -= side * np.rint(d / side)
        r2 = (d * d).sum(1)
        near = r2 < 2.5**2
        d, r2, pairs = d[near], r2[near], pairs[near]
        s6 = r2**-3
        f = (24 * (2 * s6 * s6 - s6) / r2)[:, None] * d
        total = np.zeros_like(x)
        for axis in range(3):
            for end, sign in ((0, 1), (1, -1)):
                total[:, axis] += sign * np.bincount(pairs[:, end], f[:, axis], len(x))
        return total

    step, count, warm = 0.004, 0, 200
    pairs = cKDTree(x % side, boxsize=side).query_pairs(2.9, output_type="ndarray")
    f = forces(x, pairs)
    while True:
        if count >= warm and (count - warm) % apart == 0:
            yield {"x": x.copy(), "v": v.copy(), "f": f.copy()}
        v += step / 2 * f
        x += step * v
        if count % 10 == 9:
            pairs = cKDTree(x % side, boxsize=side).query_pairs(2.9, output_type="ndarray")
        f = forces(x, pairs)
        v += step / 2 * f
        count += 1


def example(name: str) -> dict[str, Any]:
    """The names of a program of the project's examples."""
    return runpy.run_path(str(Path(__file__).parents[3] / "examples" / f"{name}.py"))


def phase_field(apart: int, skipped: int, dtype: str = "float64") -> Iterator[State]:
    """The field of the example, every `apart` steps."""
    field = example("phase_field")["PhaseField"]((64, 64, 64), dtype)
    c = field.mixed()
    field.forward(c, 0, skipped)
    while True:
        yield {"c": c.copy()}
        field.forward(c, 0, apart)


def propagators(steps: int) -> Iterator[State]:
    """Real and imaginary parts of the propagators of the example, from the middle of a pulse on."""
    spins = example("quantum_control")["Spins"](8, steps, duration=10.0)
    u = spins.start()
    spins.forward(u, 0, steps // 2)
    for step in range(steps // 2, steps):
        yield {"real": u.real.copy(), "imaginary": u.imag.copy()}
        spins.forward(u, step, step + 1)


MORE: dict[str, Callable[[], Iterator[State]]] = {
    "wave, late, 1 step apart": lambda: late(wave(1), 900),
    "wave, late, 10 steps apart": lambda: late(wave(10), 90),
    "CG, after 30 steps": lambda: late(PROGRAMS["CG, as HPCCG"](), 15),
    "network, Adam, 1 step apart": lambda: network(1),
    "network, Adam, 10 steps apart": lambda: network(10),
    "network, Adam, 100 steps apart": lambda: network(100),
    "Lennard-Jones liquid, 1 step apart": lambda: liquid(1),
    "Lennard-Jones liquid, 10 steps apart": lambda: liquid(10),
    "Lennard-Jones liquid, 200 steps apart": lambda: liquid(200),
    "phase field mixed, 1 step apart": lambda: phase_field(1, 10),
    "phase field apart, 1 step apart": lambda: phase_field(1, 180),
    "phase field apart, 10 steps apart": lambda: phase_field(10, 180),
    "phase field apart, float32, 1 step apart": lambda: phase_field(1, 180, "float32"),
    "quantum control, 66 steps, 1 step apart": lambda: propagators(66),
    "quantum control, 1,000 steps, 1 step apart": lambda: propagators(1000),
}


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as integers of the same order; integers as they are."""
    if array.dtype.kind != "f":
        return array
    bits = array.view(f"i{array.itemsize}")
    top = 8 * array.itemsize - 1
    return bits ^ ((bits >> top) & np.array((1 << top) - 1, bits.dtype))


def quantised(array: np.ndarray, bound: float) -> np.ndarray:
    """The coefficients of Twine for this bound."""
    exact = array.dtype.type(bound * (1 - 2.0 ** (-48 if array.itemsize == 8 else -21)))
    step = array.dtype.type(2) * exact
    return np.rint(array * (array.dtype.type(1) / step)).astype(f"i{array.itemsize}")


def chunks(array: np.ndarray, codec: object) -> list[bytes]:
    """The chunks of a stream of Twine."""
    stream = encode(np.ascontiguousarray(array), codec).data
    count = int(np.frombuffer(stream, "<u4", 1, 36)[0])
    table = np.frombuffer(stream, "<u4", count + 1, HEADER).astype(np.int64)
    begin = HEADER + ENTRY * (count + 1)
    ends = (begin + ENTRY * table).tolist()
    return [stream[a:b] for a, b in itertools.pairwise(ends)]


def sizes(now: np.ndarray, before: np.ndarray, bound: float | None) -> np.ndarray:
    """The bytes of an array: alone, as a delta, and as increments store it."""
    if np.array_equal(now.view("u1"), before.view("u1")) or now.size == 0:
        return np.zeros(3)
    if bound is None or now.dtype.kind != "f" or bound == 0:
        alone, old = chunks(now, "lossless"), chunks(before, "lossless")
        difference = ordered(now) - ordered(before)
    else:
        alone, old = chunks(now, Bound(abs=bound)), chunks(before, Bound(abs=bound))
        difference = quantised(now, bound) - quantised(before, bound)
    delta = chunks(difference, "lossless")
    best = sum(
        FORM + (0 if a == o else min(len(a), len(d)))
        for a, o, d in zip(alone, old, delta, strict=True)
    )
    return np.array([ENTRY * len(c) + sum(map(len, c)) for c in (alone, delta)] + [best], float)


def zstd_sizes(now: State, before: State) -> list[int]:
    """The bytes of a state by zstd, alone and with the state before as a dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / "old", Path(folder) / "new"
        for path, state in ((old, before), (new, now)):
            with path.open("wb") as file:
                file.writelines(array.tobytes() for array in state.values())

        def packed(*options: str) -> int:
            command = ["zstd", "-qq", "-3", "-f", *options, str(new), "-o", str(new) + ".zst"]
            subprocess.run(command, check=True)
            return Path(str(new) + ".zst").stat().st_size

        return [packed(), packed(f"--patch-from={old}")]


def measure(name: str, states: Iterator[State], count: int, detailed: bool) -> None:
    """A line of the table, and one for each array."""
    before = {key: array.copy() for key, array in next(states).items()}
    ranges = {k: float(np.ptp(a)) if a.dtype.kind == "f" else 0.0 for k, a in before.items()}
    total = sum(array.nbytes for array in before.values())
    # Arrays of a network count by the first letter of their names.
    found: dict[str, list[np.ndarray]] = {}
    bytes_of: dict[str, int] = {}
    for key, array in before.items():
        short = key.split()[0]
        bytes_of[short] = bytes_of.get(short, 0) + array.nbytes
    for _ in range(count):
        now = {key: array.copy() for key, array in next(states).items()}
        sums: dict[str, np.ndarray] = {short: np.zeros(6) for short in bytes_of}
        for key, array in now.items():
            one = sizes(array, before[key], None), sizes(array, before[key], 1e-4 * ranges[key])
            sums[key.split()[0]] += np.concatenate(one)
        for short, one in sums.items():
            found.setdefault(short, []).append(one)
        last, before = before, now
    packed = zstd_sizes(before, last) if shutil.which("zstd") else []

    def line(label: str, sums: list[np.ndarray], of: int, more: list[int]) -> None:
        means = [statistics.mean(one[k] for one in sums) for k in range(6)]
        cells = [f"{100 * mean / of:.1f}" for mean in [*means, *more]]
        print(f"| {label} | {of / (1 << 20):.1f} | " + " | ".join(cells) + " |", flush=True)

    line(name, [sum(parts) for parts in zip(*found.values(), strict=True)], total, packed)
    if detailed:
        for short, sums in found.items():
            line(f"- {short}", sums, bytes_of[short], [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--states", type=int, default=2)
    parser.add_argument("--arrays", action="store_true", help="a line for each array too")
    options = parser.parse_args()
    heads = ["program", "MiB", "alone %", "delta %", "best %"]
    heads += [f"bound: {head}" for head in heads[2:]] + ["zstd %", "zstd, before %"]
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (len(heads) - 1))
    for name, program in (PROGRAMS | MORE).items():
        if options.only is None or options.only in name:
            try:
                measure(name, program(), options.states, options.arrays)
            except ModuleNotFoundError as missing:
                print(f"| {name} | {missing.name} is not installed |")


if __name__ == "__main__":
    main()
