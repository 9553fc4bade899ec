"""Containers and values that come back as what they were, or are refused with what to do."""

from __future__ import annotations

import collections
import dataclasses
import enum
import time
import types
import warnings
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool.errors import ArrayError


class Phase(enum.Enum):
    WARM = "warm"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Config(dict[str, Any]):
    pass


class History(list[Any]):
    pass


@dataclasses.dataclass
class State:
    u: np.ndarray
    phase: Phase


U = np.arange(4.0)


def ordered() -> Any:
    made: Any = collections.OrderedDict(b=U, a=1)
    made._metadata = collections.OrderedDict({"": {"version": 2}})
    return made


KINDS: dict[str, Any] = {
    "an ordered dictionary": ordered(),
    "one of values": collections.OrderedDict(b=2, a=1),
    "a dictionary with a default": collections.defaultdict(list, a=[U]),
    "one without a factory": collections.defaultdict(None, a=U),
    "a counter": collections.Counter({30: 1, 80: 2}),
    "a read-only dictionary": types.MappingProxyType({"u": U}),
    "a queue": collections.deque([U, 1], maxlen=3),
    "a set": {1, 2, "x"},
    "a frozen set": frozenset({(1, 2), None}),
    "a tuple of C with names": time.gmtime(0),
    "members": {"phase": Phase.WARM, "level": Level.LOW, "rights": Rights.WRITE},
    "a dataclass": State(U, Phase.WARM),
    "numbers of NumPy": [np.float32(0.1), np.int8(-3), np.bool_(True), np.complex64(1j)],
    "dates and texts of NumPy": [np.datetime64("2026-01-01"), np.str_("é"), np.bytes_(b"x")],
    "an empty text of NumPy": [np.str_(""), np.datetime64("NaT", "s")],
    "nested": collections.OrderedDict(a=collections.deque([collections.Counter({"x": 1})])),
}


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return bool((left == right).all())
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        return same(vars(left), vars(right))
    if isinstance(left, dict | types.MappingProxyType):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple | collections.deque):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))


@pytest.mark.parametrize("name", KINDS)
def test_a_container_comes_back_as_what_it_was(spool: unspool.Spool, name: str) -> None:
    tree = {"it": KINDS[name], "u": U}
    spool.save(1, tree)
    spool.save(2, KINDS[name])
    assert same(spool.load(1), tree) and same(spool.load(2), KINDS[name])


def test_what_containers_have_besides_items_comes_back(spool: unspool.Spool) -> None:
    spool.save(1, ordered())
    assert spool.load(1)._metadata == ordered()._metadata
    spool.save(2, [collections.deque([U], maxlen=3), collections.defaultdict(list, a=U)])
    queue, default = spool.load(2)
    assert queue.maxlen == 3 and default["new"] == []


@pytest.mark.parametrize("name", KINDS)
def test_a_run_takes_the_same_containers(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, it=KINDS[name], deep={"it": [KINDS[name], U]})
        found = checkpoints.load(1) if checkpoints.flush() is None else {}
    assert same(found["deep"], {"it": [KINDS[name], U]})
    assert same(found["it"], KINDS[name])


def opened(path: Path) -> unspool.Checkpointer:
    options: dict[str, Any] = {"every": 1, "host_memory": "4MiB", "device": "cpu", "signals": ()}
    return flat.checkpointer(path / "run", **options)


class Model:
    def state_dict(self) -> dict[str, Any]:
        return {}


