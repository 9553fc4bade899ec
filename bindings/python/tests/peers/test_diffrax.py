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


def gradients(adjoint: Any, saveat: Any, most: int | None) -> Any:
    def loss(y: Any, a: Any) -> Any:
        terms, control = diffrax.ODETerm(oscillator), diffrax.PIDController(rtol=1e-6, atol=1e-6)
        options = {"saveat": saveat, "adjoint": adjoint, "max_steps": most}
        found = diffrax.diffeqsolve(
            terms, diffrax.Tsit5(), 0.0, 6.0, None, y, a, stepsize_controller=control, **options
        )
        return (found.ys**2).sum()

    taken = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return taken(jnp.array([1.0, 0.3]), jnp.float32(1.2))


@pytest.mark.parametrize("saveat", [ONLY_LAST, DENSE], ids=["last", "eleven"])
def test_gradients_are_those_of_the_recursive_adjoint(saveat: Any) -> None:
    expected = gradients(diffrax.RecursiveCheckpointAdjoint(), saveat, 4096)
    with unspool.Spool(host="64MiB") as spool:
        for every, most in [(1, None), (5, 4096)]:
            found = gradients(SpoolAdjoint(spool, every=every), saveat, most)
            for one, other in zip(found, expected, strict=True):
                assert jnp.allclose(one, other, rtol=1e-5)
        assert spool.stats().saves >= 10 and len(spool) == 0


def test_its_own_adjoint_refuses_an_unknown_number_of_steps() -> None:
    with pytest.raises(Exception, match="max_steps=None"):
        gradients(diffrax.RecursiveCheckpointAdjoint(), ONLY_LAST, None)
