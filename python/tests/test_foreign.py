"""Objects of pandas, xarray and JAX that hold arrays: they come back as what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import flat
import numpy as np
import pytest
import unspool
from unspool import errors


def opened(path: Path, **state: Any) -> unspool.Checkpointer:
    return flat.checkpointer(path / "run", every=1, host_memory="16MiB", device="cpu", **state)


def test_frames_of_numbers_come_back(spool: unspool.Spool) -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2024-01-01", periods=3, freq="D").as_unit("s")
    frames = [
        pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, np.nan, 2.0], "c": [True, False, True]}),
        pandas.DataFrame({"a": days, 7: np.arange(3, dtype="i1")}, index=["x", "y", "z"]),
        pandas.DataFrame({"t": days - days[0]}, index=pandas.Index([3, 1, 2], name="n")),
        pandas.DataFrame(np.ones((2, 2)), index=pandas.RangeIndex(4, 8, 2, name="r")),
        pandas.DataFrame([[1, 2], [3, 4]], columns=["same", "same"]),
        pandas.DataFrame({}),
    ]
    for version, frame in enumerate(frames):
        spool.save(version, {"frame": frame, "row": frame.iloc[:, 0] if len(frame) else 1})
        found = spool.load(version)
        pandas.testing.assert_frame_equal(found["frame"], frame, check_freq=False)
        if len(frame):
            pandas.testing.assert_series_equal(found["row"], frame.iloc[:, 0], check_freq=False)
    for wrong in ({"a": ["x"]}, {"a": pandas.Categorical(["x"])}, {"a": pandas.array([1, None])}):
        with pytest.raises(errors.ArrayError, match="column 'a'"):
            spool.save(99, {"frame": pandas.DataFrame(wrong)})
    with pytest.raises(errors.ArrayError, match="reset_index"):
        spool.save(99, {"frame": frames[0].set_index(["a", "b"])})


def test_a_tree_of_datasets_comes_back(spool: unspool.Spool) -> None:
    xarray = pytest.importorskip("xarray")
    one = xarray.Dataset({"u": (("x",), np.arange(3.0))}, {"x": [1, 2, 3]}, {"unit": "m"})
    tree = xarray.DataTree.from_dict({"/": one, "/a/b": one * 2, "/c": xarray.Dataset()}, name="n")
    spool.save(1, {"tree": tree, "one": one})
    found = spool.load(1)
    assert found["tree"].identical(tree) and found["one"].identical(one)
    assert found["tree"].name == "n" and found["tree"]["a/b"].parent.parent is found["tree"]


class Moments(NamedTuple):
    count: Any
    mean: Any


def test_a_model_of_equinox_comes_back_with_its_functions(tmp_path: Path) -> None:
    jax, eqx = pytest.importorskip("jax"), pytest.importorskip("equinox")
    model = eqx.nn.MLP(2, 1, 4, 2, activation=jax.nn.tanh, key=jax.random.key(1))
    opt = Moments(jax.numpy.zeros((), "int32"), eqx.filter(model, eqx.is_array))
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, model=model, opt=opt, key=jax.random.key(5), params=[jax.numpy.ones(3)])
    other = eqx.nn.MLP(2, 1, 4, 2, activation=jax.nn.tanh, key=jax.random.key(2))
    blank = Moments(opt.count, eqx.filter(other, eqx.is_array))
    with opened(tmp_path) as checkpoints:
        plain = checkpoints.load()
        assert isinstance(plain["model"], dict) and ".layers[0].weight" in plain["model"]
        assert isinstance(plain["params"][0], jax.Array) and plain["key"] == jax.random.key(5)
        found = checkpoints.load(like={"model": other, "opt": blank, "params": plain["params"]})
        assert eqx.tree_equal(found["model"], model) and eqx.tree_equal(found["opt"], opt)
        assert type(found["opt"]) is Moments and found["model"](np.ones(2)) == model(np.ones(2))
        wider = eqx.nn.MLP(2, 1, 5, 2, activation=jax.nn.tanh, key=jax.random.key(2))
        deeper = eqx.nn.MLP(2, 1, 4, 3, activation=jax.nn.tanh, key=jax.random.key(2))
        for wrong, said in ((wider, "was float32"), (deeper, "other leaves")):
            with pytest.raises(errors.ArrayError, match=said):
                checkpoints.load(like={"model": wrong})
        with pytest.raises(errors.ArrayError, match="nothing was saved under 'ema'"):
            checkpoints.load(like={"ema": model})
    with pytest.raises(errors.OptionError, match="cannot be written in place"):
        opened(tmp_path, params=opt)


def test_a_class_that_jax_knows_and_we_do_not_is_saved_by_its_leaves(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")

    @jax.tree_util.register_pytree_with_keys_class
    class Frozen:
        def __init__(self, items: dict[str, Any]) -> None:
            self.items = items

        def tree_flatten_with_keys(self) -> Any:
            keys = [(jax.tree_util.DictKey(name), one) for name, one in self.items.items()]
            return keys, tuple(self.items)

        @classmethod
        def tree_unflatten(cls, names: Any, leaves: Any) -> Any:
            return cls(dict(zip(names, leaves, strict=True)))

    state = Frozen({"w": jax.numpy.arange(3.0), "inner": Frozen({"n": 4})})
    device = jax.devices()[0]
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, state=state)
        blank = jax.tree_util.tree_map(lambda leaf: leaf * 0, state)
        found = checkpoints.load(like={"state": blank})["state"]
    assert type(found) is Frozen and found.items["w"].tolist() == [0, 1, 2]
    assert found.items["w"].device == device and found.items["inner"].items["n"] == 4
