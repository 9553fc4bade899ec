"""What `unspool.torch.budget` says: in errors, in a warning, and of itself."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import unspool
from unspool.advice import Links, NoPlanError, Rate
from unspool.advice import blocks as advice
from unspool.cli import size_in_bytes
from unspool.errors import OptionError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402
from unspool.torch import _moving, _states, budget, scan  # noqa: E402

#: Links by which moving costs nothing, and so much that it is the last resort.
FAST, SLOW = (Links("cpu", ("host",), Rate(rate), Rate(rate)) for rate in (1e15, 1e2))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def stack(count: int = 5) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block() for _ in range(count)))


def train(net: torch.nn.Module, rows: int = 128, steps: int = 4) -> None:
    for _ in range(steps):
        net(torch.ones(rows, 16)).square().mean().backward()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_moving, "LEAST", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def refusal(net: torch.nn.Module, size: int | str, rows: int, spool: unspool.Spool) -> str:
    with budget(net, size, spool=spool, links=SLOW), pytest.raises(NoPlanError) as raised:
        train(net, rows)
    return str(raised.value)


# The sizes that the blocks need lie just above and below figures of two digits after the point.
@pytest.mark.parametrize("rows", [1, 97, 128, 151, 1024, 1027])
def test_a_budget_that_is_said_to_be_enough_is_enough(rows: int, spool: unspool.Spool) -> None:
    net = stack()
    text = refusal(net, 64, rows, spool)
    enough = re.search(r"saves .*?B[.] (.*?B) are enough", text).group(1)
    with budget(net, enough, spool=spool, links=SLOW) as blocks:
        train(net, rows)
        least = blocks.report.saved_bytes // len(net)
    with budget(net, least, spool=spool, links=SLOW):
        train(net, rows)
    little, enough = re.findall(r"([\d.]+ \w*B) are", refusal(net, least - 1, rows, spool))
    assert little != enough and size_in_bytes(little) < least


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))), "such as Linear are"),
        (torch.nn.ModuleList([torch.nn.ReLU(), *(torch.nn.Linear(4, 4),) * 2]), "of PyTorch are"),
        (torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(2)), Block()), "such as Tanh are"),
        (torch.nn.Linear(4, 4), "of PyTorch are none"),
    ],
)
def test_layers_that_are_no_blocks_are_named(model: torch.nn.Module, named: str) -> None:
    with pytest.raises(OptionError, match=f"no repeated blocks.*{named}"):
        budget(model, "1MiB")
    blocks = [each for each in model.modules() if not list(each.children())]
    budget(model, "1MiB", blocks=blocks).remove()


def test_what_was_chosen_is_in_its_representation(spool: unspool.Spool) -> None:
    net = stack()
    with budget(net, "1MiB", spool=spool) as blocks:
        assert "a Sequential, 5 blocks within 1.00 MiB: not chosen yet" in repr(blocks)
        train(net)
        assert repr(blocks).endswith("5 blocks within 1.00 MiB: 5 keep>")
    assert "5 keep" in repr(blocks)


def train_until_moved(net: torch.nn.Module, blocks: Any) -> None:
    """Trains with batches of several sizes, as on a busy machine a block may seem to take so little
    time that it is computed again."""
    for rows in range(128, 168):
        train(net, rows)
        if "offload" in repr(blocks):
            return
    pytest.fail("nothing was moved")


def test_what_goes_to_the_folder_for_temporary_files_is_said_once() -> None:
    net = stack()
    with budget(net, 128 << 10, links=FAST) as blocks:
        with pytest.warns(RuntimeWarning, match=r"writes up to .* KiB .* Give spool=") as told:
            train_until_moved(net, blocks)
        assert "offload" in str(blocks.report)
        assert len(told) == 1 and tempfile.gettempdir() in str(told[0].message)
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(net)
            train(net, rows=130)


def test_a_spool_that_is_given_is_not_warned_of(spool: unspool.Spool) -> None:
    net = stack()
    with budget(net, 128 << 10, links=FAST, spool=spool) as blocks:
        train_until_moved(net, blocks)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five blocks that take 1 s forwards, 2 s to be computed again and 3 s backwards."""
    one = advice.Block(100_000, 10_000, 1.0, 2.0, 3.0)
    monkeypatch.setattr(_states, "blocks_of", lambda seen: [one] * len(seen.calls))


