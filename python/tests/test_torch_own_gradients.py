"""Steps and blocks that change gradients themselves: by backward(), by an optimiser, by assignment.
What they add is added once, as in the plain program, whichever step is the first to do so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import unspool
from unspool.schedules import Revolve

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import adjoint, budget, scan  # noqa: E402

from torch_programs import plain  # noqa: E402

STEPS = 11
NUMBERS = torch.arange(STEPS)


def by_hand(step: Any, init: Any, params: Any) -> Any:
    return plain(step, init, NUMBERS, STEPS)[0]


def by_scan(step: Any, init: Any, params: Any) -> Any:
    return scan(step, init, NUMBERS, segment=3)[0]


def by_adjoint(step: Any, init: Any, params: Any) -> Any:
    return adjoint(step, init, NUMBERS, params=params)[0]


def by_revolve(step: Any, init: Any, params: Any) -> Any:
    return adjoint(step, init, NUMBERS, params=params, schedule=Revolve(STEPS, 3))[0]


LOOPS = [by_scan, by_adjoint, by_revolve]
#: Which steps do what the test is about.
WHEN: dict[str, Callable[[int], bool]] = {
    "the first step": lambda n: n == 0,
    "a later step": lambda n: n == 5,
    "every second step": lambda n: n % 2 == 1,
    "the last step": lambda n: n == STEPS - 1,
    "all steps": lambda n: True,
}

Do = Callable[[torch.Tensor], Any]
Made = tuple[Callable[[torch.Tensor, bool], Any], list[torch.Tensor]]


def leaf(*, gradient: bool = False) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.rand(4) / 2 + 0.5)
    made.grad = torch.rand(4) if gradient else None
    return made


def back(*leaves: torch.Tensor, u: torch.Tensor, **options: Any) -> None:
    """A backward pass of the step itself."""
    with torch.enable_grad():
        loss = u.detach().mean(0).clone()
        for each in leaves:
            loss = loss * each**2
        loss.sum().backward(**options)


def of(tensor: torch.Tensor) -> Any:
    """What a step reads of a gradient."""
    return 1.0 if tensor.grad is None else 1.0 + 0.1 * tensor.grad.clone()


def adds(*, gradient: bool = False, read: bool = False) -> Made:
    a = leaf(gradient=gradient)

    def act(u: torch.Tensor, now: bool) -> Any:
        if now:
            back(a, u=u)
        return of(a) if read else 1.0

    return act, [a]


def chosen() -> Made:
    a, b = leaf(), leaf()
    return lambda u, now: back(a, b, u=u, inputs=[b]) if now else None, [a, b]


def by_assignment() -> Made:
    a = leaf(gradient=True)

    def act(u: torch.Tensor, now: bool) -> Any:
        if now:
            a.grad = a.grad + u.detach().mean(0)
        return of(a)

    return act, [a]


def in_place() -> Made:
    a = leaf(gradient=True)

    def act(u: torch.Tensor, now: bool) -> Any:
        if now:
            a.grad.add_(u.detach().mean(0))
        return of(a)

    return act, [a]


def frees() -> Made:
    a = leaf(gradient=True)

    def act(u: torch.Tensor, now: bool) -> Any:
        if now:
            a.grad = None
        else:
            back(a, u=u)
        return of(a)

    return act, [a]


def in_one_buffer() -> Made:
    a, b, buffer = leaf(), leaf(), torch.zeros(8)
    a.grad, b.grad = buffer[:4], buffer[4:]

    def act(u: torch.Tensor, now: bool) -> Any:
        if now:
            back(a, b, u=u)
        return 1 + 0.1 * buffer[:4].clone() - 0.1 * buffer[4:].clone()

    return act, [a, b, buffer]


def sparse() -> Made:
    table = torch.nn.Embedding(5, 4, sparse=True)

    def act(u: torch.Tensor, now: bool) -> None:
        if now:
            with torch.enable_grad():
                (table(torch.tensor([1, 2, 1])) ** 2 * u.detach()).sum().backward()

    return act, [table.weight]


def unfrozen() -> Made:
    a = leaf().requires_grad_(False)

    def act(u: torch.Tensor, now: bool) -> None:
        if a.requires_grad and now:
            back(a, u=u)
        a.requires_grad_()

    return act, [a]


def made_by_a_step() -> Made:
    made: dict[str, torch.Tensor] = {}
    a = leaf()

    def act(u: torch.Tensor, now: bool) -> None:
        if now and len(made) == 1:
            back(made["late"], u=u)
        made.setdefault("late", a.detach().clone().requires_grad_())
        a.grad = made["late"].grad

    return act, [a]


def nested() -> Made:
    a = leaf()

    def act(u: torch.Tensor, now: bool) -> Any:
        def inner(v: torch.Tensor, k: torch.Tensor) -> Any:
            if now and k == 1:
                back(a, u=v)
            return torch.tanh(v * a.detach()), None

        return adjoint(inner, torch.ones(3, 4), torch.arange(3), params=[])[0]

    return act, [a]


def takes_forces() -> Made:
    a = leaf()

    def act(u: torch.Tensor, now: bool) -> Any:
        with torch.enable_grad():
            x = u.detach().requires_grad_()
            (force,) = torch.autograd.grad((a.detach() * x**3).sum(), x)
        if now:
            back(a, u=u)
        return 1 + 0.1 * force

    return act, [a]


def pure() -> Made:
    a = leaf()

    def act(u: torch.Tensor, now: bool) -> Any:
        with torch.enable_grad():
            loss = (u.detach() * a**2).sum()
        return torch.autograd.grad(loss, a)[0] if now else 1.0

    return act, [a]


def optimised(make: Callable[[list[torch.Tensor]], Any], *, slower: bool = False) -> Made:
    a = leaf()
    optimiser = make([a])
    rate = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)

    def act(u: torch.Tensor, now: bool) -> Any:
        back(a, u=u)
        if now or slower:
            optimiser.step()
            optimiser.zero_grad()
        if now and slower:
            rate.step()
        return a.detach().clone()

    return act, [a]


KINDS: dict[str, Callable[[], Made]] = {
    "backward": adds,
    "backward, with a gradient there": lambda: adds(gradient=True),
    "backward and a look": lambda: adds(read=True),
    "backward and a look at more": lambda: adds(gradient=True, read=True),
    "backward(inputs=)": chosen,
    "assignment": by_assignment,
    "add_": in_place,
    "None": frees,
    "gradients in one buffer": in_one_buffer,
    "a sparse gradient": sparse,
    "a leaf that is unfrozen": unfrozen,
    "a leaf that a step makes": made_by_a_step,
    "a loop in a step": nested,
    "forces and backward": takes_forces,
    "autograd.grad": pure,
    "SGD": lambda: optimised(lambda each: torch.optim.SGD(each, 0.01)),
    "momentum": lambda: optimised(lambda each: torch.optim.SGD(each, 0.01, momentum=0.9)),
    "Adam": lambda: optimised(lambda each: torch.optim.Adam(each, 0.01)),
    "a rate": lambda: optimised(lambda each: torch.optim.SGD(each, 0.1), slower=True),
}


def run(made: Callable[[], Made], when: Callable[[int], bool], loop: Any) -> list[torch.Tensor]:
    """Values and gradients of two loops, one after the other."""
    torch.manual_seed(0)
    act, leaves = made()
    weight, found = leaf(), []

    def step(u: torch.Tensor, n: torch.Tensor) -> Any:
        factor = act(u, when(int(n)))
        return torch.tanh(u * weight) * (1.0 if factor is None else factor), None

    for _ in range(2):
        out = loop(step, torch.linspace(-1, 1, 12).reshape(3, 4), [weight])
        out.square().sum().backward()
        found += [out.detach(), weight.grad.clone()]
    gradients = [each.grad for each in leaves if each.grad is not None]
    return [*found, *(each.to_dense() for each in gradients), *(each.detach() for each in leaves)]


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_does_to_gradients_is_done_once(kind: str, when: str, loop: Any) -> None:
    expected = run(KINDS[kind], WHEN[when], by_hand)
    assert_same(run(KINDS[kind], WHEN[when], loop), expected)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_second_backward_pass_adds_nothing_of_the_steps(loop: Any) -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        (act, leaves), weight = optimised(lambda each: torch.optim.Adam(each, 0.01)), leaf()

        def step(u: torch.Tensor, n: torch.Tensor) -> Any:
            return torch.tanh(u * weight) * act(u, int(n) % 2 == 1), None

        out = loop(step, torch.ones(3, 4), [weight])
        out.sum().backward(retain_graph=True)
        out.square().sum().backward()
        return [weight.grad, *leaves, *(each.grad for each in leaves)]

    assert_same(gradients(loop), gradients(by_hand))


class Block(torch.nn.Module):
    """One that trains a layer beside it in every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.beside, self.calls = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), 0

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls % 2 == 0:
            self.beside(u.detach()).square().mean().backward()
        return torch.tanh(self.main(u))


