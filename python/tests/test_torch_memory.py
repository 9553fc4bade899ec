"""What `unspool.torch` leaves behind: no tensor of a step, without Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import unspool
from unspool.schedules import Revolve, StoreAll

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import adjoint, scan  # noqa: E402

from torch_programs import leaf  # noqa: E402

STEPS = 6


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """The tensors that Python has, but for those of generators of random numbers."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    return sum(type(each) in kinds and each.numel() > 0 for each in gc.get_objects())


def plain_step(net: Any) -> Any:
    return lambda u, x: (u + 0.1 * net(u), u.sum())


def step_with_its_own_gradient(net: Any) -> Any:
    def step(u: torch.Tensor, x: Any) -> Any:
        with torch.enable_grad():
            at = u if u.requires_grad else u.detach().requires_grad_()
            (force,) = torch.autograd.grad(net(at).square().sum(), at, create_graph=True)
        return u - 0.1 * force, None

    return step


def step_that_fails(_: Any) -> Any:
    def step(u: torch.Tensor, x: Any) -> Any:
        raise FloatingPointError("blew up" + str(len(u.sin())))

    return step


def gone_through_once(last: torch.Tensor) -> None:
    last.sum().backward()


def gone_through_twice(last: torch.Tensor) -> None:
    last.sum().backward(retain_graph=True)
    last.sum().backward()


def given_up(last: torch.Tensor) -> None:
    assert last.requires_grad


@pytest.mark.parametrize("then", [gone_through_once, gone_through_twice, given_up])
@pytest.mark.parametrize("make", [plain_step, step_with_its_own_gradient, step_that_fails])
@pytest.mark.parametrize("name", ["adjoint", "scan"])
def test_no_tensor_of_a_step_outlives_its_graph(
    name: str, make: Any, then: Callable[[Any], None], spool: unspool.Spool
) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    step, init = make(net), leaf(3, 4)

    def once() -> int:
        try:
            if name == "adjoint":
                last, ys = adjoint(step, init, length=5, params=net.parameters(), spool=spool)
            else:
                last, ys = scan(step, init, length=5, spool=spool)
            then(last)
            del last, ys
        except FloatingPointError:
            assert make is step_that_fails
        for each in (init, *net.parameters()):
            each.grad = None
        return alive()

    assert once() == once() == once()


def most_alive(steps: int, schedule: Any, spool: unspool.Spool) -> int:
    """The most tensors that were there when a step began, in both passes. The buffer is changed by
    each step, so that a copy goes with each state that is kept."""
    net, found = torch.nn.BatchNorm1d(4), [0]

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
            return u.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            found[0] = max(found[0], alive())
            return gradient

    def step(u: torch.Tensor, x: Any) -> Any:
        return u + 0.1 * torch.tanh(net(Seen.apply(u))), None

    before = alive()
    last, _ = adjoint(
        step, leaf(3, 4), length=steps, params=net.parameters(), schedule=schedule, spool=spool
    )
    last.sum().backward()
    assert found[0] > 0
    return found[0] - before


def test_what_is_kept_in_memory_is_of_the_states_that_are_kept(spool: unspool.Spool) -> None:
    few, many = (most_alive(n, Revolve(n, 3), spool) for n in (STEPS, 4 * STEPS))
    assert many <= few + 4
    all_of_them = most_alive(4 * STEPS, StoreAll(4 * STEPS), spool)
    assert all_of_them > many


def test_what_no_step_changes_is_not_copied(spool: unspool.Spool) -> None:
    known = {id(each) for each in gc.get_objects() if type(each) is torch.Tensor}
    weight = leaf(64, 64)
    last, _ = adjoint(
        lambda u, x: (u @ weight, None), leaf(3, 64), length=3, params=[weight], spool=spool
    )
    found = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    tensors = [each for each in found if id(each) not in known]
    assert last.requires_grad
    assert [each is weight for each in tensors if each.shape == weight.shape] == [True]
