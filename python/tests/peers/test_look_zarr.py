"""`unspool.look.zarr_store`: Zarr reads checkpoints, and its own tests of stores pass."""

from __future__ import annotations

import asyncio
import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, Disk, Spool
from unspool.errors import CorruptCheckpointError

zarr = pytest.importorskip("zarr")
suite = pytest.importorskip("zarr.testing.store")

from unspool.look.store import CheckpointStore  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::pytest.PytestWarning")]


def state(step: int) -> dict[str, Any]:
    made = np.random.default_rng(step)
    return {
        "u": made.normal(size=(40, 30)).astype("f4"),
        "model": {"w": made.normal(size=3), "lr": 0.1 * step, "note": "text"},
        "scalar": np.array(step),
        "flags": np.array([True, False]),
    }


@pytest.fixture
def history(tmp_path: Path) -> Path:
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        for step in range(0, 20, 2):
            spool.save(step, state(step))
    return tmp_path


def test_arrays_and_numbers_along_the_steps(history: Path) -> None:
    with pytest.warns(RuntimeWarning, match="model/note: texts"):
        store = unspool.look.zarr_store(history, dims=("z", "x"))
    with store:
        group = zarr.open_group(store, mode="r")
        assert sorted(dict(group.members())) == ["flags", "model", "scalar", "step", "u"]
        assert group["step"][:].tolist() == list(range(0, 20, 2))
        assert group["u"].metadata.dimension_names == ("step", "z", "x")
        assert group["model/lr"][2] == 0.4 and group["scalar"][3] == 6
        assert np.array_equal(group["u"][4, 3:7, ::5], state(8)["u"][3:7, ::5])
        seconds = [state(step)["model"]["w"][1] for step in range(0, 20, 2)]
        assert group["model/w"][:, 1].tolist() == seconds
        assert group["u"].attrs["codec"] == "raw"
        for write in (lambda: group["u"].__setitem__(0, 1), lambda: group.create_group("x")):
            with pytest.raises(ValueError, match="read-only"):
                write()


def test_slices_of_large_arrays_are_chunks_but_for_encoded_ones(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(1030, 300)).astype("f4")
    deep = np.random.default_rng(2).normal(size=(2, 700, 513))
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        spool.save(0, x=x, y=x, deep=deep, codec={"y": Bound(abs=1e-3), "*": None})
    with unspool.look.zarr_store(tmp_path) as store:
        group = zarr.open_group(store, mode="r")
        assert group["x"].chunks == (1, 873, 300) and group["y"].chunks == (1, 1030, 300)
        assert group["deep"].chunks == (1, 1, 255, 513)
        assert np.array_equal(group["x"][0], x) and np.array_equal(group["deep"][0], deep)
        assert abs(group["y"][0] - x).max() <= 1e-3


def test_every_dtype_is_there_or_named(tmp_path: Path) -> None:
    names = "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
    arrays: dict[str, Any] = {name: np.ones((2, 3), name) for name in names}
    arrays["records"] = np.zeros(2, [("a", "i4")])
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        spool.save(0, arrays)
    with CheckpointStore(tmp_path) as store:
        group = zarr.open_group(store, mode="r")
        for name in names:
            assert group[name][0].tobytes() == arrays[name].tobytes(), name
        assert "records" in group and store.left_out == []


def test_a_damaged_step_is_an_error_and_not_a_fill_value(tmp_path: Path) -> None:
    with Spool(host_memory="64MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
        for step in range(3):
            spool.save(step, u=np.full(100_000, step))
    with sorted(tmp_path.glob("frame-*"))[1].open("r+b") as file:
        file.seek(5000)
        file.write(b"damaged")
    with unspool.look.zarr_store(tmp_path) as store:
        u = zarr.open_group(store, mode="r")["u"]
        assert u[2, 7] == 2
        with pytest.raises(CorruptCheckpointError):
            u[1, 7]


def test_keys_of_chunks(history: Path) -> None:
    with CheckpointStore(history) as store:

        async def listed(prefix: str) -> list[str]:
            return sorted([key async for key in store.list_dir(prefix)])

        async def look() -> None:
            assert await listed("model") == ["lr", "w", "zarr.json"]
            assert await listed("u") == ["c", "zarr.json"]
            assert await listed("u/c") == sorted(map(str, range(10)))
            assert await listed("u/c/3/0") == ["0"]
            every = [key async for key in store.list()]
            assert len(every) == len(set(every)) and "u/c/9/0/0" in every
            for key in every:
                assert await store.exists(key) and await store.get(key) is not None
            for key in ("u/c/10/0/0", "u/c/0/0", "u/c/00/0/0", "u/c/-1/0/0", "x/c/0", "u/c/1/0/x"):
                assert not await store.exists(key) and await store.get(key) is None

        asyncio.run(look())


class _Writable(CheckpointStore):
    """A store into which Zarr's tests can put what they then read, and list."""

    supports_writes = supports_deletes = True

    def __init__(self, path: Path, read_only: bool = False) -> None:
        super().__init__(path, read_only=read_only)
        self._documents = zarr.storage.MemoryStore()
        self._arrays = {}

    def __reduce__(self) -> Any:
        return type(self), (Path(self._options[0]), self.read_only)

    async def set(self, key: str, value: Any) -> None:
        self._check_writable()
        await self._ensure_open()
        await self._documents.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._documents.delete(key)

    def with_read_only(self, read_only: bool = False) -> Any:
        found = type(self)(Path(self._options[0]), read_only)
        found._documents = self._documents
        return found


class TestStore(suite.StoreTests[_Writable, zarr.core.buffer.cpu.Buffer]):
    """Zarr's tests of stores."""

    store_cls = _Writable
    buffer_cls = zarr.core.buffer.cpu.Buffer

    async def set(self, store: Any, key: str, value: Any) -> None:
        await store._documents.set(key, value)

    async def get(self, store: Any, key: str) -> Any:
        return await store._documents.get(key, zarr.core.buffer.default_buffer_prototype())

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        with Spool(host_memory="1MiB", device="cpu", disk=Disk(tmp_path, durable=True)) as spool:
            spool.save(0, {})
        return {"path": tmp_path}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> Any:
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> Any:
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: Any) -> None:
        assert str(store).startswith("CheckpointStore(")

    def test_store_supports_writes(self, store: Any) -> None:
        assert not CheckpointStore.supports_writes

    def test_store_supports_listing(self, store: Any) -> None:
        assert store.supports_listing


def _in_a_loop(test: Any) -> Any:
    """A test that is a coroutine, run to its end."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


for _name, _test in inspect.getmembers(TestStore, inspect.iscoroutinefunction):
    if _name.startswith("test_"):
        setattr(TestStore, _name, _in_a_loop(_test))