def test_a_block_within_a_budget_adds_its_own_gradient_once(spool: unspool.Spool) -> None:
    def gradients(*, within: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(Block() for _ in range(5)))
        if within:
            budget(model, "16KiB", spool=spool)
        for _ in range(4):
            model(torch.randn(64, 16)).square().mean().backward()
        return [each.grad for each in model.parameters()]

    assert_same(gradients(within=True), gradients(within=False))


def weighted(act: Do) -> tuple[Any, torch.nn.Parameter]:
    weight = leaf()

    def step(u: torch.Tensor, n: torch.Tensor) -> Any:
        if n == 6:
            act(u)
        return torch.tanh(u * weight), None

    return step, weight


def test_a_later_step_that_needs_a_graph_says_so() -> None:
    a = leaf()
    step, weight = weighted(lambda u: (a * u.detach()).sum().backward())
    with pytest.raises(unspool.errors.ArrayError, match=r"step 6 takes .* torch\.enable_grad"):
        by_adjoint(step, torch.ones(3, 4), [weight])


#: How a step takes a gradient of something, and of what it takes it.
Take = Callable[[torch.Tensor, torch.nn.Parameter], Any]


def by_grad(loss: torch.Tensor, weight: torch.nn.Parameter) -> Any:
    return torch.autograd.grad(loss, weight, retain_graph=True)[0]


