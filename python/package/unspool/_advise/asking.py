"""From the arguments of `unspool.advise` to a problem: what is not given is measured here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unspool._advise.choosing import choices_of
from unspool._advise.outcome import Advice
from unspool._advise.places import directory_of, measure
from unspool._advise.problem import Place, Power, Prices, Problem, number
from unspool._advise.trying import codings, copy_rate, is_on_gpu, sample_of
from unspool._advise.wear import endurance_of
from unspool._plan.sizes import bytes_of
from unspool._unspool import automatic_rule, duration_in_seconds
from unspool.errors import OptionError

__all__ = ["Asked", "seconds_of"]

#: Of a probe of a directory: bytes, and seconds in each direction.
MOST, LIMIT = "256MiB", 3.0


def seconds_of(name: str, value: Any, least: float = 0.0) -> float:
    """A duration: a text such as `"1h30min"`, or seconds.

    Raises:
        OptionError: it is none.
    """
    if not isinstance(value, str):
        return number(name, value, least)
    try:
        seconds = duration_in_seconds(value)
    except ValueError as why:
        raise OptionError(f"{name}: {why}.") from None
    return number(name, seconds, least)


@dataclass(slots=True)
class Asked:
    """The arguments of `unspool.advise`, as they were given."""

    checkpoint: Any
    disk: Any
    remote: Any
    ranks: int
    mtbf: float | str | None
    rank_mtbf: float | str | None
    healed: float
    work: float | str
    blocking: bool
    blocked: float | str | None
    restart: float | str
    codecs: Any
    increments: float | None
    on_gpu: bool | None
    writers: int
    endurance: int | str | None
    power: Power | None
    prices: Prices | None
    notes: list[str] = field(default_factory=list)

    def advice(self) -> Advice:
        """The advice.

        Raises:
            OptionError: an argument makes no sense, or nothing works.
        """
        problem = self.problem()
        choices, left_out = choices_of(problem)
        if not choices:
            raise OptionError(f"No way of keeping checkpoints works: {left_out[0].reason}")
        return Advice(problem, choices, left_out, tuple(self.notes))

    def problem(self) -> Problem:
        """Everything as figures. What costs no time is checked before anything is measured."""
        ranks, writers = _count("ranks", self.ranks), _count("writers", self.writers)
        mtbf, source = self._mtbf(ranks)
        arrays = sample_of(self.checkpoint)
        count = sum(one.nbytes for one in arrays.values()) if arrays else self._bytes()
        on_gpu = is_on_gpu(arrays or {}) if self.on_gpu is None else bool(self.on_gpu)
        share = number("healed", self.healed, 0.0, 1.0)
        work, restart = seconds_of("work", self.work, 1e-3), seconds_of("restart", self.restart)
        increments = self.increments
        if increments is not None:
            increments = number("increments", increments, 1e-6, 1.0)
        _check_kind("power", self.power, Power)
        _check_kind("prices", self.prices, Prices)
        for name, place in (("disk", self.disk), ("remote", self.remote)):
            _check_place(name, place)
        copy = self._copy(count, on_gpu)
        codecs = tuple(codings(self._codecs(arrays), arrays, on_gpu))
        disk = _place(self.disk, writers)
        remote = None if self.remote is None else _place(self.remote, writers)
        return Problem(
            checkpoint_bytes=count,
            ranks=ranks,
            mtbf=mtbf,
            mtbf_source=source,
            disk=disk,
            remote=remote,
            healed=share,
            work=work,
            blocking=bool(self.blocking),
            copy=copy,
            restart=restart,
            codecs=codecs,
            increments=increments,
            on_gpu=on_gpu,
            writers=writers,
            endurance=self._endurance(disk),
            power=self.power,
            prices=self.prices,
        )

    def _bytes(self) -> int:
        return bytes_of("checkpoint", self.checkpoint)

    def _mtbf(self, ranks: int) -> tuple[float, str]:
        if self.mtbf is not None and self.rank_mtbf is not None:
            raise OptionError("mtbf= is that of the job and rank_mtbf= that of one rank: give one.")
        if self.mtbf is not None:
            return seconds_of("mtbf", self.mtbf, 1e-3), "given"
        if self.rank_mtbf is not None:
            one = seconds_of("rank_mtbf", self.rank_mtbf, 1e-3)
            return one / ranks, f"given for one of {ranks:,} ranks"
        return automatic_rule(ranks)[0], "assumed: five years a rank, at most a day a job"

    def _codecs(self, arrays: Any) -> list[Any]:
        if self.codecs is None:
            if arrays is None:
                self.notes.append(
                    "codecs were not tried: give arrays in place of a size, or codecs= with their "
                    "figures"
                )
            return [] if arrays is None else ["lossless"]
        if isinstance(self.codecs, str):
            return [self.codecs]
        return list(self.codecs) if hasattr(self.codecs, "__iter__") else [self.codecs]

    def _copy(self, count: int, on_gpu: bool) -> float:
        """Bytes per second at which a save takes the arrays away."""
        if self.blocked is None:
            return copy_rate(on_gpu) if not self.blocking else 8e9
        seconds = seconds_of("blocked", self.blocked)
        return count / seconds if seconds else float("inf")

    def _endurance(self, disk: Place) -> float | None:
        if self.endurance != "auto":
            return None if self.endurance is None else float(bytes_of("endurance", self.endurance))
        if disk.path is None:
            raise OptionError('endurance="auto" asks the drive of a directory: name one as disk=.')
        found, why = endurance_of(disk.path)
        if found is None:
            self.notes.append(f'endurance: {why}; give it, such as endurance="600TB"')
        return found


def _check_place(name: str, given: Any) -> None:
    """Before anything is measured."""
    if given is None and name == "disk":
        raise OptionError("disk=: name a directory, or give its speeds as Place(write, read).")
    if given is not None and not isinstance(given, Place):
        directory_of(given)


def _place(given: Any, writers: int) -> Place:
    return given if isinstance(given, Place) else measure(given, writers, MOST, LIMIT)


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value < 2**31:
        raise OptionError(f"{name}={value!r:.40}: a whole number from 1 is needed.")
    return value


def _check_kind(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise OptionError(f"{name}={value!r:.60}: give unspool.advising.{kind.__name__}(...).")
