"""`unspool.jax.SpoolAdjoint`: gradients of diffrax against those of its own adjoint."""

from __future__ import annotations

from typing import Any

import pytest
import unspool

diffrax = pytest.importorskip("diffrax")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from unspool.jax import SpoolAdjoint  # noqa: E402

pytestmark = pytest.mark.peer

ONLY_LAST = diffrax.SaveAt(t1=True)
DENSE = diffrax.SaveAt(ts=jnp.linspace(0.0, 6.0, 11))


def oscillator(t: Any, y: Any, a: Any) -> Any:
    return jnp.stack([y[1], a * (1 - y[0] ** 2) * y[1] - y[0]])


def loss_of(adjoint: Any, saveat: Any, most: int | None) -> Any:
    def loss(y: Any, a: Any) -> Any:
        terms, control = diffrax.ODETerm(oscillator), diffrax.PIDController(rtol=1e-6, atol=1e-6)
        options = {"saveat": saveat, "adjoint": adjoint, "max_steps": most}
        found = diffrax.diffeqsolve(
            terms, diffrax.Tsit5(), 0.0, 6.0, None, y, a, stepsize_controller=control, **options
        )
        return (found.ys**2).sum()

    return loss


def gradients(adjoint: Any, saveat: Any, most: int | None) -> Any:
    taken = jax.jit(jax.grad(loss_of(adjoint, saveat, most), argnums=(0, 1)))
    return taken(jnp.array([1.0, 0.3]), jnp.float32(1.2))


@pytest.mark.parametrize("saveat", [ONLY_LAST, DENSE], ids=["last", "eleven"])
def test_gradients_are_those_of_the_recursive_adjoint(saveat: Any) -> None:
    expected = gradients(diffrax.RecursiveCheckpointAdjoint(), saveat, 4096)
    with unspool.Spool(host_memory="64MiB") as spool:
        for every, most in [(1, None), (5, 4096)]:
            found = gradients(SpoolAdjoint(spool, segment=every), saveat, most)
            for one, other in zip(found, expected, strict=True):
                assert jnp.allclose(one, other, rtol=1e-5)
        assert spool.stats().saves >= 10 and len(spool) == 0


def test_each_lane_of_vmap_takes_its_own_steps() -> None:
    lanes = jnp.array([[1.0, 0.3], [0.01, 0.0], [3.0, -2.0]]), jnp.array([1.2, 0.1, 5.0])

    def taken(adjoint: Any, most: int | None) -> Any:
        return jax.jit(jax.vmap(jax.grad(loss_of(adjoint, DENSE, most), argnums=(0, 1))))(*lanes)

    with unspool.Spool(host_memory="64MiB") as spool:
        found = taken(SpoolAdjoint(spool), None)
        expected = taken(diffrax.RecursiveCheckpointAdjoint(), 4096)
        for one, other in zip(found, expected, strict=True):
            assert jnp.allclose(one, other, rtol=1e-4)
        assert spool.stats().saves > 1 and len(spool) == 0


def test_its_own_adjoint_refuses_an_unknown_number_of_steps() -> None:
    with pytest.raises(Exception, match="max_steps=None"):
        gradients(diffrax.RecursiveCheckpointAdjoint(), ONLY_LAST, None)


def stochastic(adjoint: Any, levy_area: Any, solver: Any) -> Any:
    """Geometric Brownian motion, and its gradients."""

    def loss(y: Any, a: Any) -> Any:
        tree = diffrax.VirtualBrownianTree(
            0.0, 1.0, tol=1e-3, shape=(), key=jax.random.key(1), levy_area=levy_area
        )
        noise = diffrax.ControlTerm(lambda t, y, a: 0.3 * a * y, tree)
        terms = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, a: -a * y), noise)
        options = {"args": a, "adjoint": adjoint, "max_steps": 64}
        return (diffrax.diffeqsolve(terms, solver, 0.0, 1.0, 0.1, y, **options).ys ** 2).sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(jnp.float32(1.0), jnp.float32(1.2))


@pytest.mark.parametrize(
    ("solver", "levy_area"),
    [
        (diffrax.Heun(), diffrax.BrownianIncrement),
        (diffrax.SPaRK(), diffrax.SpaceTimeLevyArea),
    ],
    ids=["heun", "spark"],
)
def test_stochastic_equations_have_gradients(solver: Any, levy_area: Any) -> None:
    expected = stochastic(diffrax.RecursiveCheckpointAdjoint(), levy_area, solver)
    with unspool.Spool(host_memory="16MiB") as spool:
        found = stochastic(SpoolAdjoint(spool, segment=2), levy_area, solver)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert jnp.allclose(one, other, rtol=1e-4)
        assert len(spool) == 0


def test_a_progress_meter_writes_what_it_writes_for_others(capfd: Any) -> None:
    def written(adjoint: Any) -> tuple[Any, str]:
        def loss(y: Any) -> Any:
            term = diffrax.ODETerm(lambda t, y, a: -y)
            options = {"adjoint": adjoint, "progress_meter": diffrax.TextProgressMeter()}
            return diffrax.diffeqsolve(
                term, diffrax.Euler(), 0.0, 1.0, 0.1, y, max_steps=64, **options
            ).ys.sum()

        found = jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(jnp.ones(2)))
        jax.effects_barrier()
        return found, capfd.readouterr().out

    expected, lines = written(diffrax.RecursiveCheckpointAdjoint())
    with unspool.Spool(host_memory="16MiB") as spool:
        found, ours = written(SpoolAdjoint(spool))
        assert ours == lines and "100.00%" in ours
        assert jnp.allclose(found[1], expected[1], rtol=1e-5)


def test_a_solve_that_fails_leaves_nothing() -> None:
    with unspool.Spool(host_memory="16MiB") as spool:

        def loss(a: Any) -> Any:
            term = diffrax.ODETerm(lambda t, y, a: -a * y)
            options = {"args": a, "adjoint": SpoolAdjoint(spool), "max_steps": 3}
            found = diffrax.diffeqsolve(
                term, diffrax.Euler(), 0.0, 1.0, 0.1, jnp.ones(3), **options
            )
            return (found.ys**2).sum()

        taken = jax.jit(jax.grad(loss))
        for _ in range(3):
            with pytest.raises(Exception, match="maximum number of solver steps"):
                jax.block_until_ready(taken(0.7))
            assert len(spool) == 0