def by_a_derivative(loss: torch.Tensor, weight: torch.nn.Parameter) -> Any:
    return torch.autograd.grad(loss, weight, create_graph=True)[0]


def by_backward(loss: torch.Tensor, weight: torch.nn.Parameter) -> Any:
    loss.backward(retain_graph=True)
    return torch.ones(4)


def by_inputs(loss: torch.Tensor, weight: torch.nn.Parameter) -> Any:
    loss.backward(retain_graph=True, inputs=[weight])
    return torch.ones(4)


TAKES = [by_grad, by_a_derivative, by_backward, by_inputs]


def through(take: Take, when: Callable[[int], bool]) -> tuple[Any, torch.nn.Parameter]:
    """A step that takes a gradient through its carry, with respect to what it comes from."""
    weight = leaf()

    def step(u: torch.Tensor, n: torch.Tensor) -> Any:
        factor: Any = 1.0
        if when(int(n)):
            with torch.enable_grad():
                factor = 1 + 0.1 * torch.tanh(take((weight * u**2).mean(), weight))
        return torch.tanh(u * weight) * factor, None

    return step, weight


LATER = [when for when in WHEN if when != "the first step"]


@pytest.mark.parametrize("loop", [by_adjoint, by_revolve])
@pytest.mark.parametrize("when", LATER)
@pytest.mark.parametrize("take", TAKES)
def test_a_gradient_that_would_go_on_to_earlier_steps_is_an_error(
    take: Take, when: str, loop: Any
) -> None:
    step, weight = through(take, WHEN[when])
    with pytest.raises(unspool.errors.ArrayError, match=r"calls backward\(\) on something"):
        loop(step, torch.ones(3, 4), [weight]).sum().backward()


