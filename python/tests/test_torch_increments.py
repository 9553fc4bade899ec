"""Histories of increments with arrays of PyTorch in main memory."""

from __future__ import annotations

import numpy as np
import pytest
from unspool import Bound, IncrementalSpool, Spool

torch = pytest.importorskip("torch")

BOUND = 1e-3


def state(step: int, dtype: str = "f4") -> np.ndarray:
    drawn = np.random.default_rng(step)
    found = np.linspace(-3, 3, 60).reshape(5, 12) + 0.01 * drawn.normal(size=(5, 12))
    found[0, :3] = np.nan, np.inf, 1e30 * step
    return found.astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4", "f2"])
def test_tensors_come_back_as_arrays_of_numpy_do(dtype: str) -> None:
    with (
        np.errstate(all="ignore"),
        IncrementalSpool(Spool(host_memory="16MiB", device="cpu"), Bound(abs=BOUND), full=4) as one,
        IncrementalSpool(
            Spool(host_memory="16MiB", device="cpu"), Bound(abs=BOUND), full=4
        ) as other,
    ):
        for step in range(10):
            array = np.nan_to_num(state(step, dtype)) if dtype == "i4" else state(step, dtype)
            one.save(step, torch.from_numpy(array.T.copy()).T.requires_grad_(dtype == "f4"))
            other.save(step, array)
        for step in (9, 8, 3, 0, 7):
            target = torch.from_numpy(np.zeros((5, 12), dtype))
            one.restore(step, target)
            assert target.numpy().tobytes() == other.load(step).tobytes()
            assert one.load(step, to="torch").numpy().tobytes() == other.load(step).tobytes()
            assert one.load(step).tobytes() == other.load(step).tobytes()


def test_conjugated_and_single_tensors_are_taken_for_their_values() -> None:
    with IncrementalSpool(Spool(host_memory="1MiB", device="cpu"), Bound(abs=BOUND)) as history:
        for step in range(3):
            numbers = torch.tensor([1 + 2j, 3 - 4j]) + step
            history.save(step, z=numbers.conj(), t=torch.tensor(0.5 + step))
        found = history.load(1, to="torch")
        assert abs(found["z"] - torch.tensor([2 - 2j, 4 + 4j])).max() < 2 * BOUND
        assert found["t"].shape == () and abs(found["t"] - 1.5) <= BOUND
