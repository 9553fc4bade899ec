"""`unspool.IncrementalSpool`: a history whose states are stored as differences to the next ones.

`numbers` makes whole numbers of arrays, `chain` knows which state is built on which, and `spool` is
the public object.
"""

from __future__ import annotations

from .spool import IncrementalSpool

__all__ = ["IncrementalSpool"]
