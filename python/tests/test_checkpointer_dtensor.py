"""`unspool.Checkpointer` with DTensors, which other numbers of processes go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gloo_processes import opened, start, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from unspool import errors


def fields(scale: float) -> dict[str, Any]:
    """The same arrays whatever the number of processes is, with other pieces."""
    size = torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    flat = torch.arange(7 * 9, dtype=torch.float32).reshape(7, 9) * scale
    both = {}
    if size == 4:
        square = init_device_mesh("cpu", (2, 2))
        both = {
            "two": distribute_tensor(flat, square, [Shard(0), Shard(1)]),
            "hybrid": distribute_tensor(flat, square, [Replicate(), Shard(0)]),
        }
    else:
        both = {
            "two": distribute_tensor(flat, mesh, [Shard(1)]),
            "hybrid": distribute_tensor(flat, mesh, [Shard(0)]),
        }
    return {
        "rows": distribute_tensor(flat, mesh, [Shard(0)]),
        "columns": distribute_tensor(flat.to(torch.bfloat16), mesh, [Shard(1)]),
        "all": distribute_tensor(flat, mesh, [Replicate()]),
        **both,
    }


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert isinstance(found[name], DTensor) and found[name].placements == one.placements
        assert torch.equal(found[name].to_local(), one.to_local()), name


def model_of() -> tuple[Any, Any]:
    """A model and an optimizer whose state DTensors are."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in (model[0], model[2]):
        for name, one in list(layer.named_parameters()):
            sharded = distribute_tensor(one.data, mesh, [Shard(0)])
            setattr(layer, name, torch.nn.Parameter(sharded))
    return model, torch.optim.AdamW(model.parameters(), 0.1)


def train(model: Any, optim: Any, step: int) -> None:
    """A step whose gradient does not depend on the number of processes."""
    for at, one in enumerate(model.parameters()):
        wave = torch.sin(torch.arange(one.numel()).reshape(one.shape) + float(step + at))
        one.grad = distribute_tensor(wave, one.device_mesh, one.placements)
    optim.step()


def whole(model: Any, optim: Any) -> list[Any]:
    moments = [one[name] for one in optim.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return [one.detach().full_tensor() for one in (*model.parameters(), *moments)]


def work(path: Path) -> None:
    """Goes on where another number of processes was, and checks that."""
    model, optim = model_of()
    targets = fields(0.0)
    with opened(path, model=model, optim=optim) as checkpoints:
        first = checkpoints.restore() or 0
        if first:
            assert checkpoints.restore(first, tree=targets) == first
            same(targets, fields(float(first)))
            like = {"model": model.state_dict(), "optim": optim.state_dict()}
            loaded = checkpoints.load(first, like={"tree": fields(0.0), **like})
            same(loaded["tree"], targets)
            same(loaded["model"], like["model"])
            flat = torch.arange(7 * 9, dtype=torch.float32).reshape(7, 9) * first
            found = checkpoints.load(first, "tree/two", region=np.s_[2:5, ::2], to="torch")
            assert torch.equal(found, flat[2:5, ::2])
            with pytest.raises(errors.ArrayError, match=r"like=\.\.\."):
                checkpoints.load(first)
        for step in range(first + 1, first + 3):
            train(model, optim, step)
            checkpoints.save(step, tree=fields(float(step)))
        partial = DTensor.from_local(torch.ones(3), targets["all"].device_mesh, [Partial()])
        with pytest.raises(errors.ArrayError, match="redistribute it"):
            checkpoints.save(first + 3, u=partial)
    again, other = model_of()
    with opened(path, model=again, optim=other) as checkpoints:
        assert checkpoints.restore() == first + 2
    expected, plain = model_of()
    for step in range(1, first + 3):
        train(expected, plain, step)
    for found in (whole(model, optim), whole(again, other)):
        for one, two in zip(found, whole(expected, plain), strict=True):
            assert torch.equal(one, two)


def test_other_numbers_of_processes_go_on_with_dtensors(tmp_path: Path) -> None:
    for size in (4, 2):
        assert start(size, work, tmp_path / "run") == [0] * size
