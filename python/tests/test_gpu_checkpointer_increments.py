"""Chains of increments of arrays on a GPU, whose changes the GPU finds, come back bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool

from helpers import gpu_library, same_bits

pytestmark = pytest.mark.gpu

STEPS = 12


def states() -> list[dict[str, np.ndarray]]:
    """Arrays of all lengths; each step changes some of them here and there, rarely everywhere."""
    drawn = np.random.default_rng(4)
    lengths = {"u": 3_000_017, "v": 65_536, "w": 65_537 + 240, "bias": 60, "none": 0, "step": 1}
    state = {
        name: drawn.integers(0, 255, length).astype("u1" if length % 2 else "i2")
        for name, length in lengths.items()
    }
    found = []
    for step in range(STEPS):
        state = {name: array.copy() for name, array in state.items()}
        for array in state.values():
            if array.size:
                array[drawn.integers(0, array.size, drawn.integers(0, 5))] += 1
        if step == 7:
            state["u"] += 1
        state["step"][:] = step
        found.append(state)
    return found


def to_gpu(library: str, array: np.ndarray) -> Any:
    module = gpu_library(library)
    return module.asarray(array) if library == "cupy" else module.from_numpy(array.copy()).cuda()


def to_host(library: str, array: Any) -> np.ndarray:
    return array.get() if library == "cupy" else array.cpu().numpy()


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("codec", [None, {"u": "lossless"}])
def test_a_chain_comes_back_bit_for_bit(library: str, codec: Any, tmp_path: Path) -> None:
    tiers = {"device_memory": "64MiB", "host_memory": "64MiB", "device": "cuda"}
    options: dict[str, Any] = {"every": 1, "signals": (), "keep": 99, "codec": codec, **tiers}
    all_states = states()
    with flat.checkpointer(tmp_path / "run", increments=9, **options) as checkpoints:
        for step, state in enumerate(all_states):
            arrays = {name: to_gpu(library, array) for name, array in state.items()}
            checkpoints.save(step, **arrays)
            # The application goes on with its arrays at once.
            for array in arrays.values():
                array[...] = 0
            checkpoints.flush()
        hashed = checkpoints._core.hashed_on_gpu
    assert hashed >= STEPS - 4, "the GPU has found the changes"
    with flat.checkpointer(tmp_path / "run", increments=9, **options) as checkpoints:
        target = {name: to_gpu(library, 0 * array) for name, array in all_states[0].items()}
        assert checkpoints.restore(**target) == STEPS - 1
        for name, array in all_states[-1].items():
            assert same_bits(to_host(library, target[name]), array), name
    for part in unspool.Checkpointer.parts(tmp_path / "run"):
        for name, array in all_states[part.step].items():
            assert same_bits(part[name], array), (part.step, name)


class OfNoLibrary:
    """An array of a GPU without a library: a frame says which one an array was of."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._array.__cuda_array_interface__


def test_main_memory_writes_the_same_frames(tmp_path: Path) -> None:
    frames = []
    for place in ("cuda", "cpu"):
        folder = tmp_path / place
        options: dict[str, Any] = {"every": 1, "signals": (), "keep": 99, "increments": 9}
        device = "64MiB" if place == "cuda" else None
        with flat.checkpointer(
            folder, device=place, device_memory=device, host_memory="64MiB", **options
        ) as checkpoints:
            for step, state in enumerate(states()):
                arrays: dict[str, Any] = dict(state)
                if place == "cuda":
                    arrays = {n: OfNoLibrary(to_gpu("cupy", a)) for n, a in state.items()}
                checkpoints.save(step, **arrays)
                checkpoints.flush()
        data = folder / "rank-0000-of-0001" / "data"
        frames.append({path.name: path.read_bytes() for path in data.glob("frame-*")})
    assert frames[0] == frames[1]