REFUSED: dict[str, tuple[Any, str]] = {
    "a dictionary of one's own": (Config(u=U), r"a Config, a dict .*pass dict\(it\)"),
    "a list of one's own": (History([U]), r"a History, a list .*pass list\(it\)"),
    "a default of one's own": (collections.defaultdict(lambda: U), r"pass dict\(it\)"),
    "members that are combined": ([Rights.READ | Rights.WRITE], "pass its value"),
    "what has a state": ([Model()], r"a Model: pass its state_dict\(\)"),
    "an integer without end": ([10**6000], "an integer cannot be saved"),
    "a name that is no Unicode": ({"\udcff": U, "t": 1}, "not Unicode"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_come_back_is_refused_with_what_to_do(
    given: Any, told: str, spool: unspool.Spool, tmp_path: Path
) -> None:
    for save in (lambda: spool.save(1, given), lambda: spool.save(1, deep=[given])):
        with pytest.raises(ArrayError, match=told):
            save()
    with opened(tmp_path) as checkpoints, pytest.raises(ArrayError, match=told):
        checkpoints.save(1, it=given)
    assert 1 not in spool


def test_a_typed_key_of_jax_comes_back_as_one(spool: unspool.Spool) -> None:
    jax = pytest.importorskip("jax")
    for version, key in enumerate((jax.random.key(3), jax.random.key(3, impl="rbg"))):
        spool.save(version, {"key": key, "several": [jax.random.split(key, 3)]})
        for to in ("jax", "numpy"):
            found = spool.load(version, to=to)
            assert found["key"] == key and jax.random.uniform(found["key"]) == jax.random.uniform(
                key
            )
            assert (found["several"][0] == jax.random.split(key, 3)).all()
    spool.save(9, key)
    assert spool.load(9) == key
    with pytest.raises(ArrayError, match="never changes"):
        spool.restore(9, key)


def test_containers_are_filled_in_place(spool: unspool.Spool) -> None:
    tree = {
        "model": ordered(),
        "counts": collections.Counter({1: 5}),
        "queue": collections.deque([U, 7]),
        "best": np.float32(0.5),
        "phase": Phase.WARM,
        "betas": (0.9, 0.99),
    }
    spool.save(1, tree)
    u, v = np.zeros(4), np.zeros(4)
    model = collections.OrderedDict(b=u, a=0)
    target = {
        "model": model,
        "counts": collections.Counter({1: 1}),
        "queue": collections.deque([v, 0]),
        "best": np.float32(9),
        "phase": None,
        "betas": (0.0, 0.0),
    }
    spool.restore(1, target)
    assert target["model"] is model and model["b"] is u and (u == U).all() and model["a"] == 1
    assert (v == U).all() and target["queue"][1] == 7 and target["counts"] == {1: 5}
    assert target["best"] == np.float32(0.5) and target["phase"] is Phase.WARM
    assert target["betas"] == (0.9, 0.99)


def test_a_plain_dictionary_fills_an_ordered_one_and_the_other_way_round(
    spool: unspool.Spool,
) -> None:
    spool.save(1, model={"b": U, "t": 1})
    spool.save(2, model=collections.OrderedDict(b=U, t=1))
    for version, kind in ((1, collections.OrderedDict), (2, dict)):
        target = kind(b=np.zeros(4), t=0)
        spool.restore(version, model=target)
        assert (target["b"] == U).all() and target["t"] == 1


def test_a_part_of_what_was_saved_is_restored(spool: unspool.Spool, tmp_path: Path) -> None:
    saved = {"model": {"a": U}, "opt": [U + 1, 3], "small": {"lr": 0.5}, "rate": 2}
    spool.save(1, **saved)
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, **saved)
        checkpoints.flush()
        for restore in (lambda **what: spool.restore(1, **what), checkpoints.restore):
            model, opt, small = {"a": np.zeros(4)}, [np.zeros(4), 0], {"lr": 0.0}
            restore(model=model)
            assert (model["a"] == U).all()
            restore(opt=opt, small=small)
            assert (opt[0] == U + 1).all() and opt[1] == 3 and small == {"lr": 0.5}
            model = {"a": np.zeros(4)}
            restore(opt=opt, model=model)
            assert (model["a"] == U).all()
            for wrong in ({"model": {"b": np.zeros(4)}}, {"more": {"a": np.zeros(4)}}):
                with pytest.raises(ArrayError):
                    restore(**wrong)
        with pytest.raises(ArrayError, match="`values` has it"):
            checkpoints.restore(rate=0)


def test_a_look_at_a_part_discards_nothing_and_leaves_the_order(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="4MiB") as spool:
        spool.save(1, model={"a": U}, opt=[U])
        spool.expect([1], once=True)
        target = {"a": np.zeros(4)}
        spool.restore(1, model=target)
        assert (target["a"] == U).all() and 1 not in spool


def test_what_an_empty_container_lacks_is_put_into_it_with_a_warning(
    spool: unspool.Spool,
) -> None:
    saved = {"state": {0: {"m": U, "step": 3}}, "log": [U, 1.5], "groups": [{"lr": 1, "new": 2}]}
    spool.save(1, opt=saved, model={"w": U})
    target: dict[str, Any] = {"state": {}, "log": [], "groups": [{"lr": 0}]}
    state = target["state"]
    with pytest.warns(RuntimeWarning, match=r"'opt'.*load_state_dict"):
        spool.restore(1, opt=target)
    assert same(target, saved) and target["state"] is state
    target = {"state": None, "log": [np.zeros(4), 0.0], "groups": [{"lr": 0, "new": 0}]}
    with pytest.raises(ArrayError):
        spool.restore(1, opt=target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = {
            "state": {0: {"m": np.zeros(4), "step": 0}},
            "log": [np.zeros(4), 0.0],
            "groups": [{"lr": 0, "new": 0}],
        }
        spool.restore(1, opt=full)
    assert same(full, saved)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"a": np.zeros(4)}, "it lacks .*b"),
        ({"a": np.zeros(4), "b": np.zeros(4), "c": np.zeros(4)}, "as well"),
        ({"a": np.zeros(4), "b": 3}, "differs"),
        ([np.zeros(4), np.zeros(4)], "differs"),
    ],
)
def test_another_container_is_refused_and_what_differs_is_named(
    target: Any, told: str, spool: unspool.Spool
) -> None:
    spool.save(1, model={"a": U, "b": U}, opt=[U])
    with pytest.raises(ArrayError, match=told):
        spool.restore(1, model=target)


def test_values_alone_are_filled_in_place_too(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, sched={"last": 3, "betas": (0.9, 0.99), "log": [1, 2]}, log=[1, [2]])
        checkpoints.flush()
        sched: dict[str, Any] = {"last": 0, "betas": (0.0, 0.0), "log": [0, 0]}
        log = [0, [0]]
        assert checkpoints.restore(sched=sched, log=log) == 1
        assert sched == {"last": 3, "betas": (0.9, 0.99), "log": [1, 2]} and log == [1, [2]]
        with pytest.raises(ArrayError, match="as well"):
            checkpoints.restore(sched={"other": 1})
