"""Modules of which random programs are made: each does one thing that makes a second call of it
differ from the first, or that something besides its arguments has a part in.

All take a tensor of shape (BATCH, WIDTH), float64, and return one. A part that is "repeatable" is
the same however often `torch.utils.checkpoint` calls it. A "hidden" one draws from a source whose
state nobody can put back, so that a second call of it has to end in an error. One "in Python" keeps
numbers or tensors where only Python code knows them: it is the same, or ends in an error.
"""

from __future__ import annotations

import itertools
import queue
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize

__all__ = ["BATCH", "HIDDEN", "PARTS", "PYTHON", "REPEATABLE", "WIDTH", "World"]

BATCH, WIDTH = 3, 4


class World:
    """What a program shares: what its hooks were called with, generators, and a number.

    Attributes:
        log: the kind of each hook that was called, and the sum of what it was given.
        generators: those of the program's own, whose states are compared.
        python: functions that read what the program keeps in plain Python objects.
        scale: a number that parts read, and that a program may change at any time.
        fails: whether the part `raises` raises.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.seed = seed
        self.log: list[tuple[str, float]] = []
        self.generators: list[Any] = []
        self.python: list[Callable[[], float]] = []
        self.scale, self.fails = 1.5, False
        self.shared = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def note(self, kind: str, value: Any) -> None:
        """A hook was called."""
        tensors = [each for each in torch.utils._pytree.tree_leaves(value) if each is not None]
        self.log.append((kind, sum(float(each.detach().double().sum()) for each in tensors)))

    def own(self, generator: Any) -> Any:
        """A generator of the program's own."""
        self.generators.append(generator)
        return generator


class Part(torch.nn.Module):
    """A linear layer, and what a subclass does beside it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(WIDTH, WIDTH)
        # Not a submodule and not copied: what hooks and steps reach through a closure.
        self.world = world
        self.prepare(world)

    def prepare(self, world: World) -> None:
        """Makes what the part needs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.lin(x) * self.factor(x)) + 0.1 * x

    def factor(self, x: torch.Tensor) -> Any:
        return 1.0


PARTS: dict[str, type[torch.nn.Module]] = {}
REPEATABLE: list[str] = []
HIDDEN: list[str] = []
PYTHON: list[str] = []


def part(
    name: str, *, repeatable: bool = False, hidden: bool = False, python: bool = False
) -> Callable[[Any], Any]:
    def add(made: Any) -> Any:
        PARTS[name] = made
        for names, has in ((REPEATABLE, repeatable), (HIDDEN, hidden), (PYTHON, python)):
            names.extend([name] if has else [])
        return made

    return add


part("dense", repeatable=True)(Part)


def applied(
    name: str, make: Callable[[World], torch.nn.Module], *, repeatable: bool = False
) -> None:
    """A part that applies one of PyTorch's own modules before its linear layer."""

    class Applied(Part):
        def prepare(self, world: World) -> None:
            self.inner = make(world)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.lin(self.inner(x))) + 0.1 * x

    part(name, repeatable=repeatable)(Applied)