def test_the_report_says_why_and_what_other_budgets_take(
    measured: None, spool: unspool.Spool
) -> None:
    net = stack()
    # Two are kept beside the inputs of three; of half of it, one; and of twice as much, all.
    with budget(net, 280_000, spool=spool, links=SLOW) as blocks:
        assert blocks.report.why == "" and blocks.report.others == {}
        train(net)
        report = blocks.report
    assert report.why == "Computing 3 blocks again adds 6 s to a step."
    assert report.expected_seconds - report.kept_seconds == pytest.approx(6.0)
    others = {each: found - report.expected_seconds for each, found in report.others.items()}
    assert others == pytest.approx({140_000: 2.0, 560_000: -6.0})
    text = str(report)
    assert report.why in text and "within 136.72 KiB" in text and "within 546.88 KiB" in text
    assert report.to_dict()["others"] == report.others


def test_half_a_budget_may_be_too_little(measured: None, spool: unspool.Spool) -> None:
    net = stack()
    with budget(net, 150_000, spool=spool, links=SLOW) as blocks:
        train(net)
    assert blocks.report.others[75_000] is None
    assert re.search(r"within 73.24 KiB +too little", str(blocks.report))


def test_the_report_says_what_moving_costs(measured: None, spool: unspool.Spool) -> None:
    net = stack()
    links = Links("cpu", ("host",), Rate(440_000), Rate(440_000))
    with budget(net, 280_000, spool=spool, links=links) as blocks:
        train(net)
        # Of the third block 80,000 bytes are kept.
        assert blocks.report.why == "Moving 214.84 KiB away and back adds 1 s."
        moved = blocks.report
        blocks._stack.latest._fall_back()
        again = blocks.report
    assert moved.others[140_000] - moved.expected_seconds == pytest.approx(140_000 / 220_000)
    # What is no longer moved would not be with another budget.
    assert again.why == "Computing 3 blocks again adds 6 s to a step."
    assert again.others[140_000] - again.expected_seconds == pytest.approx(2.0)


def test_where_everything_fits_no_other_budget_is_named(spool: unspool.Spool) -> None:
    net = stack()
    with budget(net, "1MiB", spool=spool) as blocks:
        train(net)
    assert blocks.report.why == "Everything fits." and blocks.report.others == {}
    assert "within" not in str(blocks.report).partition("\n")[2]


class Lazy(torch.nn.Module):
    """A block that makes its parameters, by random numbers, when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LazyLinear(16), torch.nn.LazyLinear(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.dropout(self.first(x), 0.5, True)))


def test_blocks_that_make_their_parameters_when_called(spool: unspool.Spool) -> None:
    def gradients(limit: str | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(*(Lazy() for _ in range(4)))
        if limit:
            blocks = budget(net, limit, spool=spool, links=SLOW)
        train(net)
        assert not limit or "recompute" in repr(blocks)
        return [each.grad for each in net.parameters()]

    found = gradients("64KiB")
    assert all(map(torch.equal, found, gradients(None)))


@pytest.mark.parametrize("around", ["checkpoint", "scan"])
def test_a_model_within_a_budget_may_be_within_a_checkpoint(
    around: str, spool: unspool.Spool
) -> None:
    def gradients(limit: int | None) -> list[torch.Tensor]:
        net = stack(3)
        if limit:
            budget(net, limit, spool=spool, links=FAST)
        for _ in range(4):
            x = torch.ones(64, 16)
            if around == "checkpoint":
                out = checkpoint(net, x, use_reentrant=False)
            else:
                out, _ = scan(lambda u, _: (net(u), None), x, None, 5, segment=2, spool=spool)
            out.square().mean().backward()
        return [each.grad for each in net.parameters()]

    expected = gradients(None)
    for limit in (64 << 10, 1 << 30):
        assert all(map(torch.equal, gradients(limit), expected))
