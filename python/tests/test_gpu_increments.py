"""Histories of increments with arrays of CuPy and PyTorch on a GPU."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import Bound, IncrementalSpool
from unspool.schedules import StoreAll

from helpers import gpu_library

pytestmark = pytest.mark.gpu

BOUND = 1e-4
SHAPE = (64, 128)


def states(count: int) -> list[np.ndarray]:
    """A random walk, with values that are not numbers in it."""
    drawn = np.random.default_rng(3)
    walk = np.cumsum(1e-3 * drawn.normal(size=(count, *SHAPE)), 0)
    walk[::3, 0, :3] = np.nan, -np.inf, 1e30
    return list(walk.astype("f4"))


def to_gpu(library: str, array: np.ndarray) -> Any:
    module = gpu_library(library)
    return module.asarray(array) if library == "cupy" else module.from_numpy(array.copy()).cuda()


def to_host(library: str, array: Any) -> np.ndarray:
    return array.get() if library == "cupy" else array.cpu().numpy()


def other_stream(library: str) -> Any:
    module = gpu_library(library)
    return module.cuda.Stream(non_blocking=True) if library == "cupy" else module.cuda.Stream()


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_states_of_a_gpu_are_those_of_main_memory(library: str) -> None:
    tiers = {"device_memory": "64MiB", "host_memory": "64MiB", "device": "cuda"}
    debug = unspool.Debug(check_order=True)
    with (
        IncrementalSpool(unspool.Spool(**tiers, debug=debug), Bound(abs=BOUND), full=6) as one,
        IncrementalSpool(
            unspool.Spool(host_memory="64MiB", device="cpu"), Bound(abs=BOUND)
        ) as other,
    ):
        target = to_gpu(library, np.zeros(SHAPE, "f4"))
        stream = other_stream(library)
        for step, state in enumerate(states(20)):
            one.save(step, to_gpu(library, state))
            other.save(step, state)
        order = [*reversed(range(20)), 3, 11, 0]
        for turn, step in enumerate(order):
            stream_of_call = stream if turn % 5 == 4 else None
            one.restore(step, target, stream=stream_of_call)
            if stream_of_call is not None:
                stream.synchronize()
            assert to_host(library, target).tobytes() == other.load(step).tobytes()
        assert one.load(7, to="numpy").tobytes() == other.load(7).tobytes()


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_an_adjoint_on_a_gpu_reads_the_states_of_the_forward_pass(library: str) -> None:
    state = to_gpu(library, np.zeros(SHAPE, "f4"))
    seen: list[Any] = []

    def forward(state: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            state[...] = state * 0.5 + 1

    def reverse(state: Any, step: int) -> None:
        seen.append(state.max() * 1)

    with unspool.Spool(device_memory="64MiB", host_memory="64MiB", device="cuda") as spool:
        history = IncrementalSpool(spool, Bound(abs=BOUND))
        flat.adjoint(StoreAll(30), history, forward, reverse, state)
        assert len(spool) == 0
    found = [float(one) for one in reversed(seen)]
    np.testing.assert_allclose(found, 2 - 2 * 0.5 ** np.arange(30), atol=1.01 * BOUND)
