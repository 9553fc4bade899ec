"""What `unspool.torch.offload` brings back before it is wanted: on a GPU, and here in main memory
where the tests say that copies are made beside computing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import unspool

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import offload  # noqa: E402
from unspool.torch._kept import Kept  # noqa: E402

from torch_programs import leaf, plain, program, results, same  # noqa: E402


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of the entries that came back before they were wanted."""
    found: list[int] = []
    bring = Kept._come_back

    def come_back(kept: Kept, entry: Any, lanes: Any = None) -> None:
        bring(kept, entry, lanes)
        if lanes is not None:
            found.append(entry.number)
            assert kept.bytes <= kept.budget - kept._leaving

    monkeypatch.setattr(Kept, "_come_back", come_back)
    monkeypatch.setattr("unspool.torch._kept.reads_ahead", lambda device: True)
    yield found


def layers(x: Any, count: int) -> Any:
    for _ in range(count):
        x = (x * 1.5).sin()
    return x


@pytest.mark.parametrize("seed", range(24))
def test_loops_have_the_same_gradients(spool: unspool.Spool, ahead: list[int], seed: int) -> None:
    made, draw = program(seed), random.Random(seed)
    keep = offload(budget=draw.choice([500, 5000, 20_000]), spool=spool, min_bytes=0)

    def kept(made: Any) -> Any:
        with keep:
            return plain(made.step, made.init, made.xs, made.length)

    expected = results(lambda made: plain(made.step, made.init, made.xs, made.length), made)
    for _ in range(3):
        assert same(results(kept, made), expected) and len(spool) == 0
        assert keep._kept.bytes == 0


def test_what_comes_next_comes_early_as_far_as_there_is_room(
    spool: unspool.Spool, ahead: list[int]
) -> None:
    x, keep = leaf(1000), offload(budget=40_000, spool=spool, min_bytes=0)
    for _ in range(2):
        ahead.clear()
        with keep:
            y = layers(x, 40)
        # Ten of them fit, and are there; the others are in the spool.
        assert len(spool) == 30
        y.sum().backward()
        # Whenever one is done with, the next one comes: none is waited for.
        assert ahead == list(range(29, -1, -1))
        assert len(spool) == 0


def test_nothing_comes_early_where_there_is_no_room(spool: unspool.Spool, ahead: list[int]) -> None:
    x, keep = leaf(1000), offload(budget=0, spool=spool, min_bytes=0)
    with keep:
        y = layers(x, 10)
    y.sum().backward()
    assert not ahead and len(spool) == 0


def test_an_order_that_changes_is_learned_from_what_is_wanted(spool: unspool.Spool) -> None:
    x, keep = leaf(1000), offload(budget=12_000, spool=spool, min_bytes=0)
    for turns in ([0, 1], [0, 1], [1, 0], [1, 0]):
        with keep:
            both = [layers(x, 8), layers(x, 8)]
        moved = len(spool)
        for turn in turns:
            both[turn].sum().backward()
        wanted = keep._kept._wanted
        # One more may have had to go on the way.
        assert len(wanted) in (moved, moved + 1)
        # Of each half the newest first, whichever half came first.
        halves = [number // 8 for number in wanted]
        assert halves == sorted(halves, reverse=turns == [1, 0])
        assert len(spool) == 0
        del both


def test_what_cannot_come_early_comes_when_it_is_wanted(
    spool: unspool.Spool, ahead: list[int]
) -> None:
    class Failing:
        """A spool whose disk fails now and then."""

        wanted = False
        calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(spool, name)

        def restore(self, version: int, *arrays: Any) -> None:
            self.calls += 1
            if self.calls % 3 == 0 and not self.wanted:
                raise unspool.errors.StorageError("the disk does not answer")
            spool.restore(version, *arrays)

    failing, x = Failing(), leaf(1000)
    expected = torch.autograd.grad(layers(x, 40).sum(), x)
    keep = offload(budget=40_000, spool=failing, min_bytes=0)
    bring = Kept._come_back

    def come_back(kept: Kept, entry: Any, lanes: Any = None) -> None:
        failing.wanted = lanes is None
        bring(kept, entry, lanes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "_come_back", come_back)
        for _ in range(2):
            with keep:
                y = layers(x, 40)
            assert same(torch.autograd.grad(y.sum(), x), expected)
            del y
            assert len(spool) == 0
    assert failing.calls > 60 and 0 < len(ahead) < 60


def test_a_graph_that_is_dropped_half_way(spool: unspool.Spool, ahead: list[int]) -> None:
    x, keep = leaf(1000), offload(budget=40_000, spool=spool, min_bytes=0)
    with keep:
        half = layers(x, 20)
        other = layers(x, 20)
    half.sum().backward()
    del half, other
    assert len(spool) == 0 and keep._kept.bytes == 0
    with keep:
        y = layers(x, 5)
    y.sum().backward()
    assert keep._kept.bytes == 0


def test_in_a_known_step_copies_begin_as_soon_as_a_tensor_is_written(spool: unspool.Spool) -> None:
    x, keep = leaf(1000), offload(budget=40_000, spool=spool, min_bytes=0)
    away: list[list[int]] = []
    for _ in range(3):
        away.append([])
        with keep:
            y = x
            for _ in range(40):
                y = layers(y, 1)
                away[-1].append(len(spool))
        assert len(spool) == 30
        y.sum().backward()
    # At first only what has no room goes, and then the first thirty: one is left out while its
    # operation runs.
    assert away[0] == [max(0, n - 10) for n in range(1, 41)]
    assert away[1] == away[2] == [min(n, 30) for n in range(40)]


def test_what_is_saved_again_later_is_copied_once(spool: unspool.Spool) -> None:
    x, keep, sizes = leaf(1000), offload(budget=20_000, spool=spool, min_bytes=0), []
    for _ in range(3):
        before = spool.stats().saved_bytes
        with keep:
            h = x * 1.5
            y = layers(h.sin().cos(), 2) * h
            y = layers(y, 6)
        y.sum().backward()
        sizes.append(spool.stats().saved_bytes - before)
    # Of eleven tensors that are saved five have room; the first one is saved twice.
    assert sizes == [6 * 4000] * 3


def test_parts_of_a_step_that_fit_one_by_one_are_not_moved(spool: unspool.Spool) -> None:
    x, keep = leaf(1000), offload(budget=60_000, spool=spool, min_bytes=0)
    for _ in range(3):
        with keep:
            for _ in range(4):
                layers(x, 10).sum().backward()
    assert spool.stats().saved_bytes == 0
