"""`unspool.torch` on a GPU: the same gradients, through main memory and a device tier."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import unspool
from unspool.advice import Link, Links, Rate

from helpers import gpu_library

torch = gpu_library("torch")

from unspool.torch import adjoint, budget, offload, scan  # noqa: E402

from torch_programs import plain, same  # noqa: E402

pytestmark = pytest.mark.gpu

STEPS = 40


@pytest.fixture(autouse=True)
def device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", requires_grad=True)


def gradients(run: Any, *wanted: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(5)
    weight = wanted[0]

    def step(u: torch.Tensor, x: Any) -> Any:
        u = torch.dropout(torch.tanh(u @ weight), 0.2, True)
        return u, u.mean()

    carry, ys = run(step, wanted[1], None, STEPS)
    loss = carry.square().sum() + ys.sin().sum()
    return [*torch.autograd.grad(loss, wanted), torch.rand(3, device="cuda")]


def test_scan(gpu_spool: unspool.Spool) -> None:
    wanted = leaf(512, 512), leaf(512, 512)
    expected = gradients(plain, *wanted)
    for options in ({"segment": 1}, {"segment": 7}, {"budget": "24MiB"}):
        found = gradients(lambda *a, o=options: scan(*a, spool=gpu_spool, **o), *wanted)
        assert same(found, expected) and len(gpu_spool) == 0
    assert same(gradients(lambda *a: scan(*a, budget="24MiB"), *wanted), expected)
    assert same(gradients(scan, *wanted), expected)


def test_adjoint(gpu_spool: unspool.Spool) -> None:
    wanted = leaf(512, 512), leaf(512, 512)
    expected = gradients(plain, *wanted)
    for options in ({}, {"spool": gpu_spool}, {"schedule": unspool.schedules.Revolve(STEPS, 4)}):
        found = gradients(lambda *a, o=options: adjoint(*a, params=[wanted[0]], **o), *wanted)
        assert same(found, expected) and len(gpu_spool) == 0


@pytest.mark.parametrize("budget", [0, "16MiB", "1GiB"])
def test_offload(gpu_spool: unspool.Spool, budget: Any) -> None:
    wanted = leaf(512, 512), leaf(512, 512)
    keep = offload(budget=budget, spool=gpu_spool)

    def kept(*given: Any) -> Any:
        with keep:
            return plain(*given)

    expected = gradients(plain, *wanted)
    for _ in range(3):
        assert same(gradients(kept, *wanted), expected) and len(gpu_spool) == 0


def test_what_fits_into_the_budget_stays(gpu_spool: unspool.Spool) -> None:
    """Also what would fill the part of the budget that is for tensors on their way."""
    with offload(budget="16MiB", spool=gpu_spool):
        kept = [leaf(1 << 20).square() for _ in range(3)]
    assert gpu_spool.stats().saves == 0
    torch.stack([each.sum() for each in kept]).sum().backward()


def test_offload_frees_the_memory_of_the_gpu() -> None:
    weight = leaf(1024, 1024)

    def peak(keep: Any) -> tuple[int, torch.Tensor]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with keep:
            u = weight
            for _ in range(40):
                u = torch.tanh(u @ weight)
        (found,) = torch.autograd.grad(u.sum(), weight)
        return torch.cuda.max_memory_allocated() - before, found

    whole, expected = peak(contextlib.nullcontext())
    less, found = peak(offload(budget="32MiB"))
    assert torch.equal(found, expected)
    # 40 results of 4 MiB each.
    assert whole > 160 << 20 and less < 72 << 20


# The gradient of the weight comes from both streams, without an offload too.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_offload_between_streams() -> None:
    weight, side = leaf(512, 512), torch.cuda.Stream()

    def run(keep: Any) -> torch.Tensor:
        u = weight
        with keep:
            for step in range(20):
                stream = side if step % 3 == 1 else torch.cuda.default_stream()
                stream.wait_stream(torch.cuda.default_stream())
                with torch.cuda.stream(stream):
                    u = torch.tanh(u @ weight)
                torch.cuda.default_stream().wait_stream(stream)
        return torch.autograd.grad(u.sum(), weight)[0]

    expected = run(contextlib.nullcontext())
    for _ in range(5):
        assert torch.equal(run(offload(budget=0)), expected)


def test_autocast() -> None:
    weight, init = leaf(256, 256), leaf(64, 256)

    def run(loop: Any) -> list[torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            carry, _ = loop(lambda u, x: (torch.tanh(u @ weight), None), init, None, 9)
        return list(torch.autograd.grad(carry.float().sum(), [weight, init]))

    assert same(run(lambda *given: scan(*given, segment=2)), run(plain))


class Turns(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 512, device="cuda") / 20)

    def forward(self, x: Any) -> Any:
        for _ in range(8):
            x = torch.dropout(torch.tanh(x @ self.weight), 0.2, True)
        return x


@pytest.mark.parametrize("rate", [1e15, 1e5])
@pytest.mark.parametrize("part", [1.3, 0.5, 0.3])
def test_budget(gpu_spool: unspool.Spool, rate: float, part: float) -> None:
    net, x = torch.nn.Sequential(*(Turns() for _ in range(8))), leaf(512, 512)
    wanted = [x, *net.parameters()]

    def step() -> list[torch.Tensor]:
        torch.manual_seed(5)
        loss = net(x).square().sum()
        return [*torch.autograd.grad(loss, wanted), torch.rand(3, device="cuda")]

    names = tuple(tier.name for tier in gpu_spool.stats().tiers)
    speed = Rate(rate)
    pairs = tuple(Link(*pair, speed, speed) for pair in itertools.pairwise(names))
    links = Links("cuda:0", names, speed, speed, pairs)
    expected = step()
    # 8 * (8 * 3 tensors of a MiB each), about.
    with budget(net, int(part * (8 * 24 << 20)), spool=gpu_spool, links=links) as blocks:
        for _ in range(6):
            assert same(step(), expected) and len(gpu_spool) == 0
        chosen = set(blocks.report.blocks.values())
    assert chosen and (chosen == {"keep"}) == (part > 1)
    assert (gpu_spool.stats().saved_bytes > 0) == (rate > 1e6 and part < 1)
