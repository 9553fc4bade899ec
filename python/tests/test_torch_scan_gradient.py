"""`unspool.torch.scan(codec=unspool.Gradient(...))`."""

from __future__ import annotations

import gc
import pickle
import warnings
from typing import Any

import pytest
import unspool
from unspool.errors import OptionError
from unspool.types import FidelityWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import scan  # noqa: E402

STEPS = 24


class Layer:
    """One layer over and over, which reads an input, draws random numbers and has an output."""

    def __init__(self, steps: int = STEPS) -> None:
        draw = torch.Generator().manual_seed(1)
        options = {"generator": draw, "dtype": torch.float64}
        self.weights = (torch.randn(16, 16, **options) / 4).requires_grad_()
        self.begun = torch.randn(64, 16, **options).requires_grad_()
        self.inputs = torch.randn(steps, 64, 16, **options).requires_grad_()
        self.seen, self.calls = torch.ones(64, 16, dtype=torch.float64), 0

    def step(self, carry: Any, x: Any) -> tuple[Any, Any]:
        self.calls += 1
        kept = torch.rand(carry.shape, dtype=carry.dtype) > 0.05
        carry = carry + 0.1 * kept * torch.tanh(carry @ self.weights + 0.1 * x)
        return carry, (carry**2).mean()

    def gradients(self, codec: Any, *, step: Any = None, **options: Any) -> tuple[Any, Any]:
        """Those of the weights, the first carry and the inputs, and what was told."""
        told: list[Any] = []
        if isinstance(codec, unspool.Gradient):
            options |= {"fidelity": told.append}
        torch.manual_seed(0)
        # The first carry is not a leaf.
        begun, inputs = self.begun * 1, self.inputs
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
            given = (step or self.step, begun, inputs)
            carry, ys = scan(*given, codec=codec, spool=spool, **options)
            objective = (self.seen * carry**3).sum() + ys.sum()
            found = torch.autograd.grad(objective, [self.weights, self.begun, inputs])
            del carry, ys, objective
            gc.collect()
            assert len(spool) == 0
        return found, told


def off(found: Any, exact: Any) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("target", "cut"),
    [(1e-2, {"segment": 4}), (1e-4, {"budget": 120_000}), (1e-3, {"segment": 1})],
)
def test_gradients_are_as_accurate_as_asked_for(target: float, cut: Any) -> None:
    layer, order = Layer(), unspool.Gradient(target)
    exact, _ = layer.gradients("raw", **cut)
    first, (told,) = layer.gradients(order, **cut)
    assert all((a == b).all() for a, b in zip(first, exact, strict=True))
    assert told.trials > 0 and told.estimate == 0 and told.bounds
    assert set(told.arrays) == {"init[0]", "params[0]", "xs[0]"}
    layer.calls = 0
    second, (told,) = layer.gradients(order, **cut)
    calls = layer.calls
    assert target / 10 < off(second, exact) <= target
    assert told.trials == 0 and told.estimate == pytest.approx(off(second, exact), rel=0.05)
    assert told.steps > 1 and 0 < told.stored_bytes < told.raw_bytes / 2
    layer.calls = 0
    layer.gradients("raw", **cut)
    assert layer.calls == calls, "nothing is run twice once bounds are known"