@pytest.mark.parametrize("when", ["every second step", "all steps"])
def test_such_a_gradient_is_an_error_before_its_value_is_used(when: str) -> None:
    step, weight = through(by_grad, WHEN[when])
    with pytest.raises(unspool.errors.ArrayError, match=r"calls backward\(\) on something"):
        by_adjoint(step, torch.ones(3, 4), [weight])


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("when", WHEN)
def test_a_gradient_goes_through_the_segments_of_a_scan(when: str, take: Take) -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        step, weight = through(take, WHEN[when])
        out = loop(step, torch.ones(3, 4), [weight])
        out.square().sum().backward()
        return [out.detach(), weight.grad]

    assert_same(gradients(by_scan), gradients(by_hand))


@pytest.mark.parametrize("of", ["xs", "init", "what params were computed from"])
def test_a_gradient_with_respect_to_what_the_loop_was_given_is_an_error(of: str) -> None:
    a, weight = leaf(), leaf()
    init, twice = a * torch.ones(3, 4), 2 * weight
    xs = torch.linspace(0, 1, STEPS).requires_grad_()

    def step(u: torch.Tensor, x: torch.Tensor) -> Any:
        wanted = {"xs": xs, "init": init}.get(of, weight)
        made = torch.autograd.grad(
            (twice.detach() * u**2 * x).sum(), wanted, retain_graph=True, allow_unused=True
        )
        return torch.tanh(u * twice + x), made[0]

    with pytest.raises(unspool.errors.ArrayError, match=r"calls backward\(\) on something"):
        adjoint(step, init, xs, params=[twice])


def test_a_gradient_with_respect_to_the_init_of_a_scan_is_an_error_when_computed_again() -> None:
    weight = leaf()
    init = weight * torch.ones(3, 4)

    def step(u: torch.Tensor, n: torch.Tensor) -> Any:
        made = torch.autograd.grad((u**2).sum(), init, retain_graph=True, allow_unused=True)[0]
        return torch.tanh(u * weight) + 0.1 * made, None

    with pytest.raises(unspool.errors.ArrayError, match="with respect to a tensor of `init`"):
        scan(step, init, NUMBERS, segment=3)[0].sum().backward()


def test_a_first_step_that_is_another_one_hides_no_gradient_of_a_later_one() -> None:
    weight = leaf()

    def step(u: torch.Tensor, n: torch.Tensor) -> Any:
        factor: Any = 1.0
        if n == 5:
            with torch.enable_grad():
                factor = by_grad((weight * u**2).sum(), weight)
        return (torch.full((3, 4), 0.5) if n == 0 else torch.tanh(u * weight)) * factor, None

    with pytest.raises(unspool.errors.ArrayError, match=r"calls backward\(\) on something"):
        by_adjoint(step, torch.ones(3, 4), [weight]).sum().backward()


@pytest.mark.parametrize("way", ["read later", "led on later"])
def test_what_comes_into_the_carry_after_the_first_steps_is_not_missed(way: str) -> None:
    weight, late = leaf(), leaf()

    def step(carry: Any, n: torch.Tensor) -> Any:
        (u, v), factor = carry, 1.0
        if n == 6:
            with torch.enable_grad():
                factor = by_grad((late * u**2).sum(), late)
        if way == "read later":
            return (torch.tanh(u * (late if n == 4 else weight)) * factor, v), None
        return (torch.tanh(u * weight + (v if n == 4 else 0)) * factor, torch.sin(v * late)), None

    start = torch.ones(3, 4), torch.ones(3, 4)
    with pytest.raises(unspool.errors.ArrayError, match=r"calls backward\(\) on something"):
        carry, _ = adjoint(step, start, NUMBERS, params=[weight, late])
        carry[0].sum().backward()


