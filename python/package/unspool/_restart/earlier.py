"""Checkpoints in the folder of a run that another number of ranks has saved.

They stay until enough of this run count, and this run goes on from them. The extension opens no
folder that has them: a run that finds some has its own folders in one beside, and links to them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .._types import Disk
from .._unspool import Spool
from ..errors import OptionError, StorageError, WaitTimeoutError
from .core import Outcome, RestartCore
from .options import Keep
from .parts import Part, parts_in
from .ranks import Ranks

__all__ = ["Earlier"]


class _Saved(NamedTuple):
    """A checkpoint of another number of ranks, all of which have their part."""

    step: int
    ranks: int
    run: str


class Earlier:
    """Checkpoints of other numbers of ranks, as all ranks of this run have found them.

    Attributes:
        home: the folder that is given to the extension.

    Raises:
        StorageError: another process has one of them open, on this rank or another one.
        WaitTimeoutError: another rank did not answer.
    """

    def __init__(self, path: Path, ranks: Ranks, timeout: float) -> None:
        self._path, self._ranks, self._timeout = path, ranks, timeout
        self._held: dict[Path, Spool] = {}
        self._gone_on: tuple[int, bool] | None = None
        self._saved: list[_Saved] = []
        self._lacking: list[_Saved] = []
        try:
            self._saved = self._agreed()
            self.home = self._home()
        except BaseException:
            self.close()
            raise

    @property
    def steps(self) -> list[int]:
        """The steps, in ascending order."""
        return sorted(one.step for one in self._saved)

    def newest(self, unreadable: Iterable[int] = ()) -> int | None:
        """The newest step that can be restored."""
        return max((step for step in self.steps if step not in set(unreadable)), default=None)

    def parts(self, step: int) -> list[Part]:
        """The parts of all ranks that saved a step.

        Raises:
            UnknownVersionError: not all of them are there.
        """
        return parts_in(self._path, step)

    def agree(self, step: int, outcome: tuple[Outcome, str]) -> list[str]:
        """What became of restoring a step, on all ranks; why it did not on some.

        Raises:
            OptionError: a rank refused it.
            WaitTimeoutError: another rank did not answer.
        """
        reasons = []
        for rank, (became, why) in enumerate(self._exchanged(list(outcome))):
            text = f"Rank {rank} could not restore step {step}: {why}"
            if became == "refused":
                raise OptionError(text)
            if became == "unreadable":
                reasons.append(text)
        return reasons

    def go_on(self, step: int, *, loaded: bool = False) -> None:
        """The run goes on from a step, or may do so where it was `loaded`."""
        self._gone_on = step, loaded

    def check(self, step: int) -> None:
        """Refuses to save a step that comes neither after what the run goes on from, nor after what
        lies there.

        Raises:
            OptionError: it does not.
        """
        last = self.newest()
        if self._gone_on is None and last is not None and step <= last:
            raise OptionError(
                f"{self._path} has a checkpoint of step {last}, and step {step} does not come "
                "after it. Call `restore` first to go on from there, or load an older one to go "
                "on from that, or begin in another folder, or remove it with `unspool rm`."
            )

    def forget_after(self, step: int) -> None:
        """Deletes what is newer than what the run goes on from, as `step` is saved.

        Raises:
            StorageError.
        """
        if self._gone_on is None or not self._saved:
            return
        last, loaded = self._gone_on
        if not loaded or step <= max(self.steps):
            self._forget([one for one in self._saved if one.step > last])

    def settle(self, keep: Keep) -> None:
        """Deletes everything when enough newer checkpoints of this number of ranks count.

        Raises:
            StorageError.
        """
        others = self._saved + self._lacking
        if not others or keep.best or keep.every is not None:
            # Some of them may be those that stay.
            return
        last = max(one.step for one in others)
        newer = [
            one
            for one in RestartCore.listed(self._path)[0]
            if one["counts"] and one["ranks"] == self._ranks.size and one["step"] > last
        ]
        if len(newer) >= keep.last:
            self._forget(others)
            self._lacking = []

    def close(self) -> None:
        """Lets other processes have them."""
        held, self._held = list(self._held.values()), {}
        for spool in held:
            spool.close()

    # Opening.

    def _agreed(self) -> list[_Saved]:
        """What all ranks have found, after each has taken its share of the folders."""
        found, why = self._found()
        if self._ranks.size == 1:
            answers: list[Any] = [[found, why]]
        else:
            answers = self._exchanged([found, why])
        for rank, (_, failed) in enumerate(answers):
            if failed is not None:
                raise StorageError(f"Rank {rank} could not open its part: {failed}")
        of_ranks = [{_Saved(*one) for one in theirs} for theirs, _ in answers]
        return sorted(set.intersection(*of_ranks))

    def _found(self) -> tuple[list[_Saved], str | None]:
        """What this rank finds, and why it cannot have it."""
        if not self._are_others():
            return [], None
        try:
            rows = RestartCore.listed(self._path)[0]
            others = [one for one in rows if one["ranks"] != self._ranks.size]
            for ranks in {one["ranks"] for one in others}:
                for data in self._share(ranks):
                    self._held[data] = _opened(data)
        except StorageError as why:
            return [], str(why)
        saved = [one for one in others if one["counts"]]
        self._lacking = [_saved(one) for one in others if not one["counts"]]
        if others and len(rows) == len(others) and not saved:
            return [], (
                f"{self._path} has checkpoints of {others[0]['ranks']} ranks, of none of which all "
                "parts are there: start with as many ranks, or choose another folder."
            )
        return [_saved(one) for one in saved], None

    def _are_others(self) -> bool:
        """Whether another number of ranks has saved anything; only its folders are looked into."""
        own = f"-of-{self._ranks.size:04}"
        others = (one for one in self._path.glob("rank-*-of-*") if not one.name.endswith(own))
        return any(any(folder.glob("step-*.manifest")) for folder in others)

    def _share(self, ranks: int) -> list[Path]:
        """The folders of other ranks that this one looks after."""
        mine = range(self._ranks.rank, ranks, self._ranks.size)
        found = [self._path / _folder(rank, ranks) / "data" for rank in mine]
        return [data for data in found if data.is_dir()]

    def _home(self) -> Path:
        """The folder for this run, with a link in the one that the program named."""
        rank, size = self._ranks.rank, self._ranks.size
        beside, name = self._path / f".unspool-ranks-{size:04}", _folder(rank, size)
        own, link = beside / name, self._path / name
        if not own.is_dir() and not self._saved:
            return self._path
        beside.mkdir(mode=0o700, exist_ok=True)
        if link.is_dir() and not link.is_symlink():
            # Nobody is at work on it.
            if (link / "data").is_dir():
                _opened(link / "data").close()
            link.rename(own)
        own.mkdir(mode=0o700, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(own.relative_to(self._path))
        for folder in (beside, self._path):
            _sync(folder)
        return beside

    def _exchanged(self, mine: Any) -> list[Any]:
        """What all ranks say."""
        answers = self._ranks.all_gather(json.dumps(mine).encode(), self._timeout)
        missing = [rank for rank, answer in enumerate(answers) if answer is None]
        if missing:
            names = ", ".join(map(str, missing))
            raise WaitTimeoutError(
                f"After {self._timeout:g} s rank {names} has not answered about checkpoints of "
                "other numbers of ranks."
            )
        return [json.loads(answer) for answer in answers if answer is not None]

    def _forget(self, saved: list[_Saved]) -> None:
        """Deletes this rank's share. What is deleted counts no more before its arrays go, and an
        increment before what it builds on."""
        for one in sorted(saved, reverse=True):
            for data in self._share(one.ranks):
                rank = data.parent.name.split("-")[1]
                RestartCore.remove(self._path, int(rank), one.ranks, one.step)
        for one in sorted(saved, reverse=True):
            for data in self._share(one.ranks):
                spool = self._held[data]
                if one.step in spool or one.step in spool.lost():
                    spool.discard(one.step)
        self._saved = [one for one in self._saved if one not in saved]


def _saved(row: dict[str, Any]) -> _Saved:
    return _Saved(row["step"], row["ranks"], row["run"])


def _folder(rank: int, ranks: int) -> str:
    return f"rank-{rank:04}-of-{ranks:04}"


def _opened(data: Path) -> Spool:
    """A spool that no other process has now. What is lost in it is told by who reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return Spool(device="cpu", disk=Disk(data, durable=True))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
