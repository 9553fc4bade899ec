"""Random nests of `unspool.torch`'s functions and PyTorch's checkpoint around random parts, random
ways of training them, and everything of a run that the program without us must have too."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint
from unspool import schedules
from unspool.advice import Links, NoPlanError, Rate
from unspool.torch import adjoint, budget, offload, scan

from torch_random_parts import BATCH, PARTS, REPEATABLE, WIDTH, World

__all__ = ["Drawn", "Nest", "Run", "Training", "differences", "draw", "run"]

#: Links by which moving a block costs nothing, and so much that it is the last resort.
LINKS = [Links("cpu", ("host",), Rate(rate), Rate(rate)) for rate in (1e15, 1e2)]

#: What may surround forward passes, and happen between the passes of a step.
AROUNDS, BETWEEN = ["functional_call", "cached", "default dtype"], ["eval", "scale", "frozen"]


@dataclasses.dataclass(frozen=True)
class Nest:
    """A part, or a function around others.

    Attributes:
        kind: `"part"`, `"scan"`, `"adjoint"`, `"budget"`, `"offload"` or `"checkpoint"`.
        name: of the part.
        inner: what is in it, one after the other.
        options: how it is called.
    """

    kind: str
    name: str = ""
    inner: tuple[Nest, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        if self.kind == "part":
            return self.name
        options = [f"{key}={value}" for key, value in self.options]
        return f"{self.kind}({', '.join([*map(str, self.inner), *options])})"

    def all(self) -> Iterator[Nest]:
        """This and everything in it."""
        yield self
        for each in self.inner:
            yield from each.all()


@dataclasses.dataclass(frozen=True)
class Training:
    """How a program uses its model: in each step, forwards, backwards, and an optimiser.

    Attributes:
        forwards: calls before the backward pass of a step.
        apart: whether each has a backward pass of its own, the last one first.
        way: `"backward"`, `"grad"`, `"twice"` (with `retain_graph`) or `"second"` derivatives.
        around: what surrounds forward passes: `""`, `"functional_call"`, `"cached"`, `"autocast"`,
            `"default dtype"`.
        between: what happens between the two passes: `""`, `"eval"`, `"scale"`, `"frozen"`.
        raises: the step in which a forward pass raises first, or None.
        by_keyword: whether blocks of a budget get their input by keyword.
    """

    steps: int = 2
    forwards: int = 1
    apart: bool = False
    way: str = "backward"
    around: str = ""
    between: str = ""
    optimises: bool = True
    raises: int | None = None
    by_keyword: bool = False


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A program."""

    seed: int
    nest: Nest
    training: Training

    def __str__(self) -> str:
        changed = {
            each.name: getattr(self.training, each.name)
            for each in dataclasses.fields(Training)
            if getattr(self.training, each.name) != each.default
        }
        return f"seed {self.seed}: {self.nest}, {changed}"


# Drawing.


def draw(seed: int) -> Drawn:
    """A program, from a seed."""
    rng = random.Random(seed)
    nest = _nest(rng, 2 if rng.random() < 0.7 else 3, tuple(PARTS))
    kinds = {each.kind for each in nest.all()}
    names = {each.name for each in nest.all()}
    second = [] if "adjoint" in kinds else ["second"]
    # Of these, PyTorch's own checkpoint knows nothing.
    known = "checkpoint" not in kinds
    training = Training(
        steps=4 if "budget" in kinds else rng.choice([1, 2]),
        forwards=rng.choice([1, 1, 1, 2]),
        apart=rng.random() < 0.5,
        way=rng.choice(["backward"] * 3 + ["grad", "twice", *second]),
        around=rng.choice([""] * 4 + ["autocast"] + AROUNDS * known),
        between=rng.choice([""] * 4 + BETWEEN * known),
        optimises=rng.random() < 0.6,
        raises=0 if "raises" in names else None,
        by_keyword=rng.random() < 0.3,
    )
    return Drawn(seed, nest, training)