def energy(u: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (weight**2 * u**4).sum()


def forces(u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter) -> Any:
    return torch.autograd.grad(energy(u, weight), u, create_graph=True)[0]


def of_a_made_tensor(u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter) -> Any:
    made = u * weight
    return torch.autograd.grad(energy(made, other), made, create_graph=True)[0]


def of_a_weight(u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter) -> Any:
    return torch.autograd.grad(energy(u.detach(), weight), weight)[0]


def of_a_weight_beside(
    u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter
) -> Any:
    return torch.autograd.grad(energy(u, other), other, retain_graph=True)[0].detach().mean(0)


def of_two(u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter) -> Any:
    one, two = torch.autograd.grad(energy(u, other), [u, other], retain_graph=True)
    return one + two.mean()


def by_the_first_step(
    u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter
) -> Any:
    if u[0, 0] == 0.5:
        return torch.autograd.grad(energy(u, weight), weight, create_graph=True)[0]
    return forces(u, weight, other)


def by_a_loop(u: torch.Tensor, weight: torch.nn.Parameter, other: torch.nn.Parameter) -> Any:
    def inner(v: torch.Tensor, _: torch.Tensor) -> Any:
        return v + 0.1 * forces(v, weight, other), None

    return scan(inner, u, torch.arange(3), segment=1)[0]


RIGHT = [forces, of_a_made_tensor, of_a_weight, of_a_weight_beside, of_two, by_the_first_step,
         by_a_loop]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("take", RIGHT)
def test_a_gradient_that_ends_at_the_carry_is_right(take: Any, loop: Any) -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        weight, other = leaf(), leaf()

        def step(carry: Any, n: torch.Tensor) -> Any:
            u, count = carry
            # Without its graph, so that the carry never depends on the other weight.
            change = take(u, weight, other)
            change = change.detach() if take in (of_a_weight_beside, of_two) else change
            return (torch.tanh(u * weight - 0.01 * change), count + 1), None

        init = torch.full((3, 4), 0.5, requires_grad=take is not by_the_first_step)
        count = torch.zeros((), dtype=torch.int64)
        out, _ = loop(step, (init, count), [weight, other])
        out.square().sum().backward()
        return [out.detach(), weight.grad]

    assert_same(gradients(loop), gradients(by_hand))


def test_a_carry_that_comes_back_as_it_is_may_be_gone_through_once_it_is_detached() -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        weight = leaf()

        def step(u: torch.Tensor, n: torch.Tensor) -> Any:
            change = 0.0
            if n % 3 == 2:
                change = torch.autograd.grad(energy(u, weight), weight, retain_graph=True)[0]
            elif n == 0:
                forces(u.detach().requires_grad_(), weight, weight)
            new = torch.tanh(u * weight)
            return (new.detach() if n % 3 == 1 else u if n % 3 == 2 else new), (change + u).sum()

        _, ys = loop(step, weight)
        ys.square().sum().backward()
        return [ys.detach(), weight.grad]

    init = torch.ones(3, 4)
    found = gradients(lambda step, weight: adjoint(step, init, NUMBERS, params=[weight]))
    assert_same(found, gradients(lambda step, _: plain(step, init, NUMBERS, STEPS)))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_part_of_the_carry_that_needs_no_gradient_may_be_gone_back_to(loop: Any) -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        a, weight = leaf(), leaf()

        def step(carry: Any, n: torch.Tensor) -> Any:
            u, time = carry
            if n % 2:
                with torch.enable_grad():
                    (a**2 * time).sum().backward()
            return (torch.tanh(u * weight), time + 0.5), None

        out, _ = loop(step, (torch.ones(3, 4), torch.ones(())), [weight])
        out.sum().backward()
        return [a.grad, weight.grad]

    assert_same(gradients(loop), gradients(by_hand))


@pytest.mark.parametrize("loop", [by_adjoint, by_revolve])
def test_a_change_that_no_version_tells_is_right_or_an_error(loop: Any) -> None:
    a = leaf(gradient=True)
    step, weight = weighted(lambda u: a.grad.data.add_(u.detach().mean(0)))
    with pytest.raises(unspool.errors.ArrayError, match="it has changed a tensor of shape"):
        loop(step, torch.ones(3, 4), [weight]).sum().backward()


def test_gradients_that_are_too_large_to_be_copied_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unspool.torch._copies.LEARNED", 12)
    a = leaf(gradient=True)
    step, weight = weighted(lambda u: back(a, u=u))
    with pytest.raises(unspool.errors.ArrayError, match=r"set gradients to None before the loop"):
        by_adjoint(step, torch.ones(3, 4), [weight]).sum().backward()


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Calls a function in a thread that is there before the loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threading.get_ident).result(timeout=60)
        yield lambda call: pool.submit(call).result(timeout=60)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_another_thread_adds_meanwhile_stays(loop: Any, beside: Any) -> None:
    def gradients(loop: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        once, a = threading.Event(), leaf(gradient=True)

        def act(_: torch.Tensor) -> None:
            if not once.is_set():
                once.set()
                beside(lambda: back(a, u=torch.ones(3, 4)))

        step, weight = weighted(act)
        out = loop(step, torch.ones(3, 4), [weight])
        # Between the passes as well.
        beside(lambda: back(a, weight, u=torch.ones(3, 4)))
        out.sum().backward()
        return [a.grad, weight.grad]

    assert_same(gradients(loop), gradients(by_hand))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", ["backward", "add_", "a leaf that a step makes", "Adam"])
def test_a_step_adds_once_beside_a_thread(kind: str, loop: Any, beside: Any) -> None:
    when = WHEN["every second step"]
    assert_same(run(KINDS[kind], when, loop), run(KINDS[kind], when, by_hand))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_gradient_of_two_threads_at_once_is_an_error(loop: Any, beside: Any) -> None:
    a = leaf()

    def act(u: torch.Tensor) -> None:
        back(a, u=u)
        beside(lambda: back(a, u=torch.ones(3, 4)))

    step, weight = weighted(act)
    with pytest.raises(unspool.errors.ArrayError, match="another thread adds to the same"):
        loop(step, torch.ones(3, 4), [weight]).sum().backward()


def hooked(made: Callable[[], Made], when: Callable[[int], bool], loop: Any) -> list[torch.Tensor]:
    calls: list[int] = []

    def with_hooks() -> Made:
        act, (a,) = made()
        a.register_hook(lambda gradient: calls.append(1) or gradient * 0.5)
        a.register_post_accumulate_grad_hook(lambda _: calls.append(2))
        return act, [a]

    return [*run(with_hooks, when, loop), torch.tensor([len(calls), sum(calls)])]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("when", WHEN)
def test_hooks_of_what_a_step_adds_to_are_called_once(when: str, loop: Any) -> None:
    assert_same(hooked(adds, WHEN[when], loop), hooked(adds, WHEN[when], by_hand))


@pytest.mark.parametrize("loop", LOOPS)
def test_an_optimiser_in_a_hook_steps_once(loop: Any) -> None:
    def made() -> Made:
        act, (a,) = adds()
        optimiser = torch.optim.SGD([a], 0.01, momentum=0.9)

        def go(_: torch.Tensor) -> None:
            optimiser.step()
            optimiser.zero_grad()

        a.register_post_accumulate_grad_hook(go)
        return lambda u, now: (act(u, now), a.detach().clone())[1], [a]

    assert_same(run(made, WHEN["every second step"], loop), run(made, WHEN["every second step"],
                by_hand))  # fmt: skip


def test_hooks_that_a_step_calls_beside_other_threads_are_an_error(beside: Any) -> None:
    a = leaf()
    a.register_hook(lambda gradient: gradient * 0.5)
    step, weight = weighted(lambda u: back(a, u=u))
    with pytest.raises(unspool.errors.ArrayError, match="calls hooks of the tensor"):
        by_adjoint(step, torch.ones(3, 4), [weight]).sum().backward()
