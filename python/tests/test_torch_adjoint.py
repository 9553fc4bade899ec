"""`unspool.torch.adjoint`: gradients of a loop of which only states are kept, by any schedule."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from typing import Any

import pytest
import unspool
from unspool.schedules import (
    MultiLevel,
    OnlineRevolve,
    Restore,
    Revolve,
    Schedule,
    StoreAll,
    Uniform,
    ZCut,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import adjoint  # noqa: E402

from torch_programs import Program, leaf, plain, program, results, same  # noqa: E402


def by_hand(made: Program) -> Any:
    return plain(made.step, made.init, made.xs, made.length)


def adjoined(**options: Any) -> Any:
    return lambda made: adjoint(
        made.step, made.init, made.xs, made.length, params=made.params, **options
    )


def schedules(steps: int, draw: random.Random) -> list[Any]:
    slots = draw.randint(1, 6)
    return [
        "auto",
        StoreAll(steps),
        Revolve(steps, slots),
        OnlineRevolve(slots),
        ZCut(steps, cuts=min(slots, steps)),
        Uniform(steps, slots),
        list(Revolve(steps, slots)),
    ]


def tanh_step(weight: torch.Tensor) -> Any:
    return lambda u, x: (torch.tanh(u @ weight), u.sum())


@pytest.mark.parametrize("seed", range(60))
def test_everything_is_as_in_the_plain_loop(seed: int, tmp_path: Any) -> None:
    made, draw = program(seed), random.Random(seed)
    expected = results(by_hand, made)
    for schedule in schedules(made.length, draw):
        with unspool.Spool(host_memory="256KiB", disk=tmp_path) as spool:
            codec = draw.choice([None, "lossless"])
            found = results(adjoined(schedule=schedule, spool=spool, codec=codec), made)
            assert same(found, expected), schedule
            assert len(spool) == 0
    assert same(results(adjoined(), made), expected)


def test_a_schedule_with_tiers(tmp_path: Any) -> None:
    made = program(1)
    levels = MultiLevel(made.length, host=2, disk=5, write_seconds={"disk": 1.0})
    with unspool.Spool(host_memory="256KiB", disk=tmp_path) as spool:
        assert same(results(adjoined(schedule=levels, spool=spool), made), results(by_hand, made))


def test_the_spool_holds_the_slots_of_the_schedule_between_the_passes(spool: unspool.Spool) -> None:
    weight = leaf(4, 4)
    carry, ys = adjoint(
        tanh_step(weight), leaf(2, 4), length=50, params=[weight], schedule=Revolve(50, 5),
        spool=spool,
    )  # fmt: skip
    assert 0 < len(spool) <= 5
    (carry.sum() + ys.sum()).backward()
    assert len(spool) == 0


def test_auto_keeps_as_many_states_as_there_is_room_for() -> None:
    weight, init = leaf(4, 4), leaf(100, 4)

    def run(host: str) -> tuple[int, torch.Tensor]:
        with unspool.Spool(host_memory=host) as spool:
            carry, _ = adjoint(tanh_step(weight), init, length=60, params=[weight], spool=spool)
            kept = len(spool)
            return kept, torch.autograd.grad(carry.sum(), weight)[0]

    (few, one), (many, other) = run("256KiB"), run("16MiB")
    assert 5 < few < 30 and many == 59 and torch.equal(one, other)


def test_params_of_which_one_is_computed_from_another_are_an_error() -> None:
    weight, alone, init = leaf(3), leaf(3), leaf(3)
    twice = 2 * weight
    for params in ([weight, twice], [twice, 3 * twice], [alone, twice[:2], weight]):
        with pytest.raises(unspool.errors.ArrayError, match="counted twice"):
            adjoint(lambda u, x: (u * twice, None), init, length=5, params=params)

    def step(u: torch.Tensor, x: Any) -> Any:
        return u * twice * alone, None

    carry, _ = adjoint(step, init, length=5, params=[twice, alone])
    found = torch.autograd.grad(carry.sum(), [weight, alone], retain_graph=True)
    expected = torch.autograd.grad(plain(step, init, None, 5)[0].sum(), [weight, alone])
    assert same(found, expected)


def test_a_tensor_that_is_missing_in_params_is_an_error(spool: unspool.Spool) -> None:
    weight, other, init = leaf(3), leaf(3), leaf(3)
    derived = other * 2
    cases = {
        "a leaf": lambda u, x: (u * weight * other, None),
        "what was computed from one": lambda u, x: (u * weight * derived, None),
        "in the output only": lambda u, x: (u * weight, other.sum()),
        "as the output": lambda u, x: (u * weight, other),
        "as the carry": lambda u, x: (other, None),
        "hidden in a list": lambda u, x, hidden=[other]: (u * weight * hidden[0], None),
        "a view": lambda u, x: (u * weight * other[1:].sum(), None),
    }
    for name, step in cases.items():
        with pytest.raises(unspool.errors.ArrayError, match=r"shape \[3\].*`params`"):
            adjoint(step, init, length=5, params=[weight], spool=spool)
        assert len(spool) == 0, name
    # In no_grad nobody wants its gradient, nor where it was detached.
    with torch.no_grad():
        adjoint(cases["a leaf"], init, length=5, params=[], spool=spool)
    adjoint(lambda u, x: (u * weight * other.detach(), None), init, length=5, params=[weight])
    carry, _ = adjoint(lambda u, x: (u * derived, None), init, length=5, params=[derived])
    carry.sum().backward()
    assert other.grad is not None


def test_a_tensor_that_only_a_later_step_reads_is_an_error_too(spool: unspool.Spool) -> None:
    weight, init, xs = leaf(3), leaf(3), torch.arange(6)

    def step(u: torch.Tensor, x: torch.Tensor) -> Any:
        return (u * weight if x == 3 else u.sin()), None

    carry, _ = adjoint(step, init, xs, params=[], spool=spool)
    with pytest.raises(unspool.errors.ArrayError, match="not in `params`"):
        carry.sum().backward()
    carry = None
    assert len(spool) == 0


def test_modules_give_their_parameters() -> None:
    cell = torch.nn.Linear(4, 4)
    cell.bias.requires_grad_(False)
    init = leaf(2, 4)

    def gradient(run: Any) -> list[torch.Tensor]:
        carry, _ = run(lambda u, x: (torch.tanh(cell(u)), None), init, None, 9)
        return list(torch.autograd.grad(carry.sum(), [cell.weight, init]))

    found = gradient(lambda *given: adjoint(*given, params=cell.parameters()))
    assert same(found, gradient(plain))


def test_a_step_that_changes_its_carry_in_place_is_refused(spool: unspool.Spool) -> None:
    def step(carry: Any, x: Any) -> Any:
        u, count = carry
        count += 1
        return (u.sin(), count), None

    with pytest.raises(unspool.errors.ArrayError, match="changed its carry in place"):
        adjoint(step, (leaf(3), torch.tensor(0)), length=4, params=[], spool=spool)
    with pytest.raises((unspool.Error, RuntimeError), match=r"in.place"):
        adjoint(lambda u, x: (u.mul_(2), None), leaf(3) * 1, length=4, params=[], spool=spool)
    assert len(spool) == 0


def test_a_second_backward_pass_runs_the_loop_again(spool: unspool.Spool) -> None:
    weight = leaf(4, 4)
    # Where adjoint does not look, so that steps that are computed again count too.
    seen = threading.local()
    seen.calls = 0

    def step(u: torch.Tensor, x: Any) -> Any:
        seen.calls += 1
        return torch.dropout(torch.tanh(u @ weight), 0.3, True), None

    torch.manual_seed(3)
    carry, _ = adjoint(step, leaf(2, 4), length=10, params=[weight], spool=spool)
    (first,) = torch.autograd.grad(carry.sum(), weight, retain_graph=True)
    assert len(spool) == 0
    before, drawn = seen.calls, torch.get_rng_state()
    (second,) = torch.autograd.grad(carry.sum(), weight)
    assert torch.equal(first, second) and len(spool) == 0 and seen.calls >= before + 20
    assert torch.equal(torch.get_rng_state(), drawn)


def test_there_are_no_second_derivatives() -> None:
    weight = leaf(4, 4)
    carry, _ = adjoint(tanh_step(weight), leaf(2, 4), length=5, params=[weight])
    (first,) = torch.autograd.grad(carry.sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


def test_a_dropped_graph_leaves_nothing(spool: unspool.Spool) -> None:
    weight = leaf(4, 4)
    gc.disable()
    try:
        carry, ys = adjoint(tanh_step(weight), leaf(2, 4), length=10, params=[weight], spool=spool)
        assert len(spool) == 9
        del carry, ys
        assert len(spool) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("at", [1, 5, 13, 19])
def test_an_exception_leaves_the_spool_usable(spool: unspool.Spool, at: int) -> None:
    calls = itertools.count(1)

    def step(u: torch.Tensor, x: Any) -> Any:
        if next(calls) == at:
            raise FloatingPointError("blew up")
        return u.sin(), None

    with pytest.raises(FloatingPointError, match="blew up"):
        carry, _ = adjoint(step, leaf(4), length=10, params=[], spool=spool)
        carry.sum().backward()
    carry = None
    assert len(spool) == 0 and spool.stats().hints == 0


def test_autocast_is_the_same_in_both_passes() -> None:
    weight, init = leaf(8, 8), leaf(4, 8)

    def gradient(run: Any) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            carry, _ = run(lambda u, x: (torch.tanh(u @ weight).float(), None), init, None, 9)
            # What autocast has converted inside is not taken for what this needs.
            loss = (carry @ weight).float().sum()
        return list(torch.autograd.grad(loss, [weight, init]))

    found = gradient(lambda *given: adjoint(*given, params=[weight], schedule=Revolve(9, 2)))
    for one, other in zip(found, gradient(plain), strict=True):
        # Plain autocast converts a weight once, and sums its gradient in bfloat16.
        assert torch.allclose(one, other, rtol=0.05, atol=0.02)


def test_inputs_that_were_changed_in_place_are_refused_as_pytorch_does() -> None:
    weight, init = leaf(4, 4), leaf(2, 4)
    carry, _ = adjoint(tanh_step(weight), init, length=5, params=[weight])
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        carry.sum().backward()


def test_what_goes_through_the_loop_as_it_is() -> None:
    weight, kept, init = leaf(3), leaf(3), leaf(3)

    def gradient(run: Any) -> list[torch.Tensor]:
        def step(carry: Any, x: Any) -> Any:
            u, k = carry
            return (u * k * weight, k), u

        (u, k), ys = run(step, (init, kept), None, 6)
        return list(torch.autograd.grad(u.sum() + k.exp().sum() + ys.sum(), [weight, kept, init]))

    assert same(gradient(lambda *given: adjoint(*given, params=[weight])), gradient(plain))


def test_gradcheck() -> None:
    weight = leaf(3, 3).double().detach().requires_grad_()
    xs = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def loop(init: torch.Tensor, weight: torch.Tensor, xs: torch.Tensor) -> Any:
        def step(u: torch.Tensor, x: torch.Tensor) -> Any:
            return torch.tanh(u @ weight + x), u.square().sum()

        return adjoint(step, init, xs, params=[weight], schedule=Revolve(6, 2))

    init = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loop, (init, weight, xs))


def test_no_steps() -> None:
    init = leaf(3)
    assert adjoint(tanh_step(leaf(3, 3)), init, length=0, params=[]) == (init, None)


class Unready(Schedule):
    """A schedule whose actions break a rule."""

    steps, slots = 5, None

    def actions(self) -> Any:
        return iter([Restore(2)])


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"schedule": Revolve(7, 2)}, unspool.errors.OptionError, "for 7 steps"),
        ({"schedule": Unready()}, unspool.errors.ScheduleError, "not a valid schedule"),
        ({"schedule": "best"}, unspool.Error, "schedule"),
        ({"params": [3]}, unspool.errors.ArrayError, "a int in it"),
        ({"init": (torch.zeros(3), 1.0)}, unspool.errors.ArrayError, "the carry has a float"),
        ({"init": ()}, unspool.errors.ArrayError, "no tensor in the carry"),
        ({"spool": 7}, unspool.errors.OptionError, "that is not a Spool"),
        ({"step": 7}, unspool.errors.OptionError, "is not a function"),
        ({"step": lambda u, x: (u[1:], None)}, unspool.errors.ArrayError, "keep their shapes"),
        ({"step": lambda u, x: ((u, u), None)}, unspool.errors.ArrayError, "another structure"),
    ],
)
def test_arguments_that_make_no_sense_are_named(options: Any, kind: Any, text: str) -> None:
    given = {"step": lambda u, x: (u * 1, None), "init": leaf(3), "params": [], **options}
    with pytest.raises(kind, match=text):
        adjoint(given.pop("step"), given.pop("init"), length=5, **given)
