"""Revolve against two independent implementations of the same paper, both from PyPI.

pyrevolve carries the authors' own program: its order of actions is ours. checkpoint_schedules may
split a chain at another of the optimal places: its totals are ours. It counts the step that records
each reversal as a forward step too, which is one more for every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from unspool.schedules import Discard, End, Forward, Restore, Reverse, Revolve, Save

pytestmark = pytest.mark.peer

# checkpoint_schedules takes a fifth of a second for 200 steps, and minutes for 3,000.
SIZES = [(steps, slots) for steps in (*range(1, 31), 57, 100) for slots in (1, 2, 3, 5, 8, 40)]
LONG = [(300, 6), (1000, 7), (3001, 30), (5000, 2), (20_000, 100)]

Step = tuple[str, int]


def ours(steps: int, slots: int) -> Iterator[Step]:
    """Our actions, as the authors' program would call them: copies are never discarded there."""
    turned = False
    for action in Revolve(steps, slots):
        match action:
            case Forward(stop=step):
                yield "advance", step
            case Save(step=step):
                yield "takeshot", step
            case Restore(step=step):
                yield "restore", step
            case Reverse(step=step):
                yield "youturn" if turned else "firstrun", step
                turned = True
            case Discard():
                pass
            case End():
                yield "terminate", 0


def authors(steps: int, slots: int) -> Iterator[Step]:
    """The actions of the authors' program."""
    from pyrevolve.crevolve import CRevolve

    program = CRevolve(slots, steps)
    last = ""
    while last != "terminate":
        last = program.revolve().name
        assert last != "error"
        yield last, program.capo


@pytest.mark.parametrize("steps, slots", SIZES + LONG)
def test_the_order_of_actions_is_that_of_the_authors(steps: int, slots: int) -> None:
    assert list(ours(steps, slots)) == list(authors(steps, slots))


@pytest.mark.parametrize("steps, slots", SIZES + LONG)
def test_as_many_advances_as_the_authors_say(steps: int, slots: int) -> None:
    from pyrevolve.crevolve import numforw

    # It has no answer for one step.
    expected = numforw(steps, slots) if steps > 1 else 0
    assert Revolve(steps, slots).counts().advances == expected


@pytest.mark.parametrize("steps, slots", SIZES)
def test_the_totals_are_those_of_checkpoint_schedules(steps: int, slots: int) -> None:
    import checkpoint_schedules as peer

    counts = Revolve(steps, slots).counts()
    totals: Counter[str] = Counter()
    for action in peer.Revolve(steps, slots):
        totals[type(action).__name__] += 1
        if isinstance(action, peer.Forward):
            totals["advances"] += action.n1 - action.n0
            totals["saves"] += action.write_ics
    assert counts.advances + steps == totals["advances"]
    assert counts.reverses == totals["Reverse"]
    assert counts.restores == totals["Copy"] + totals["Move"]
    assert counts.saves <= totals["saves"]
