"""`torch.distributed.checkpoint` over a `Checkpointer`."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import unspool
from gloo_processes import opened, start, torch
from test_checkpointer_dtensor import fields, model_of, same, train
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from unspool import errors
from unspool.torch.dcp import Storage

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def alone(path: Path, **options: Any) -> unspool.Checkpointer:
    return unspool.Checkpointer(path, every=1, host_memory="8MiB", device="cpu", **options)


def state(scale: float) -> dict[str, Any]:
    return {
        "model": {
            "w": torch.arange(12.0).reshape(3, 4) * scale,
            "half": torch.full((5,), scale, dtype=torch.bfloat16),
            "scalar": torch.tensor(scale, dtype=torch.float64),
            "empty": torch.zeros((0, 3), dtype=torch.int64),
            "turned": (torch.arange(12.0).reshape(3, 4) * scale).t(),
        },
        "list": [torch.full((2,), scale), {"n": int(scale)}],
        "step": int(scale),
        "name": f"of {scale}",
    }


def equal(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        [equal(found[key], one) for key, one in expected.items()]
    elif isinstance(expected, list):
        [equal(one, other) for one, other in zip(found, expected, strict=True)]
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("options", [{}, {"increments": 2, "codec": "lossless"}], ids=str)
def test_what_is_saved_is_loaded(options: dict[str, Any], tmp_path: Path) -> None:
    with alone(tmp_path / "run", **options) as checkpoints:
        storage = Storage(checkpoints)
        for step in (1, 2):
            dcp.save(state(float(step)), checkpoint_id=step, storage_writer=storage, no_dist=True)
            assert checkpoints.steps()[-1] == step
        with pytest.raises(dcp.CheckpointException, match="give the step"):
            dcp.save(state(3.0), storage_writer=Storage(checkpoints), no_dist=True)
    with alone(tmp_path / "run", **options) as checkpoints:
        found = state(0.0)
        dcp.load(found, storage_reader=Storage(checkpoints), no_dist=True)
        equal(found, state(2.0))
        some = {"model": {"w": torch.zeros(3, 4)}}
        dcp.load(some, checkpoint_id=1, storage_reader=Storage(checkpoints), no_dist=True)
        assert torch.equal(some["model"]["w"], state(1.0)["model"]["w"])
        # The run goes back to what it has loaded.
        dcp.save(state(2.0), checkpoint_id=2, storage_writer=Storage(checkpoints), no_dist=True)
        other = {"model": {"w": torch.zeros(4, 4)}}
        with pytest.raises((dcp.CheckpointException, ValueError), match=r"[Ss]ize"):
            dcp.load(other, storage_reader=Storage(checkpoints), no_dist=True)


def test_a_state_without_its_structure_is_loaded_as_by_the_storage_of_files(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    with alone(tmp_path / "run") as checkpoints:
        storage = Storage(checkpoints)
        dcp.save(state(3.0), checkpoint_id=3, storage_writer=storage, no_dist=True)
        dcp.save(state(3.0), checkpoint_id=tmp_path / "files", no_dist=True)
        readers = (storage, dcp.FileSystemReader(tmp_path / "files"))
        for reader in readers:
            found: dict[str, Any] = {}
            _load_state_dict(found, reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
            equal(found, state(3.0))
        mine, theirs = (reader.read_metadata().state_dict_metadata for reader in readers)
        assert mine.keys() == theirs.keys()
        for name, one in theirs.items():
            assert type(mine[name]) is type(one), name
            assert getattr(mine[name], "size", None) == getattr(one, "size", None)
            assert getattr(mine[name], "chunks", None) == getattr(one, "chunks", None)


def test_what_was_saved_otherwise_is_told(tmp_path: Path) -> None:
    with alone(tmp_path / "run") as checkpoints:
        storage = Storage(checkpoints)
        with pytest.raises(errors.OptionError, match="in this process"):
            pickle.dump(storage, io.BytesIO())
        with pytest.raises(errors.OptionError, match="write the step"):
            storage.reset("here")
        checkpoints.save(1, u=torch.zeros(3))
        with pytest.raises(errors.UnknownVersionError, match=r"not saved by dcp\.save"):
            storage.read_metadata()


class Failing(dcp.DefaultSavePlanner):
    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, **_: Any) -> None:
        raise RuntimeError("no plan")


def test_a_save_that_fails_before_it_copies_is_not_waited_for(tmp_path: Path) -> None:
    with alone(tmp_path / "run") as checkpoints:
        done = dcp.async_save(
            {"u": torch.ones(3)},
            checkpoint_id=1,
            storage_writer=Storage(checkpoints),
            planner=Failing(),
            no_dist=True,
        )
        with pytest.raises(dcp.CheckpointException, match="no plan"):
            done.result()


def work(path: Path) -> None:
    """Goes on where another number of processes was."""
    with opened(path) as checkpoints:
        storage = Storage(checkpoints)
        model, optim = model_of()
        # It has a state then, as DCP asks for.
        get_state_dict(model, optim)
        first = max(checkpoints.latest() or 0, 0)
        if first:
            trees = dict(zip(("model", "optim"), get_state_dict(model, optim), strict=True))
            found = {**trees, "tree": fields(0.0), "n": 0}
            dcp.load(found, storage_reader=storage)
            assert found["n"] == first
            same(found["tree"], fields(float(first)))
            set_state_dict(
                model, optim, model_state_dict=found["model"], optim_state_dict=found["optim"]
            )
        for step in range(first + 1, first + 3):
            train(model, optim, step)
            trees = dict(zip(("model", "optim"), get_state_dict(model, optim), strict=True))
            tree = fields(float(step))
            saved = {**trees, "tree": tree, "n": step}
            done = dcp.async_save(saved, checkpoint_id=step, storage_writer=storage)
            # What is changed now is not in it.
            for one in tree.values():
                one.to_local().zero_()
            done.result()
        expected, other = model_of()
        get_state_dict(expected, other)
        for step in range(1, first + 3):
            train(expected, other, step)
        for one, two in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(one.full_tensor(), two.full_tensor())


def test_other_numbers_of_processes_load_what_async_save_has_saved(tmp_path: Path) -> None:
    for size in (2, 3):
        assert start(size, work, tmp_path / "run") == [0] * size
