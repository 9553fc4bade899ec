"""`unspool.accumulate.Batched`: small checkpoints of a GPU, encoded together."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, SupportsIndex

from .._unspool import BatchCore, Spool
from ..errors import Error, OptionError, shown
from .watch import open_profile

__all__ = ["Batched"]


class Batched:
    """A spool in which small checkpoints of a GPU wait for each other, and one launch of their
    encoder takes them all; or as the plan of a run that was recorded says.

    It takes the place of the spool: `with Batched(Spool(..., codec="lossless"), 16) as spool`. What
    waits is handed to the spool when there are enough, when a call is about one of them, and after
    20 ms; of a plan, after 10 s. All other calls go to the spool itself, which does not know of
    what waits: use this object alone. Arrays that are not on a GPU never wait. `save(donate=True)`
    is not for what waits.

    Arguments:
        spool: an open `Spool` with a codec; it is closed with this object.
        together: what is encoded together: `16` checkpoints, `"32MiB"` of values, or both as a
            pair. Up to twice as many bytes of the GPU's memory are taken for them.
        profile: a file of what saves were like, which the first run records. Later ones plan with
            it what to keep as it is, and what to encode alone or together. A run that differs is
            told by a `PlanDroppedWarning`.

    Raises:
        OptionError: the spool cannot be used, or what is given makes no sense.
        ProfileError: the file holds something else.
        OSError: the file cannot be read, or its directory does not exist.
    """

    def __init__(
        self,
        spool: Spool,
        together: int | str | tuple[int, int | str] | None = None,
        *,
        profile: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spool, Spool):
            raise OptionError(f"Batched(spool={shown(spool)}): that is not a Spool.")
        if together is None and profile is None:
            raise OptionError("Batched: give `together`, such as 16, or `profile`, or both.")
        if profile is not None and spool.codec is None:
            raise OptionError(
                "Batched(profile=...): a profile says what to compress: open the spool with a "
                "codec."
            )
        self._spool = spool
        self._core = BatchCore(spool, together, profile is not None)
        self._usual = "alone" if together is None else "hold"
        self._watch = (
            None if profile is None else open_profile(profile, repr(spool.codec), *self._core.most)
        )

    def save(
        self,
        version: SupportsIndex,
        /,
        *arrays: Any,
        stream: Any = None,
        codec: Any = None,
        overwrite: bool = False,
        **named: Any,
    ) -> None:
        """As `Spool.save`; what waits and cannot be saved is an error of a later call."""
        how = (self._watch and self._watch.before_save(self)) or self._usual
        if overwrite and version in self:
            self.discard(version)
        if how in ("hold", "together"):
            self._core.save(version, arrays, named, stream, codec, how == "together")
        else:
            self._core.hand_over(version if how == "raw" else None)
            if how == "raw" and codec is None:
                codec = "raw"
            self._spool.save(version, *arrays, stream=stream, codec=codec, **named)
        if self._watch:
            self._watch.after_save(self, version)

    def save_many(self, checkpoints: Any, /, **options: Any) -> None:
        """As `Spool.save_many`, after what waits.

        Raises:
            OptionError: a profile plans what is encoded together.
            All that `Spool.save_many` raises.
        """
        if self._watch:
            raise OptionError(
                "save_many: the profile plans what is encoded together. Use `save`, or leave the "
                "profile out."
            )
        self._core.hand_over()
        self._spool.save_many(checkpoints, **options)

    def restore(self, version: SupportsIndex, /, *arrays: Any, **named: Any) -> None:
        """As `Spool.restore`."""
        self._finish()
        self._settled(version).restore(version, *arrays, **named)

    def load(self, version: SupportsIndex, /, **options: Any) -> Any:
        """As `Spool.load`."""
        return self._settled(version).load(version, **options)

    def reading(self, version: SupportsIndex, /, **options: Any) -> Any:
        """As `Spool.reading`."""
        return self._settled(version).reading(version, **options)

    def discard(self, version: SupportsIndex, /) -> None:
        """As `Spool.discard`."""
        self._finish()
        self._settled(version).discard(version)

    def durable(self, version: SupportsIndex, /) -> bool:
        """As `Spool.durable`."""
        return self._settled(version).durable(version)

    def achieved(self, version: SupportsIndex, /) -> Any:
        """As `Spool.achieved`."""
        self._core.hand_over()
        return self._spool.achieved(version)

    def regions(self, version: SupportsIndex, /) -> Any:
        """As `Spool.regions`."""
        return self._core.regions(version)

    def flush(self, *, timeout: float | None = None) -> None:
        """As `Spool.flush`."""
        self._spool.flush(timeout=self._left(timeout))

    def versions(self) -> list[int]:
        """As `Spool.versions`."""
        # What is handed over in between is then in both.
        waits = self._core.waits()
        return sorted({*waits, *self._spool.versions()})

    def latest(self) -> int | None:
        """As `Spool.latest`."""
        return max(self.versions(), default=None)

    def clear(self) -> None:
        """As `Spool.clear`."""
        self._finish()
        self._core.hand_over()
        self._spool.clear()

    def close(self, *, timeout: float | None = None, discard_unflushed: bool = False) -> None:
        """As `Spool.close`; a recorded run is written to its file first."""
        try:
            if self._watch and not self._spool.closed:
                self._watch.closing(self)
        finally:
            try:
                if not self._spool.closed:
                    timeout = self._left(timeout)
            except Error as why:
                if not discard_unflushed:
                    raise
                warnings.warn(str(why), RuntimeWarning, stacklevel=2)
            self._spool.close(timeout=timeout, discard_unflushed=discard_unflushed)
            self._core.end()

    def _settled(self, version: SupportsIndex) -> Spool:
        """The spool, once it knows `version`."""
        self._core.hand_over(version)
        return self._spool

    def _finish(self) -> None:
        """Saves are over for now: what was saved may go."""
        if self._watch:
            self._watch.finish(self)

    def _left(self, timeout: float | None) -> float | None:
        """Hands over what waits; what is left of the time for that and more."""
        begin = time.monotonic()
        self._core.hand_over(None, timeout)
        # A wait of no time at all is none that can be asked for.
        return None if timeout is None else max(1e-6, timeout - (time.monotonic() - begin))

    def __getattr__(self, name: str) -> Any:
        if name == "_spool":
            raise AttributeError(name)
        return getattr(self._spool, name)

    def __contains__(self, version: object, /) -> bool:
        return version in self._core.waits() or version in self._spool

    def __getitem__(self, version: SupportsIndex, /) -> Any:
        return self._settled(version)[version]

    def __iter__(self) -> Iterator[int]:
        return iter(self.versions())

    def __len__(self) -> int:
        return len(self.versions())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Batched({self._spool!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if raised is None:
            return self.close()
        if self._watch:
            self._watch.abandon()
        try:
            self._core.hand_over()
        except Error as why:
            raised.add_note(f"Handing over what waited failed as well: {why}")
        self._spool.__exit__(kind, raised, traceback)
        self._core.end()
