"""`xarray.open_dataset(..., engine="unspool")`: what is in it, what is read, what is left out."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, Disk, Spool
from unspool.errors import CorruptCheckpointError, OptionError

import rank_processes
from helpers import guide_blocks

xr = pytest.importorskip("xarray")
dask = pytest.importorskip("dask")

pytestmark = pytest.mark.peer

SHAPE = (40, 30)


def state(step: int) -> np.ndarray:
    return np.random.default_rng(step).normal(size=SHAPE).astype("f4")


def durable(path: Path) -> Spool:
    return Spool(host_memory="64MiB", device="cpu", disk=Disk(path, durable=True))


def opened(path: Path, **options: Any) -> Any:
    return xr.open_dataset(path, engine="unspool", **options)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    with durable(tmp_path) as spool:
        for step in range(0, 20, 2):
            spool.save(step, {"u": state(step), "n": np.arange(3) + step, "t": 0.1 * step})
    return tmp_path


def test_arrays_are_variables_along_the_steps_and_numbers_coordinates(history: Path) -> None:
    with opened(history) as ds:
        assert dict(ds.sizes) == {"step": 10, "u_dim_0": 40, "u_dim_1": 30, "n_dim_0": 3}
        assert ds.step.values.tolist() == list(range(0, 20, 2))
        assert np.array_equal(ds.u.sel(step=6), state(6)) and ds.u.dtype == "f4"
        assert ds.t.values.tolist() == [0.1 * step for step in range(0, 20, 2)]
        assert ds.u.attrs == {"dtype": "float32", "codec": "raw"}
        assert np.array_equal(ds.n[:, 1], np.arange(0, 20, 2) + 1)
        assert ds.unspool.left_out == []
    with xr.open_dataset(history) as ds:
        assert "u" in ds


@pytest.mark.parametrize("seed", range(40))
def test_any_index_gives_what_numpy_gives(history: Path, seed: int) -> None:
    draw = random.Random(seed)
    whole = np.stack([state(step) for step in range(0, 20, 2)])

    def index(length: int) -> Any:
        ends = sorted(draw.randrange(length + 1) for _ in range(2))
        return draw.choice(
            [
                draw.randrange(-length, length),
                slice(*ends, draw.choice([None, 1, 2, 7])),
                slice(None, None, -1),
                np.array([draw.randrange(length) for _ in range(draw.randrange(5))], int),
            ]
        )

    key = tuple(index(length) for length in whole.shape)
    with opened(history) as ds:
        found = ds.u[key].values
    expected = whole
    for axis, one in reversed(list(enumerate(key))):
        expected = expected[(slice(None),) * axis + (one,)]
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_only_what_is_asked_for_is_read(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unspool.look.checkpoints import Checkpoints

    asked: list[tuple[Any, ...]] = []
    plain = Checkpoints.read

    def watched(self: Any, *given: Any) -> Any:
        asked.append(given)
        return plain(self, *given)

    monkeypatch.setattr(Checkpoints, "read", watched)
    with opened(history) as ds:
        repr(ds)
        assert asked == []
        ds.u.isel(step=[3, 1], u_dim_0=slice(2, 4), u_dim_1=5).load()
    assert sorted(step for step, *_ in asked) == [2, 6]
    assert {(name, part[0].start, part[0].stop, part[1]) for _, name, part in asked} == {
        ("u", 2, 4, 5)
    }


def test_a_dataset_goes_to_other_processes_and_into_chunks(history: Path) -> None:
    with opened(history, chunks={}) as ds:
        assert ds.u.chunks[0] == (1,) * 10
        mean = ds.u.mean("step").compute(scheduler="processes", num_workers=1)
        expected = np.stack([state(step) for step in range(0, 20, 2)]).mean(0)
        np.testing.assert_allclose(mean, expected, rtol=1e-3)
    with opened(history) as ds, pickle.loads(pickle.dumps(ds)) as again:
        xr.testing.assert_identical(again.load(), ds.load())


def test_names_of_dimensions(history: Path) -> None:
    with opened(history, dims=("z", "x"), dim="time") as ds:
        assert ds.u.dims == ("time", "z", "x") and ds.n.dims == ("time", "dim_0")
    with opened(history, dims={"n": ["k"]}) as ds:
        assert ds.n.dims == ("step", "k") and ds.u.dims == ("step", "dim_0", "dim_1")
    for wrong in ({"u": ["x"]}, "zx", {"u": ["step", "x"]}, {"u": ["x", "x"]}, ("n", "x")):
        with pytest.raises(OptionError, match="dims"):
            opened(history, dims=wrong)
    assert "u" not in opened(history, drop_variables="u")


def test_dimensions_and_coordinates_of_a_dataset_that_was_saved(tmp_path: Path) -> None:
    saved = xr.Dataset({"u": (("z", "x"), np.zeros((3, 4)))}, coords={"x": np.arange(4.0)})
    with durable(tmp_path) as spool:
        for step in range(3):
            spool.save(step, {"ds": saved + step, "other": np.zeros((4, 3))})
    with opened(tmp_path) as ds:
        assert ds["ds/data/u/values"].dims == ("step", "z", "x")
        assert ds["ds/coords/x/values"].dims == ("step", "x")
        assert ds.other.dims == ("step", "dim_0", "dim_1")


def test_a_history_without_steps(tmp_path: Path) -> None:
    durable(tmp_path).close()
    with opened(tmp_path) as ds:
        assert ds.sizes == {"step": 0} and not ds.data_vars
    assert unspool.look.diff(tmp_path, tmp_path).equal


def test_a_codec_and_its_bound_are_attributes(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(300, 300)).astype("f4")
    with durable(tmp_path) as spool:
        spool.save(0, u=x, v=x, w=x, codec={"u": Bound(abs=1e-4), "v": "lossless", "*": None})
    with opened(tmp_path) as ds:
        assert ds.u.attrs["bound"] == 1e-4 and ds.u.attrs["bound_kind"] == "abs"
        assert ds.u.attrs["max_error"] == float(abs(ds.u[0].values - x).max()) <= 1e-4
        assert ds.v.attrs == {"dtype": "float32", "codec": "twine"}
        assert np.array_equal(ds.v[0], x)


def test_an_array_of_some_steps_has_a_dimension_of_its_own(history: Path) -> None:
    with durable(history) as spool:
        spool.save(30, mesh=np.arange(4), u=state(30))
    with opened(history) as ds:
        assert ds.u.dims[0] == "step" and ds.mesh.dims[0] == "mesh_step"
        assert ds.mesh_step.values.tolist() == [30]
        assert ds.n.dims[0] == ds.t.dims[0] == "n_step"


def test_what_cannot_be_in_it_is_named_and_the_rest_opens(tmp_path: Path) -> None:
    with durable(tmp_path) as spool:
        for step in range(5):
            shape = SHAPE if step != 3 else (7, 7)
            more = {"step": np.zeros(2)} if step == 0 else {}
            spool.save(step, u=np.full(shape, step, "f4"), v=np.zeros(100_000), **more)
    # The frame of step 1 is gone, that of step 2 damaged in its payload.
    files = sorted(tmp_path.glob("frame-*"))
    files[1].unlink()
    with files[2].open("r+b") as file:
        file.seek(5000)
        file.write(b"damaged")
    with pytest.warns(RuntimeWarning, match="left out: step 1") as told:
        ds = opened(tmp_path)
    with ds:
        assert "u in step 3" in str(told[0].message) and len(ds.unspool.left_out) == 3
        assert ds.u.step.values.tolist() == [0, 2, 4] if "u_step" not in ds.dims else True
        assert np.array_equal(ds.u.sel(u_step=4), np.full(SHAPE, 4, "f4"))
        with pytest.raises(CorruptCheckpointError, match="2"):
            ds.u.sel(u_step=2).load()


def test_a_newest_step_that_is_damaged_leaves_the_others(tmp_path: Path) -> None:
    with durable(tmp_path) as spool:
        for step in range(3):
            spool.save(step, u=np.full(100_000, step, "f4"))
    with max(tmp_path.glob("frame-*")).open("r+b") as file:
        # The checksums of its pieces, behind the payload.
        file.seek(4096 + 400_000 + 8)
        file.write(b"damaged")
    with pytest.warns(RuntimeWarning, match="attributes of u"), opened(tmp_path) as ds:
        assert ds.u[1, 5] == 1 and ds.u.attrs == {"dtype": "float32"}


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("no")
    with pytest.raises(OptionError, match="no durable checkpoints"):
        opened(tmp_path)
    assert not xr.backends.plugins.list_engines()["unspool"].guess_can_open(tmp_path)


def test_a_dataset_of_another_engine_and_a_directory_of_a_newer_version(history: Path) -> None:
    opened(history).close()
    other = xr.Dataset({"u": ("x", np.zeros(3))})
    for call in (other.unspool.refresh, lambda: other.unspool.left_out):
        with pytest.raises(OptionError, match="engine="):
            call()
    # The version in the head of one frame, which is in a file of its own.
    with durable(history) as spool:
        spool.save(100, u=np.zeros(50_000))
    with max(history.glob("frame-*")).open("r+b") as file:
        file.seek(8)
        file.write((77).to_bytes(4, "little"))
    with pytest.warns(RuntimeWarning, match="left out: step 100"), opened(history) as ds:
        assert ds.step.values.tolist() == list(range(0, 20, 2))


def test_every_dtype(tmp_path: Path) -> None:
    names = "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 S3 U2 M8[ns] m8[ns]".split()
    arrays = {name: np.zeros((2, 3), name) for name in names}
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays["half"] = np.ones((2, 3), ml_dtypes.bfloat16)
    arrays["records"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
    with durable(tmp_path) as spool:
        spool.save(0, arrays)
    with opened(tmp_path) as ds:
        for name, expected in arrays.items():
            assert ds[name].dtype == expected.dtype, name
            assert ds[name][0].values.tobytes() == expected.tobytes(), name


def test_a_run_with_increments_and_its_copies(tmp_path: Path) -> None:
    big = np.zeros(100_000)
    copies = unspool.types.Copies(remote=str(tmp_path / "copies"), every=1)
    with unspool.Checkpointer(
        tmp_path / "run", every=1, keep=5, copies=copies, increments=3
    ) as run:
        for step in range(1, 5):
            big[step] = step
            run.save(step, u=big, time=0.5 * step)
    for place in ("run", "copies"):
        with opened(tmp_path / place) as ds:
            assert ds.step.values.tolist()[-1] == 4
            assert ds.time.values[-1] == 2.0
            for step in ds.step.values.tolist():
                assert ds.u.sel(step=step)[: step + 2].values.tolist() == [*range(step + 1), 0]


def _rank(ranks: Any, path: Path) -> None:
    with unspool.Checkpointer(path, every=1, ranks=ranks, keep=9) as run:
        for step in (1, 2):
            run.save(step, u=np.full(5, 10 * ranks.rank + step))


def test_arrays_of_ranks_have_the_rank_before_their_names(tmp_path: Path) -> None:
    for process in rank_processes.start(2, _rank, tmp_path):
        process.join(60)
        assert process.exitcode == 0
    with opened(tmp_path) as ds:
        assert ds.step.values.tolist() == [1, 2]
        for rank in range(2):
            assert ds[f"rank-000{rank}/u"][:, 0].values.tolist() == [10 * rank + 1, 10 * rank + 2]


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "howto" / "look.md"
    first = page.read_text("utf-8").split("```python\n")[1].split("```")[0]
    namespace: dict[str, object] = {}
    for block in [first, *guide_blocks("look.md")]:
        exec(block, namespace)


def _rows(ranks: Any, path: Path, step: int) -> None:
    """Saves some rows of an array on each rank, and its rank."""
    whole = np.arange(12 * 5000.0).reshape(12, 5000) + step
    first, end = (12 * at // ranks.size for at in (ranks.rank, ranks.rank + 1))
    with unspool.Checkpointer(path, every=1, ranks=ranks, keep=9) as run:
        piece = unspool.types.Shard(whole[first:end], shape=whole.shape, offset=(first, 0))
        run.save(step, u=piece, own=np.array([ranks.rank]), t=0.5 * step)


def test_pieces_of_ranks_are_put_together(tmp_path: Path) -> None:
    for process in rank_processes.start(3, _rows, tmp_path, 1):
        process.join(60)
        assert process.exitcode == 0
    with opened(tmp_path) as ds:
        assert ds.u.shape == (1, 12, 5000) and ds.u.attrs["codec"] == "raw"
        assert np.array_equal(ds.u[0], np.arange(60_000.0).reshape(12, 5000) + 1)
        assert ds.u[0, 3:9:2, -1].values.tolist() == [20_000.0, 30_000.0, 40_000.0]
        assert ds["rank-0002/own"].values.tolist() == [[2]]
        assert not [name for name in ds if name.endswith("/u")]


JOB = """
import sys, numpy as np, unspool
from unspool import Spool, Disk
with Spool(host_memory="16MiB", device="cpu", disk=Disk(sys.argv[1], durable=True)) as spool:
    for step in range(100_000):
        spool.save(step, u=np.full(20_000, step), n=np.array([step]))
        if step % 10 == 9:
            spool.flush()
            print(step, flush=True)
"""


def test_beside_a_writer_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", JOB, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        durable_to = int(writer.stdout.readline())
        ds = opened(tmp_path)
        for _ in range(6):
            durable_to = int(writer.stdout.readline())
            ds = ds.unspool.refresh()
            steps = ds.step.values
            assert steps[-1] >= durable_to and np.array_equal(steps, np.arange(len(steps)))
            assert np.array_equal(ds.u[:, 7], steps) and np.array_equal(ds.n[:, 0], steps)
        os.kill(writer.pid, signal.SIGKILL)
    with ds.unspool.refresh() as ds:
        assert ds.step.values[-1] >= durable_to
        assert np.array_equal(ds.u[:, 7], ds.step)
