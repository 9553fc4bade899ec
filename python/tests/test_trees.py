"""Numbers, texts and trees beside arrays."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from hypothesis import given
from hypothesis import strategies as st
from unspool.errors import ArrayError

from helpers import same_bits

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class State:
    u: np.ndarray
    t: float
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    v: np.ndarray
    step: int


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and same_bits(left, right)
    if type(left) is not type(right):
        return False
    if dataclasses.is_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


U, V = np.arange(6.0).reshape(2, 3), np.arange(3, dtype="i4")

TREES = {
    "numbers beside arrays": {"u": U, "t": 0.1, "note": "caf\u00e9 \u2713", "step": 10**30},
    "a list": [U, [V, None, True], ()],
    "a tuple": (U, {"deep": {"deeper": V}}),
    "keys": {1: U, "1": V, None: 3, 2.5: "x", False: True, "a/b": U, "a": {"b": V}},
    "a dataclass": State(U, 0.5, "x"),
    "frozen": [Fixed(V, 7), Pair(U, 1)],
    "floats": {"u": U, "nan": math.nan, "inf": -math.inf, "zero": -0.0, "z": 1 + 2j},
    "no arrays": {"t": 0.5},
    "a number": 0.25,
    "a reserved name": {"unspool.tree": U, "t": 1},
    "nothing": {},
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_comes_back_as_it_was(spool: unspool.Spool, name: str) -> None:
    spool.save(1, TREES[name])
    assert same(spool.load(1), TREES[name])


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers()
arrays = st.builds(lambda n: np.arange(n, dtype="f4"), st.integers(0, 3))
keys = st.text(max_size=3) | st.integers() | st.none()
trees = st.recursive(
    values | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


@given(trees)
def test_any_tree_comes_back_as_it_was(tree: Any) -> None:
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        spool.save(1, [tree])
        assert same(spool.load(1), [tree])


def test_arrays_of_a_tree_are_regions_that_other_readers_see(spool: unspool.Spool) -> None:
    spool.save(1, {"u": U, "deep": [V, 3]})
    *arrays, text = spool.regions(1)
    assert [(one.name, one.dtype, one.shape) for one in arrays] == [
        ("u", "float64", (2, 3)),
        ("deep/0", "int32", (3,)),
    ]
    assert (text.name, text.dtype) == ("unspool.tree", "uint8")
    raw = np.zeros(text.shape, "u1")
    with pytest.raises(ArrayError, match="name of what says"):
        spool.restore(1, **{"unspool.tree": raw})
    target = np.zeros((2, 3))
    spool.restore(1, u=target)
    assert same_bits(target, U)
    with spool.reading(1, to="numpy") as lent:
        assert list(lent) == ["u", "deep/0"] and same_bits(np.array(lent["deep/0"]), V)


def test_a_dictionary_of_arrays_is_what_is_saved_by_name(spool: unspool.Spool) -> None:
    spool.save(1, {"u": U, "v": V})
    assert [one.name for one in spool.regions(1)] == ["u", "v"]
    target = np.zeros_like(U)
    spool.restore(1, {"v": np.zeros_like(V), "u": target})
    assert same_bits(target, U) and same(spool.load(1), {"u": U, "v": V})


def test_numbers_may_stand_beside_arrays_in_a_call(spool: unspool.Spool) -> None:
    spool.save(1, u=U, t=0.1)
    spool.save(2, U, 0.1)
    spool.save_many({3: {"u": U, "t": 0.1}, 4: (U, 0.1)})
    for version in (1, 3):
        assert same(spool.load(version), {"u": U, "t": 0.1})
    for version in (2, 4):
        assert same(spool.load(version), (U, 0.1))


def test_a_tree_is_restored_in_place(spool: unspool.Spool) -> None:
    spool.save(1, {"state": State(U, 0.5, "x"), "more": [V, 3, math.nan]})
    u, v = np.zeros_like(U), np.zeros_like(V)
    target = {"state": State(u, 0.0), "more": [v, 0, 0.0]}
    spool.restore(1, target)
    assert same_bits(u, U) and same_bits(v, V)
    assert target["state"].t == 0.5 and target["state"].note == "x" and target["state"].u is u
    assert target["more"][1] == 3 and math.isnan(target["more"][2])


def test_another_tree_is_refused_for_a_restore(spool: unspool.Spool) -> None:
    spool.save(1, {"u": U, "t": 0.5, "p": Pair(V, 1)})
    for wrong in [
        {"u": np.zeros_like(U), "t": 0.5, "x": 1},
        {"u": np.zeros_like(U), "t": 0.5, "p": (np.zeros_like(V), 1)},
        {"u": np.zeros_like(U), "t": 0.5, "p": Pair(np.zeros_like(V), 2)},
        {"u": np.zeros_like(U), "t": {}, "p": Pair(np.zeros_like(V), 1)},
        {"u": 1.0, "t": 0.5, "p": Pair(np.zeros_like(V), 1)},
    ]:
        with pytest.raises(ArrayError):
            spool.restore(1, wrong)
    spool.restore(1, {"u": np.zeros_like(U), "t": 0, "p": Pair(np.zeros_like(V), 1)})


@pytest.mark.parametrize(
    ("leaf", "why"),
    [(object(), "neither"), (Path("x"), "neither"), ({(1,): U}, "key")],
)
def test_what_is_neither_array_nor_text_is_named(
    spool: unspool.Spool, leaf: object, why: str
) -> None:
    with pytest.raises(ArrayError, match=why) as raised:
        spool.save(1, {"deep": [leaf]})
    assert "deep" in str(raised.value) and raised.value.version == 1
    assert 1 not in spool


def test_a_tree_that_holds_itself_is_refused(spool: unspool.Spool) -> None:
    loop: list[Any] = [U]
    loop.append(loop)
    with pytest.raises(ArrayError, match="holds itself"):
        spool.save(1, loop)


def test_a_tree_survives_its_process(tmp_path: Path) -> None:
    disk = unspool.Disk(tmp_path, durable=True)
    with unspool.Spool(host_memory="1MiB", disk=disk, codec=unspool.Bound(abs=1e-3)) as spool:
        spool.save(1, {"u": U, "t": 0.1})
    with unspool.Spool(host_memory="1MiB", disk=disk) as spool:
        found = spool.load(1)
        assert found["t"] == 0.1 and np.allclose(found["u"], U, atol=1e-3)


HOSTILE = [
    b"",
    b"{",
    b"[]",
    b'{"unspool":5,"tree":1}',
    b'{"unspool":4,"tree":{"shards":"u"}}',
    b'{"unspool":4,"tree":{"shards":"u","kind":"shard","shape":[2],"at":[[0]],"of":[1]}}',
    b'{"unspool":4,"tree":{"shards":"u","kind":"shard","shape":[-2],"at":[],"of":[]}}',
    b'{"unspool":2,"tree":{"enum":"os:environ","name":"PATH"}}',
    b'{"unspool":2,"tree":{"enum":"signal:Signals","name":"SIGNONE"}}',
    b'{"unspool":2,"tree":{"scalar":"|O","hex":"0000000000000000"}}',
    b'{"unspool":2,"tree":{"scalar":"<f8","hex":"00"}}',
    b'{"unspool":2,"tree":{"scalar":1,"hex":"00"}}',
    b'{"unspool":1,"tree":{"list":[1],"as":"os:system"}}',
    b'{"unspool":1,"tree":{"list":[1],"as":"unspool:Spool"}}',
    b'{"unspool":1,"tree":{"dict":[],"of":[],"as":"collections:defaultdict","with":"eval"}}',
    b'{"unspool":1,"tree":{"list":[{"list":[]}],"as":"builtins:set"}}',
    b'{"unspool":1,"tree":{"array":"w"}}',
    b'{"unspool":1,"tree":{"class":"os:system","fields":[],"of":[]}}',
    b'{"unspool":1,"tree":{"class":"subprocess:Popen","fields":["args"],"of":["ls"]}}',
    b'{"unspool":1,"tree":{"class":"no.such:Thing","fields":[],"of":[]}}',
    b'{"unspool":1,"tree":{"dict":[1],"of":[]}}',
    b'{"unspool":1,"tree":{"what":1}}',
    b'{"unspool":1,"tree":{"float":"x"}}',
    b'{"unspool":1,"tree":' + b'{"list":[' * 5000 + b"]}" * 5000 + b"}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_that_is_not_a_tree_is_an_error_of_ours(text: bytes) -> None:
    from unspool._trees import build

    with pytest.raises(ArrayError):
        build(text, {})


def test_the_text_is_as_the_page_on_the_format_says() -> None:
    from unspool._trees import flatten

    entries, text = flatten({"u": U, "t": 0.1, "more": [V, math.inf]})
    assert [name for name, _ in entries] == ["u", "more/0"]
    assert json.loads(text or b"") == {
        "unspool": 1,
        "tree": {
            "dict": ["u", "t", "more"],
            "of": [
                {"array": "u", "as": "numpy"},
                0.1,
                {"list": [{"array": "more/0", "as": "numpy"}, {"float": "inf"}]},
            ],
        },
    }


def test_datasets_of_xarray_come_back(spool: unspool.Spool) -> None:
    xarray = pytest.importorskip("xarray")
    dataset = xarray.Dataset(
        {"u": (("x", "y"), U, {"units": "m"})},
        coords={"x": [10, 20], "time": np.datetime64("2026-01-01", "ns")},
        attrs={"title": "a run", "level": 3},
    )
    spool.save(1, dataset)
    spool.save(2, {"field": dataset["u"], "t": 1})
    assert dataset.identical(spool.load(1))
    assert dataset["u"].identical(spool.load(2)["field"])


def test_some_arrays_of_several_are_restored_by_name(spool: unspool.Spool) -> None:
    spool.save(1, u=U, v=V)
    target = np.zeros_like(V)
    spool.restore(1, v=target)
    assert same_bits(target, V)
    with pytest.raises(ArrayError, match=r"named v, w given.*some of them"):
        spool.restore(1, v=target, w=target)
    spool.save(2, U, V)
    with pytest.raises(ArrayError, match="2 arrays by position"):
        spool.restore(2, np.zeros_like(U))


def test_a_part_of_a_tree_is_read_from_a_disk_once(tmp_path: Path) -> None:
    tree = {"u": np.arange(1 << 18), "m": {"w": np.ones(5), "rate": 0.5}}
    with unspool.Spool(host_memory="4MiB", disk=unspool.Disk(tmp_path, durable=True)) as spool:
        spool.save(1, tree)
    with unspool.Spool(host_memory="64KiB", disk=unspool.Disk(tmp_path, durable=True)) as spool:
        u, m = np.zeros(1 << 18, int), {"w": np.zeros(5), "rate": 0.0}
        spool.restore(1, {"u": u})
        assert (u == tree["u"]).all() and spool.stats().restores == 1
        spool.restore(1, {"m": m})
        assert m["w"].sum() == 5 and m["rate"] == 0.5 and spool.stats().restores == 2
