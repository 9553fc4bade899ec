"""`unspool.torch.budget`: blocks are kept, computed again or moved; gradients stay the same."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import io
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import unspool
from unspool.advice import Links, NoPlanError, Rate
from unspool.advice.blocks import Block as PlannedBlock

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import _moving, _states, budget  # noqa: E402
from unspool.torch._lanes import Lanes  # noqa: E402

from torch_programs import Block, Counted, leaf, model, same  # noqa: E402

#: Links by which moving costs nothing, something, and so much that it is the last resort.
FAST, SLOW = (Links("cpu", ("host",), Rate(rate), Rate(rate)) for rate in (1e15, 1e2))

BATCH = (2, 16, 32)


#: What `steady` takes the place of.
MEASURED, SECONDS = _states._block, _states.Seen.seconds


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What is computed here is too small for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_moving, "LEAST", 1)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block takes a second forwards, one again, and two backwards, on each machine."""

    def block(seen: Any, places: list[int]) -> PlannedBlock:
        calls = [seen.calls[place] for place in places]
        saved, inputs = (
            max(each or 0 for each in found)
            for found in zip(*((call.saved, call.inputs) for call in calls), strict=True)
        )
        return PlannedBlock(saved, inputs, 1.0, 1.0, 2.0)

    def seconds(seen: Any) -> float:
        return sum(4.0 if call.way.repeats else 3.0 for call in seen.calls)

    monkeypatch.setattr(_states, "_block", block)
    monkeypatch.setattr(_states.Seen, "seconds", seconds)


