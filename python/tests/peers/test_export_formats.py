"""`unspool export` into files of other projects, read by these projects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
from unspool import Checkpointer, cli

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
safetensors = pytest.importorskip("safetensors")
numpy_files = pytest.importorskip("safetensors.numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

pytestmark = pytest.mark.peer

ARRAYS = {
    "u": np.linspace(0, 1, 600, dtype="f4").reshape(20, 30),
    "w/0": np.arange(5),
    "empty": np.zeros((0, 3)),
    "alone": np.array(3.5),
    "flags": np.array([True, False]),
    "half": np.ones((2, 3), ml_dtypes.bfloat16),
}
MORE = {
    "complex": np.array([1 + 2j, 3]),
    "dates": np.array(["2026-11-23"], "M8[D]"),
    "records": np.zeros(2, [("a", "i4"), ("b", "f8")]),
}


def keep(path: Path, arrays: dict[str, Any]) -> None:
    with flat.checkpointer(path, host_memory="16MiB", device="cpu", signals=()) as checkpoints:
        checkpoints.save(7, **arrays, tree={"a": [np.ones(2), 1]}, time=0.5)


def export(path: Path, out: Path, *more: str) -> int:
    return cli.main(["export", str(path), "7", "-o", str(out), *more])


def same(found: Any, expected: np.ndarray) -> bool:
    return bool(found.shape == expected.shape) and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["x.h5", "x.hdf5", "x.zarr"])
def test_all_arrays_are_in_a_file_of_hdf5_or_zarr(name: str, tmp_path: Path) -> None:
    arrays = {**ARRAYS, **MORE}
    keep(tmp_path / "run", arrays)
    out = tmp_path / name
    for more in ([], ["--force"]):
        assert export(tmp_path / "run", out, *more) == 0
        is_zarr = out.suffix == ".zarr"
        file = zarr.open_group(str(out), mode="r") if is_zarr else h5py.File(out)
        for key, expected in arrays.items():
            found = file[key]
            assert same(found[...], expected), key
            if key == "half":
                assert found.attrs["dtype"] == "bfloat16"
                assert (found[...].view(ml_dtypes.bfloat16) == expected).all()
        assert (file["tree/a/0"][...] == 1).all()
        texts = file.attrs if is_zarr else {n: file[n].asstr()[()] for n in file if "." in n}
        assert '"time":0.5' in texts["unspool.values"] and "tree" in texts["unspool.tree"]
        if not is_zarr:
            assert file["dates"].attrs["dtype"] == "<M8[D]"
            file.close()
    assert export(tmp_path / "run", out) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", name]


def test_a_file_of_safetensors_has_what_it_can_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "run", ARRAYS)
    assert export(tmp_path / "run", tmp_path / "x.safetensors") == 0
    found = numpy_files.load_file(tmp_path / "x.safetensors")
    assert found.keys() == {*ARRAYS, "tree/a/0"}
    assert all(same(found[name], expected) for name, expected in ARRAYS.items())
    assert found["half"].dtype == ml_dtypes.bfloat16
    with safetensors.safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert '"time":0.5' in file.metadata()["unspool.values"]
    keep(tmp_path / "other", {**ARRAYS, **MORE})
    assert export(tmp_path / "other", tmp_path / "y.safetensors") == 1
    assert "complex: a safetensors file cannot hold complex128" in capsys.readouterr().err
    assert not list(tmp_path.glob("*y.safetensors*"))


def test_a_file_of_safetensors_comes_back(tmp_path: Path) -> None:
    keep(tmp_path / "run", ARRAYS)
    file = tmp_path / "x.safetensors"
    assert export(tmp_path / "run", file) == 0
    assert cli.main(["import", str(file), str(tmp_path / "other"), "7"]) == 0
    with Checkpointer(tmp_path / "run", device="cpu") as before:
        expected = before.load(7)
    with Checkpointer(tmp_path / "other", device="cpu") as after:
        found = after.load(7)
        assert after.values() == {"time": 0.5}
    assert found.keys() == expected.keys()
    assert all(same(found[name], expected[name]) for name in ARRAYS)


def test_a_directory_of_something_else_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "run", ARRAYS)
    mine = tmp_path / "x.zarr"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    assert export(tmp_path / "run", mine, "--force") == 1
    assert "a directory of something else" in capsys.readouterr().err
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x.zarr"]