def _nest(rng: random.Random, depth: int, names: Sequence[str]) -> Nest:
    kind = rng.choice(["scan", "adjoint", "budget", "offload", "checkpoint"])
    if kind == "checkpoint":
        # What PyTorch's own function would not repeat as it was is not for us to mend.
        names = [each for each in names if each in REPEATABLE]
    inner = [
        _nest(rng, depth - 1, names)
        if depth > 1 and rng.random() < 0.5
        else Nest("part", rng.choice(names))
        for _ in range(rng.choice([2, 3]) if kind == "budget" else rng.choice([1, 2]))
    ]
    return Nest(kind, "", tuple(inner), tuple(_options(rng, kind).items()))


def _options(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "scan":
        found: dict[str, Any] = {"segment": rng.choice([1, 2, 3, "auto"]), "xs": rng.random() < 0.4}
        return found | {"y": rng.random() < 0.4, "steps": rng.choice([4, 5])}
    if kind == "adjoint":
        chosen = rng.choice(["auto", "StoreAll", "Revolve"])
        found = {"schedule": chosen, "xs": rng.random() < 0.4}
        return found | {"y": rng.random() < 0.4, "steps": rng.choice([4, 5])}
    if kind == "budget":
        return {"size": rng.choice([512, 1024, 4096]), "fast": rng.random() < 0.5}
    if kind == "offload":
        return {"size": rng.choice([0, 300, 2000])}
    return {}


# Modules.


@dataclasses.dataclass
class How:
    """How the functions around parts are called: ours, or not at all.

    Attributes:
        ours: whether they are.
        factor: by how much budgets are larger than they were drawn.
    """

    ours: bool
    spool: Any = None
    factor: int = 1
    by_keyword: bool = False


class Inner(torch.nn.ModuleList):
    """Modules one after the other."""

    def through(self, x: torch.Tensor) -> torch.Tensor:
        for module in self:
            x = module(x)
        return x


class Around(torch.nn.Module):
    """A function around modules."""

    def __init__(self, nest: Nest, world: World, how: How) -> None:
        super().__init__()
        self.inner = Inner(self.wrapped(made(each, world, how)) for each in nest.inner)
        self.how, self.options = how, dict(nest.options)

    def wrapped(self, module: torch.nn.Module) -> torch.nn.Module:
        return module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.called(x) if self.how.ours else self.inner.through(x)


class Checkpointed(Around):
    def called(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner.through, x, use_reentrant=False)


class Offloaded(Around):
    keep: Any = None

    def called(self, x: torch.Tensor) -> torch.Tensor:
        if self.keep is None:
            size, spool = self.options["size"], self.how.spool
            self.keep = offload(self.inner, budget=size, min_bytes=0, spool=spool)
        with self.keep:
            return self.inner.through(x)


class Block(torch.nn.Module):
    """A block of a budget, which also returns something beside its result."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        found = self.inner(x)
        return found, {"mean": found.mean()}


class Budgeted(Around):
    def __init__(self, nest: Nest, world: World, how: How) -> None:
        super().__init__(nest, world, how)
        if how.ours:
            size, links = how.factor * self.options["size"], LINKS[not self.options["fast"]]
            self.budget = budget(self, size, blocks=list(self.inner), spool=how.spool, links=links)

    def wrapped(self, module: torch.nn.Module) -> torch.nn.Module:
        return Block(module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.inner:
            x, more = block(x=x) if self.how.by_keyword else block(x)
            x = x + more["mean"]
        return x


class Loop(Around):
    """A loop whose step is what is in it."""

    def __init__(self, nest: Nest, world: World, how: How) -> None:
        super().__init__(nest, world, how)
        self.xs = None
        if self.options["xs"]:
            self.xs = torch.nn.Parameter(torch.randn(self.options["steps"], WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, row: Any) -> tuple[Any, Any]:
            found = self.inner.through(carry if row is None else carry + row)
            return found, ({"square": found.square().sum()} if self.options["y"] else None)

        steps = self.options["steps"]
        if self.how.ours:
            carry, ys = self.looped(step, x, None if self.xs is None else self.xs, steps)
        else:
            carry, found = x, []
            for n in range(steps):
                carry, y = step(carry, None if self.xs is None else self.xs[n])
                found.append(y)
            ys = {"square": torch.stack([y["square"] for y in found])} if found[0] else None
        return carry if ys is None else carry + ys["square"].mean()

    def looped(self, step: Any, x: torch.Tensor, xs: Any, steps: int) -> Any:
        raise NotImplementedError


class Scanned(Loop):
    def looped(self, step: Any, x: torch.Tensor, xs: Any, steps: int) -> Any:
        options = {"segment": self.options["segment"], "budget": 600, "spool": self.how.spool}
        return scan(step, x, xs, steps, **options)


class Adjoint(Loop):
    def looped(self, step: Any, x: torch.Tensor, xs: Any, steps: int) -> Any:
        schedule = {
            "auto": "auto",
            "StoreAll": schedules.StoreAll(steps),
            "Revolve": schedules.Revolve(steps, 2),
        }[self.options["schedule"]]
        return adjoint(
            step,
            x,
            xs,
            steps,
            params=self.inner.parameters(),
            schedule=schedule,
            spool=self.how.spool,
        )


AROUND = {
    "scan": Scanned,
    "adjoint": Adjoint,
    "budget": Budgeted,
    "offload": Offloaded,
    "checkpoint": Checkpointed,
}


def made(nest: Nest, world: World, how: How) -> torch.nn.Module:
    """The module of a nest."""
    if nest.kind == "part":
        return PARTS[nest.name](world)
    return AROUND[nest.kind](nest, world, how)


# Runs.


@dataclasses.dataclass
class Run:
    """All that is seen of a run: by name, numbers, with those of which the order is not fixed
    sorted."""

    seen: dict[str, Any] = dataclasses.field(default_factory=dict)

    def tensors(self, name: str, values: Any) -> None:
        """Notes tensors, which may change later."""
        for place, each in enumerate(values):
            self.seen[f"{name} {place}"] = None if each is None else each.detach().clone()


def run(drawn: Drawn, spool: Any) -> Run:
    """Runs a program; through a spool, or plainly without one."""
    for power in range(12):
        try:
            return _run(drawn, How(spool is not None, spool, 2**power, drawn.training.by_keyword))
        except NoPlanError:
            # A budget that nothing fits into is another test's.
            continue
    raise AssertionError("no budget is enough")


def _run(drawn: Drawn, how: How) -> Run:
    world, found = World(drawn.seed), Run()
    model = made(drawn.nest, world, how).double()
    # A step of adjoint sees a carry that needs a gradient, also where the first one does not: a
    # hook that it registers only then is called once more.
    grows = drawn.seed % 3 > 0 or any(each.kind == "adjoint" for each in drawn.nest.all())
    x = torch.randn(BATCH, WIDTH, dtype=torch.float64).requires_grad_(grows)
    # Lazy modules have parameters after this, and calls are counted from here on.
    _warm(model, world)
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(drawn.training.steps):
        _step(drawn, step, world, model, x, found)
        found.tensors(f"step {step}: gradient", [x.grad, *(p.grad for p in model.parameters())])
        if drawn.training.optimises:
            optimiser.step()
        optimiser.zero_grad()
        x.grad = None
    model.eval()
    with torch.no_grad():
        found.tensors("evaluated", [model(x)])
    found.tensors("parameter", model.parameters())
    for name, buffer in model.named_buffers():
        found.seen[f"buffer {name}"] = buffer.detach().clone()
    for place, each in enumerate(world.python):
        found.seen[f"python object {place}"] = torch.tensor(float(each()))
    _random(world, found)
    for kind in {kind for kind, _ in world.log}:
        sums = sorted(value for name, value in world.log if name == kind)
        found.seen[f"hook {kind}"] = torch.tensor(sums, dtype=torch.float64)
    return found


def _warm(model: torch.nn.Module, world: World) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.LazyLinear):
            module(torch.zeros(1, WIDTH, dtype=torch.float64))
    world.log.clear()


def _random(world: World, found: Run) -> None:
    """What each generator draws next."""
    found.seen["random torch"] = torch.rand(2)
    found.seen["random numpy"] = torch.from_numpy(np.random.rand(2))
    found.seen["random python"] = torch.tensor(random.random())
    for place, own in enumerate(world.generators):
        if isinstance(own, torch.Generator):
            number = torch.rand(2, generator=own)
        else:
            number = torch.tensor(own.random())
        found.seen[f"random own {place}"] = number


def _step(
    drawn: Drawn, step: int, world: World, model: torch.nn.Module, x: torch.Tensor, found: Run
) -> None:
    training = drawn.training
    model.train()
    if training.raises == step:
        world.fails = True
        with contextlib.suppress(ArithmeticError):
            _forward(training, model, x)
        world.fails = False
    losses = []
    for call in range(training.forwards):
        out = _forward(training, model, x * (1 + call))
        found.tensors(f"step {step}: value {call}", [out])
        losses.append(out.sin().sum() * (call + 1))
    changed = _between(training, model, world)
    if training.apart:
        for loss in reversed(losses):
            _backward(training, loss, model, x, found, step)
    else:
        _backward(training, sum(losses), model, x, found, step)
    changed()


def _forward(training: Training, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    if training.around == "functional_call":
        others = {name: 1.5 * each for name, each in model.named_parameters()}
        return functional_call(model, others, (x,))
    if training.around == "default dtype":
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return model(x)
        finally:
            torch.set_default_dtype(before)
    around: Any = {
        "cached": parametrize.cached,
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    }.get(training.around, contextlib.nullcontext)
    with around():
        return model(x)


def _between(training: Training, model: torch.nn.Module, world: World) -> Callable[[], None]:
    """Changes what the backward pass of the plain program does not see, until what is returned is
    called."""
    if training.between == "eval":
        model.eval()
        return lambda: None
    if training.between == "scale":
        world.scale += 0.25
        return lambda: None
    if training.between == "frozen":
        needs = [each for each in model.parameters() if each.requires_grad]
        for each in needs:
            each.requires_grad_(False)
        return lambda: [each.requires_grad_() for each in needs] and None
    return lambda: None


def _backward(
    training: Training, loss: Any, model: torch.nn.Module, x: torch.Tensor, found: Run, step: int
) -> None:
    wanted = [each for each in (x, *model.parameters()) if each.requires_grad]
    if not loss.requires_grad:
        return
    if training.way == "grad" and wanted:
        found.tensors(f"step {step}: grad", torch.autograd.grad(loss, wanted, allow_unused=True))
    elif training.way == "twice":
        loss.backward(retain_graph=True)
        loss.backward()
    elif training.way == "second" and wanted:
        first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        (loss + sum(each.square().sum() for each in first if each is not None)).backward()
    else:
        loss.backward()


def differences(one: Run, other: Run, exact: bool) -> list[str]:
    """What two runs do not have in common; to the last bit, or but for the order of sums."""
    found = [name for name in one.seen if name not in other.seen]
    found += [name for name in other.seen if name not in one.seen]
    for name in one.seen.keys() & other.seen.keys():
        if not _same(one.seen[name], other.seen[name], exact and not name.startswith("hook")):
            found.append(name)
    return sorted(found)


def _same(one: Any, other: Any, exact: bool) -> bool:
    assert one is None or one.isfinite().all()
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if exact:
        return torch.equal(one, other)
    return torch.allclose(one, other, 1e-9, 1e-11)
