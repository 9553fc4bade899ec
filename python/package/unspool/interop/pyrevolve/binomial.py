"""How many copies to keep when the user does not say."""

from __future__ import annotations

from math import comb

__all__ = ["adjust"]


def adjust(steps: int) -> int:
    """The smallest number c of copies with which no step has to be computed more than c times
    again: with c copies and r repetitions at most, binomial checkpointing reverses
    `comb(c + r, c)` steps (Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26(1), 2000).

    So memory and recomputation grow alike, with the logarithm of `steps`: 4 for up to 70 steps, 6
    for 900, 7 for 3,000.
    """
    copies = 1
    while comb(2 * copies, copies) < steps:
        copies += 1
    return copies
