"""Texts of schedules that would be longer than anyone's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unspool.errors import ScheduleError
from unspool.schedules import Action, Forward, Reverse, Revolve, Schedule, to_trace


class Far(Schedule):
    """One advance over more steps than any text has lines."""

    steps = None
    slots = 0

    def actions(self) -> Iterator[Action]:
        yield from (Forward(0, 2**63), Forward(2**63, 2**64 - 1), Reverse(2**64 - 1))


def test_a_text_with_too_many_lines_is_refused_before_it_is_written() -> None:
    # With one slot the number of lines is the square of that of the steps.
    for schedule in (Revolve(40_000, 1), [*Far()]):
        with pytest.raises(ScheduleError, match=r"would have \d+ lines"):
            to_trace(schedule)
