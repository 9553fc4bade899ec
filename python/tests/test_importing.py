"""`unspool import`: what a file of safetensors has becomes a checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import cli


def written(path: Path, arrays: dict[str, Any], **more: str) -> Path:
    """A file as the format says, without its library."""
    names = {"<f8": "F64", "<f4": "F32", "<i2": "I16", "|b1": "BOOL", "<c8": "C64"}
    header: dict[str, Any] = {"__metadata__": more} if more else {}
    at = 0
    for name, array in arrays.items():
        end = at + array.nbytes
        form = {"dtype": names[array.dtype.str], "shape": list(array.shape)}
        header[name] = {**form, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    content = b"".join(array.tobytes() for array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path


ARRAYS = {
    "model.0.weight": np.arange(6.0).reshape(2, 3),
    "half": np.arange(4, dtype=np.float32),
    "flag": np.array([True, False]),
    "scalar": np.array(3, np.int16),
    "empty": np.zeros((0, 2), np.float32),
    "pair": np.array([1 + 2j], np.complex64),
}


def test_arrays_of_a_file_are_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "x.safetensors", ARRAYS, format="pt")
    assert cli.main(["import", str(file), str(tmp_path / "run"), "5"]) == 0
    assert "saved as step 5" in capsys.readouterr().out
    with unspool.Checkpointer(tmp_path / "run", device="cpu") as checkpoints:
        found = checkpoints.load(5)
        assert checkpoints.values(5) == {}
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name
    assert cli.main(["import", str(file), str(tmp_path / "run"), "5"]) == 2
    assert "step 5 does not come after it" in capsys.readouterr().err


def test_a_tree_that_was_exported_comes_back(tmp_path: Path) -> None:
    with unspool.Checkpointer(tmp_path / "run", device="cpu") as checkpoints:
        checkpoints.save(3, model={"w": np.arange(3.0), "n": 2}, epoch=4)
        checkpoints.flush()
        manifest = (tmp_path / "run/rank-0000-of-0001/step-3.manifest").read_text()
        parts = checkpoints.spool._load_parts(3)
    values = next(line for line in manifest.splitlines() if line.startswith("{"))
    texts = {"unspool.tree": parts.pop("unspool.tree").decode(), "unspool.values": values}
    file = written(tmp_path / "x.safetensors", parts, **texts)
    assert cli.main(["import", str(file), str(tmp_path / "other"), "3"]) == 0
    with unspool.Checkpointer(tmp_path / "other", device="cpu") as checkpoints:
        found = checkpoints.load(3)
    assert found["epoch"] == 4 and found["model"]["n"] == 2
    assert np.array_equal(found["model"]["w"], np.arange(3.0))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no file of safetensors"),
        (b"\xff" * 8, "header is cut off"),
        (b"\x02" + bytes(7) + b"[]", "no object"),
        (b"\x03" + bytes(7) + b"{1}", "no file of safetensors"),
    ],
)
def test_what_is_no_such_file_is_an_error(
    content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(content)
    code = cli.main(["import", str(file), str(tmp_path / "run"), "5"])
    assert code == 1 and told in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"data_offsets": [0, 99]}, {"shape": [-2, -3]}, {"dtype": "X"}])
def test_a_header_that_lies_is_an_error(change: dict[str, Any], tmp_path: Path) -> None:
    about = {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 48], **change}
    text = json.dumps({"u": about}).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(48))
    assert cli.main(["import", str(file), str(tmp_path / "run"), "5"]) != 0
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_orbax_is_a_checkpoint(tmp_path: Path) -> None:
    orbax = pytest.importorskip("orbax.checkpoint")
    state = {
        "params": {"w": np.arange(12.0).reshape(3, 4), "of": [np.arange(3), {"k": np.ones(2)}]},
        "step": 7,
    }
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", state)
    assert cli.main(["import", str(tmp_path / "orbax"), str(tmp_path / "run"), "7"]) == 0
    with unspool.Checkpointer(tmp_path / "run", device="cpu") as checkpoints:
        found = checkpoints.load(7)
    assert found["step"] == 7 and found["params"].keys() == {"w", "of"}
    assert np.array_equal(found["params"]["w"], state["params"]["w"])
    first, second = found["params"]["of"]
    assert np.array_equal(first, np.arange(3)) and np.array_equal(second["k"], np.ones(2))


def test_a_folder_of_orbax_without_tensorstore_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_METADATA").write_text("{}")
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    assert cli.main(["import", str(tmp_path), str(tmp_path / "run"), "7"]) == 2
    assert "pip install tensorstore" in capsys.readouterr().err
