"""`unspool.torch.scan`: gradients are those of a plain loop, bit for bit, and memory is bounded."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import unspool

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import scan  # noqa: E402
from unspool.torch._segments import Segments, segments  # noqa: E402

from torch_programs import Program, leaf, plain, program, results, same  # noqa: E402


def by_hand(made: Program) -> Any:
    return plain(made.step, made.init, made.xs, made.length)


def scanned(**options: Any) -> Any:
    return lambda made: scan(made.step, made.init, made.xs, made.length, **options)


class Calls:
    """A spool that notes what it is asked for."""

    def __init__(self, spool: unspool.Spool) -> None:
        self.spool, self.restored = spool, []
        self.expected: list[int] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spool, name)

    def __contains__(self, version: int) -> bool:
        return version in self.spool

    def restore(self, version: int, *arrays: Any) -> None:
        self.restored.append(version)
        self.spool.restore(version, *arrays)

    def expect(self, versions: list[int]) -> None:
        assert self.expected is None
        self.expected = versions
        self.spool.expect(versions)


def tanh_step(weight: torch.Tensor) -> Any:
    return lambda u, x: (torch.tanh(u @ weight), u.sum())


@pytest.mark.parametrize("seed", range(60))
def test_everything_is_as_in_the_plain_loop(seed: int, tmp_path: Any) -> None:
    made, draw = program(seed), random.Random(seed)
    expected = results(by_hand, made)
    assert same(results(by_hand, made), expected)
    assert same(results(scanned(), made), expected)
    assert same(results(scanned(budget=draw.choice([1, 1000, 30_000])), made), expected)
    every = draw.randint(1, made.length + 1)
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        options = {"spool": spool, "codec": draw.choice([None, "lossless"])}
        assert same(results(scanned(segment=every, **options), made), expected)
        assert len(spool) == 0


def test_states_pass_through_the_spool_and_come_back_once(spool: unspool.Spool) -> None:
    weight = leaf(8, 8)
    carry, _ = scan(tanh_step(weight), leaf(2, 8), length=30, segment=4, spool=spool)
    assert len(spool) == 7
    carry.sum().backward()
    stats = spool.stats()
    assert len(spool) == 0 and sum(tier.restores for tier in stats.tiers) == 7
    assert stats.saved_bytes == 7 * 64


def test_the_order_of_restores_is_announced_where_there_are_several_tiers(tmp_path: Any) -> None:
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        calls = Calls(spool)
        carry, _ = scan(tanh_step(leaf(8, 8)), leaf(2, 8), length=30, segment=4, spool=calls)
        assert calls.expected is None
        carry.sum().backward()
        assert len(calls.restored) == 7 and calls.expected == calls.restored[1:]


def test_second_derivatives() -> None:
    weight, init = leaf(4, 4), leaf(2, 4)

    def second(run: Any) -> list[torch.Tensor]:
        carry, ys = run(tanh_step(weight), init, None, 12)
        (first,) = torch.autograd.grad(carry.sum() + ys.sum(), weight, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [weight, init]))

    expected = second(plain)
    for every in (1, 3, 5):
        found = second(lambda *given, every=every: scan(*given, segment=every))
        assert same(found, expected)


def test_gradcheck_and_gradgradcheck() -> None:
    weight = leaf(3, 3).double().detach().requires_grad_()

    def loop(init: torch.Tensor, weight: torch.Tensor) -> Any:
        return scan(tanh_step(weight), init, length=5, segment=2)

    init = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loop, (init, weight))
    assert torch.autograd.gradgradcheck(loop, (init, weight))


def test_a_graph_that_is_retained_can_be_gone_back_through_again(spool: unspool.Spool) -> None:
    weight = leaf(4, 4)
    carry, _ = scan(tanh_step(weight), leaf(2, 4), length=10, segment=3, spool=spool)
    (first,) = torch.autograd.grad(carry.sum(), weight, retain_graph=True)
    assert len(spool) == 3
    (second,) = torch.autograd.grad(carry.sum(), weight)
    assert torch.equal(first, second) and len(spool) == 0


def test_a_dropped_graph_leaves_nothing(spool: unspool.Spool) -> None:
    gc.disable()
    try:
        carry, ys = scan(tanh_step(leaf(4, 4)), leaf(2, 4), length=10, segment=3, spool=spool)
        assert len(spool) == 3
        del carry, ys
        assert len(spool) == 0
    finally:
        gc.enable()


def test_a_spool_of_our_own_is_closed_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[unspool.Spool] = []
    real = unspool.torch._scan.open_spool

    def noted(*given: Any, **options: Any) -> unspool.Spool:
        opened.append(real(*given, **options))
        return opened[-1]

    monkeypatch.setattr(unspool.torch._scan, "open_spool", noted)
    carry, ys = scan(tanh_step(leaf(4, 4)), leaf(2, 4), length=10, segment=3)
    assert [one.closed for one in opened] == [False]
    del carry
    assert [one.closed for one in opened] == [False]
    del ys
    assert [one.closed for one in opened] == [True]


@pytest.mark.parametrize("when", ["forwards", "backwards"])
def test_an_exception_leaves_the_spool_usable(spool: unspool.Spool, when: str) -> None:
    # Where scan does not look, so that steps that are computed again count too.
    calls = itertools.count(1)

    def step(u: torch.Tensor, x: Any) -> Any:
        if next(calls) == (7 if when == "forwards" else 12):
            raise FloatingPointError("blew up")
        return u.sin(), None

    with pytest.raises(FloatingPointError, match="blew up"):
        carry, _ = scan(step, leaf(4), length=10, segment=3, spool=spool)
        assert when == "backwards"
        carry.sum().backward()
    carry = None
    assert len(spool) == 0
    carry, _ = scan(lambda u, x: (u.sin(), None), leaf(4), length=10, segment=3, spool=spool)
    carry.sum().backward()
    assert len(spool) == 0


def test_an_exception_after_outputs_leaves_no_graph_behind(spool: unspool.Spool) -> None:
    weight, calls = leaf(4, 4), []

    def step(u: torch.Tensor, x: Any) -> Any:
        calls.append(len(spool))
        if len(calls) == 9:
            raise FloatingPointError("blew up")
        u = torch.tanh(u @ weight)
        return u, u.sum()

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(FloatingPointError):
            scan(step, leaf(2, 4), length=20, segment=3, spool=spool)
        assert calls[-1] == 3 and len(spool) == 0
    finally:
        gc.enable()


def test_a_scan_in_a_scan(spool: unspool.Spool) -> None:
    weight, init = leaf(4, 4), leaf(2, 4)

    def gradient(outer: Any, inner: Any) -> list[torch.Tensor]:
        def step(u: torch.Tensor, x: Any) -> Any:
            return inner(tanh_step(weight), u, None, 7)

        carry, ys = outer(step, init, None, 8)
        assert ys.shape == (8, 7)
        return list(torch.autograd.grad(carry.sum() + ys.sin().sum(), [weight, init]))

    def nested(every: int) -> Any:
        return lambda *given: scan(*given, segment=every, spool=spool)

    assert same(gradient(nested(3), nested(2)), gradient(plain, plain))
    assert same(gradient(nested(3), plain), gradient(plain, plain)) and len(spool) == 0


def test_a_full_spool_refuses_and_stays_usable() -> None:
    with unspool.Spool(host_memory="8KiB", timeout=5) as spool:
        with pytest.raises(unspool.errors.CapacityError):
            scan(lambda u, x: (u.sin(), None), leaf(1000), length=10, segment=1, spool=spool)
        assert len(spool) == 0


def test_autocast_is_the_same_when_a_segment_is_computed_again() -> None:
    weight, init = leaf(8, 8), leaf(4, 8)

    def gradient(run: Any) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            carry, _ = run(tanh_step(weight), init, None, 9)
        assert carry.dtype == torch.bfloat16
        return list(torch.autograd.grad(carry.float().sum(), [weight, init]))

    found = gradient(lambda *given: scan(*given, segment=2))
    assert same(found, gradient(plain))


def test_a_step_may_change_its_carry_in_place_as_in_a_plain_loop() -> None:
    weight, init = leaf(4), leaf(4)

    def step(u: torch.Tensor, x: Any) -> Any:
        u.mul_(0.9)
        u.add_(weight)
        return u, u.sum()

    def gradient(run: Any) -> list[torch.Tensor]:
        carry, ys = run(step, init * 1, None, 9)
        return list(torch.autograd.grad(carry.sum() + ys.sum(), [weight, init]))

    assert same(gradient(lambda *given: scan(*given, segment=2)), gradient(plain))


def test_until_ends_the_loop_after_the_step_that_makes_it_true() -> None:
    init = torch.full((3,), 1.0, requires_grad=True)

    def step(u: torch.Tensor, x: Any) -> Any:
        return u * 1.5, u.sum()

    taken = [
        scan(step, init, length=100, segment=every, until=lambda u: u.max() > 20)
        for every in (1, 4, 7, 50, "auto")
    ]
    taken.append(scan(step, init, until=lambda u: u.max() > 20, segment=3))
    taken.append(scan(step, init, torch.zeros(100), until=lambda u: u.max() > 20))
    for carry, ys in taken:
        assert carry.max() > 20 and len(ys) == 8
        assert (torch.autograd.grad(carry.sum(), init)[0] == 1.5**8).all()


def test_gradients_with_until_are_those_of_the_steps_taken() -> None:
    weight, init = leaf(4, 4), leaf(2, 4)

    def until(u: torch.Tensor) -> bool:
        # It computes, which autograd must not see.
        return bool((u @ weight).exp().sum() < 0) or calls.append(1) or len(calls) % 11 == 0

    calls: list[int] = []
    carry, ys = scan(tanh_step(weight), init, length=30, segment=4, until=until)
    found = torch.autograd.grad(carry.sum() + ys.sum(), [weight, init])
    carry, ys = plain(tanh_step(weight), init, None, 11)
    assert same(list(found), list(torch.autograd.grad(carry.sum() + ys.sum(), [weight, init])))


def test_what_a_segment_saves_is_there_for_one_segment_at_a_time() -> None:
    # Where scan does not look, so that steps that are computed again count too.
    seen = threading.local()
    seen.alive = seen.most = 0

    def gone() -> None:
        seen.alive -= 1

    def step(u: torch.Tensor, x: Any) -> Any:
        # Memory that says when nothing refers to it any more.
        big = np.full(1000, 0.99)
        weakref.finalize(big, gone)
        seen.alive += 1
        seen.most = max(seen.most, seen.alive)
        return u * torch.from_numpy(big), None

    def peak(**options: Any) -> int:
        seen.most = 0
        carry, _ = scan(step, leaf(1000).double(), length=60, **options)
        carry.sum().backward()
        del carry
        assert seen.alive == 0
        return seen.most

    assert peak(budget="1GiB") == 60
    for every in (1, 5, 12):
        # One more is made before the last one of a segment before is let go of.
        assert every <= peak(segment=every) <= every + 1
    with unspool.Spool(host_memory="4MiB") as spool:
        # 8 kB a step, less two states.
        assert 40 < peak(budget=400_000, spool=spool) <= 48


def test_outputs_that_are_views_do_not_keep_what_they_are_views_of() -> None:
    fields: list[weakref.ref[Any]] = []

    def step(u: torch.Tensor, x: Any) -> Any:
        # The memory of a field says when nothing refers to it any more.
        field = np.full(1000, float(len(fields)))
        fields.append(weakref.ref(field))
        assert sum(each() is not None for each in fields) <= 3
        return u * 0.9, torch.from_numpy(field)[100:900:100]

    carry, ys = scan(step, leaf(4), length=30, segment=4)
    assert torch.equal(ys, torch.arange(30.0).double()[:, None].expand(30, 8))
    fields.clear()
    carry.sum().backward()


def test_without_gradients_nothing_is_saved(spool: unspool.Spool) -> None:
    with torch.no_grad():
        carry, ys = scan(tanh_step(leaf(4, 4)), leaf(2, 4), length=9, segment=2, spool=spool)
    assert not carry.requires_grad and ys.shape == (9,) and spool.stats().saved_bytes == 0


def test_a_carry_of_all_sorts() -> None:
    weight = leaf(3)

    def step(carry: Any, x: Any) -> Any:
        u, again, names, sparse, wide, empty, count = carry
        assert again is u and names == {"k": "v"}
        assert wide.stride() == (0, 1) and empty.shape == (0, 2)
        u = (u * weight + sparse.to_dense() + wide.sum(0)).sin() + u.conj().imag.sum()
        return (u, u, names, sparse, wide, empty, count + 1), torch.view_as_real(u)

    init = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    wide = torch.arange(3.0).expand(2, 3)
    sparse = torch.tensor([0.0, 1, 0]).to_sparse()

    def gradient(run: Any) -> list[torch.Tensor]:
        first = (init * 1).conj()
        carry = (first, first, {"k": "v"}, sparse, wide, torch.zeros(0, 2), 0)
        carry, ys = run(step, carry, None, 8)
        assert carry[-1] == 8
        return [ys, *torch.autograd.grad(ys.sum(), [weight, init])]

    assert same(gradient(lambda *given: scan(*given, segment=3)), gradient(plain))


def test_strides_of_the_carry_come_back() -> None:
    seen = set()

    def step(u: torch.Tensor, x: Any) -> Any:
        seen.add((tuple(u.shape), u.stride()))
        return u.sin(), None

    init = torch.randn(4, 3, 2).permute(1, 2, 0).requires_grad_()
    carry, _ = scan(step, init, length=7, segment=2)
    carry.sum().backward()
    assert seen == {((3, 2, 4), (2, 1, 6))}


def test_xs_that_were_changed_in_place_are_refused_as_pytorch_does() -> None:
    xs = torch.randn(10, 3)
    carry, _ = scan(lambda u, x: (u * x, None), leaf(3), xs, segment=3)
    xs.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        carry.sum().backward()


def test_a_bound_changes_the_gradient_a_little() -> None:
    weight, init = leaf(64, 64, scale=0.1), leaf(8, 64)

    def gradient(**options: Any) -> torch.Tensor:
        carry, _ = scan(tanh_step(weight), init, length=9, segment=3, **options)
        return torch.autograd.grad(carry.sum(), weight)[0]

    exact, near = gradient(), gradient(codec=unspool.Bound(abs=1e-3))
    assert not torch.equal(exact, near) and (exact - near).abs().max() < 0.1


def test_no_steps_and_one_step() -> None:
    init = leaf(3)
    carry, ys = scan(lambda u, x: (u.sin(), u), init, length=0)
    assert carry is init and ys is None
    carry, ys = scan(lambda u, x: (u.sin(), u), init, length=1, segment=4)
    assert torch.equal(carry, init.sin()) and ys.shape == (1, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give xs, or length"),
        ({"length": -1}, "length=-1"),
        ({"length": 3, "xs": torch.zeros(4)}, "different numbers of steps"),
        ({"xs": 3}, "a int in it is not a tensor"),
        ({"length": 3, "segment": 0}, "segment=0"),
        ({"length": 3, "segment": "often"}, "segment='often'"),
        ({"length": 9, "budget": "much"}, "budget"),
        ({"length": 3, "spool": 7}, "that is not a Spool"),
    ],
)
def test_arguments_that_make_no_sense_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(unspool.Error, match=text):
        scan(lambda u, x: (u.sin(), None), leaf(3), **options)


def test_steps_that_return_something_else_are_named() -> None:
    with pytest.raises(unspool.errors.OptionError, match="must return the pair"):
        scan(lambda u, x: u, leaf(3), length=3)
    with pytest.raises(unspool.errors.ArrayError, match="a float in y"):
        scan(lambda u, x: (u, 1.0), leaf(3), length=3)
    with pytest.raises(unspool.errors.OptionError, match="another structure"):
        outputs = iter([torch.zeros(1), (torch.zeros(1),)])
        scan(lambda u, x: (u, next(outputs)), leaf(3), length=2)


def test_segments_are_as_long_as_the_budget_allows() -> None:
    gib = 1 << 30
    # All fits: nothing is computed again.
    assert segments(100, 10, 10, 1000, gib, shared=True) is None
    # On a GPU, segments take the budget less two states, which go to main memory.
    assert segments(100, 1 << 20, 1 << 20, 12 << 20, gib, shared=False) == Segments(
        10, 10 * ((1 << 20) + 8192), disk=False
    )
    # In main memory the states count.
    cut = segments(1000, 1 << 20, 1 << 20, 100 << 20, gib, shared=True)
    assert cut is not None and not cut.disk
    assert cut.segment * (1 << 20) + cut.host <= 100 << 20
    longer = cut.segment + 1
    assert longer * (1 << 20) + -(-1000 // longer) * ((1 << 20) + 8192) > 100 << 20
    # Where nothing fits, states go on to the disk.
    cut = segments(10_000, 1 << 20, 1 << 20, 8 << 20, gib, shared=True)
    assert cut == Segments(4, 4 << 20, disk=True)
    assert segments(100, 1 << 20, 1 << 20, 4 << 20, 1 << 20, shared=False).disk