def step(net: torch.nn.Module, batch: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    net.zero_grad()
    net(batch).square().mean().backward()
    grads = [each.grad for each in net.parameters() if each.grad is not None]
    return [*(each.clone() for each in grads), torch.rand(3)]


def ways(blocks: budget) -> list[str]:
    return list(blocks.report.blocks.values())


def saved(net: torch.nn.Module, batch: torch.Tensor) -> int:
    """What one block saves."""
    with budget(net, "1GiB") as blocks:
        step(net, batch)
        step(net, batch)
        return blocks.report.saved_bytes // len(blocks.report.blocks)


KEEP, OFFLOAD, RECOMPUTE, RECALL = map(str, unspool.advice.blocks.Way)


@pytest.mark.parametrize(
    ("links", "part", "expected"),
    [
        (FAST, 6.0, [KEEP] * 6),
        (FAST, 4.5, [OFFLOAD] * 2 + [KEEP] * 4),
        (FAST, 1.0, [OFFLOAD] * 5 + [KEEP]),
        (SLOW, 4.5, [RECOMPUTE] * 2 + [KEEP] * 4),
        (SLOW, 1.5, [RECOMPUTE] * 5 + [KEEP]),
        (SLOW, 1.1, [RECALL] * 4 + [RECOMPUTE, KEEP]),
        (SLOW, 1.0, [RECALL] * 5 + [KEEP]),
    ],
)
def test_gradients_are_the_same_whatever_becomes_of_the_blocks(
    spool: unspool.Spool, links: Links, part: float, expected: list[str]
) -> None:
    net, batch = model(6), torch.randn(BATCH)
    without, limit = step(net, batch), int(part * saved(net, batch))
    with budget(net, limit, spool=spool, links=links) as blocks:
        for number in range(5):
            assert same(step(net, batch), without) and len(spool) == 0
            assert bool(ways(blocks)) == (number >= (1 if part == 6 else 2))
        assert sorted(ways(blocks)) == sorted(expected)
        assert blocks.report.expected_bytes <= limit
    assert (spool.stats().saved_bytes > 0) == (OFFLOAD in expected or RECALL in expected)


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = Counted.apply(x)
        return x


@pytest.mark.parametrize("links", [FAST, SLOW])
@pytest.mark.parametrize("part", [8, 5, 3, 2])
def test_what_the_blocks_save_stays_within_the_budget(
    spool: unspool.Spool, links: Links, part: int
) -> None:
    net, x = torch.nn.Sequential(*(Doubling() for _ in range(8))), leaf(1000).double()
    # Ten arrays in each block, and its input.
    with budget(net, part * 88_000, spool=spool, links=links) as blocks:
        for number in range(4):
            Counted.most = 0
            out = net(x)
            out.sum().backward()
            del out
            assert Counted.alive == 0 and len(spool) == 0
            if number > 1:
                assert Counted.most <= part * 80_000
        assert (KEEP in ways(blocks)) and (len(set(ways(blocks))) > 1) == (part < 8)


def test_no_more_is_moved_than_the_spool_has_room_for() -> None:
    net, batch = model(6), torch.randn(BATCH)
    expected, size = step(net, batch), saved(net, batch)
    room = unspool.Spool(host_memory=3 * size, timeout=5)
    with room as spool, budget(net, size, spool=spool, links=FAST) as blocks:
        for _ in range(4):
            assert same(step(net, batch), expected) and len(spool) == 0
        assert ways(blocks).count(OFFLOAD) == 2 and RECALL in ways(blocks)


@pytest.mark.parametrize("part", [5.9, 4.5, 3.1])
def test_of_the_last_block_that_is_moved_no_more_than_has_to_be(
    spool: unspool.Spool, part: float
) -> None:
    net, batch = model(6), torch.randn(BATCH)
    expected, size = step(net, batch), saved(net, batch)
    with budget(net, int(part * size), spool=spool, links=FAST) as blocks:
        for _ in range(4):
            before = spool.stats().saved_bytes
            assert same(step(net, batch), expected)
        moved = spool.stats().saved_bytes - before
        # Whole tensors go, of which the largest is three tenths of a block.
        assert (6 - part) * size <= moved <= (6.3 - part) * size
        assert blocks.report.expected_bytes == int(part * size)


def test_in_a_known_pass_copies_begin_while_a_block_runs(
    spool: unspool.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, batch = model(4), torch.randn(BATCH)
    expected, size = step(net, batch), saved(net, batch)
    # By block, what was in the spool when its last layer ran for the first time in a step.
    there: dict[int, int] = {}

    def note(place: int, *_: Any) -> None:
        there.setdefault(place, len(spool))

    for place, block in enumerate(net):
        block.down.register_forward_pre_hook(functools.partial(note, place))
    monkeypatch.setattr(_moving, "reads_ahead", lambda device: True)
    with budget(net, int(2.2 * size), spool=spool, links=FAST) as blocks:
        seen, moved = [], []
        for _ in range(5):
            before = spool.stats().saved_bytes
            there.clear()
            assert same(step(net, batch), expected) and len(spool) == 0
            moved.append(spool.stats().saved_bytes - before)
            seen.append(dict(there))
        first = ways(blocks).index(OFFLOAD)
    # The first pass that moves something says what is saved when.
    assert seen[2][first] == 0 < seen[3][first] == seen[4][first]
    assert moved[2] == moved[3] == moved[4] > 0


def test_what_was_moved_is_announced_in_the_order_of_the_backward_pass(tmp_path: Any) -> None:
    net, batch = model(6), torch.randn(BATCH)
    limit, calls = int(3.5 * saved(net, batch)), []

    class Calls:
        def __init__(self, spool: unspool.Spool) -> None:
            self.spool = spool

        def __getattr__(self, name: str) -> Any:
            return getattr(self.spool, name)

        def restore(self, version: int, *arrays: Any) -> None:
            calls.append(version)
            self.spool.restore(version, *arrays)

        def expect(self, versions: list[int]) -> None:
            calls.extend(versions)
            self.spool.expect(versions)

    with unspool.Spool(host_memory="4MiB", disk=tmp_path) as spool:
        links = Links("cpu", ("host",), Rate(1e15), Rate(1e15))
        with budget(net, limit, spool=Calls(spool), links=links):
            for _ in range(4):
                calls.clear()
                step(net, batch)
        assert calls and calls[: len(calls) // 2] == calls[len(calls) // 2 :]


def test_inputs_of_other_shapes_are_measured_anew_and_what_is_known_is_remembered(
    spool: unspool.Spool,
) -> None:
    net, small, large = model(6), torch.randn(BATCH), torch.randn(4, 16, 32)
    limit = int(4.5 * saved(net, small))
    with budget(net, limit, spool=spool, links=FAST) as blocks:
        for _ in range(3):
            step(net, small)
        assert ways(blocks).count(OFFLOAD) == 2
        expected = []
        for batch, chosen in [(large, 0), (large, 0), (large, 4), (small, 2), (large, 4)]:
            found = step(net, batch)
            assert ways(blocks).count(OFFLOAD) == chosen
            expected.append((batch, found))
    for batch, found in expected:
        assert same(step(net, batch), found)


def test_a_model_that_goes_another_way_is_measured_anew(spool: unspool.Spool) -> None:
    net, batch = model(6), torch.randn(BATCH)
    # Whole blocks: of none is a part kept.
    limit = 3 * saved(net, batch)

    class Skipping(torch.nn.Module):
        skipped: tuple[int, ...] = ()

        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(net)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for place, block in enumerate(self.blocks):
                x = x if place in self.skipped else block(x)
            return x

    skipping = Skipping()
    with budget(skipping, limit, spool=spool, links=FAST) as blocks:
        moved = []
        for skipped, known in [((), 0), ((), 0), ((), 6), ((2,), 6), ((2,), 0), ((2,), 0)]:
            skipping.skipped, before = skipped, spool.stats().saved_bytes
            step(skipping, batch)
            moved.append(spool.stats().saved_bytes - before)
            assert len(ways(blocks)) == known and len(spool) == 0
        # What comes after the one that is missing is computed again.
        assert moved[2] > 0 and moved[3] == moved[2] * 2 / 3 and moved[4:] == [0, 0]
        found = step(skipping, batch)
        assert len(ways(blocks)) == 5
    assert same(step(skipping, batch), found)


def test_evaluation_and_calls_without_gradients_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, batch = model(3), torch.randn(BATCH)

    def refuse(*_: Any) -> None:
        raise AssertionError

    with budget(net, 1, links=FAST) as blocks:
        monkeypatch.setattr(blocks._stack, "_current", refuse)
        with torch.no_grad():
            net(batch)
        net.eval()
        net(batch).sum().backward()
        net.train().requires_grad_(False)
        net(batch)


def test_modules_are_as_before_after_the_end(spool: unspool.Spool) -> None:
    net, batch = model(3), torch.randn(BATCH)
    before = [dict(block.__dict__) for block in net]
    expected = step(net, batch)
    blocks = budget(net, 200_000, spool=spool, links=FAST)
    torch.manual_seed(1)
    net.zero_grad()
    loss = net(batch).square().mean()
    for _ in range(2):
        blocks.remove()
        assert [dict(block.__dict__).keys() for block in net] == [each.keys() for each in before]
    loss.backward()
    assert same([each.grad for each in net.parameters()], expected[:-1])
    with pytest.raises(FloatingPointError), budget(net, 200_000):
        raise FloatingPointError
    assert all("forward" not in block.__dict__ for block in net)


def test_a_spool_of_its_own_is_closed_after_the_end_and_the_last_graph() -> None:
    net, batch = model(3), torch.randn(BATCH)
    blocks = budget(net, 200_000, links=FAST)
    with pytest.warns(RuntimeWarning, match="temporary files"):
        for _ in range(4):
            loss = net(batch).square().mean()
            loss.backward()
    loss = net(batch).square().mean()
    carrier = weakref.ref(blocks._stack.carrier)
    blocks.remove()
    gc.collect()
    # The graph that is left may need what it has moved.
    loss.backward()
    del loss
    gc.collect()
    assert carrier() is None and blocks.report.blocks


def test_one_that_was_wrapped_by_others_is_left_to_them() -> None:
    net, batch = model(2), torch.randn(BATCH)
    expected = step(net, batch)
    blocks = budget(net, "1MiB")
    calls, inner = [], net[0].forward
    net[0].forward = lambda x: calls.append(x) or inner(x)
    blocks.remove()
    assert same(step(net, batch), expected) and len(calls) == 1


def test_a_copy_and_a_file_of_a_model_are_models_of_their_own() -> None:
    net, batch = model(3), torch.randn(BATCH)
    with budget(net, "1MiB"):
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        for other in (copy.deepcopy(net), torch.load(file, weights_only=False)):
            with torch.no_grad():
                for each in other.parameters():
                    each.zero_()
            other.eval()
            assert torch.equal(other(batch), batch)
            other.train()
            other(batch).sum().backward()
            assert other[0].down.weight.grad is not None and net[0].down.weight.grad is None


def test_a_dropped_graph_and_an_exception_leave_nothing(spool: unspool.Spool) -> None:
    net, batch = model(4), torch.randn(BATCH)
    limit = int(1.1 * saved(net, batch))
    gc.collect()
    gc.disable()
    try:
        for links in (FAST, SLOW):
            with budget(net, limit, spool=spool, links=links) as blocks:
                for _ in range(3):
                    step(net, batch)
                loss = net(batch).sum()
                assert len(spool) > 0
                del loss
                assert len(spool) == 0
                handle = net[2].down.register_forward_pre_hook(_fail)
                with pytest.raises(FloatingPointError):
                    net(batch)
                handle.remove()
                assert len(spool) == 0
                expected = step(net, batch)
                assert len(ways(blocks)) == 4
            assert same(step(net, batch), expected)
    finally:
        gc.enable()


def _fail(*_: Any) -> None:
    raise FloatingPointError


def test_a_pass_beside_another_is_computed_again(spool: unspool.Spool) -> None:
    net, batches = model(4), [torch.randn(BATCH) for _ in range(2)]

    def both() -> list[torch.Tensor]:
        torch.manual_seed(3)
        net.zero_grad()
        for loss in [net(batch).sum() for batch in batches]:
            loss.backward()
        return [each.grad.clone() for each in net.parameters()]

    expected, limit = both(), int(2.5 * saved(net, batches[0]))
    with budget(net, limit, spool=spool, links=FAST) as blocks:
        for _ in range(4):
            assert same(both(), expected) and len(spool) == 0
        assert ways(blocks).count(OFFLOAD) == 2
        # The first of two moves what one that is alone moves, and the other nothing.
        before = spool.stats().saved_bytes
        both()
        between = spool.stats().saved_bytes
        step(net, batches[0])
        assert 0 < between - before == spool.stats().saved_bytes - between


class Turn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(x @ self.weight)
        return x


def test_graphs_that_are_retained_and_second_derivatives(spool: unspool.Spool) -> None:
    torch.manual_seed(0)
    net, batch = torch.nn.Sequential(*(Turn() for _ in range(4))), torch.randn(4, 8)
    parameters = list(net.parameters())

    def passes() -> list[torch.Tensor]:
        loss = net(batch).square().mean()
        found = [torch.autograd.grad(loss, parameters, retain_graph=True) for _ in range(2)]
        found.append(torch.autograd.grad(loss, parameters, create_graph=True))
        squares = sum(each.square().sum() for each in found[-1])
        found.append(torch.autograd.grad(squares, parameters))
        return [each.detach() for grads in found for each in grads]

    expected, size = passes(), saved(net, batch)
    for links in (FAST, SLOW):
        with budget(net, int(1.3 * size), spool=spool, links=links) as blocks:
            for _ in range(4):
                assert same(passes(), expected)
            assert len(spool) == 0 and len(set(ways(blocks))) > 1


def test_a_budget_that_nothing_fits_into_says_what_is_enough(spool: unspool.Spool) -> None:
    net, batch = model(4), torch.randn(BATCH)
    one = saved(net, batch)
    expected = step(net, batch)
    with budget(net, one - 1, spool=spool, links=FAST):
        for _ in range(2):
            assert same(step(net, batch), expected)
        with pytest.raises(
            NoPlanError, match=r"of which the largest saves 69.00 KiB. 69.00 KiB are"
        ):
            step(net, batch)


def test_what_takes_longer_than_expected_is_computed_again(
    spool: unspool.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, batch = model(4), torch.randn(BATCH)
    expected = step(net, batch)
    took = 15.0
    with budget(net, int(2.5 * saved(net, batch)), spool=spool, links=FAST) as blocks:
        monkeypatch.setattr(_states.Seen, "seconds", lambda _: took)
        for _ in range(3):
            step(net, batch)
        assert ways(blocks).count(OFFLOAD) == 2
        usual = blocks.report.expected_seconds
        # Two slow steps, one that is not, and then three.
        for factor, moved in [(1.2, 2), (1.2, 2), (1.05, 2), (1.2, 2), (1.2, 2), (1.2, 0)]:
            took = factor * usual
            assert same(step(net, batch), expected) and ways(blocks).count(OFFLOAD) == moved
        assert blocks.report.fell_back and ways(blocks).count(RECOMPUTE) == 2
        assert "longer than expected" in str(blocks.report)


def test_arguments_that_all_blocks_share_stay(spool: unspool.Spool) -> None:
    class Turning(Block):
        def forward(self, *, x: torch.Tensor, extra: dict[str, Any]) -> tuple[torch.Tensor, int]:
            return super().forward(x * extra["turn"]), extra["count"]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([Turning(32) for _ in range(5)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            extra = {"turn": x.detach().cos(), "count": 3}
            for block in self.blocks:
                x, _ = block(x=x, extra=extra)
            return x

    net, batch = Net(), torch.randn(BATCH)
    expected, size = step(net, batch), saved(net, batch)
    with budget(net, int(1.05 * size), spool=spool, links=SLOW) as blocks:
        for _ in range(3):
            assert same(step(net, batch), expected)
        before = spool.stats().saved_bytes
        step(net, batch)
        # One input for each, and none that was given to all.
        moved = ways(blocks).count(RECALL)
        assert moved > 0 and spool.stats().saved_bytes - before == moved * batch.nbytes


def test_autocast(spool: unspool.Spool) -> None:
    net, batch = torch.nn.Sequential(*(Turn() for _ in range(4))), torch.randn(4, 8)

    def cast() -> list[torch.Tensor]:
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = net(batch)
        assert out.dtype is torch.bfloat16
        out.float().square().mean().backward()
        return [each.grad.clone() for each in net.parameters()]

    expected, plain = cast(), step(net, batch)
    for links in (FAST, SLOW):
        with budget(net, 1500, spool=spool, links=links) as blocks:
            for _ in range(4):
                assert same(cast(), expected)
            assert len(set(ways(blocks))) > 1
            # Without it, tensors are larger: that is another plan.
            assert same(step(net, batch), plain) and not ways(blocks)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_models_in_parallel(
    spool: unspool.Spool, tmp_path: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = torch.distributed
    group.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/meet")
    try:
        net, batch = model(5), torch.randn(BATCH)
        expected, size = step(net, batch), saved(net, batch)
        if kind == "replicated":
            net = torch.nn.parallel.DistributedDataParallel(net)
        else:
            fsdp = pytest.importorskip("torch.distributed.fsdp")
            mesh = group.device_mesh.init_device_mesh("cpu", (1,))
            for block in [*net, net]:
                fsdp.fully_shard(block, mesh=mesh)
        for links in (FAST, SLOW):
            with budget(net, int(2.5 * size), spool=spool, links=links) as blocks:
                for _ in range(4):
                    found = [getattr(each, "_local_tensor", each) for each in step(net, batch)]
                    assert same(found, expected) and len(spool) == 0
                assert len(set(ways(blocks))) == 2
    finally:
        group.destroy_process_group()


def test_units_of_a_sharded_model_are_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class FSDPModule(torch.nn.Module):
        pass

    class Unit(FSDPModule, Block):
        pass

    monkeypatch.setitem(
        sys.modules, "torch.distributed.fsdp", types.SimpleNamespace(FSDPModule=FSDPModule)
    )
    net = torch.nn.Module()
    net.first, net.second, net.alone = Unit(8), torch.nn.Module(), Block(8)
    net.second.inner = Unit(8)
    assert list(budget(net, "1MiB")._names.values()) == ["first", "second.inner"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_blocks_that_are_compiled(spool: unspool.Spool) -> None:
    net, batch = model(3), torch.randn(BATCH)
    for block in net:
        block.compile(backend="eager")
    expected = step(net, batch)
    with budget(net, 1 << 18, spool=spool, links=FAST) as blocks:
        for _ in range(3):
            assert same(step(net, batch), expected)
        assert ways(blocks)
    assert same(step(net, batch), expected)


def test_a_tensor_that_was_changed_is_an_error_as_in_autograd(spool: unspool.Spool) -> None:
    class Scaling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.weight).exp()

    net = torch.nn.Sequential(*(Scaling() for _ in range(4)))
    with budget(net, 1 << 20, spool=spool, links=FAST):
        for _ in range(2):
            net(torch.zeros(1000)).sum().backward()
        out = net(torch.zeros(1000))
        with torch.no_grad():
            out.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_blocks_are_found() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.ModuleList([Block(8), torch.nn.Linear(8, 8), Block(8)])
            self.inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(*model(2, 8)))
            self.layers = torch.nn.ModuleList([torch.nn.ModuleList(model(2, 8)) for _ in range(2)])
            self.plain = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
            self.alone = Block(8)

    net = Net()
    names = list(budget(net, "1MiB")._names.values())
    listed = [f"layers.{one}.{two}" for one in range(2) for two in range(2)]
    assert names == ["encoder.0", "encoder.2", "inner.1.0", "inner.1.1", *listed]
    assert list(budget(net, "1MiB", blocks=[net.alone])._names.values()) == ["alone"]


def test_arguments_that_make_no_sense_are_named() -> None:
    net = model(2)
    for given, options, text in [
        ((3, "1MiB"), {}, "that is not a module"),
        ((net, "much"), {}, "budget"),
        ((net, 0), {}, "budget"),
        ((torch.nn.Linear(3, 3), "1MiB"), {}, "no repeated blocks"),
        ((net, "1MiB"), {"blocks": "some"}, "give a list of modules"),
        ((net, "1MiB"), {"blocks": 3}, "give a list of modules"),
        ((net, "1MiB"), {"blocks": []}, "no repeated blocks"),
        ((net, "1MiB"), {"blocks": [Block(8)]}, "a Block in it is not a module of the model"),
        ((net, "1MiB"), {"blocks": [net[0], net[0].down]}, "0.down is there twice, or inside"),
        ((net, "1MiB"), {"spool": 3}, "that is not a Spool"),
        ((net, "1MiB"), {"links": 3}, "give Links"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=text):
            budget(*given, **options)
    assert all("forward" not in block.__dict__ for block in net)


def test_the_report_says_what_is_expected_and_what_came(spool: unspool.Spool) -> None:
    net, batch = model(6), torch.randn(BATCH)
    limit = int(4.5 * saved(net, batch))
    with budget(net, limit, spool=spool, links=SLOW) as blocks:
        assert "nothing is chosen" in str(blocks.report)
        for _ in range(3):
            step(net, batch)
        report = blocks.report
        assert list(report.blocks) == [str(place) for place in range(6)]
        assert report.kept_seconds < report.expected_seconds < report.recomputed_seconds
        assert report.saved_bytes > limit >= report.expected_bytes
        assert report.measured_seconds > 0 and report.to_dict()["budget"] == limit
        for text in ("6 blocks within", "4 keep, 2 recompute", "expected", "measured", "all kept"):
            assert text in str(report)


def test_what_a_block_takes_is_read_from_the_moments_of_a_pass() -> None:
    class Marks:
        def __init__(self) -> None:
            self.moments = iter([20.0, 23.0, 28.0, 100.0])

        def mark(self) -> float:
            return next(self.moments)

        def seconds(self, one: float, other: float) -> float:
            return other - one

    seen = _states.Seen(Marks())
    for begin, end, way, saved, repeated in [
        (0, 2, RECOMPUTE, None, (30.0, 99.0)),
        (3, 5, RECOMPUTE, None, (24.0, 26.0)),
        (6, 9, KEEP, 70, None),
    ]:
        call = types.SimpleNamespace(begin=begin, end=end, saved=saved, inputs=7, kind="block")
        call.repeated = repeated
        call.way = unspool.advice.blocks.Way(way)
        seen.calls.append(call)
    assert all(seen.reach(place) for place in (2, 1, 0)) and not seen.reach(1)
    seen.end = seen.clock.mark()
    # Backwards, the kept one takes 3 s, and the others 5 s and 72 s: they are computed again in 2 s
    # and 69 s of these.
    assert MEASURED(seen, [0, 1, 2]) == PlannedBlock(70, 7, 2.0, 35.5, 3.0)
    assert SECONDS(seen) == 9 + 80


def test_the_links_are_measured_when_not_all_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    net, batch = model(6), torch.randn(BATCH)
    expected, size, given = step(net, batch), saved(net, batch), []

    def measured(**options: Any) -> Links:
        given.append(options)
        return Links("cpu", ("host",), Rate(1e15), Rate(1e15))

    monkeypatch.setattr(unspool.torch._budget, "measure_links", measured)
    for part in (7, 3.5):
        warned = pytest.warns(RuntimeWarning) if part < 6 else contextlib.nullcontext()
        with warned, budget(net, int(part * size)) as blocks:
            for _ in range(4):
                assert same(step(net, batch), expected)
            assert (OFFLOAD in ways(blocks)) == (part < 6)
    assert len(given) == 1 and given[0]["device"] == "cpu"
    assert set(given[0]) == {"host_memory", "disk", "device"}


class Stream:
    """A stream that notes what is enqueued."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: Stream) -> None:
        self.log.append((self.name, "after", other.name))

    def record_event(self) -> str:
        self.log.append((self.name, "event"))
        return f"{self.name}{len(self.log)}"

    def wait_event(self, event: str) -> None:
        self.log.append((self.name, "waits", event))


class Copies:
    """A spool that notes on which streams it copies."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.current = ["main"]

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        self.current.append(stream.name)
        yield
        self.current.pop()

    def save(self, version: int, whole: torch.Tensor) -> None:
        self.log.append((self.current[-1], "save", version))
        if version < 0:
            raise unspool.errors.CapacityError

    def restore(self, version: int, whole: torch.Tensor) -> None:
        self.log.append((self.current[-1], "restore", version))


def test_lanes_copy_after_what_was_enqueued_and_memory_is_free_after_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[Any] = []
    main, spool, lanes = Stream("main", log), Copies(log), Lanes()
    monkeypatch.setattr("torch.cuda.stream", spool.on)
    lanes._stream = lambda device, *, away: Stream("away" if away else "back", log)
    told: list[int] = []

    class Moved:
        def __init__(self, number: int) -> None:
            self.number = number

        def left(self) -> None:
            told.append(self.number)

    for number in range(3):
        lanes.save(spool, number, torch.zeros(100), [Moved(number)], main, {})
    assert log[:3] == [("away", "after", "main"), ("away", "save", 0), ("away", "event")]
    assert lanes.bytes == 1200 and not told
    log.clear()
    lanes.make_room(800)
    assert log == [("main", "waits", "away3")] and told == [0] and lanes.bytes == 800
    lanes.make_room(800)
    lanes.make_room(0)
    assert told == [0, 1, 2] and lanes.bytes == 0
    log.clear()
    assert lanes.restore(spool, 1, torch.zeros(100), main) == "back3"
    assert log == [("back", "after", "main"), ("back", "restore", 1), ("back", "event")]
    log.clear()
    with pytest.raises(unspool.errors.CapacityError):
        lanes.save(spool, -1, torch.zeros(100), [Moved(3)], main, {})
    # What is enqueued now may have the memory.
    assert log[-1] == ("main", "after", "away") and lanes.bytes == 0
