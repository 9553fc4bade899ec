"""What `scan`, `adjoint` and `budget` compute again is what was computed before: values, gradients,
buffers, generators, hooks and variables are those of the plain program, or there is an error."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import unspool
from unspool.schedules import Revolve

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from unspool.torch import adjoint, budget, scan  # noqa: E402

from torch_programs import plain, same  # noqa: E402

STEPS = 11
SCALE = 1.0


def by_scan(step: Any, init: Any, params: Any) -> Any:
    return scan(step, init, None, STEPS, segment=3)[0]


def by_adjoint(step: Any, init: Any, params: Any) -> Any:
    schedule = unspool.schedules.Revolve(STEPS, 3)
    return adjoint(step, init, None, STEPS, params=params, schedule=schedule)[0]


def by_hand(step: Any, init: Any, params: Any) -> Any:
    return plain(step, init, None, STEPS)[0]


LOOPS = [by_scan, by_adjoint]


def in_loop(made: Callable[[], Any], loop: Any, passes: int = 2) -> list[torch.Tensor]:
    """Values, gradients, and what else a program says, of a loop of a fresh step."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    step, params, more = made()
    found = []
    for _ in range(passes):
        out = loop(step, torch.linspace(-1, 1, 12).reshape(3, 4), params)
        out.square().sum().backward()
        found += [out.detach().clone(), *(each.grad.clone() for each in params)]
    found += [torch.as_tensor(each).clone() for each in more()]
    return [*found, torch.rand(2), torch.tensor([random.random(), np.random.rand()])]


def weighted(extra: Callable[[torch.Tensor], torch.Tensor], more: Any = tuple) -> Any:
    weight = torch.nn.Parameter(torch.randn(4, 4) / 2)
    return lambda u, _: (extra(torch.tanh(u @ weight)), None), [weight], more


def drawing(draw: Callable[[], Any]) -> Any:
    return weighted(lambda u: u * torch.as_tensor(draw(), dtype=torch.float32))


def own_torch() -> Any:
    own = torch.Generator().manual_seed(1)
    return drawing(lambda: torch.rand(4, generator=own))


def own_numpy() -> Any:
    own = SimpleNamespace(rngs=[np.random.default_rng(1)])
    return drawing(lambda: own.rngs[0].random(4))


def own_state() -> Any:
    own = np.random.RandomState(1)
    return drawing(lambda: own.randn(3)[0])


def own_python() -> Any:
    return drawing(random.Random(1).gauss.__self__.random)


def python() -> Any:
    return drawing(lambda: random.gauss(0, 1))


def numpy() -> Any:
    return drawing(lambda: np.random.randn(3)[1])


def layer(made: Callable[[], Any]) -> Callable[[], Any]:
    def program() -> Any:
        module = made()
        return (
            lambda u, _: (module(u), None),
            list(module.parameters()),
            (lambda: list(module.buffers())),
        )

    return program


def normed() -> torch.nn.Module:
    layers = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
    return torch.nn.Sequential(*(each.float() for each in layers))


def spectral() -> torch.nn.Module:
    return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))