def test_a_smaller_budget_measures_again_and_a_larger_one_does_not() -> None:
    layer, order = Layer(), pickle.loads(pickle.dumps(unspool.Gradient(1e-2)))
    trials = [
        layer.gradients(order, budget=budget)[1][0].trials
        for budget in (130_000, 150_000, 90_000, 130_000)
    ]
    assert trials[0] and trials[2] and not trials[1] and not trials[3]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_step() -> None:
    layer, order, target = Layer(12), unspool.Gradient(1e-3), 1e-3

    @torch.compile(backend="aot_eager")
    def step(carry: Any, x: Any) -> Any:
        return carry + 0.1 * torch.tanh(carry @ layer.weights + 0.1 * x), carry.mean()

    given = {"step": step, "segment": 3}
    exact, _ = layer.gradients("raw", **given)
    first, _ = layer.gradients(order, **given)
    second, (told,) = layer.gradients(order, **given)
    assert off(first, exact) < 1e-12 and target / 10 < off(second, exact) <= target
    assert told.estimate == pytest.approx(off(second, exact), rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_on_random_linear_loops_the_estimate_is_the_difference_from_the_formula(seed: int) -> None:
    draw, size, target = torch.Generator().manual_seed(seed), 24, 10.0 ** -(2 + seed)
    options = {"generator": draw, "dtype": torch.float64}
    matrix = torch.linalg.qr(torch.randn(size, size, **options))[0].requires_grad_()
    begun, given = torch.randn(2, size, 8, **options)
    powers = [torch.linalg.matrix_power(matrix.detach(), n) for n in range(STEPS)]
    pairs = zip(reversed(powers), powers, strict=True)
    # The gradient by the matrix, where states are those of the loop.
    right = sum((late.T @ given) @ (early @ begun).T for late, early in pairs)
    # Of the steps of a segment only the first state was encoded: the error runs through the rest.
    order, told = unspool.Gradient(target), list[Any]()
    for n, segment in enumerate((5, 5, 5)):
        carry, _ = scan(
            lambda x, _: (matrix @ x, None),
            begun,
            length=STEPS,
            segment=segment,
            codec=order,
            fidelity=told.append,
        )
        scale = 10.0**n
        (found,) = torch.autograd.grad(carry, matrix, scale * given)
        true = float((found / scale - right).norm() / right.norm())
        assert true < 1e-12 if n == 0 else target / 10 < true <= target
        assert told[-1].estimate == (0 if n == 0 else pytest.approx(true, rel=0.02))


def test_backward_twice_and_of_a_part() -> None:
    layer, order = Layer(), unspool.Gradient(1e-2)
    for _ in range(2):
        told: list[Any] = []
        torch.manual_seed(0)
        given = (layer.step, layer.begun, layer.inputs)
        carry, ys = scan(*given, segment=4, codec=order, fidelity=told.append)
        found = [
            torch.autograd.grad(carry.sum(), layer.weights, retain_graph=True)[0] for _ in range(2)
        ]
        assert (found[0] == found[1]).all() and order.learned is not None
        (carry.sum() + 0 * ys.sum()).backward()
    assert set(told[0].arrays) == {"params[0]"}, "what nobody asked for is not estimated"
    assert set(told[-1].arrays) == {"init[0]", "params[0]", "xs[0]"}


def test_a_violation_is_said() -> None:
    layer, order = Layer(), unspool.Gradient(1e-3)
    layer.gradients(order, segment=4)
    old = order.learned
    assert old is not None
    # As if the error had been measured on a much smaller gradient.
    errors = {name: 1e3 * each for name, each in old.errors.items()}
    order.learned = unspool._gradient.Learned(old.key, old.bounds, errors, old.source)
    with pytest.warns(FidelityWarning, match=r"torch.scan, Gradient: .* is off by about"):
        layer.gradients(order, segment=4)
    assert order.learned is None


def refused(step: Any, begun: Any, match: str, steps: int = STEPS) -> None:
    """Runs it twice with a `Gradient` that has to be refused."""
    order, told = unspool.Gradient(1e-3), list[Any]()
    begun.requires_grad_()
    with pytest.warns(FidelityWarning, match=match):
        carry, _ = scan(step, begun, length=steps, segment=4, codec=order, fidelity=told.append)
        carry.sum().backward()
    assert told[0].bounds == () and "stay lossless" in str(told[0])


def test_where_nothing_can_be_promised_states_stay_lossless() -> None:
    begun = torch.rand(500, dtype=torch.float64)
    refused(lambda x, _: (x * x * 0, None), begun.clone(), "the gradient is zero")
    refused(lambda x, _: (x * float("inf"), None), begun.clone(), "not finite")
    # The logistic map: neighbours part twofold in each step.
    refused(lambda x, _: (4 * x * (1 - x), None), begun.clone(), "as in chaotic ones", 64)


def test_a_loop_that_needs_no_states_is_exact() -> None:
    begun, order = torch.rand(50, dtype=torch.float64, requires_grad=True), unspool.Gradient(1e-3)
    for _ in range(2):
        carry, _ = scan(lambda x, _: (x * 0.9, None), begun, length=24, segment=4, codec=order)
        (found,) = torch.autograd.grad(carry.sum(), begun)
        assert off([found], [torch.full_like(begun, 0.9**24)]) < 1e-12


def test_integers_come_back_as_they_are() -> None:
    weight, order = torch.full((1000,), 0.9, requires_grad=True), unspool.Gradient(1e-2)

    def step(carry: Any, _: Any) -> Any:
        x, count = carry
        assert int(count[0]) in range(24)
        return (torch.sin(x * weight) + count[0] * 1e-3, count + 1), None

    for _ in range(3):
        begun = torch.linspace(0, 1, 1000), torch.zeros(4, dtype=torch.int64)
        (x, _), _ = scan(step, begun, length=24, segment=4, codec=order)
        (found,) = torch.autograd.grad(x.sum(), weight)
    (x, _), _ = scan(step, begun, length=24)
    assert 0 < off([found], torch.autograd.grad(x.sum(), weight)) <= 1e-2


def test_what_makes_no_sense_is_refused() -> None:
    def run(order: Any, **options: Any) -> Any:
        given = {"length": 8, "segment": 2} | options
        carry, _ = scan(lambda x, _: (x.sin(), None), begun, codec=order, **given)
        carry.sum().backward()

    begun, order = torch.ones(3, requires_grad=True), unspool.Gradient(1e-3)
    with pytest.raises(OptionError, match="give `length` alone"):
        run(order, until=lambda x: x.sum() > 99)
    with pytest.raises(OptionError, match=r"use unspool.torch.adjoint, or leave strict"):
        run(unspool.Gradient(1e-3, strict=True))
    with pytest.raises(OptionError, match="not together with a Gradient"):
        run(order, check=4)
    with pytest.raises(OptionError, match="no gradient 'nothing', but 'init"):
        run(unspool.Gradient(1e-3, of="nothing"))
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        history = unspool.IncrementalSpool(spool, unspool.Bound(abs=1e-3))
        with pytest.raises(OptionError, match="has absolute ones"):
            run(order, spool=history)


def test_where_everything_fits_nothing_is_kept_and_nothing_measured() -> None:
    layer, order = Layer(8), unspool.Gradient(1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, (told,) = layer.gradients(order, budget="1GiB")
    assert told.target == 1e-3 and told.estimate == 0 and order.learned is None
