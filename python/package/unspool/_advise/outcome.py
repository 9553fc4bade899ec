"""What `unspool.advise` returns."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from unspool._advise.choosing import Choice, LeftOut
from unspool._advise.problem import Problem
from unspool.stats import plain

__all__ = ["Advice"]

#: A way that loses so much more of the time is as good, if it is simpler.
AS_GOOD = 0.001


@dataclass(frozen=True, slots=True)
class Advice:
    """Ways of keeping the checkpoints of a job, the most efficient first; `print` it for a table.

    Attributes:
        problem: what was given and measured.
        choices: what was compared, at least one.
        left_out: what cannot work, and why.
        notes: what was not measured, and why.
    """

    problem: Problem
    choices: tuple[Choice, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Choice:
        """The one to take: of those that `Checkpointer` can do, the most efficient one, or one
        without a codec or without a loss that is as good to a thousandth."""
        able = [one for one in self.choices if one.line is not None]
        if not able:
            return self.choices[0]
        least = able[0].efficiency - AS_GOOD
        near = [one for one in able if one.efficiency >= least]
        order = {"none": 0, "lossless": 1}
        return min(near, key=lambda one: (order.get(one.name, 2), -one.efficiency))

    @property
    def sentence(self) -> str:
        """What to do, why, and the line to copy."""
        from unspool._advise.text import sentence

        return sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`; None for
        what is not finite."""
        problem = asdict(self.problem)
        problem["codecs"] = [
            {**one, "codec": None if one["codec"] is None else str(given.codec)}
            for one, given in zip(problem["codecs"], self.problem.codecs, strict=True)
        ]
        told: dict[str, Any] = plain(
            {
                "problem": problem,
                "best": self.best.line,
                "sentence": self.sentence,
                "choices": [asdict(one) for one in self.choices],
                "left_out": [asdict(one) for one in self.left_out],
                "notes": self.notes,
            }
        )
        return told

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture: efficiency against the time between failures and against the bandwidth
        of the disk, for every choice, with this machine marked.

        Arguments:
            path: PNG or SVG, by its ending.

        Raises:
            MissingLibraryError: Matplotlib is not installed.
            OSError: the file cannot be written.
        """
        from unspool._advise.figure import draw

        draw(self.problem, path)

    def __str__(self) -> str:
        from unspool._advise.text import report

        return report(self)