class Moving(torch.nn.Module):
    """Averages: one that is replaced, one that is changed in place behind autograd, a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4) / 2)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("silent", torch.zeros(4))
        self.calls = 0

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * u.detach().mean(0)
        self.silent.data.add_(u.detach().mean(0))
        return torch.tanh(u * self.weight + self.mean + self.silent.clone()) / self.calls


def closures() -> Any:
    count, seen = 0, []

    def extra(u: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        seen.append(float(u.detach().sum()))
        return u / (count + len(seen))

    return weighted(extra, lambda: [count, len(seen), seen[-1]])


def forward_hooks() -> Any:
    module, calls = normed(), []
    module[0].register_forward_hook(lambda *_: calls.append(1))
    module[1].register_forward_pre_hook(lambda *_: calls.append(2))
    step = lambda u, _: (module(u), None)  # noqa: E731
    return step, list(module.parameters()), lambda: [len(calls)]


def hooks_of_tensors() -> Any:
    calls = []

    def extra(u: torch.Tensor) -> torch.Tensor:
        # Without a graph there is nothing to register it with.
        if u.requires_grad:
            u.register_hook(lambda gradient: calls.append(1) or gradient * 0.5)
        return u

    step, (weight,), _ = weighted(extra)
    weight.register_hook(lambda gradient: calls.append(2) or gradient * 2)
    weight.register_post_accumulate_grad_hook(lambda _: calls.append(3))
    return step, [weight], lambda: [len(calls), sum(calls)]


def forces() -> Any:
    stiff = torch.nn.Parameter(torch.rand(4))

    def step(x: torch.Tensor, _: Any) -> Any:
        x = x if x.requires_grad else x.detach().requires_grad_()
        (force,) = torch.autograd.grad((stiff * x**4).sum(), x, create_graph=True)
        return x - 0.01 * force, None

    return step, [stiff], tuple


def backward_within() -> Any:
    weight = torch.nn.Parameter(torch.rand(4))

    def step(x: torch.Tensor, _: Any) -> Any:
        inner = x.detach().requires_grad_()
        (inner**3).sum().backward()
        return x * weight - 0.01 * inner.grad, None

    return step, [weight], tuple


PROGRAMS = {
    "own generator of PyTorch": own_torch,
    "own generator of NumPy": own_numpy,
    "own RandomState": own_state,
    "own generator of Python": own_python,
    "Python's generator": python,
    "NumPy's generator": numpy,
    "BatchNorm": layer(normed),
    "spectral norm": layer(spectral),
    "averages": layer(Moving),
    "variables of closures": closures,
    "forward hooks": forward_hooks,
    "hooks of tensors": hooks_of_tensors,
    "forces": forces,
    "backward within": backward_within,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_is_the_plain_loop(name: str, loop: Any) -> None:
    expected = in_loop(PROGRAMS[name], by_hand)
    found = in_loop(PROGRAMS[name], loop)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    if loop is by_scan:
        assert same(found, expected)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = normed(), Moving()
        self.own = torch.Generator().manual_seed(3)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(4, generator=self.own) + float(np.random.rand())
        return u + torch.dropout(self.last(self.inner(u)) * noise, 0.2, True)


def test_blocks_within_a_budget_are_the_plain_blocks(spool: unspool.Spool) -> None:
    def run(*, within: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        np.random.seed(0)
        model = torch.nn.Sequential(*(Block() for _ in range(5)))
        if within:
            budget(model, "2KiB", spool=spool)
        found = []
        for number in range(5):
            # Two forward passes before one backward pass, in every other step.
            losses = [model(torch.randn(3, 4)).square().mean() for _ in range(1 + number % 2)]
            sum(losses).backward()
            found += [each.detach() for each in losses]
        found += [each.grad for each in model.parameters()]
        found += [torch.tensor(float(block.last.calls)) for block in model]
        model.eval()
        return [*found, *model.buffers(), torch.rand(2), torch.tensor(np.random.rand())]

    assert same(run(within=True), run(within=False))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_generator_that_is_not_found_is_an_error(loop: Any) -> None:
    hidden = itertools.count()
    step, params, _ = weighted(lambda u: u + next(hidden))
    out = loop(step, torch.ones(3, 4), params)
    with pytest.raises(unspool.errors.ArrayError, match="computed again, its result 0"):
        out.sum().backward()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_changed_in_place_before_the_backward_pass_is_an_error(loop: Any) -> None:
    weight, bias, other = torch.nn.Parameter(torch.ones(4)), torch.ones(4), torch.ones(4)

    def step(u: torch.Tensor, _: Any) -> Any:
        return torch.tanh(u * weight + bias), other if loop is None else None

    out = loop(step, torch.ones(3, 4), [weight])
    # One that is reached and not read may change.
    other.add_(1)
    out.sum().backward(retain_graph=True)
    bias.add_(1)
    with pytest.raises((unspool.Error, RuntimeError), match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("loop", LOOPS)
def test_surroundings_that_are_gone_come_back(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module, dropout = normed(), torch.nn.Dropout(0.3)

        def step(u: torch.Tensor, _: Any) -> Any:
            wide = torch.tensor(0.1)
            return (dropout(module(u)) * SCALE + wide).to(u.dtype) / wide.element_size(), None

        monkeypatch.setitem(globals(), "SCALE", 0.5)
        params = list(module.parameters())
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            out = loop(step, torch.ones(3, 4, dtype=torch.float32), params)
        finally:
            torch.set_default_dtype(before)
        monkeypatch.setitem(globals(), "SCALE", 3.0)
        module.eval(), dropout.eval()
        return list(torch.autograd.grad(out.sum(), params))

    for one, other in zip(gradient(loop), gradient(by_hand), strict=True):
        assert torch.allclose(one, other, rtol=1e-5)


def test_a_cache_of_parametrisations_comes_back_and_adjoint_refuses_it() -> None:
    def gradient(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = spectral()
        params = list(module.parameters())
        with parametrize.cached():
            out = loop(lambda u, _: (torch.tanh(module(u)), None), torch.ones(3, 4), params)
        return [*torch.autograd.grad(out.sum(), params), *module.buffers()]

    assert same(gradient(by_scan), gradient(by_hand))
    with pytest.raises(unspool.errors.ArrayError, match=r"parametrize\.cached"):
        gradient(by_adjoint)


def test_parameters_of_functional_call_and_swapped_ones_come_back() -> None:
    class Model(torch.nn.Module):
        def __init__(self, loop: Any) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.loop = torch.nn.Linear(4, 4), loop

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return self.loop(lambda u, _: (torch.tanh(self.inner(u)), None), u, [])

    def gradients(loop: Any) -> list[torch.Tensor]:
        model = Model(loop)
        # Not leaves: as in meta-learning.
        base = {name: each.detach().clone().requires_grad_() for name, each in
                model.named_parameters()}  # fmt: skip
        other = {name: each * 2 for name, each in base.items()}
        out = torch.func.functional_call(model, other, torch.ones(3, 4))
        del other
        found = list(torch.autograd.grad(out.sum(), list(base.values())))
        weight = model.inner.weight
        out = model(torch.ones(3, 4))
        model.inner.weight = torch.nn.Parameter(torch.zeros(4, 4))
        return [*found, torch.autograd.grad(out.sum(), weight)[0]]

    assert same(gradients(by_scan), gradients(by_hand))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("loop", LOOPS)
def test_tangents_and_transformed_functions_go_through(loop: Any) -> None:
    step, (weight,), _ = weighted(lambda u: u)
    init, along = torch.randn(3, 4), torch.randn(3, 4)

    def tangent(loop: Any) -> torch.Tensor:
        with forward_ad.dual_level():
            out = loop(step, forward_ad.make_dual(init, along), [weight])
            return forward_ad.unpack_dual(out).tangent.detach()

    assert torch.equal(tangent(loop), tangent(by_hand))
    for transform in (torch.func.jacrev, torch.func.vmap, lambda f: torch.func.grad(
        lambda u: f(u).sum())):  # fmt: skip
        found, expected = (
            transform(lambda u, run=run: run(step, u, [weight]))(init) for run in (loop, by_hand)
        )
        assert torch.equal(found, expected)


def test_a_forward_pass_that_raises_leaves_what_the_plain_loop_leaves() -> None:
    def run(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = normed()

        def step(u: torch.Tensor, _: Any) -> Any:
            u = module(u)
            if int(module[1].num_batches_tracked) == 7:
                raise FloatingPointError("blew up")
            return u, None

        with pytest.raises(FloatingPointError):
            loop(step, torch.randn(3, 4), list(module.parameters()))
        return list(module.buffers())

    assert same(run(by_scan), run(by_hand)) and same(run(by_adjoint), run(by_hand))


@pytest.mark.parametrize("schedule", ["auto", Revolve(6, 2)])
@pytest.mark.parametrize("then", ["look", "loop", "backward"])
def test_a_table_with_a_largest_norm_may_be_read_after_the_loop(then: str, schedule: Any) -> None:
    rows = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 1, 3], [5, 5, 0], [2, 8, 4]])

    def run(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        table = torch.nn.Embedding(12, 4, max_norm=1.0)
        with torch.no_grad():
            table.weight.mul_(3)

        def step(u: torch.Tensor, row: torch.Tensor) -> Any:
            return torch.tanh(u * 0.5 + table(row)), None

        u = loop(step, torch.zeros(3, 4), table.weight)
        if then == "loop":
            u = loop(step, u, table.weight)
        if then == "look":
            u = u * table(torch.tensor([9, 10, 11]))
        u.square().sum().backward(retain_graph=True)
        if then == "backward":
            u.sum().backward()
        return [u.detach(), table.weight.grad, table.weight.detach()]

    def adjoined(step: Any, u: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return adjoint(step, u, rows, params=[weight], schedule=schedule)[0]

    found = run(adjoined)
    for one, other in zip(found, run(lambda step, u, _: plain(step, u, rows, 6)[0]), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("schedule", ["auto", Revolve(6, 2)])
def test_pythons_generator_may_be_first_used_by_a_later_step(schedule: Any) -> None:
    def run(loop: Any) -> tuple[Any, ...]:
        random.seed(3)
        weight = torch.full((4,), 0.5, requires_grad=True)

        def step(u: torch.Tensor, n: torch.Tensor) -> Any:
            # The second number of a pair changes nothing but an attribute of the generator.
            noise = random.gauss(0, 1) if n > 1 else 1.0
            return torch.tanh(u * weight * noise), None

        loop(step, weight).sum().backward()
        return weight.grad.tolist(), random.random(), random.gauss(0, 1)

    def adjoined(step: Any, weight: torch.Tensor) -> torch.Tensor:
        u, ns = torch.ones(4), torch.arange(6)
        return adjoint(step, u, ns, params=[weight], schedule=schedule)[0]

    assert run(adjoined) == run(lambda step, _: plain(step, torch.ones(4), torch.arange(6), 6)[0])


@pytest.mark.parametrize("schedule", ["auto", Revolve(5, 2)])
def test_a_name_that_moves_from_one_value_to_another_is_put_back(schedule: Any) -> None:
    def run(loop: Any) -> tuple[Any, ...]:
        weight, factor = torch.full((4,), 0.5, requires_grad=True), 1.5
        names: dict[str, float] = {"even": factor}

        def step(u: torch.Tensor, _: Any) -> Any:
            even = "even" in names
            used = names.pop("even" if even else "odd")
            names["odd" if even else "even"] = used
            return torch.tanh(u * weight * (used if even else -1.0)), None

        loop(step, weight).sum().backward()
        return weight.grad.tolist(), names

    def adjoined(step: Any, weight: torch.Tensor) -> torch.Tensor:
        return adjoint(step, torch.ones(4), None, 5, params=[weight], schedule=schedule)[0]

    assert run(adjoined) == run(lambda step, _: plain(step, torch.ones(4), None, 5)[0])
