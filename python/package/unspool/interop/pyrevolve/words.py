"""What the user of a Revolver brings: operators, and an object that knows the state's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Checkpoint", "Operator"]


class Operator:
    """Something that computes over steps. Deriving from it is not required."""

    def apply(self, *, t_start: int, t_end: int) -> Any:
        """Computes over the steps `t_start` to `t_end - 1`: forward, the state before `t_start`
        becomes that before `t_end`; backward, the adjoint is taken over these steps.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method apply(t_start=, t_end=)")


class Checkpoint:
    """The arrays that make up the state. Deriving from it is not required.

    A Revolver asks for the arrays anew at every step, so that buffers may swap.
    """

    @property
    def dtype(self) -> Any:
        """The dtype of the items. Only `nbytes` reads it: arrays are kept in their own dtype."""
        raise NotImplementedError(f"{type(self).__name__} needs a property dtype")

    @property
    def size(self) -> int:
        """The number of items of one state. Only `nbytes` reads it."""
        raise NotImplementedError(f"{type(self).__name__} needs a property size")

    @property
    def nbytes(self) -> int:
        """The bytes of one state."""
        import numpy

        return int(self.size * numpy.dtype(self.dtype).itemsize)

    def get_data(self, timestep: int) -> Sequence[Any]:
        """The arrays that hold the state before step `timestep` now; they are copied from."""
        raise NotImplementedError(f"{type(self).__name__} needs a method get_data(timestep)")

    def get_data_location(self, timestep: int) -> Sequence[Any]:
        """The arrays that shall hold the state before step `timestep`; they are written into."""
        message = f"{type(self).__name__} needs a method get_data_location(timestep)"
        raise NotImplementedError(message)
