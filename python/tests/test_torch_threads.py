"""Loops of several threads, each with a spool of its own that nobody has sized."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import adjoint, scan  # noqa: E402

from torch_programs import leaf, plain  # noqa: E402

THREADS, LOOPS, STEPS = 8, 5, 30


@pytest.mark.parametrize("loop", [adjoint, scan], ids=lambda loop: loop.__name__)
def test_threads_at_the_same_time_get_the_gradients_of_one(loop: Any) -> None:
    weight, xs = leaf(20), torch.linspace(-1, 1, STEPS)
    options = {"params": [weight]} if loop is adjoint else {"segment": 5}
    found: list[Any] = []
    together = threading.Barrier(THREADS, timeout=60)

    def step(carry: Any, x: torch.Tensor) -> tuple[Any, torch.Tensor]:
        before, now = carry
        after = 2 * now - before + 0.1 * torch.roll(now, 1) * weight + x
        return (now, after), after[3]

    def gradient(run: Any, **options: Any) -> torch.Tensor:
        _, ys = run(step, (torch.zeros(20), torch.zeros(20)), xs, STEPS, **options)
        return torch.autograd.grad(ys.sum(), weight)[0]

    def work() -> None:
        together.wait()
        for _ in range(LOOPS):
            try:
                found.append(gradient(loop, **options))
            except Exception as error:
                found.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=300)
    expected = gradient(plain)
    assert len(found) == THREADS * LOOPS
    wrong = [each for each in found if isinstance(each, Exception)]
    assert wrong == [] and all(torch.equal(each, expected) for each in found)


def test_a_thread_calls_its_hooks_while_another_one_reverses_a_step() -> None:
    weight, called = torch.full((4,), 0.5, requires_grad=True), list[float]()
    weight.register_hook(lambda gradient: called.append(float(gradient.sum())))

    def plain_gradient() -> None:
        torch.autograd.grad((3 * weight).sum(), weight)

    class Meanwhile(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, u: torch.Tensor) -> torch.Tensor:
            return u.clone()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
            other = threading.Thread(target=plain_gradient)
            other.start()
            other.join(timeout=60)
            return gradient

    def step(u: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        return Meanwhile.apply(u * weight), None

    out, _ = adjoint(step, torch.ones(4), length=3, params=[weight])
    out.sum().backward()
    assert called == [12.0, 12.0, 12.0, float(weight.grad.sum())]
