"""Twine as a codec of Zarr: what is read is what was written, or within the bound, or an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unspool import Bound
from unspool.codecs import Zfp
from unspool.errors import CorruptCheckpointError, OptionError

zarr = pytest.importorskip("zarr")

from unspool.interop.zarr import Twine  # noqa: E402

pytestmark = pytest.mark.peer


def written(path: Path, values: np.ndarray, codec: Twine, **more: Any) -> Any:
    made = zarr.create_array(
        path,
        shape=values.shape,
        dtype=values.dtype,
        serializer=codec,
        compressors=None,
        **{"chunks": tuple(min(64, length) for length in values.shape), **more},
    )
    made[...] = values
    return zarr.open_array(path, mode="r")


def field(dtype: str) -> np.ndarray:
    made = np.random.default_rng(4).normal(size=(3, 100, 130)).cumsum(-1) * 100
    return made.astype(dtype)


@pytest.mark.parametrize("dtype", "i1 u2 i4 u8 f2 f4 f8 c8 c16 >f4 >i8".split())
def test_nothing_is_lost_without_a_bound(tmp_path: Path, dtype: str) -> None:
    values = field(dtype)
    values.reshape(-1)[5:9] = 0
    assert np.array_equal(written(tmp_path, values, Twine())[...], values)


@pytest.mark.parametrize("bound", [Bound(abs=1e-3), Bound(range=1e-4)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_bounds_hold_for_every_value(tmp_path: Path, dtype: str, bound: Bound) -> None:
    values = field(dtype)
    values[1, 2, 3] = np.nan
    found = written(tmp_path, values, Twine(bound))
    limit = bound.value * (np.nanmax(values.real) - np.nanmin(values.real) if bound.range else 1)
    kind = np.finfo(dtype).dtype
    far = abs(found[...].view(kind) - values.view(kind))
    assert np.nanmax(far) <= limit and np.isnan(found[1, 2, 3])
    assert found.nbytes_stored() < 0.75 * values.nbytes
    document = json.loads((tmp_path / "zarr.json").read_text())
    wanted = {"name": "unspool.twine", "configuration": {"bound": {bound.kind: bound.value}}}
    assert document["codecs"] == [wanted]


def test_shards_and_scalars(tmp_path: Path) -> None:
    values = field("f4")
    shards = {"chunks": (1, 32, 32), "shards": (1, 128, 160)}
    found = written(tmp_path / "a", values, Twine(), **shards)
    assert np.array_equal(found[1, 30:70, 5], values[1, 30:70, 5])
    assert written(tmp_path / "b", np.array(3.5), Twine())[()] == 3.5


def test_another_program_imports_nothing(tmp_path: Path) -> None:
    written(tmp_path, field("f8"), Twine(Bound(abs=1e-6)))
    code = "import sys, zarr; print(zarr.open_array(sys.argv[1], mode='r')[2, 3, 4])"
    words = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert float(told.stdout) == pytest.approx(field("f8")[2, 3, 4], abs=1e-6)


def test_a_damaged_chunk_is_an_error(tmp_path: Path) -> None:
    found = written(tmp_path, field("f4"), Twine())
    file = tmp_path / "c" / "0" / "0" / "0"
    whole = file.read_bytes()
    for content in (whole[:100] + b"x" + whole[101:], whole[:-1], b"", whole[:7]):
        file.write_bytes(content)
        with pytest.raises(CorruptCheckpointError, match="damaged"):
            found[0, 0, 0]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give a Bound"):
        Twine(Zfp(rate=8))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="says nothing about"):
        written(tmp_path, field("i4"), Twine(Bound(abs=1)))
    for wrong in ({"name": "bytes"}, {"name": "unspool.twine", "configuration": {"level": 3}}):
        with pytest.raises(OptionError, match="not a configuration"):
            Twine.from_dict(wrong)
