"""How tensors leave a GPU in `unspool.torch.offload`, with streams and spools that only take notes.

The tests of `test_gpu_torch_loops.py` run on a GPU.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import unspool

torch = pytest.importorskip("torch")

from unspool.torch import offload  # noqa: E402
from unspool.torch._changed import Held  # noqa: E402
from unspool.torch._entry import Entry  # noqa: E402
from unspool.torch._lanes import Lanes  # noqa: E402

from torch_programs import leaf  # noqa: E402


class Owner:
    """What owns entries."""

    def forget(self, entry: Entry) -> None:
        pass


class Spool:
    """A spool that is given tensors, and keeps them."""

    def __init__(self) -> None:
        self.given: dict[int, torch.Tensor] = {}

    def save(self, version: int, whole: torch.Tensor, *, donate: bool) -> None:
        assert donate
        self.given[version] = whole

    def restore(self, version: int, into: torch.Tensor) -> None:
        into.copy_(self.given[version])


class GivingLanes(Lanes):
    """Lanes to a spool that can be given everything."""

    def gives(self, spool: Any, device: torch.device) -> bool:
        return True


def moved(tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Entry, Spool]:
    """An entry of one tensor that has been given to a spool."""
    stream = object()
    monkeypatch.setattr("unspool.torch._entry._stream", lambda device: stream)
    entry, spool = Entry(Owner(), tensor.untyped_storage(), 0), Spool()
    entry._stream = stream
    entry.see(tensor)
    assert entry.move(spool, None, GivingLanes())
    return entry, spool


def test_a_version_is_counted_without_the_memory() -> None:
    tensor = torch.zeros(1000)
    held = Held(tensor)
    held.let_go()
    assert held.tensor.untyped_storage().nbytes() == 0 and held.get() is held.tensor
    tensor.add_(1)
    assert held.tensor._version == held.version + 1


def test_a_given_tensor_is_kept_by_the_spool_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = np.ones(1000)
    gone = weakref.finalize(memory, lambda: None)
    entry, spool = moved(torch.from_numpy(memory), monkeypatch)
    del memory
    gc.collect()
    assert gone.alive
    entry._stream = None
    entry.restore(spool)
    assert torch.equal(entry.get(0), torch.ones(1000).double())
    spool.given.clear()
    gc.collect()
    assert not gone.alive


def test_a_given_tensor_that_is_changed_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.ones(1000)
    entry, spool = moved(tensor, monkeypatch)
    entry._stream = None
    entry.restore(spool)
    assert torch.equal(entry.get(0), torch.ones(1000))
    tensor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        entry.get(0)


def test_what_leaves_is_held_within_the_budget() -> None:
    budget, asked = 80_000, []
    with unspool.Spool(host_memory="4MiB") as spool:
        keep = offload(budget=budget, spool=spool, min_bytes=0)
        kept = keep._kept

        class Noted:
            """Lanes as far as they are asked for room."""

            def make_room(self, most: int) -> None:
                asked.append((most, kept.bytes))

        x = leaf(1000).double()
        with keep:
            kept._leaving, y = budget // 8, x
            kept._lanes, lanes = Noted(), kept._lanes
            for _ in range(30):
                y = (y * 1.5) ** 2 / 2
            kept._lanes = lanes
        assert asked and all(most == max(0, budget - there) for most, there in asked)
        # One is left out while its node runs.
        assert max(there for _, there in asked) <= budget - budget // 8 + 8000
        y.sum().backward()
        assert len(spool) == 0


def test_a_spool_without_memory_of_the_gpu_is_given_nothing() -> None:
    with unspool.Spool(device_memory="1MiB", host_memory="1MiB", device="cpu") as spool:
        assert not Lanes().gives(spool, torch.device("cuda", 0))
