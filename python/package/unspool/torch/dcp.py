"""Storage of `torch.distributed.checkpoint` (DCP) that is a `Checkpointer`.

Each process saves its items under the name `dcp`: for each tensor its pieces, and what DCP has
pickled of other objects. DCP's metadata is not stored: a reader makes it of what all parts have.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any, cast

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .._restart import Checkpointer
from .._restart.gathered import Gathered
from .._restart.parts import parts_in
from ..errors import OptionError, UnknownVersionError, WaitTimeoutError, shown

__all__ = ["Storage"]

#: The name under which a part has what DCP saved.
_NAME = "dcp"


class Storage(StorageWriter, StorageReader):
    """Writes and reads what `torch.distributed.checkpoint` saves and loads, in a `Checkpointer`:

        checkpoints = unspool.Checkpointer("run", ranks="torch")
        storage = unspool.torch.dcp.Storage(checkpoints)
        dcp.save(state, checkpoint_id=step, storage_writer=storage)
        dcp.load(state, storage_reader=storage)

    `checkpoint_id` is the step; without one a load takes the newest step that counts. `dcp.save`
    returns when the step is durable. `dcp.async_save` returns when the tensors were copied into
    the tiers of the Checkpointer, and its future is done when the step is durable; the Checkpointer
    is not used meanwhile. Saves in another process (`AsyncCheckpointerType.PROCESS`) are refused.

    Objects that are no tensors are pickled by DCP, as in its own storage: load only what you trust.

    Arguments:
        checkpoints: it is open, over the processes of the group that DCP uses.
    """

    def __init__(self, checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints
        self._step: int | None = None
        self._staged, self._thread = threading.Event(), threading.current_thread()
        self._stream: Any = None

    def __reduce__(self) -> Any:
        raise OptionError("unspool.torch.dcp.Storage saves in this process, not in another one.")

    # What both have.

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """A checkpoint begins."""
        text = None if checkpoint_id is None else str(checkpoint_id)
        if text is not None and not text.isdecimal():
            raise OptionError(f"checkpoint_id={shown(checkpoint_id)}: write the step, a number.")
        self._step = None if text is None else int(text)
        self._thread = threading.current_thread()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it is a step."""
        return str(checkpoint_id).isdecimal()

    def prepare_local_plan(self, plan: Any) -> Any:
        """Leaves a plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Leaves plans as they are."""
        return plans

    # Writing.

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Begins a save.

        Raises:
            OptionError: no step was given.
        """
        if self._step is None:
            raise OptionError("dcp.save(..., checkpoint_id=step): give the step.")

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Saves the items of this process; done when they are durable."""
        try:
            tree, results = _items(plan, planner)
            self._checkpoints._tell()
            self._checkpoints._save(cast(int, self._step), {_NAME: tree}, self._stream)
        finally:
            self._stream = None
            self._staged.set()
        self._checkpoints.flush()
        return _done(results)

    def finish(self, metadata: Any, results: Any) -> None:
        """Does nothing: the step counts when all processes have made it durable."""

    # Staging, as DCP's AsyncStager.

    _synchronize_after_execute = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """The caller of `dcp.async_save` waits until tensors were copied."""
        return True

    def stage(self, state_dict: Any) -> Any:
        """Copies nothing yet: `write_data` copies, and the caller waits for it."""
        self._staged.clear()
        self._thread = threading.current_thread()
        if torch.cuda.is_initialized():
            self._stream = torch.cuda.current_stream()
        return state_dict

    def synchronize_staging(self) -> None:
        """Waits until tensors were copied, or the save has failed, which its future tells.

        Raises:
            WaitTimeoutError: they were not within the time limit of the Checkpointer.
        """
        end = self._checkpoints._timeout
        while not self._staged.wait(0.05):
            end -= 0.05
            if not self._thread.is_alive():
                return
            if end < 0:
                raise WaitTimeoutError("dcp.async_save: the tensors were not copied in time.")

    def close(self) -> None:
        """Does nothing: the Checkpointer is closed by its owner."""

    # Reading.

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """What all processes have saved.

        Raises:
            UnknownVersionError: nothing that counts, or nothing by DCP.
        """
        checkpoints = self._checkpoints
        checkpoints.flush()
        seconds = checkpoints._timeout if self._step == checkpoints._saved is not None else 0.0
        parts = parts_in(checkpoints._path, self._step, seconds)
        with Gathered(parts, 0, same=True) as source:
            return _metadata(source, len(parts))

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any
    ) -> None:
        """Begins a load."""
        self.reset(cast(StorageMeta, metadata.storage_meta).checkpoint_id)
        self._places: Any = metadata.storage_data

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Reads what this process needs, and no more."""
        checkpoints, step = self._checkpoints, self._step
        assert step is not None
        with Gathered(parts_in(checkpoints._path, step), 0, same=True) as source:
            for item in plan.items:
                rank, name = self._places[item.storage_index]
                if item.type == LoadItemType.BYTE_IO:
                    content = source.part(rank, name, None).numpy().tobytes()
                    planner.load_bytes(item, io.BytesIO(content))
                else:
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(source.part(rank, name, _index(item)))
                    planner.commit_tensor(item, target)
        checkpoints._core.loaded(step)
        checkpoints._earlier.go_on(step, loaded=True)
        return _done(None)


def _index(item: Any) -> tuple[slice, ...]:
    pairs = zip(item.storage_offsets, item.lengths, strict=True)
    return tuple(slice(at, at + length) for at, length in pairs)


def _done(value: Any) -> Any:
    done: Any = Future()
    done.set_result(value)
    return done


def _items(plan: Any, planner: Any) -> tuple[dict[str, Any], list[WriteResult]]:
    """What a process saves, as a tree, and what DCP is told of it."""
    tensors: dict[str, list[Any]] = {}
    others: dict[str, Any] = {}
    results = []
    for item in plan.items:
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            content = bytearray(data.getbuffer())
            found = torch.frombuffer(content, dtype=torch.uint8)
            others[item.index.fqn] = found
        else:
            about, found = item.tensor_data, data.detach()
            piece = [list(about.chunk.offsets), list(about.size), found]
            tensors.setdefault(item.index.fqn, []).append(piece)
        results.append(WriteResult(item.index, found.nbytes, None))
    paths = {name: list(path) for name, path in (plan.planner_data or {}).items()}
    return {"tensors": tensors, "others": others, "paths": paths}, results


def _metadata(source: Gathered, parts: int) -> Metadata:
    """DCP's metadata of what all parts have."""
    state: dict[str, Any] = {}
    places: dict[MetadataIndex, tuple[int, str]] = {}
    paths: dict[str, Any] = {}
    trees = [source.tree_of(rank, _NAME) for rank in range(parts)]
    if not all(trees):
        raise UnknownVersionError(f"Step {source.step} was not saved by dcp.save.")
    for rank, tree in enumerate(trees):
        paths |= {name: tuple(path) for name, path in tree["paths"].items()}
        for name, place in tree["others"].items():
            state[name] = BytesStorageMetadata()
            places[MetadataIndex(name)] = rank, place
        for name, pieces in tree["tensors"].items():
            for offset, size, place in pieces:
                about = source.region(rank, place)
                chunk = ChunkStorageMetadata(torch.Size(offset), torch.Size(about.shape))
                if name not in state:
                    properties = TensorProperties(dtype=getattr(torch, about.dtype))
                    state[name] = TensorStorageMetadata(properties, torch.Size(size), [])
                state[name].chunks.append(chunk)
                places[MetadataIndex(name, chunk.offsets)] = rank, place
    step = StorageMeta(str(source.step))
    return Metadata(state, planner_data=paths, storage_data=places, storage_meta=step)
