"""`unspool.torch.offload`: what autograd saves, within a budget; gradients are those without it."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from typing import Any

import pytest
import unspool

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import offload, scan  # noqa: E402

from torch_programs import Counted, leaf, model, plain, program, results, same  # noqa: E402

BUDGETS = [0, "64KiB", "150KiB", "1GiB"]


def step(net: torch.nn.Module, batch: torch.Tensor, keep: Any = None) -> list[torch.Tensor]:
    torch.manual_seed(1)
    net.zero_grad()
    if keep is None:
        loss = net(batch).square().mean()
    else:
        with keep:
            loss = net(batch).square().mean()
    loss.backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_model_has_the_same_gradients_in_every_step(
    spool: unspool.Spool, budget: int | str
) -> None:
    net, batch = model(), torch.randn(2, 16, 32)
    expected = step(net, batch)
    for given in (net, net.parameters(), None):
        keep = offload(given, budget=budget, spool=spool, min_bytes=0)
        before = spool.stats().saved_bytes
        for _ in range(3):
            assert same(step(net, batch, keep), expected)
            assert len(spool) == 0 and keep._kept.bytes == 0
        assert (spool.stats().saved_bytes > before) == (budget != "1GiB")


@pytest.mark.parametrize("seed", range(24))
def test_loops_have_the_same_gradients(spool: unspool.Spool, seed: int) -> None:
    made, draw = program(seed), random.Random(seed)

    def kept(made: Any) -> Any:
        with offload(budget=draw.choice([0, 500, 5000]), spool=spool, min_bytes=0):
            return plain(made.step, made.init, made.xs, made.length)

    expected = results(lambda made: plain(made.step, made.init, made.xs, made.length), made)
    assert same(results(kept, made), expected) and len(spool) == 0


def test_what_is_kept_by_reference_stays_within_the_budget() -> None:
    with unspool.Spool(host_memory="4MiB") as spool:
        for budget in (0, 40_000, 10**9):
            Counted.most = 0
            x = leaf(1000).double()
            with offload(budget=budget, spool=spool, min_bytes=0):
                y = x
                for _ in range(30):
                    y = Counted.apply(y)
            assert Counted.alive == min(budget, 30 * 8000)
            # One more is made before room is made, and one is left out while its node runs.
            assert Counted.most <= min(budget + 16_000, 30 * 8000)
            y.sum().backward()
            y = None
            assert Counted.alive == 0 and len(spool) == 0


def test_a_storage_is_saved_once(spool: unspool.Spool) -> None:
    x = leaf(1000)
    with offload(budget=0, spool=spool, min_bytes=0):
        h = x * 2
        ways = [h.view(10, 100), h[:500], h.view(10, 100).t(), h]
        total = sum((way * way.detach()).sum() for way in ways)
    assert spool.stats().saved_bytes == 4000
    total.backward()
    expected = 2 * (3 * h.detach() + torch.cat([h.detach()[:500], torch.zeros(500)]))
    assert torch.allclose(x.grad, expected)


def test_parameters_and_their_views_stay(spool: unspool.Spool) -> None:
    linear = torch.nn.Linear(64, 64)
    with offload(linear, budget=0, spool=spool, min_bytes=0):
        y = torch.nn.functional.linear(torch.randn(2, 64).requires_grad_(), linear.weight.detach())
        y = linear(torch.ones(2, 64).requires_grad_()) + y + (linear.weight.t() * 2).sum()
    assert spool.stats().saved_bytes == 0
    y.sum().backward()


def changed(keep: Any, late: bool) -> str:
    x = leaf(50)
    h = x * 1
    with keep:
        y = (h**2).sum()
        if not late:
            h.add_(1)
    if late:
        h.add_(1)
    try:
        (found,) = torch.autograd.grad(y, x)
    except RuntimeError as error:
        return str(error).split(" is at version")[0].split("]]")[0]
    return "right" if torch.equal(found, 2 * x) else "wrong"


def test_a_tensor_that_was_changed_in_place_is_refused_as_pytorch_does(
    spool: unspool.Spool,
) -> None:
    refusal = changed(contextlib.nullcontext(), late=True)
    assert "has been modified by an inplace operation" in refusal
    for budget in (0, "1GiB"):
        keep = offload(budget=budget, spool=spool, min_bytes=0)
        assert changed(keep, late=False) == refusal
    assert changed(offload(budget="1GiB", min_bytes=0), late=True) == refusal
    # It was moved before it was changed.
    assert changed(offload(budget=0, spool=spool, min_bytes=0), late=True) == "right"


def test_noise_that_is_filled_after_it_was_saved() -> None:
    x = leaf(1000)

    def gradient(keep: Any) -> torch.Tensor:
        torch.manual_seed(0)
        if keep is None:
            y = torch.nn.functional.rrelu(x, training=True)
        else:
            with keep:
                y = torch.nn.functional.rrelu(x, training=True)
        return torch.autograd.grad(y.sum(), x)[0]

    assert torch.equal(gradient(offload(budget=0, min_bytes=0)), gradient(None))


def test_views_of_all_kinds_come_back(spool: unspool.Spool) -> None:
    x = torch.randn(6, 5, dtype=torch.complex64, requires_grad=True)

    def value(x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        wide = h[0].expand(4, 5)
        windows = h.real.contiguous().flatten().as_strided((4, 3), (1, 1))
        parts = [h.conj() * h, h.conj().imag * h.imag, wide * wide, windows**2, h.t() @ h]
        parts += [torch.view_as_real(h).exp(), h.real[::2, 1:] ** 3, h[:0] * h[:0]]
        parts += [h.to_sparse().to_dense() * h if x.is_floating_point() else h.abs()]
        return sum(part.abs().sum() for part in parts)

    (expected,) = torch.autograd.grad(value(x), x)
    with offload(budget=0, spool=spool, min_bytes=0):
        y = value(x)
    assert len(spool) > 0
    (found,) = torch.autograd.grad(y, x)
    assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_subclasses_and_sparse_tensors_pass_through(spool: unspool.Spool) -> None:
    class Named(torch.Tensor):
        pass

    x = leaf(4, 4)
    sparse = torch.eye(4).to_sparse_csr()
    with offload(budget=0, spool=spool, min_bytes=0):
        y = (torch.sparse.mm(sparse, x) + x.as_subclass(Named) ** 2).sum()
    y.backward()
    assert torch.allclose(x.grad.as_subclass(torch.Tensor), 1 + 2 * x.detach())


def test_a_graph_that_is_retained_can_be_gone_back_through_again(spool: unspool.Spool) -> None:
    net, batch = model(2), torch.randn(2, 16, 32)
    with offload(net, budget="20KiB", spool=spool, min_bytes=0):
        loss = net(batch).square().mean()
    passes = []
    for retain in (True, True, False):
        passes.append(torch.autograd.grad(loss, list(net.parameters()), retain_graph=retain))
    assert same(list(passes[0]), list(passes[1])) and same(list(passes[0]), list(passes[2]))
    assert len(spool) == 0


def test_second_derivatives(spool: unspool.Spool) -> None:
    weight, x = leaf(8, 8), leaf(3, 8)

    def second(keep: Any) -> list[torch.Tensor]:
        with keep:
            y = torch.tanh(torch.tanh(x @ weight) @ weight).sum()
            (first,) = torch.autograd.grad(y, weight, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [weight, x]))

    found = second(offload(budget=0, spool=spool, min_bytes=0))
    assert same(found, second(torch.enable_grad())) and len(spool) == 0


def test_a_dropped_graph_leaves_nothing(spool: unspool.Spool) -> None:
    net, batch = model(2), torch.randn(2, 16, 32)
    gc.collect()
    gc.disable()
    try:
        keep = offload(net, budget="20KiB", spool=spool, min_bytes=0)
        with keep:
            loss = net(batch).square().mean()
        assert len(spool) > 0 and keep._kept.bytes <= 20 << 10
        del loss
        assert len(spool) == 0 and keep._kept.bytes == 0
    finally:
        gc.enable()


def test_half_of_a_graph_may_be_unused(spool: unspool.Spool) -> None:
    net, batch = model(2), torch.randn(2, 16, 32)
    keep = offload(net, budget=0, spool=spool, min_bytes=0)
    with keep:
        one, other = net(batch).square().mean(), net(2 * batch).mean()
    one.backward()
    assert len(spool) > 0
    del other
    assert len(spool) == 0
    assert same(step(net, batch, keep), step(net, batch))


def test_several_threads_share_a_context(spool: unspool.Spool) -> None:
    keep = offload(budget="8KiB", spool=spool, min_bytes=0)
    weights = [leaf(16, 16) for _ in range(4)]
    found: dict[int, torch.Tensor] = {}

    def work(place: int) -> None:
        weight = weights[place]
        for _ in range(10):
            with keep:
                h = weight
                for _ in range(10):
                    h = torch.tanh(h @ weight)
            (found[place],) = torch.autograd.grad(h.sum(), weight)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, weight in enumerate(weights):
        h = weight
        for _ in range(10):
            h = torch.tanh(h @ weight)
        assert torch.equal(found[place], torch.autograd.grad(h.sum(), weight)[0])
    h = None
    assert len(spool) == 0 and keep._kept.bytes == 0


def test_a_full_spool_refuses_in_the_forward_pass_and_nothing_is_lost() -> None:
    x = leaf(2000)
    with unspool.Spool(host_memory="20KiB", timeout=5) as spool:
        keep = offload(budget=0, spool=spool, min_bytes=0)
        with pytest.raises(unspool.errors.CapacityError), keep:
            y = x
            for _ in range(10):
                y = y.sin() * 2
        y.sum().backward()
        y = None
        assert len(spool) == 0 and keep._kept.bytes == 0
        with keep:
            y = x.sin().sin()
        y.sum().backward()
        assert len(spool) == 0


def test_an_exception_in_the_forward_pass_leaves_nothing(spool: unspool.Spool) -> None:
    keep, graphs = offload(budget=0, spool=spool, min_bytes=0), []
    with pytest.raises(FloatingPointError), keep:
        graphs.append(leaf(100).sin().sin().sin())
        raise FloatingPointError
    assert len(spool) > 0
    graphs.clear()
    assert len(spool) == 0


def test_the_order_of_the_last_step_is_announced(tmp_path: Any) -> None:
    class Calls:
        def __init__(self, spool: unspool.Spool) -> None:
            self.spool, self.restored, self.expected = spool, [], []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.spool, name)

        def restore(self, version: int, *arrays: Any) -> None:
            self.restored.append(version)
            self.spool.restore(version, *arrays)

        def expect(self, versions: list[int]) -> None:
            self.expected += versions
            self.spool.expect(versions)

    net, batch = model(), torch.randn(2, 16, 32)
    with unspool.Spool(host_memory="4MiB", disk=tmp_path) as spool:
        calls = Calls(spool)
        keep = offload(net, budget="1GiB", spool=calls, min_bytes=0)
        keep._kept.budget = 0
        for number in range(3):
            calls.restored, calls.expected = [], []
            step(net, batch, keep)
            once = list(dict.fromkeys(calls.restored))
            assert sorted(calls.expected) == sorted(once[1:])
            if number > 0:
                assert calls.expected == once[1:]


def test_a_spool_of_our_own_is_opened_when_needed_and_closed_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[unspool.Spool] = []
    room = unspool.torch._kept
    real = room.open_spool

    def noted(*given: Any, **options: Any) -> unspool.Spool:
        opened.append(real(*given, **options))
        return opened[-1]

    monkeypatch.setattr(room, "open_spool", noted)
    keep = offload(budget="1MiB", min_bytes=0)
    with keep:
        y = leaf(1000).sin()
    assert not opened
    with keep:
        z = y
        for _ in range(300):
            z = z.sin()
    assert len(opened) == 1
    del keep
    assert not opened[0].closed
    z.sum().backward()
    del y, z
    assert opened[0].closed


def test_small_tensors_stay(spool: unspool.Spool) -> None:
    with offload(budget=0, spool=spool):
        y = leaf(1000).sin().sin()
        z = leaf(100, 1000).sin().sin()
    assert spool.stats().saved_bytes == 400_000
    (y.sum() + z.sum()).backward()


def test_a_codec_with_a_bound_changes_gradients_a_little(spool: unspool.Spool) -> None:
    net, batch = model(2), torch.randn(2, 16, 32)
    expected = step(net, batch)
    keep = offload(net, budget=0, spool=spool, codec=unspool.Bound(abs=1e-4), min_bytes=0)
    found = step(net, batch, keep)
    assert not same(found, expected)
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(found, expected, strict=True))
    keep = offload(net, budget=0, spool=spool, codec="lossless", min_bytes=0)
    assert same(step(net, batch, keep), expected)


def test_autocast(spool: unspool.Spool) -> None:
    weights, x = [leaf(8, 8) for _ in range(3)], leaf(4, 8)

    def gradient(keep: Any) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16), keep:
            y = x
            for weight in [*weights, *weights]:
                y = torch.tanh(y @ weight)
        assert y.dtype == torch.bfloat16
        return list(torch.autograd.grad(y.float().sum(), [x, *weights]))

    found = gradient(offload(budget=0, spool=spool, min_bytes=0))
    assert same(found, gradient(torch.enable_grad()))


def test_scan_in_the_context(spool: unspool.Spool) -> None:
    weight = leaf(8, 8)

    def gradient(run: Any, keep: Any) -> torch.Tensor:
        with keep:
            carry, _ = run(lambda u, x: (torch.tanh(u @ weight), None), torch.ones(2, 8), None, 9)
        return torch.autograd.grad(carry.sum(), weight)[0]

    keep = offload(budget=0, spool=spool, min_bytes=0)
    found = gradient(lambda *given: scan(*given, segment=3, spool=spool), keep)
    assert torch.equal(found, gradient(plain, torch.enable_grad())) and len(spool) == 0


def test_arguments_that_make_no_sense_are_named() -> None:
    for options, text in [
        ({"budget": "much"}, "budget"),
        ({"budget": -1}, "budget"),
        ({"min_bytes": "some"}, "min_bytes"),
        ({"spool": 3}, "that is not a Spool"),
        ({"model": [3]}, "a int is not a tensor"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=text):
            offload(**options)