class Fixed(torch.nn.BatchNorm1d):
    """One that stays in evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        return super().train(False)


def linear() -> torch.nn.Linear:
    return torch.nn.Linear(WIDTH, WIDTH)


def with_weight(weight: torch.nn.Parameter) -> torch.nn.Linear:
    made = linear()
    made.weight = weight
    return made


applied("batch norm", lambda _: torch.nn.BatchNorm1d(WIDTH))
applied("cumulative batch norm", lambda _: torch.nn.BatchNorm1d(WIDTH, momentum=None))
applied("spectral norm", lambda _: parametrizations.spectral_norm(linear()))
applied("weight norm", lambda _: parametrizations.weight_norm(linear()), repeatable=True)
applied("orthogonal", lambda _: parametrizations.orthogonal(linear()), repeatable=True)
applied("dropout", lambda _: torch.nn.Dropout(0.4), repeatable=True)
applied("alpha dropout", lambda _: torch.nn.AlphaDropout(0.4), repeatable=True)
applied("rrelu", lambda _: torch.nn.RReLU(), repeatable=True)
applied("fixed batch norm", lambda _: Fixed(WIDTH), repeatable=True)
applied("frozen", lambda _: linear().requires_grad_(False), repeatable=True)
applied("shared", lambda world: with_weight(world.shared), repeatable=True)


@part("gru", repeatable=True)
class Recurrent(Part):
    def prepare(self, world: World) -> None:
        self.gru = torch.nn.GRU(WIDTH, WIDTH, num_layers=2, dropout=0.3)

    def factor(self, x: torch.Tensor) -> Any:
        return self.gru(x)[0]


@part("attention", repeatable=True)
class Attention(Part):
    def prepare(self, world: World) -> None:
        self.attention = torch.nn.MultiheadAttention(WIDTH, 2, dropout=0.3)

    def factor(self, x: torch.Tensor) -> Any:
        return self.attention(x, x, x)[0]


@part("moving average")
class Average(Part):
    def prepare(self, world: World) -> None:
        self.register_buffer("mean", torch.zeros(WIDTH))

    def factor(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.3)
        return 1 + self.mean.clone()


@part("replaced average")
class Replaced(Average):
    def factor(self, x: torch.Tensor) -> Any:
        self.mean = 0.7 * self.mean + 0.3 * x.detach().mean(0)
        return 1 + self.mean


@part("counter")
class Counter(Part):
    def prepare(self, world: World) -> None:
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def factor(self, x: torch.Tensor) -> Any:
        if self.training:
            self.calls += 1
        return 1 / (1 + self.calls.clone())


@part("silent counter")
class SilentCounter(Counter):
    def factor(self, x: torch.Tensor) -> Any:
        self.calls.add_(1)
        return 1.0


@part("number on the module", python=True)
class Number(Part):
    def prepare(self, world: World) -> None:
        self.calls = 0
        world.python.append(lambda: self.calls)

    def factor(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return 1 / self.calls


@part("tensors in a list", python=True)
class Listed(Part):
    def prepare(self, world: World) -> None:
        self.kept = [torch.zeros(WIDTH)]
        world.python.append(lambda: float(self.kept[0].sum()))

    def factor(self, x: torch.Tensor) -> Any:
        self.kept[0].mul_(0.5).add_(x.detach().mean(0))
        return 1 + self.kept[0].clone()


@part("list of losses", python=True)
class Losses(Part):
    def prepare(self, world: World) -> None:
        self.losses: list[float] = []
        world.python.append(lambda: len(self.losses))

    def factor(self, x: torch.Tensor) -> Any:
        self.losses.append(float(x.detach().mean()))
        return 1.0


@part("closure over a tensor", python=True)
class Closed(Part):
    def prepare(self, world: World) -> None:
        state, count = torch.zeros(WIDTH), 0

        def factor(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            state.add_(x.detach().mean(0), alpha=1 / count)
            return 1 + state.clone()

        self.inner = factor
        world.python.append(lambda: float(state.sum()) + count)

    def factor(self, x: torch.Tensor) -> Any:
        return self.inner(x)


def drawing(name: str, make: Callable[[World], Callable[[], Any]], hidden: bool = False) -> None:
    """A part that multiplies by random numbers."""

    class Drawing(Part):
        def prepare(self, world: World) -> None:
            self.draw = make(world)

        def factor(self, x: torch.Tensor) -> Any:
            return torch.as_tensor(self.draw())

    part(name, hidden=hidden)(Drawing)


def own_torch(world: World) -> Callable[[], Any]:
    own = world.own(torch.Generator().manual_seed(world.seed))
    return lambda: torch.randn(WIDTH, generator=own)


def own_numpy(world: World) -> Callable[[], Any]:
    own = world.own(np.random.default_rng(world.seed))
    return lambda: own.normal(size=WIDTH)


def own_state(world: World) -> Callable[[], Any]:
    own = world.own(np.random.RandomState(world.seed))
    return lambda: own.normal(size=WIDTH)


def own_python(world: World) -> Callable[[], Any]:
    return world.own(random.Random(world.seed)).random


def in_slots(world: World) -> Callable[[], Any]:
    class Holder:
        __slots__ = ("inner",)

        def __init__(self) -> None:
            self.inner = {"deep": [world.own(torch.Generator().manual_seed(world.seed))]}

        def __call__(self) -> Any:
            return torch.rand(WIDTH, generator=self.inner["deep"][0])

    return Holder()


def iterated(world: World) -> Callable[[], Any]:
    numbers = itertools.count(1)
    return lambda: 1 / next(numbers)


def from_a_generator_function(world: World) -> Callable[[], Any]:
    def numbers() -> Any:
        own = np.random.default_rng(world.seed)
        while True:
            yield own.normal()

    made = numbers()
    return lambda: next(made)


def from_a_queue(world: World) -> Callable[[], Any]:
    own, numbers = random.Random(world.seed), queue.SimpleQueue[float]()
    for _ in range(1000):
        numbers.put(own.random())
    return numbers.get_nowait


drawing("own torch generator", own_torch)
drawing("own numpy generator", own_numpy)
drawing("own numpy state", own_state)
drawing("own python generator", own_python)
drawing("generator in slots", in_slots)
drawing("numpy's generator", lambda _: lambda: np.random.normal(size=WIDTH))
drawing("python's generator", lambda _: random.random)
drawing("iterator", iterated, hidden=True)
drawing("generator function", from_a_generator_function, hidden=True)
drawing("queue", from_a_queue, hidden=True)


@part("number that changes")
class Reads(Part):
    def factor(self, x: torch.Tensor) -> Any:
        return self.world.scale


@part("default dtype")
class Default(Part):
    def factor(self, x: torch.Tensor) -> Any:
        return torch.full((WIDTH,), 1 / 3).double()


@part("autocast", repeatable=True)
class Cast(Part):
    def factor(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x.float() @ self.lin.weight.float()).double()


@part("functional call", repeatable=True)
class Functional(Part):
    def factor(self, x: torch.Tensor) -> Any:
        doubled = {name: 2 * value for name, value in self.lin.named_parameters()}
        return functional_call(self.lin, doubled, (x,))


class Symmetric(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


@part("parametrized", repeatable=True)
class Parametrized(Part):
    def prepare(self, world: World) -> None:
        parametrize.register_parametrization(self.lin, "weight", Symmetric())


@part("energy", repeatable=True)
class Energy(Part):
    def factor(self, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            at = x if x.requires_grad else x.detach().requires_grad_()
            energy = (self.lin(at).square()).sum()
            (force,) = torch.autograd.grad(energy, at, create_graph=True)
        return 1 + 0.1 * force


@part("detached energy", repeatable=True)
class DetachedEnergy(Part):
    def factor(self, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            self.lin(at).square().sum().backward(inputs=[at])
        return 1 + 0.1 * at.grad


@part("max norm", repeatable=True)
class MaxNorm(Part):
    """Looking up changes the table in place."""

    def prepare(self, world: World) -> None:
        self.table = torch.nn.Embedding(5, WIDTH, max_norm=0.5)

    def factor(self, x: torch.Tensor) -> Any:
        return self.table((x.detach().abs().sum(1) * 10).long() % 5)


@part("lazy", repeatable=True)
class Lazy(Part):
    def prepare(self, world: World) -> None:
        self.gate = torch.nn.LazyLinear(WIDTH)

    def factor(self, x: torch.Tensor) -> Any:
        return self.gate(x)


@part("in place", repeatable=True)
class InPlace(Part):
    def factor(self, x: torch.Tensor) -> Any:
        made = x.sin()
        made *= self.lin.bias
        made[:, 1:].add_(0.1 * made[:, :-1].clone())
        return made


@part("no grad inside", repeatable=True)
class NoGrad(Part):
    def factor(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            return self.lin(x).softmax(1)


@part("raises")
class Raises(Part):
    def prepare(self, world: World) -> None:
        self.register_buffer("calls", torch.zeros(()))

    def factor(self, x: torch.Tensor) -> Any:
        self.calls += 1
        if self.world.fails:
            raise ArithmeticError("as the program wants it")
        return 1.0


# Hooks.


def halved(world: World, kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def hook(gradient: torch.Tensor) -> torch.Tensor:
        world.note(kind, gradient)
        return 0.5 * gradient

    return hook


@part("parameter hook", repeatable=True)
class ParameterHook(Part):
    def prepare(self, world: World) -> None:
        self.lin.weight.register_hook(halved(world, "parameter"))


@part("accumulated hook", repeatable=True)
class AccumulatedHook(Part):
    def prepare(self, world: World) -> None:
        self.lin.weight.register_post_accumulate_grad_hook(
            lambda weight: world.note("accumulated", weight.grad)
        )


@part("tensor hook", repeatable=True)
class TensorHook(Part):
    def factor(self, x: torch.Tensor) -> Any:
        made = self.lin(x).sin()
        if made.requires_grad:
            made.register_hook(halved(self.world, "tensor"))
        return made


@part("input hook", repeatable=True)
class InputHook(Part):
    def factor(self, x: torch.Tensor) -> Any:
        made = x * 1
        if made.requires_grad:
            made.register_hook(halved(self.world, "input"))
        return made


@part("forward hooks")
class ForwardHooks(Part):
    def prepare(self, world: World) -> None:
        self.lin.register_forward_pre_hook(lambda _, given: world.note("before", given))
        self.lin.register_forward_hook(lambda _, given, found: world.note("after", found))


@part("forward hook that changes", repeatable=True)
class ChangingHook(Part):
    def prepare(self, world: World) -> None:
        self.lin.register_forward_hook(lambda _, given, found: found.sin())


@part("backward hooks", repeatable=True)
class BackwardHooks(Part):
    def prepare(self, world: World) -> None:
        def after(_: Any, inputs: Any, outputs: Any) -> Any:
            world.note("backward", outputs)
            return tuple(None if each is None else 1.5 * each for each in inputs)

        self.lin.register_full_backward_hook(after)
        self.lin.register_full_backward_pre_hook(lambda _, grads: world.note("pre", grads))
