"""Inputs of PyTorch's `checkpoint`, however they are given: the functions around it move them."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import unspool

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402
from unspool.torch import adjoint, budget, offload, scan  # noqa: E402

from torch_programs import leaf  # noqa: E402


def inner(weight: torch.Tensor, h: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return torch.tanh(h @ weight) * scale


def by_position(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda h: inner(weight, h), h, use_reentrant=False)


def by_keyword(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda h, scale: inner(weight, h, scale), h=h, scale=2.0, use_reentrant=False)


def in_a_dictionary(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda given: inner(weight, given["h"][0]), {"h": [h]}, use_reentrant=False)


def by_partial(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return checkpoint(functools.partial(inner, weight, h=h), scale=2.0, use_reentrant=False)


def nested(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda h: by_keyword(weight, h), h=h, use_reentrant=False)


WAYS = [by_position, by_keyword, in_a_dictionary, by_partial, nested]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def gradients(block: Callable[..., Any], weights: list[Any], keep: Any = None) -> list[Any]:
    torch.manual_seed(3)
    h = torch.randn(64, 8) * 1
    with keep or torch.enable_grad():
        for weight in weights:
            h = block(weight, h)
    return list(torch.autograd.grad(h.sum(), weights))


@ways
def test_offload_moves_the_inputs_of_checkpointed_blocks(way: Any, spool: unspool.Spool) -> None:
    weights = [leaf(8, 8) for _ in range(6)]
    keep = offload(budget=0, spool=spool, min_bytes=0)
    found = gradients(way, weights, keep)
    assert all(map(torch.equal, found, gradients(inner_of_two, weights)))
    # The inputs of all six blocks but the last one, which is needed at once, and more where
    # checkpoints are nested.
    assert spool.stats().saved_bytes >= 5 * 64 * 8 * 4
    assert len(spool) == 0


def inner_of_two(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return inner(weight, h)


class Watched(torch.autograd.Function):
    """Makes a copy in memory that says when nothing refers to it any more."""

    alive = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        memory = x.detach().numpy().copy()
        weakref.finalize(memory, Watched.gone)
        Watched.alive += 1
        return torch.from_numpy(memory)

    @staticmethod
    def gone() -> None:
        Watched.alive -= 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


@ways
@pytest.mark.parametrize("around", ["scan", "budget"])
def test_what_is_computed_again_keeps_no_inputs(
    way: Any, around: str, spool: unspool.Spool
) -> None:
    weight = leaf(8, 8)

    def step(u: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        for _ in range(3):
            u = way(weight, Watched.apply(u))
        return u, None

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight.detach().clone())

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return step(u, None)[0]

    gc.collect()
    start = torch.from_numpy(np.ones((64, 8), np.float32)).requires_grad_()
    before = Watched.alive
    if around == "scan":
        out, _ = scan(step, start, None, 8, segment=2, spool=spool)
    else:
        model = torch.nn.Sequential(*(Block() for _ in range(4)))
        with budget(model, "1MiB", spool=spool):
            out = model(start)
    gc.collect()
    # Those of the last segment, or block, which is not computed again.
    assert 0 < Watched.alive - before <= 6
    (found,) = torch.autograd.grad(out.sum(), start)
    u = start
    for _ in range(8 if around == "scan" else 4):
        u, _ = step(u, None)
    assert torch.equal(found, torch.autograd.grad(u.sum(), start)[0])


@ways
def test_adjoint_around_checkpointed_blocks(way: Any, spool: unspool.Spool) -> None:
    weight = leaf(8, 8)

    def slope(run: Any) -> torch.Tensor:
        step = lambda u, _: (run(weight, u), None)  # noqa: E731
        u, _ = adjoint(step, torch.ones(4, 8), None, 5, params=[weight], spool=spool)
        return torch.autograd.grad(u.sum(), weight)[0]

    assert torch.equal(slope(way), slope(inner_of_two))


def test_without_hooks_a_checkpoint_is_as_it_was() -> None:
    weight, given = leaf(8, 8), []

    def block(h: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
        given.append((h, more))
        return inner(weight, h + more["h"])

    h, more = leaf(4, 8), {"h": leaf(4, 8)}
    with offload(budget=0, min_bytes=1 << 30):
        inside = checkpoint(block, h, more=more, use_reentrant=False)
    outside = checkpoint(block, h, more=more, use_reentrant=False)
    assert all(one is h and other is more for one, other in given)
    found = torch.autograd.grad(outside.sum(), more["h"])[0]
    assert torch.equal(found, torch.autograd.grad(inside.sum(), more["h"])[0])
