"""Operations and modules of PyTorch's own tests through the functions that compute again.

The lists (`op_db`, `module_db`) are in PyTorch's wheel. Each sample is called twice: by a plain
program, by `unspool.torch.scan`, by `budget`, and by `offload`. The gradients of all inputs and
parameters, the buffers afterwards and the next random numbers are those of the plain program, to
the last bit. A sample of both lists runs by default, all of them with `UNSPOOL_TEST_OPS=all`.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import unspool

torch = pytest.importorskip("torch", reason="pip install torch")

from unspool.torch import budget, offload, scan  # noqa: E402

pytest.importorskip("expecttest", reason="pip install expecttest")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.peer]

#: Operations and modules that are tried by default, drawn anew for each release of PyTorch.
SAMPLED = 40

#: Samples of each.
SAMPLES = 3

#: Not functions of their inputs and random numbers: what they read was never written.
UNWRITTEN = ("empty", "new_empty")


class Called(torch.nn.Module):
    """A block that calls something."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.run(*inputs, **named)


def plainly(module: Any, args: Any, kwargs: Any, spool: Any) -> Any:
    return [module(*args, **kwargs) for _ in range(2)]


def by_scan(module: Any, args: Any, kwargs: Any, spool: Any) -> Any:
    def step(carry: torch.Tensor, _: Any) -> tuple[torch.Tensor, Any]:
        out = module(*args, **kwargs)
        part = sum(each.sum().abs().double() for each in differentiable(out))
        return carry + part, None

    start = torch.zeros((), dtype=torch.float64)
    return [scan(step, start, None, 2, segment=1, spool=spool)[0]]


def summed(module: Any, args: Any, kwargs: Any, spool: Any) -> Any:
    """What `by_scan` does, in a plain loop."""
    carry = torch.zeros((), dtype=torch.float64)
    for _ in range(2):
        out = module(*args, **kwargs)
        carry = carry + sum(each.sum().abs().double() for each in differentiable(out))
    return [carry]


def by_budget(module: Any, args: Any, kwargs: Any, spool: Any) -> Any:
    with budget(module, "1GiB", blocks=[module], spool=spool):
        # The first call is measured, and the block of the second one is computed again.
        return plainly(module, args, kwargs, spool)


def by_offload(module: Any, args: Any, kwargs: Any, spool: Any) -> Any:
    with offload(module, budget=0, spool=spool, min_bytes=0):
        return plainly(module, args, kwargs, spool)


WAYS = {"scan": (summed, by_scan), "budget": (plainly, by_budget), "offload": (plainly, by_offload)}


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    yield from (each for each in leaves if isinstance(each, torch.Tensor))


def differentiable(value: Any) -> list[torch.Tensor]:
    return [each for each in tensors_of(value) if each.requires_grad]


def seen(way: Any, module: Any, args: Any, kwargs: Any, spool: Any) -> list[Any] | str:
    """Gradients, buffers and the next random numbers; or the class of what was raised."""
    torch.manual_seed(1)
    wanted = [*differentiable((args, kwargs)), *module.parameters()]
    try:
        outputs = differentiable(way(module, args, kwargs, spool))
        if not outputs or not wanted:
            return "nothing"
        weights = [torch.full_like(each.detach(), 0.5) for each in outputs]
        found = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    return [*found, *(each.clone() for each in module.buffers()), torch.rand(2)]


def same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(
        one.nan_to_num(), other.nan_to_num()
    )


def compared(name: str, make: Callable[[], Any], ways: Any, spool: Any) -> Iterator[str | None]:
    """What is wrong with a sample; None where it is as it is plainly."""
    plain, ours = ways
    expected, again = seen(plain, *make(), None), seen(plain, *make(), None)
    if isinstance(expected, str):
        return
    found = seen(ours, *make(), spool)
    if isinstance(found, str):
        yield f"{name}: {found}"
        return
    good = [same(a, c) or not same(a, b) for a, b, c in zip(expected, again, found, strict=True)]
    yield None if all(good) else f"{name}: differs"


def drawn(known: list[Any]) -> list[Any]:
    if os.environ.get("UNSPOOL_TEST_OPS") == "all":
        return known
    return random.Random(torch.__version__).sample(known, min(SAMPLED, len(known)))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("way", WAYS)
def test_operations(way: str, spool: unspool.Spool) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    known = [each for each in op_db if torch.float64 in each.supported_dtypes("cpu")]
    known = [each for each in known if each.supports_autograd and each.name not in UNWRITTEN]
    found: list[str | None] = []
    for op in drawn(known):
        torch.manual_seed(0)
        samples = op.sample_inputs("cpu", torch.float64, requires_grad=True)
        for sample, _ in zip(samples, range(SAMPLES), strict=False):

            def made(op: Any = op, sample: Any = sample) -> Any:
                return Called(op), (sample.input, *sample.args), sample.kwargs

            found += compared(op.name, made, WAYS[way], spool)
    assert [each for each in found if each is not None] == []
    assert len(found) > SAMPLED and len(spool) == 0


@pytest.mark.parametrize("way", WAYS)
def test_modules(way: str, spool: unspool.Spool) -> None:
    from torch.testing._internal.common_modules import module_db

    found: list[str | None] = []
    for info in drawn(module_db):
        if torch.float64 not in info.dtypes:
            continue
        torch.manual_seed(0)
        given = info.module_inputs_func(
            info, "cpu", torch.float64, requires_grad=True, training=True
        )
        for one, _ in zip(given, range(SAMPLES), strict=False):

            def made(info: Any = info, one: Any = one) -> Any:
                torch.manual_seed(0)
                first, named = one.constructor_input.args, one.constructor_input.kwargs
                module = info.module_cls(*first, **named).double().train()
                return module, one.forward_input.args, one.forward_input.kwargs

            with contextlib.suppress(NotImplementedError):
                found += compared(info.name, made, WAYS[way], spool)
    assert [each for each in found if each is not None] == []
    assert len(found) > SAMPLED // 2 and len(spool) == 0
