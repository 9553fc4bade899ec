"""`check=` of `unspool.torch.scan` and `adjoint`: what a codec does to the gradient."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import unspool
from unspool.errors import ArrayError, OptionError
from unspool.schedules import OnlineRevolve, Revolve, StoreAll
from unspool.types import Fidelity, FidelityWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import adjoint, scan  # noqa: E402

from torch_programs import leaf, plain, program, results, same  # noqa: E402

STEPS, CELLS = 80, 100

Run = Callable[..., Any]


class Wave:
    """A wave in one dimension and the gradient of what is seen at its end by its speed."""

    def __init__(self) -> None:
        x = torch.linspace(0, 1, CELLS, dtype=torch.float64)
        self.speed = (0.6 + 0.3 * torch.sin(7 * x)).requires_grad_()
        self.start = tuple(torch.exp(-(((x - 0.3) / 0.05) ** 2)) for _ in range(2))
        self.seen = torch.exp(-(((x - 0.6) / 0.05) ** 2))

    def step(self, carry: Any, _: Any) -> Any:
        before, now = carry
        bend = now.roll(1) + now.roll(-1) - 2 * now
        return (now, 2 * now - before + self.speed**2 * bend), None

    def gradient(self, run: Run) -> torch.Tensor:
        (_, last), _ = run(self.step, self.start, length=STEPS)
        return torch.autograd.grad((self.seen * last**2).sum(), self.speed)[0]

    def effect(self, run: Run, bound: float, check: int) -> tuple[Fidelity, float]:
        """What a check says of a bound, and the difference of two whole runs."""
        found: list[Fidelity] = []
        codec = unspool.Bound(range=bound)
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool, warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)
            exact = self.gradient(lambda *a, **o: run(self, *a, spool=spool, **o))
            options = {"spool": spool, "codec": codec}
            lossy = self.gradient(lambda *a, **o: run(self, *a, **options, **o))
            options |= {"check": check, "fidelity": found.append}
            checked = self.gradient(lambda *a, **o: run(self, *a, **options, **o))
            assert len(spool) == 0 and spool.stats().hints == 0
        assert torch.equal(checked, lossy), "a check changes nothing"
        return found[0], float((lossy - exact).norm() / lossy.norm())


def by_scan(wave: Wave, *given: Any, **options: Any) -> Any:
    return scan(*given, segment=4, **options)


def by_store_all(wave: Wave, *given: Any, **options: Any) -> Any:
    return adjoint(*given, params=[wave.speed], schedule=StoreAll(STEPS), **options)


def by_revolve(wave: Wave, *given: Any, **options: Any) -> Any:
    return adjoint(*given, params=[wave.speed], schedule=Revolve(STEPS, 8), **options)


RUNS = [by_scan, by_store_all, by_revolve]


@pytest.mark.parametrize("run", RUNS)
def test_the_estimate_is_near_the_difference_of_two_whole_runs(run: Run) -> None:
    fidelity, true = Wave().effect(run, 1e-4, 12)
    effect = fidelity.arrays["params[0]"]
    assert list(fidelity.arrays) == ["params[0]"] and len(fidelity.checked) == 12
    # The last segment of a scan starts with the state that is there, and not with a copy.
    assert fidelity.steps == (STEPS // 4 - 1 if run is by_scan else STEPS)
    assert true / 3 < effect.estimate < 5 * true, (effect, true)
    assert effect.independent <= effect.estimate <= effect.worst and true < 2 * effect.worst


@pytest.mark.parametrize("run", [by_scan, by_store_all])
def test_checked_at_every_state_it_is_the_difference(run: Run) -> None:
    fidelity, true = Wave().effect(run, 1e-4, 10_000)
    assert fidelity.estimate == fidelity.worst == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_without_a_loss_it_finds_none_and_changes_nothing(seed: int) -> None:
    made, found = program(seed), list[Fidelity]()
    options: dict[str, Any] = {"codec": "lossless", "check": 3, "fidelity": found.append}
    given = made.step, made.init, made.xs, made.length

    def scanned(_: Any) -> Any:
        return scan(*given, segment=2, spool=spool, **options)

    def adjoined(_: Any) -> Any:
        return adjoint(*given, params=made.params, spool=spool, **options)

    expected = results(lambda _: scan(*given), made)
    with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
        assert same(results(scanned, made), expected)
        assert same(
            results(adjoined, made), results(lambda _: adjoint(*given, params=made.params), made)
        )
        gc.collect()
        assert len(spool) == 0
    assert len(found) == 2
    for each in found:
        assert each.worst == 0 and "does not change the gradient" in str(each)


@pytest.mark.parametrize("run", RUNS)
def test_a_gradient_that_is_far_off_is_warned_of(run: Run) -> None:
    wave = Wave()
    with pytest.warns(FidelityWarning, match=r"unspool\.torch\.\w+, checked at 6 of"):
        wave.gradient(lambda *a, **o: run(wave, *a, codec=unspool.Bound(range=0.2), check=6, **o))


def test_inputs_the_first_carry_and_what_is_read_are_told_apart() -> None:
    weight, init, xs, found = leaf(64, 64, scale=0.1), leaf(8, 64), leaf(20, 64), list[Fidelity]()

    def step(u: Any, x: Any) -> Any:
        return torch.tanh(u @ weight + x), u.sum()

    for run in (
        lambda **o: scan(step, init, xs, segment=3, **o),
        lambda **o: adjoint(step, init, xs, params=[weight], **o),
    ):
        carry, ys = run(codec=unspool.Bound(abs=1e-4), check=5, fidelity=found.append)
        (carry.sum() + ys.sum()).backward()
        assert set(found[-1].arrays) == {"init[0]", "params[0]", "xs[0]"}
        assert 0 < found[-1].estimate < 0.05


def test_what_was_computed_before_the_loop_is_still_there_for_autograd() -> None:
    speed, found = leaf(8), list[Fidelity]()
    square = speed**2

    def gradient(**options: Any) -> torch.Tensor:
        carry, _ = scan(lambda u, x: (u * square + 0.1, None), torch.ones(8), length=9, **options)
        return torch.autograd.grad(carry.sum(), speed, retain_graph=True)[0]

    checked = gradient(segment=2, check=2, codec="lossless", fidelity=found.append)
    assert torch.equal(checked, gradient()) and found[0].worst == 0


def test_a_graph_that_is_gone_back_through_again_is_checked_once() -> None:
    weight, found = leaf(3), list[Fidelity]()
    options = {"segment": 2, "check": 2, "fidelity": found.append}
    carry, _ = scan(lambda u, x: (u * weight, None), leaf(3), length=9, **options)
    (first,) = torch.autograd.grad(carry.sum(), weight, create_graph=True)
    torch.autograd.grad(first.sum(), weight, retain_graph=True)
    carry.sum().backward()
    assert len(found) == 1


def test_a_loop_that_fits_has_nothing_to_check() -> None:
    found: list[Fidelity] = []
    scan(lambda u, x: (u.sin(), None), leaf(3), length=5, check=4, fidelity=found.append)
    assert found == [Fidelity((), 0, {})] and found[0].estimate == 0


def test_a_loop_without_gradients_is_as_it_was() -> None:
    given, options = (lambda u, x: (u.sin(), u), torch.ones(3), None, 9), {"segment": 2, "check": 2}
    for one, other in zip(scan(*given, **options), plain(*given), strict=True):
        assert not one.requires_grad and torch.equal(one, other)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"check": -1}, "check=-1"),
        ({"check": "all"}, "check='all'"),
        ({"fidelity": print}, "how many states"),
        ({"check": 2, "fidelity": 3}, "is not a function"),
    ],
)
@pytest.mark.parametrize("run", RUNS)
def test_arguments_that_make_no_sense_are_named(run: Run, options: Any, text: str) -> None:
    wave = Wave()
    with pytest.raises(OptionError, match=text):
        run(wave, wave.step, wave.start, length=STEPS, **options)


def test_what_cannot_be_checked_is_refused() -> None:
    init = leaf(3)
    with pytest.raises(OptionError, match="nobody knows how long it is"):
        scan(lambda u, x: (u.sin(), None), init, length=9, until=lambda u: False, check=2)
    with pytest.raises(OptionError, match="does not know how many"):
        schedule = OnlineRevolve(3)
        adjoint(lambda u, x: (u.sin(), None), init, length=9, params=[], schedule=schedule, check=2)
    sparse = torch.tensor([0.0, 1, 0]).to_sparse().requires_grad_()
    with pytest.raises(ArrayError, match="needs a gradient and is not saved"):
        scan(lambda u, x: ((u[0].sin(), u[1]), None), (init, sparse), length=9, segment=2, check=2)
