"""`unspool.torch.adjoint(codec=unspool.Gradient(...))`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import unspool
from unspool.errors import OptionError
from unspool.schedules import Auto, OnlineRevolve, Revolve, StoreAll
from unspool.types import FidelityWarning

torch = pytest.importorskip("torch")

STEPS = 24


class Layer:
    """One layer over and over, which reads an input, draws random numbers and has an output."""

    def __init__(self, dtype: Any = torch.float64) -> None:
        draw = torch.Generator().manual_seed(1)
        self.weights = (torch.randn(16, 16, generator=draw, dtype=dtype) / 4).requires_grad_()
        self.begun = torch.randn(64, 16, generator=draw, dtype=dtype).requires_grad_()
        self.inputs = torch.randn(STEPS, 64, 16, generator=draw, dtype=dtype).requires_grad_()
        # What the objective looks at.
        self.seen = torch.ones(64, 16, dtype=dtype)
        self.calls = 0

    def step(self, carry: Any, x: Any) -> tuple[Any, Any]:
        self.calls += 1
        kept = torch.rand(carry.shape, dtype=carry.dtype) > 0.05
        carry = carry + 0.1 * kept * torch.tanh(carry @ self.weights + 0.1 * x)
        return carry, (carry**2).mean()

    def gradients(self, codec: Any, **options: Any) -> tuple[Any, Any]:
        """Those of the weights, the first carry and the inputs, and what was told."""
        told: list[Any] = []
        if isinstance(codec, unspool.Gradient):
            options |= {"fidelity": told.append}
        torch.manual_seed(0)
        given = (self.step, self.begun, self.inputs)
        carry, ys = unspool.torch.adjoint(*given, params=[self.weights], codec=codec, **options)
        objective = (self.seen * carry**3).sum() + ys.sum()
        found = torch.autograd.grad(objective, [self.weights, self.begun, self.inputs])
        return found, told


def off(found: Any, exact: Any) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("target", "schedule"),
    [(1e-2, StoreAll(STEPS)), (1e-4, Revolve(STEPS, 6)), (1e-3, OnlineRevolve(6))],
)
def test_gradients_are_as_accurate_as_asked_for(target: float, schedule: Any) -> None:
    layer, order = Layer(), unspool.Gradient(target)
    exact, _ = layer.gradients("lossless", schedule=schedule)
    first, (told,) = layer.gradients(order, schedule=schedule)
    assert all((a == b).all() for a, b in zip(first, exact, strict=True))
    assert told.trials > 0 and told.estimate == 0 and told.bounds
    assert set(told.arrays) == {"init[0]", "params[0]", "xs[0]"}
    layer.calls = 0
    second, (told,) = layer.gradients(order, schedule=schedule)
    calls = layer.calls
    assert target / 10 < off(second, exact) <= target
    assert told.trials == 0 and told.estimate == pytest.approx(off(second, exact), rel=0.05)
    layer.calls = 0
    layer.gradients("lossless", schedule=schedule)
    assert layer.calls == calls, "nothing is run twice once bounds are known"


def test_a_second_backward_pass_runs_the_loop_again() -> None:
    layer, order = Layer(torch.float32), unspool.Gradient(1e-2, of="params")
    carry, _ = unspool.torch.adjoint(
        lambda carry, x: (torch.tanh(carry @ layer.weights), None),
        layer.begun,
        length=STEPS,
        params=[layer.weights],
        codec=order,
    )
    found = [
        torch.autograd.grad(carry.sum(), layer.weights, retain_graph=True)[0] for _ in range(3)
    ]
    assert (found[1] == found[2]).all()
    assert 0 < off([found[1]], [found[0]]) <= 1e-2


@pytest.mark.parametrize("strict", [False, True])
def test_a_violation_is_said_or_mended(strict: bool) -> None:
    layer, order = Layer(), unspool.Gradient(1e-3, of="params", strict=strict)
    layer.gradients(order)
    assert order.learned is not None
    # As if the error had been measured on a much smaller gradient.
    errors = {name: 1e3 * each for name, each in order.learned.errors.items()}
    order.learned = unspool._gradient.Learned(
        order.learned.key, order.learned.bounds, errors, order.learned.source
    )
    exact, _ = layer.gradients("lossless")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, (told,) = layer.gradients(order)
    if strict:
        assert not said and off(found, exact) == 0 and told.trials > 0
    else:
        (one,) = said
        assert issubclass(one.category, FidelityWarning) and order.learned is None
        assert "unspool.torch.adjoint, Gradient: the gradient" in str(one.message)


def test_what_makes_no_sense_is_refused() -> None:
    layer, order = Layer(), unspool.Gradient(1e-3)
    with pytest.raises(OptionError, match="not together with a Gradient"):
        layer.gradients(order, check=4)
    with pytest.raises(OptionError, match="another schedule each time"):
        layer.gradients(order, schedule=Auto(STEPS))
    with pytest.raises(OptionError, match=r"no gradient 'weights', but 'init\[0\]', 'params"):
        layer.gradients(unspool.Gradient(1e-3, of="weights"))
    with unspool.Spool(host_memory="64MiB", device="cpu") as spool:
        history = unspool.IncrementalSpool(spool, unspool.Bound(abs=1e-3))
        with pytest.raises(OptionError, match="has absolute ones"):
            layer.gradients(order, spool=history)
