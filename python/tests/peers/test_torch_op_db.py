"""Every operation of PyTorch whose gradient its own tests know, through `unspool.torch.offload`.

The list (`op_db`) is in PyTorch's wheel. Each sample runs forwards in the context with no budget at
all, so that whatever may be moved is moved, and its gradients are those of plain autograd; in main
memory, and with `-m gpu` on a GPU. A sample of the operations runs by default, all of them with
`UNSPOOL_TEST_OPS=all`.

All bits are compared; on a GPU with PyTorch's deterministic algorithms. The operations that have
none there add up in another order each time, and are compared to the last digits.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import unspool

# cuBLAS adds up in a fixed order only where this variable, which it reads once, says its workspace.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
torch = pytest.importorskip("torch", reason="pip install torch")

import unspool.torch  # noqa: E402

pytest.importorskip("expecttest", reason="pip install expecttest")

pytestmark = pytest.mark.filterwarnings("ignore")

#: Operations that are tried by default, drawn anew for each release of PyTorch, not each run.
SAMPLED = 240


def operations(place: str) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    known = [each for each in op_db if torch.float64 in each.supported_dtypes(place)]
    known = [each for each in known if each.supports_autograd]
    if os.environ.get("UNSPOOL_TEST_OPS") == "all":
        return known
    return random.Random(torch.__version__).sample(known, SAMPLED)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def gradients(op: Any, sample: Any, keep: Any) -> list[Any] | None:
    """Those of all inputs; None where the sample has none."""
    torch.manual_seed(0)
    inputs = [each for each in tensors_of([sample.input, sample.args, sample.kwargs])]
    inputs = [each for each in inputs if each.requires_grad]
    if keep is None:
        found = op(sample.input, *sample.args, **sample.kwargs)
    else:
        with keep:
            found = op(sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None:
        found = sample.output_process_fn_grad(found)
    outputs = [each for each in tensors_of(found) if each.requires_grad]
    if not outputs or not inputs:
        return None
    torch.manual_seed(1)
    weights = [torch.randn_like(each.detach()) for each in outputs]
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def same(one: Any, other: Any, digits: bool = False) -> bool:
    """Whether all bits are the same, or with `digits` all digits but the last four."""
    if one is None or other is None:
        return one is other
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    one, other = one.nan_to_num(), other.nan_to_num()
    return torch.allclose(one, other, 1e-12, 1e-12) if digits else torch.equal(one, other)


def outcome(op: Any, sample: Any, keep: Any) -> list[Any] | str | None:
    try:
        return gradients(op, sample, keep)
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"


def check(place: str, spool: unspool.Spool) -> None:
    tried = moved = unordered = 0
    wrong = []
    keep = unspool.torch.offload(budget=0, spool=spool, min_bytes=0)
    for op in operations(place):
        for sample in op.sample_inputs(place, torch.float64, requires_grad=True):
            torch.use_deterministic_algorithms(place == "cuda")
            expected = outcome(op, sample, None)
            has_no_order = isinstance(expected, str) and "deterministic implementation" in expected
            if has_no_order:
                torch.use_deterministic_algorithms(False)
                expected = outcome(op, sample, None)
            if expected is None:
                continue
            again = outcome(op, sample, None)
            before = spool.stats().saved_bytes
            found = outcome(op, sample, keep)
            moved += spool.stats().saved_bytes > before
            tried += 1
            unordered += has_no_order
            if isinstance(expected, str) or isinstance(found, str):
                good = isinstance(expected, str) and isinstance(found, str)
            else:
                # Some are not the same twice without us either.
                pairs = zip(expected, again, found, strict=True)
                good = all(same(a, c, has_no_order) or not same(a, b) for a, b, c in pairs)
            if not good:
                wrong.append(f"{op.name}: {found if isinstance(found, str) else 'differs'}")
            found = expected = again = None
            if len(spool):
                wrong.append(f"{op.name}: {len(spool)} left")
                spool.clear()
    print(f"{tried} samples, {moved} of them moved tensors, {unordered} in no fixed order")
    assert not wrong
    assert moved > tried // 2 > 100 and unordered < tried // 4


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.peer
def test_gradients_are_those_of_plain_autograd_and_nothing_is_left() -> None:
    with unspool.Spool(host_memory="256MiB") as spool:
        check("cpu", spool)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that PyTorch could use")
@pytest.mark.parametrize("tiers", [{}, {"device_memory": "64MiB"}], ids=["host", "device and host"])
def test_gradients_on_a_gpu(tiers: dict[str, str]) -> None:
    with unspool.Spool(**tiers, host_memory="512MiB", device="cuda:0") as spool:
        check("cuda", spool)
