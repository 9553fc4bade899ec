"""`unspool.Gradient`: what it promises of a gradient, and what really is."""

from __future__ import annotations

import dataclasses
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import unspool
from checked_problems import Checked, burgers, tails, wave
from gradient_problems import acoustic, cahn_hilliard, heat, layers, lorenz, neural_ode, quantum
from unspool._gradient.search import Search, shaped
from unspool.errors import OptionError
from unspool.schedules import Auto, OnlineRevolve, Revolve, Schedule, StoreAll
from unspool.types import Access, FidelityWarning

ERRORS = {
    "in proportion": lambda bound: 30 * bound,
    "steep": lambda bound: 1e5 * bound**2,
    "slow, as in tails": lambda bound: 4 * bound**0.35,
    "with an end": lambda bound: 0.4 * bound / (bound + 1e-5),
    "a jump": lambda bound: bound if bound < 1e-4 else 5.0,
    "not finite above": lambda bound: 3 * bound if bound < 1e-3 else math.nan,
}


@pytest.mark.parametrize("target", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("name", ERRORS)
def test_a_search_ends_below_its_target_and_near_it(name: str, target: float) -> None:
    search = Search(target, 0.03 * target)
    while (bound := search.next()) is not None:
        search.add(bound, ERRORS[name](bound))
    found = search.chosen()
    assert len(search.tried) <= 10
    if ERRORS[name](1e-14) > target / 2:
        assert found is None
        return
    assert found is not None
    error = ERRORS[name](found)
    assert search.tried[found] == error <= 0.7 * target
    near = {"a jump": 1e-4, "not finite above": 1e-3}.get(name, 0.1)
    assert error > target / 10 or found > 0.5 * near


def test_a_search_without_a_good_bound_says_so_and_never_takes_one_above_a_bad_one() -> None:
    search = Search(1e-3, 1e-5)
    while (bound := search.next()) is not None:
        search.add(bound, 1.0)
    assert search.chosen() is None and min(search.tried) < 1e-13
    search = Search(1e-3, 1e-5)
    for bound, error in ((1e-6, 1e-5), (1e-5, 1.0), (1e-4, 1e-4)):
        search.add(bound, error)
    assert search.chosen() == 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_stretches_get_the_bounds_that_save_the_most_for_one_error(seed: int) -> None:
    draw = np.random.default_rng(seed)
    errors = draw.normal(size=(3, 20)) * 10.0 ** draw.uniform(-1.5, 0, size=(3, 1))
    counts = [10, 20, 30]
    products = np.maximum(errors @ errors.T, 0)
    factors = np.array(shaped((errors @ errors.T).tolist(), counts))
    assert factors @ products @ factors == pytest.approx(products.sum())
    # Whatever they cancel: the true error is no larger.
    assert np.linalg.norm(factors @ errors) ** 2 <= products.sum() * (1 + 1e-9)
    saved = counts @ np.log2(factors)
    for other in np.exp(draw.normal(scale=0.5, size=(200, 3))) * factors:
        other *= np.sqrt(products.sum() / (other @ products @ other))
        assert counts @ np.log2(other) <= saved + 1e-6


class Linear:
    """x becomes A x; the gradient by A is the sum of the adjoint times the state of each step."""

    def __init__(self, seed: int, steps: int = 40, size: int = 24) -> None:
        draw = np.random.default_rng(seed)
        self.matrix = np.linalg.qr(draw.normal(size=(size, size)))[0]
        self.steps, self.size, self.begun = steps, size, draw.normal(size=(size, 8))
        self.seed, self.calls = draw.normal(size=(size, 8)), 0
        self.held = {"gradient": np.zeros((size, size)), "after": np.zeros((size, 8))}
        # What the gradient is seen through.
        self.seen = np.ones((size, size))

    def forward(self, x: Any, start: int, stop: int) -> None:
        self.calls += stop - start
        for _ in range(start, stop):
            x[...] = self.matrix @ x

    def at_end(self, x: Any) -> None:
        self.held["gradient"][...], self.held["after"][...] = 0, self.seed

    def reverse(self, x: Any, step: int) -> None:
        self.held["gradient"] += self.seen * (self.held["after"] @ x.T)
        self.held["after"][...] = self.matrix.T @ self.held["after"]

    def run(self, codec: Any, schedule: Any = None, **options: Any) -> Any:
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
            schedule = schedule or StoreAll(self.steps)
            options = {"at_end": self.at_end, "adjoint_state": self.held} | options
            given = (schedule, spool, self.forward, self.reverse, self.begun.copy())
            report = unspool.adjoint(*given, access=Access(codec=codec), **options)
            assert len(spool) == 0 and spool.stats().hints == 0
        return self.held["gradient"].copy(), report

    def exact(self) -> Any:
        """The gradient by its formula."""
        powers = [np.linalg.matrix_power(self.matrix, n) for n in range(self.steps)]
        pairs = zip(reversed(powers), powers, strict=True)
        return self.seen * sum(
            (late.T @ self.seed) @ (early @ self.begun).T for late, early in pairs
        )


def driven(one: Any, schedule: Any, codec: Any) -> tuple[Any, Any]:
    """The gradient of a problem and the report."""
    with unspool.Spool(host_memory="64MiB", device="cpu") as spool:
        options = {
            "at_end": one.at_end,
            "adjoint_state": one.adjoint_state,
            "access": Access(codec=codec),
        }
        given = (schedule(one.steps), spool, one.forward, one.reverse, one.state)
        report = unspool.adjoint(*given, **options)
        assert len(spool) == 0
    return one.adjoint_state["gradient"].copy(), report


def off(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("component", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_on_random_linear_loops_the_estimate_is_the_difference_from_the_formula(
    seed: int, component: bool
) -> None:
    loop, target = Linear(seed), 10.0 ** -(2 + seed)
    order = unspool.Gradient(target, of="gradient", component=component)
    first, report = loop.run(order)
    assert off(first, loop.exact()) < 1e-12 and report.fidelity.estimate == 0
    found, report = loop.run(order)
    apart, exact = abs(found - loop.exact()), abs(loop.exact())
    true = apart.max() / exact.max() if component else off(found, loop.exact())
    assert report.fidelity.estimate == pytest.approx(true, rel=0.02)
    assert target / 10 < true <= target
    assert report.fidelity.trials == 0 and report.fidelity.stored_bytes > 0
    assert report.fidelity.stored_bytes < report.fidelity.raw_bytes / 2
    # An adjoint that begins with ten times as much has ten times the gradient and its error.
    loop.seed *= 10
    found, report = loop.run(order)
    assert off(found, loop.exact()) <= target
    assert report.fidelity.estimate == pytest.approx(true, rel=0.02)


SMALL = {
    "wave": lambda: wave(100, 200),
    "Burgers": lambda: burgers(100, 100),
    "tails": lambda: tails(100, 200),
    "acoustic": lambda: acoustic((32, 32), 60, True),
    "Cahn-Hilliard": lambda: cahn_hilliard(24, 60),
    "quantum": lambda: quantum(16, 8, 60),
    "neural ODE": lambda: neural_ode(16, 32, 60),
    "Lorenz": lambda: lorenz(150, 100),
    "layers": lambda: layers(16, 32, 20),
    "heat": lambda: heat(32, 100),
}


@pytest.mark.parametrize(
    ("target", "schedule"), [(1e-4, StoreAll), (1e-2, lambda steps: Revolve(steps, 8))]
)
@pytest.mark.parametrize("name", SMALL)
def test_the_true_error_is_below_the_target_and_near_it(
    name: str, target: float, schedule: Any
) -> None:
    def run(codec: Any) -> tuple[Any, Any]:
        return driven(SMALL[name](), schedule, codec)

    order = unspool.Gradient(target, of="gradient")
    exact, _ = run("lossless")
    first, report = run(order)
    assert (first == exact).all(), "the first gradient is that of lossless states"
    assert report.fidelity.bounds and report.fidelity.trials >= 2
    second, report = run(order)
    assert target / 10 < off(second, exact) <= target
    assert report.fidelity.target == target and report.fidelity.estimate <= target
    assert f"gradient to {target:g}: off by about" in str(report)


def test_another_schedule_like_it_is_the_same_loop() -> None:
    class Every(Schedule):
        steps, slots = 40, 40

        def actions(self) -> Any:
            return StoreAll(40).actions()

    loop, order = Linear(0), unspool.Gradient(1e-3)
    for schedule in (Every, lambda: list(StoreAll(40).actions())):
        trials = [loop.run(order, schedule())[1].fidelity.trials for _ in range(2)]
        assert trials[0] > 0 == trials[1]


def test_what_was_learned_stays_with_the_object_and_belongs_to_one_loop() -> None:
    loop, order = Linear(0), unspool.Gradient(1e-3)
    assert "nothing measured yet" in repr(order)
    _, report = loop.run(order)
    assert "range bounds of" in repr(order) and report.recomputed_steps == 0
    assert "trials" in str(report.fidelity) and "that of lossless states" in str(report.fidelity)
    again = pickle.loads(pickle.dumps(order))
    loop.calls = 0
    _, report = loop.run(again)
    assert loop.calls == loop.steps, "what was learned is used, and nothing is run twice"
    assert report.to_dict()["fidelity"]["target"] == 1e-3
    for other, schedule in ((Linear(0, steps=30), None), (loop, Revolve(40, 5))):
        _, report = other.run(again, schedule)
        assert report.fidelity.trials > 0


def test_a_gradient_that_lives_in_tails_gets_bounds_relative_to_each_value() -> None:
    order = unspool.Gradient(1e-6, of="gradient")
    exact, _ = driven(tails(), StoreAll, "lossless")
    driven(tails(), StoreAll, order)
    assert order.learned is not None and order.learned.bounds[0][1].kind == "pointwise"
    found, _ = driven(tails(), StoreAll, order)
    assert 1e-7 < off(found, exact) <= 1e-6


def test_stretches_of_time_differ_where_that_saves_bytes() -> None:
    order = unspool.Gradient(1e-3, of="gradient")
    exact, _ = driven(fading(), StoreAll, "lossless")
    driven(fading(), StoreAll, order)
    assert order.learned is not None
    first, *_, last = [bound.value for _, bound in order.learned.bounds]
    assert last < first / 4, "the first states hardly count"
    found, _ = driven(fading(), StoreAll, order)
    assert 1e-4 < off(found, exact) <= 1e-3


def fading() -> Any:
    """A loop of which only the last states have a part in the gradient."""
    loop = Linear(0, steps=64)
    loop.matrix *= 0.9

    def at_end(x: Any) -> None:
        loop.at_end(x)

    def reverse(x: Any, step: int) -> None:
        loop.held["gradient"] += 0.9 ** (64 - step) * (loop.held["after"] @ x.T)
        loop.held["after"][...] = loop.matrix.T @ loop.held["after"]

    return Checked(64, loop.begun, loop.forward, reverse, at_end, loop.held)


def test_after_fifty_adjoints_bounds_are_measured_again() -> None:
    loop, order = Linear(1, steps=10), unspool.Gradient(1e-3)
    trials = [loop.run(order)[1].fidelity.trials for _ in range(52)]
    assert [n for n, each in enumerate(trials) if each] == [0, 50]
    assert trials[50] == 1, "the bounds that hold are tried first"


def cancelling(loop: Linear) -> None:
    """From now on only what is small in the gradient is seen."""
    exact = abs(loop.exact())
    loop.seen = (exact <= np.quantile(exact, 0.05)).astype(float)


def test_a_gradient_that_gets_small_beside_its_error_is_warned_of_and_measured_again() -> None:
    loop, order = Linear(2), unspool.Gradient(1e-3, of="gradient")
    loop.run(order)
    cancelling(loop)
    with pytest.warns(FidelityWarning, match=r"is off by about .*0\.001 was asked for"):
        _, report = loop.run(order)
    assert report.fidelity.estimate > 1e-3
    _, report = loop.run(order)
    assert report.fidelity.trials > 0
    found, report = loop.run(order)
    assert off(found, loop.exact()) <= 1e-3


def test_strict_computes_such_a_gradient_again() -> None:
    loop, order = Linear(2), unspool.Gradient(1e-3, of="gradient", strict=True)
    loop.run(order)
    cancelling(loop)
    found, report = loop.run(order)
    assert off(found, loop.exact()) < 1e-12 and report.fidelity.trials > 0


def test_a_gradient_that_sums_several_calls_is_accurate_in_each() -> None:
    loop, order = Linear(3), unspool.Gradient(1e-3, of="gradient")

    def at_end(x: Any) -> None:
        loop.held["after"][...] = loop.seed

    loop.run(order, at_end=at_end)
    learned = order.learned
    loop.held["gradient"][...] = 1e3 * loop.exact()
    _, report = loop.run(order, at_end=at_end)
    assert report.fidelity.estimate <= 1e-3
    again = unspool.Gradient(1e-3, of="gradient")
    loop.held["gradient"][...] = 1e3 * loop.exact()
    loop.run(again, at_end=at_end)
    assert again.learned.bounds[0][1].value == pytest.approx(learned.bounds[0][1].value, rel=0.01)


def refused(loop: Any, match: str, **options: Any) -> unspool.Gradient:
    """The order of a loop for which no bound is chosen, after two gradients of lossless states."""
    order = unspool.Gradient(1e-3, **options)
    for n in range(2):
        again = n > 0 and order.learned is not None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", FidelityWarning)
            _, report = loop.run(order)
        assert all(one.filename == __file__ for one in said), "they point at the call"
        texts = [str(one.message) for one in said if one.category is FidelityWarning]
        if again:
            assert not texts, "it is said once"
        else:
            (text,) = texts
            assert match in text and "stay lossless" in text
        assert report.fidelity.estimate == 0 and report.fidelity.bounds == ()
    return order


def test_where_nothing_can_be_promised_states_stay_lossless() -> None:
    zero = Linear(0)
    zero.seen[...] = 0
    assert refused(zero, "the gradient is zero", of="gradient").learned is None
    broken = Linear(0)
    broken.seed[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        assert refused(broken, "not finite").learned is None

    class Shaken(Linear):
        def forward(self, x: Any, start: int, stop: int) -> None:
            super().forward(x, start, stop)
            x += 0.1 * np.random.default_rng(self.calls).normal(size=x.shape)

    order = refused(Shaken(0), "do not repeat themselves", of="gradient")
    assert "lossless, the same loop" in repr(order)

    class Chaotic:
        def run(self, order: Any) -> Any:
            return driven(lorenz(5000, 10), StoreAll, order)

    refused(Chaotic(), "as in chaotic ones")


def test_an_array_that_is_always_zero_is_named() -> None:
    class Two(Linear):
        def reverse(self, x: Any, step: int) -> None:
            super().reverse(x, step)
            self.held["rest"][...] = x - x.round(3) if step else 0.0

    loop = Two(0)
    loop.held["rest"] = np.zeros((24, 8))
    _, report = loop.run(unspool.Gradient(1e-3))
    assert report.fidelity.bounds, "it is zero with bounds too"


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in (0, 1, -1e-3, "1e-3", True, math.nan):
        with pytest.raises(OptionError, match="write a relative error"):
            unspool.Gradient(wrong)
    loop, order = Linear(0), unspool.Gradient(1e-3)
    with pytest.raises(OptionError, match="give `adjoint_state`"):
        loop.run(order, adjoint_state=None)
    with pytest.raises(OptionError, match="not together with `check`"):
        loop.run(order, check=4)
    with pytest.raises(OptionError, match="not together with `resume`"):
        loop.run(order, resume="x")
    with pytest.raises(OptionError, match="another schedule each time"):
        loop.run(order, Auto(40))
    with pytest.raises(
        OptionError, match="there is no gradient 'nothing', but 'gradient', 'after'"
    ):
        loop.run(unspool.Gradient(1e-3, of="nothing"))
    with pytest.raises(OptionError, match="codec"):
        unspool.Spool(host_memory="1MiB", device="cpu", codec=order)
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        history = unspool.IncrementalSpool(spool, unspool.Bound(abs=1e-3))
        given = (StoreAll(40), history, loop.forward, loop.reverse, loop.begun)
        with pytest.raises(OptionError, match="has absolute ones"):
            unspool.adjoint(*given, adjoint_state=loop.held, access=Access(codec=order))


def test_integers_come_back_as_they_are_and_a_schedule_may_not_know_its_end() -> None:
    loop, order = Linear(0), unspool.Gradient(1e-3, of="gradient")
    count, seen = np.zeros(4, np.int64), []

    def forward(state: Any, start: int, stop: int) -> Any:
        stop = min(stop, loop.steps)
        loop.forward(state["x"], start, stop)
        state["count"] += stop - start
        return unspool.schedules.Stop(stop) if stop == loop.steps else None

    def reverse(state: Any, step: int) -> None:
        seen.append(int(state["count"][0]) == step)
        loop.reverse(state["x"], step)

    for _ in range(2):
        state = {"x": loop.begun.copy(), "count": count.copy()}
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
            schedule, options = OnlineRevolve(8), {"at_end": loop.at_end}
            options |= {"adjoint_state": loop.held, "access": Access(codec=order)}
            report = unspool.adjoint(schedule, spool, forward, reverse, state, **options)
    assert all(seen) and report.fidelity.trials == 0
    assert 1e-4 < off(loop.held["gradient"], loop.exact()) <= 1e-3


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries(name: str) -> None:
    library = pytest.importorskip(name)
    replaced = name == "jax.numpy"
    draw = np.random.default_rng(7)
    matrix, begun, seed = (
        library.asarray(each.astype("float32"))
        for each in (np.linalg.qr(draw.normal(size=(24, 24)))[0], *draw.normal(size=(2, 24, 8)))
    )
    held = {"gradient": 0 * matrix, "after": 0 * seed}

    def put(target: Any, value: Any) -> Any:
        if replaced:
            return value
        target[...] = value
        return target

    def forward(x: Any, start: int, stop: int) -> Any:
        for _ in range(start, stop):
            x = put(x, matrix @ x)
        return x if replaced else None

    def at_end(x: Any) -> None:
        held["gradient"] = put(held["gradient"], 0 * matrix)
        held["after"] = put(held["after"], seed)

    def reverse(x: Any, step: int) -> None:
        held["gradient"] = put(held["gradient"], held["gradient"] + held["after"] @ x.T)
        held["after"] = put(held["after"], matrix.T @ held["after"])

    order, found = unspool.Gradient(1e-3, of="gradient"), []
    for codec in ("lossless", order, order):
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
            state = begun if replaced else begun.clone()
            options = {"at_end": at_end, "adjoint_state": held, "access": Access(codec=codec)}
            report = unspool.adjoint(StoreAll(30), spool, forward, reverse, state, **options)
        found.append(np.array(held["gradient"].tolist()))
    assert (found[0] == found[1]).all() and report.fidelity.trials == 0
    assert 1e-4 < off(found[2], found[0]) <= 1e-3


def test_loops_of_jax_refuse_it() -> None:
    jax = pytest.importorskip("jax")
    order, step = unspool.Gradient(1e-3), lambda carry, x: (carry * 2, None)
    with pytest.raises(OptionError, match=r"jax.scan\(codec=.*its bounds are chosen outside"):
        unspool.jax.scan(step, jax.numpy.ones(3), length=4, codec=order)
    with pytest.raises(OptionError, match=r"jax.while_loop\(codec=.*its bounds are chosen outside"):
        unspool.jax.while_loop(
            lambda x: x.sum() < 9, lambda x: x * 2, jax.numpy.ones(3), codec=order
        )


def test_a_part_of_the_state_is_all_that_reverse_reads() -> None:
    loop, order = Linear(0), unspool.Gradient(1e-3, of="gradient")

    def forward(state: Any, start: int, stop: int) -> None:
        loop.forward(state["x"], start, stop)
        state["rest"] += 1

    for _ in range(2):
        state = {"x": loop.begun.copy(), "rest": np.zeros(1000)}
        with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
            options = {"at_end": loop.at_end, "adjoint_state": loop.held}
            options |= {"access": Access(codec=order), "for_reverse": lambda state: state["x"]}
            given = (StoreAll(40), spool, forward, loop.reverse, state)
            report = unspool.adjoint(*given, **options)
    assert report.fidelity.raw_bytes < 2 * 40 * loop.begun.nbytes
    assert 1e-4 < off(loop.held["gradient"], loop.exact()) <= 1e-3


def test_a_codec_takes_the_place_of_that_of_the_spool() -> None:
    loop, found = Linear(0), []
    for codec in (None, unspool.Bound(range=1e-3), {"*": unspool.Bound(range=1e-3)}, "lossless"):
        found.append(off(loop.run(codec, Revolve(40, 5))[0], loop.exact()))
    assert found[0] < 1e-12 and found[3] < 1e-12
    assert found[1] == found[2] > 1e-5


def test_bounds_tighten_before_the_target_is_missed_and_loosen_again() -> None:
    loop, order = Linear(2, steps=10), unspool.Gradient(1e-3, of="gradient")
    loop.run(order)
    assert order.learned is not None
    (coarse, errors), (fine, fewer) = order.learned.levels
    assert fine[0][1].value == pytest.approx(coarse[0][1].value / 3)
    assert fewer["gradient"] == pytest.approx(errors["gradient"] / 3, rel=0.3)
    whole, seen = loop.exact(), loop.seen
    # The gradient gets so much smaller that its error is 0.8 of the target.
    size = errors["gradient"] / 0.8e-3
    small = abs(whole) < np.quantile(abs(whole), 0.5)
    part = np.linalg.norm(whole[small]), np.linalg.norm(whole[~small])
    loop.seen = np.where(small, 1.0, math.sqrt(max(size**2 - part[0] ** 2, 0)) / part[1])
    _, report = loop.run(order)
    assert 0.7e-3 < report.fidelity.estimate <= 1e-3 and order.learned.bounds == fine
    found, report = loop.run(order)
    assert report.fidelity.trials == 0 and off(found, loop.exact()) < 0.5e-3
    loop.seen = 2 * seen
    loop.run(order)
    assert order.learned.bounds == coarse, "the gradient is larger than it was"


def test_without_smaller_bounds_that_do_it_measures_again_before_the_target_is_missed() -> None:
    loop, order = Linear(2, steps=10), unspool.Gradient(1e-3, of="gradient")
    loop.run(order)
    assert order.learned is not None
    order.learned = dataclasses.replace(
        order.learned, levels=tuple((one, {"gradient": 1e9}) for one, _ in order.learned.levels)
    )
    order.learned = dataclasses.replace(
        order.learned, errors={"gradient": 0.8e-3 * float(np.linalg.norm(loop.exact()))}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, report = loop.run(order)
        assert report.fidelity.estimate == pytest.approx(0.8e-3, rel=0.01)
        _, report = loop.run(order)
    assert report.fidelity.trials == 2, "one for the bound that follows, one for a smaller one"


def test_errors_and_bytes_by_time() -> None:
    order = unspool.Gradient(1e-3, of="gradient")
    driven(fading(), StoreAll, order)
    _, report = driven(fading(), StoreAll, order)
    found = report.fidelity
    assert [one.first for one in found.times] == [0, 16, 32, 48]
    assert sum(one.stored_bytes for one in found.times) == found.stored_bytes
    assert sum(one.raw_bytes for one in found.times) == found.raw_bytes
    assert [one.bound for one in found.times] == [bound for _, bound in found.bounds]
    # Errors of independent states: each stretch has the same part of them.
    parts = [one.error for one in found.times]
    assert math.hypot(*parts) == pytest.approx(found.estimate, rel=0.2)
    assert max(parts) < 1.2 * min(parts)
    lines = found.picture().splitlines()
    assert len(lines) == 5 and all("#####" in line for line in lines[1:])
    assert found.picture() in str(report)
    _, report = Linear(0, steps=10).run(unspool.Gradient(1e-3))
    assert report.fidelity.picture() == "" and report.fidelity.times == ()
