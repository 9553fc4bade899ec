"""`unspool import`: histories out of Zarr and HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Disk, Spool, cli

zarr = pytest.importorskip("zarr")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.peer

ARRAYS: dict[str, Any] = {
    "u": np.random.default_rng(1).normal(size=(6, 30, 20)).astype("f4"),
    "group/n": np.arange(12).reshape(6, 2),
    "t": np.linspace(0, 1, 6),
}


def write(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == ".zarr":
        group = zarr.create_group(path)
        for name, values in arrays.items():
            group.create_array(name, data=values)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main(["import", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.parametrize("name", ["x.zarr", "x.h5"])
def test_every_step_is_a_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = write(tmp_path / name, {**ARRAYS, "step": np.arange(6) * 10})
    code, text = run(capsys, source, tmp_path / "a", "--lossless")
    assert code == 0 and "6 steps of" in text
    with Spool(device="cpu", disk=Disk(tmp_path / "a", mode="r")) as spool:
        assert spool.versions() == [0, 10, 20, 30, 40, 50]
        for place, step in enumerate(spool.versions()):
            found = spool.load(step)
            assert sorted(found) == sorted(ARRAYS)
            for each, values in ARRAYS.items():
                assert np.array_equal(found[each], values[place])
    code, text = run(capsys, source, tmp_path / "a")
    assert code == 2 and "step 0 already" in text


def test_what_the_store_shows_is_imported_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Spool(device="cpu", host_memory="16MiB", disk=Disk(tmp_path / "a", durable=True)) as spool:
        for step in (3, 5, 8):
            spool.save(step, u=np.full((4, 5), step, "f4"), v=np.arange(step, step + 3))
    with unspool.look.zarr_store(tmp_path / "a") as store:
        group = zarr.open_group(store, mode="r")
        write(tmp_path / "x.zarr", {name: one[...] for name, one in group.arrays()})
    assert run(capsys, tmp_path / "x.zarr", tmp_path / "b")[0] == 0
    assert unspool.look.diff(tmp_path / "a", tmp_path / "b").equal


def test_arrays_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "x.h5", {**ARRAYS, "mesh": np.zeros(9), "id": np.arange(6) + 1})
    code, text = run(capsys, source, tmp_path / "a")
    assert code == 2 and "'mesh' has the shape (9,)" in text
    words = ("--array", "u", "--array", "group/n", "--steps", "id")
    assert run(capsys, source, tmp_path / "a", *words)[0] == 0
    with Spool(device="cpu", disk=Disk(tmp_path / "a", mode="r")) as spool:
        assert spool.versions() == [1, 2, 3, 4, 5, 6]
    for words, said in (
        (("--array", "no"), "no array 'no', but"),
        (("--array", "u", "--steps", "t"), "integers"),
        (("--array", "u", "--steps", "mesh"), "shape (9,)"),
    ):
        code, text = run(capsys, source, tmp_path / "b", *words)
        assert code == 2 and said in text
    assert not (tmp_path / "b").exists()


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.h5").write_bytes(b"nothing")
    (tmp_path / "x.txt").write_bytes(b"nothing")
    for name, code, said in (
        ("x.h5", 1, "cannot be read"),
        ("x.txt", 2, "its end says the format"),
        ("y.h5", 2, "is not there"),
    ):
        assert run(capsys, tmp_path / name, tmp_path / "a")[0] == code
        assert said in run(capsys, tmp_path / name, tmp_path / "a")[1]
    for words, said in (
        (("x.safetensors",), "say the step"),
        (("x.safetensors", "5", "--lossless"), "are of Zarr and HDF5"),
        (("x.h5", "5"), "has all steps"),
    ):
        file, *more = words
        code, text = run(capsys, tmp_path / file, tmp_path / "a", *more)
        assert code == 2 and said in text
    zarr.create_group(tmp_path / "x.zarr")
    assert "has no arrays" in run(capsys, tmp_path / "x.zarr", tmp_path / "a")[1]
