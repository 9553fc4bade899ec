"""Random time loops in PyTorch, the plain loop that they are compared with, and a small model."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


class Counted(torch.autograd.Function):
    """Saves memory that says when nothing refers to it any more."""

    alive = most = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        memory = np.full(1000, 2.0)
        weakref.finalize(memory, Counted.gone, memory.nbytes)
        Counted.alive += memory.nbytes
        Counted.most = max(Counted.most, Counted.alive)
        two = torch.from_numpy(memory)
        ctx.save_for_backward(two)
        return x * two

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]

    @staticmethod
    def gone(size: int) -> None:
        Counted.alive -= size


@dataclass
class Program:
    """A step with a first carry, inputs, and all tensors that gradients are taken of."""

    step: Callable[[Any, Any], tuple[Any, Any]]
    init: Any
    xs: Any
    length: int
    params: list[torch.Tensor]
    wanted: list[torch.Tensor]


def leaf(*shape: int, grows: bool = True, scale: float = 1.0) -> torch.Tensor:
    return (scale * torch.randn(*shape)).requires_grad_(grows)


def perceptron(draw: random.Random, length: int) -> Program:
    width, layers = draw.choice([1, 3, 8]), draw.randint(1, 3)
    weights = [leaf(width, width, scale=0.5) for _ in range(layers)]
    bias = leaf(width)
    # A closure that is not a leaf: its gradient goes on to `bias`.
    twice = bias + bias

    def step(u: torch.Tensor, x: torch.Tensor) -> tuple[Any, Any]:
        for weight in weights:
            u = torch.tanh(u @ weight + twice + x)
        return u, (u.sum(), {"square": u * u})

    init, xs = leaf(draw.randint(1, 4), width), leaf(length, width, grows=draw.random() < 0.7)
    wanted = [init, *weights, bias] + ([xs] if xs.requires_grad else [])
    return Program(step, init, xs, length, [*weights, twice], wanted)


def leapfrog(draw: random.Random, length: int) -> Program:
    shape = draw.choice([(30,), (6, 7), (3, 4, 5)])
    speed = (0.2 + 0.1 * torch.rand(shape)).requires_grad_()
    source = torch.randn(length)

    def step(carry: Any, n: Any) -> tuple[Any, Any]:
        before, now = carry["before"], carry["now"]
        bend = sum(now.roll(1, d) + now.roll(-1, d) - 2 * now for d in range(now.dim()))
        after = 2 * now - before + speed**2 * bend + source[n]
        return {"before": now, "now": after}, after.flatten()[0]

    init = {"before": leaf(*shape), "now": torch.zeros(shape)}
    xs = torch.arange(length)
    return Program(step, init, xs, length, [speed], [init["before"], speed])


def recurrent(draw: random.Random, length: int) -> Program:
    cell = torch.nn.GRUCell(3, 5)
    dropout = torch.nn.Dropout(0.3)

    def step(hidden: torch.Tensor, x: torch.Tensor) -> tuple[Any, Any]:
        hidden = cell(x, hidden)
        return dropout(hidden), (hidden if draw_outputs else None)

    draw_outputs = draw.random() < 0.5
    init, xs = leaf(2, 5), leaf(length, 2, 3)
    params = list(cell.parameters())
    return Program(step, init, xs, length, params, [init, xs, *params])


def in_place(draw: random.Random, length: int) -> Program:
    gain = leaf(4)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        u, count = carry
        v = u.sin()
        v *= gain
        v[..., 1:].add_(0.1 * v[..., :-1].clone())
        w = torch.zeros_like(v).copy_(v)
        w.clamp_(-2, 2)
        return (w, count + 1), w.mean()

    init = (leaf(3, 4), torch.zeros((), dtype=torch.int64))
    return Program(step, init, None, length, [gain], [init[0], gain])


KINDS = [perceptron, leapfrog, recurrent, in_place]


def program(seed: int) -> Program:
    """One of the programs above, drawn from a seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return KINDS[seed % len(KINDS)](draw, draw.randint(1, 40))


def plain(step: Any, init: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """The loop that everything here stands for."""
    carry, ys = init, []
    for n in range(length):
        carry, y = step(carry, None if xs is None else xs[n])
        ys.append(y)
    if ys[0] is None:
        return carry, None
    tree = torch.utils._pytree
    leaves = [tree.tree_flatten(y)[0] for y in ys]
    stacks = [torch.stack(column) for column in zip(*leaves, strict=True)]
    return carry, tree.tree_unflatten(stacks, tree.tree_flatten(ys[0])[1])


def results(run: Any, made: Program) -> list[torch.Tensor]:
    """All results and all gradients, and what the generator of random numbers draws next."""
    torch.manual_seed(7)
    carry, ys = run(made)
    outputs = torch.utils._pytree.tree_leaves((carry, ys))
    outputs = [each for each in outputs if isinstance(each, torch.Tensor)]
    loss = sum(
        each.double().sin().sum() * (place + 1)
        for place, each in enumerate(outputs)
        if each.requires_grad
    )
    gradients = torch.autograd.grad(loss, made.wanted, allow_unused=True)
    found = [torch.zeros(()) if each is None else each for each in gradients]
    return [*(each.detach() for each in outputs), *found, torch.rand(3)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Bit for bit, except for the sign of zero."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


class Block(torch.nn.Module):
    """Attention and a gated layer, as in a language model."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.mix = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(4)])
        self.gate, self.up = (torch.nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(2 * width, width, bias=False)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norms[0](x)
        q, k, v = (mix(h).unflatten(-1, (4, -1)).transpose(1, 2) for mix in self.mix[:3])
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.mix[3](a.transpose(1, 2).flatten(2)))
        h = self.norms[1](x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


def model(blocks: int = 4, width: int = 32) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block(width) for _ in range(blocks)))
