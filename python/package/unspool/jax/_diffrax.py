"""`SpoolAdjoint`: differential equations of diffrax, with the states of the solver in a spool."""

from __future__ import annotations

import functools
from typing import Any

from unspool.errors import MissingLibraryError

try:
    import diffrax
    import equinox.internal as eqxi
except ImportError as missing:
    raise MissingLibraryError(
        f"unspool.jax.SpoolAdjoint needs diffrax, which cannot be imported here ({missing}): "
        "`pip install diffrax`, 0.7 or later."
    ) from missing

from ._while import while_loop

__all__ = ["SpoolAdjoint"]


class SpoolAdjoint(diffrax.AbstractAdjoint):
    """The adjoint of a `diffrax.diffeqsolve` whose steps are kept in a spool.

    Gradients are those of `diffrax.RecursiveCheckpointAdjoint`: those of the steps that the solver
    takes. No step is computed more than once more, whatever their number, and `max_steps=None` is
    possible.

    Arguments:
        spool: as in `while_loop`.
        segment: as in `while_loop`.
    """

    spool: Any = None
    segment: int = 1

    def loop(
        self,
        *,
        terms: Any,
        saveat: Any,
        init_state: Any,
        max_steps: Any,
        throw: bool,
        passed_solver_state: bool,
        passed_controller_state: bool,
        **others: Any,
    ) -> Any:
        """What diffrax calls to take the steps."""
        del throw, passed_solver_state, passed_controller_state

        def outer(cond: Any, body: Any, init: Any, *, max_steps: Any = None, **_: Any) -> Any:
            return while_loop(
                cond, body, init, spool=self.spool, max_steps=max_steps, segment=self.segment
            )

        return self._loop(
            terms=terms,
            saveat=saveat,
            init_state=init_state,
            max_steps=max_steps,
            inner_while_loop=functools.partial(eqxi.while_loop, kind="checkpointed"),
            outer_while_loop=outer,
            **others,
        )
