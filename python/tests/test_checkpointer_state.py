"""State that a Checkpointer saves and gives back whole: that of owners, and of generators."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "16MiB", "device": "cpu", "signals": (), **options}
    return flat.checkpointer(path / "run", **options)


class Owner:
    """Has a state of any form, and says what it was given."""

    def __init__(self, state: Any) -> None:
        self.state, self.given = state, []

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state
        self.given.append(state)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            type(right) is np.ndarray and left.dtype == right.dtype and bool((left == right).all())
        )
    if isinstance(left, dict):
        return (
            type(left) is type(right)
            and list(left) == list(right)
            and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


STATES: dict[str, Any] = {
    "numbers": {"epoch": 3, "rate": 0.5, "betas": (0.9, 0.99), "name": None},
    "arrays": {"w": np.arange(6.0).reshape(2, 3), 1: [np.ones(3, np.int8)]},
    "nothing": {},
    "a list": [1, np.zeros(2), "a"],
    "bytes": {"packed": b"\x00\xff", "none": b""},
}
OTHERS: dict[str, Any] = {
    "the same form": lambda state: state,
    "nothing yet": lambda _: {},
    "more than then": lambda _: {"w": np.zeros((2, 3)), "v": np.zeros(9), "epoch": 9},
    "other shapes": lambda _: {"w": np.zeros((3, 3)), 1: [np.ones(3, np.int8)]},
    "other dtypes": lambda _: {"w": np.zeros((2, 3), "f4"), 1: [np.ones(3, np.int8)]},
}


@pytest.mark.parametrize("before", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_an_owner_gets_the_state_that_it_had_whatever_it_has_now(
    state: Any, before: Any, tmp_path: Path
) -> None:
    with opened(tmp_path, owner=Owner(state)) as checkpoints:
        checkpoints.save(1, other=np.ones(2))
    owner = Owner(before(state))
    with opened(tmp_path, owner=owner) as checkpoints:
        assert checkpoints.restore() == 1
    assert len(owner.given) == 1 and same(owner.state, state)


def test_arrays_of_the_same_form_are_filled_where_they_are(tmp_path: Path) -> None:
    owner = Owner({"w": np.arange(4.0), "step": 1})
    with opened(tmp_path, owner=owner) as checkpoints:
        checkpoints.save(1)
        array, owner.state = owner.state["w"], {"w": owner.state["w"], "step": 2}
        array[:] = 0
        checkpoints.restore()
        assert owner.state["w"] is array and array[3] == 3 and owner.state["step"] == 1


def test_an_owner_is_left_alone_where_something_else_does_not_fit(tmp_path: Path) -> None:
    owner, u = Owner({"w": np.ones(3)}), np.ones(3)
    with opened(tmp_path, owner=owner) as checkpoints:
        checkpoints.save(1, u=u)
        for wrong in ({"u": np.ones(4)}, {"u": u, "v": u}, {"w": owner}):
            with pytest.raises(errors.ArrayError):
                checkpoints.restore(**{"owner": owner, **wrong})
    assert owner.given == []


def test_some_state_is_restored_without_the_rest(tmp_path: Path) -> None:
    first, second, u = Owner({"w": np.ones(3)}), Owner({"n": 1}), np.ones(2)
    with opened(tmp_path, first=first, second=second) as checkpoints:
        checkpoints.save(1, u=u)
        u[:] = 0
        assert checkpoints.restore(second=second) == 1 and checkpoints.restore(u=u) == 1
        assert not first.given and second.given == [{"n": 1}] and u.sum() == 2
        assert checkpoints.load()["first"]["w"].sum() == 3
        assert checkpoints.restore() == 1 and len(first.given) == 1


def test_state_at_the_opening_is_saved_by_each_save(tmp_path: Path) -> None:
    u, progress, rng = np.zeros(3), {"epoch": 0}, np.random.default_rng(1)
    with opened(tmp_path, u=u, progress=progress, rng=rng) as checkpoints:
        for step in (1, 2):
            u += 1
            progress["epoch"] = step
            assert checkpoints.step(step, loss=0.5)
        drawn = rng.random()
        u += 1
        progress["epoch"] = 3
        assert checkpoints.restore() == 2 and checkpoints.values()["loss"] == 0.5
        assert u.tolist() == [2, 2, 2] and progress == {"epoch": 2} and rng.random() == drawn
        with pytest.raises(errors.OptionError, match="u: another object"):
            checkpoints.save(3, u=np.ones(3))
        checkpoints.save(3, u=u)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evry": "10min"}, "no such option.*Do you mean every"),
        ({"signals": ("SIGTERM",)}, "no such option"),
        ({"model": 3}, "give it to `save`"),
        ({"model": object()}, "no state: arrays are"),
        ({"model": [np.ones(2), print]}, "function"),
        ({"model": Owner}, "no state: arrays are"),
    ],
)
def test_what_is_no_state_is_refused_at_the_opening(given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(errors.OptionError, match=said):
        unspool.Checkpointer(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_generators_of_the_whole_process_go_on(tmp_path: Path) -> None:
    def draw() -> tuple[Any, ...]:
        return random.random(), np.random.rand(), np.random.standard_normal()

    draw()
    with opened(tmp_path, rng=True) as checkpoints:
        checkpoints.save(1)
        expected = draw()
        draw()
        assert checkpoints.restore() == 1
    assert draw() == expected
    with opened(tmp_path, rng=True) as checkpoints:
        checkpoints.restore()
    assert draw() == expected


def test_generators_of_gpus_are_those_that_were_saved_or_an_error() -> None:
    torch = pytest.importorskip("torch")
    from unspool._restart import random as ours

    saved = ours.state("rng", ours.EVERYWHERE)
    saved["state"] |= {f"cuda:{number}": "00" for number in range(torch.cuda.device_count() + 1)}
    with pytest.raises(errors.ArrayError, match="GPUs were saved"):
        ours.check("rng", ours.EVERYWHERE, saved)


def test_lists_and_dictionaries_of_the_opening_get_what_was_saved_whatever_they_have(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    history, best, kept = [0.5], {"loss": 1.0, "at": {"step": 1}}, {"a": np.ones(2)}
    named = {"history": history, "best": best, "kept": kept}
    with opened(tmp_path, **named) as checkpoints:
        checkpoints.save(1)
        inner, array = best["at"], kept["a"]
        history.append(0.25)
        best["loss"], inner["step"], array[:] = 0.25, 2, 0
        assert checkpoints.restore() == 1
        assert history == [0.5] and best == {"loss": 1.0, "at": {"step": 1}}
        assert best["at"] is inner and kept["a"] is array and array.sum() == 2
        kept["b"] = np.zeros(1)
        assert checkpoints.restore() == 1 and list(kept) == ["a"]
    for fresh in ([], [1, 2, 3]):
        with opened(tmp_path, history=fresh) as checkpoints:
            assert checkpoints.restore() == 1 and fresh == [0.5]
    with (
        opened(tmp_path, history={}) as checkpoints,
        pytest.raises(errors.ArrayError, match="was a list"),
    ):
        checkpoints.restore()
    assert not recwarn.list
