"""The folder of a migration that goes on after it was killed.

It has the stack of the shots that are done, which a Checkpointer saves after each of them, and one
folder for each shot that is at work: its records, and its adjoint, which `unspool.adjoint` goes on
with. A shot is done when it is in the stack.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from unspool import Checkpointer
from unspool.errors import StorageError
from unspool.types import Stop
from unspool_studies.rtm.codec import name_of_codec
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.model import Floats, Model
from unspool_studies.rtm.outcome import Shot, Stack
from unspool_studies.rtm.survey import Survey

__all__ = ["DurableStack", "Resume", "durable_stack", "identity"]

#: Seconds that a shot waits for who had it before, and between two looks.
PATIENCE, AGAIN = 20.0, 0.1

#: The host memory of a Checkpointer: a few times what it saves, and at least so much.
SPARE, LEAST = 3, 16 << 20


@dataclass(frozen=True)
class Resume:
    """Where a job is durable, and how often.

    Attributes:
        folder: of the job, which all workers see.
        every: the time between two checkpoints of a shot, as `unspool.adjoint` takes it.
    """

    folder: Path
    every: int | str

    @contextmanager
    def shot(self, number: int, record: Callable[[], Floats]) -> Iterator[tuple[Path, Floats]]:
        """The folder of a shot and its records, which are recorded once, for as long as it is at
        work. It stays when the shot fails.

        Raises:
            StorageError: another process works on it.
        """
        folder = self.folder / f"shot-{number:05}"
        folder.mkdir(exist_ok=True)
        with self._awaited(folder / "records") as checkpoints:
            found: dict[str, Any] = newest(checkpoints)
            if not found:
                found = {"data": record()}
                checkpoints.save(0, **found)
            yield folder, found["data"]
        # A kill meanwhile must not leave half of it under its name.
        done = self.folder / f"done-{folder.name}"
        shutil.rmtree(done, ignore_errors=True)
        folder.replace(done)
        shutil.rmtree(done, ignore_errors=True)

    def _awaited(self, folder: Path) -> Checkpointer:
        """What is durable of a shot. A worker that was told to stop may have it for a while yet."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.checkpoints(folder)
            except StorageError:
                if time.monotonic() > limit:
                    raise
                time.sleep(AGAIN)

    def checkpoints(self, folder: Path, nbytes: int = 0) -> Checkpointer:
        """What is durable in one folder."""
        return Checkpointer(
            folder, every=1, host_memory=max(LEAST, SPARE * nbytes), stop=Stop(signals=())
        )

    def clear(self) -> None:
        """Removes what a job that is done may have left.

        Raises:
            OSError: it cannot be removed.
        """
        for name in ("shot-*", "done-*"):
            for folder in self.folder.glob(name):
                shutil.rmtree(folder)

    def remove(self) -> None:
        """Leaves nothing of a job that is done.

        Raises:
            MigrationError: it cannot be removed.
        """
        try:
            (self.folder / "stack").replace(self.folder / "done-stack")
            self.clear()
            self.folder.rmdir()
        except OSError as error:
            raise MigrationError(
                f"the image is written, and --resume {self.folder} cannot be removed ({error}): "
                "remove it, as the next job would go on with it"
            ) from error


class DurableStack(Stack):
    """A stack that is saved after every shot."""

    def __init__(
        self,
        shape: tuple[int, ...],
        name: str,
        checkpoints: Checkpointer,
        found: dict[str, Any],
    ) -> None:
        """Goes on with the shots that were found.

        Raises:
            MigrationError: they are of another job.
        """
        super().__init__(shape)
        self._name, self._checkpoints = name, checkpoints
        if not found:
            # A shot must not be taken for one of another job.
            self._save()
            checkpoints.flush()
            return
        if found["job"] != name:
            raise MigrationError(
                "another job lies in the folder of --resume: its model, survey, layer or codec are "
                "others. Give another folder, or delete that one"
            )
        self._image[...], self._light[...] = found["image"], found["light"]
        self._digests = [bytes(digest).hex() for digest in found["digests"]]
        self._seconds = list(map(float, found["seconds"]))

    def add(self, shot: Shot) -> None:
        """Adds one more, and saves the sum."""
        super().add(shot)
        self._save()

    def _save(self) -> None:
        digests = bytes.fromhex("".join(self._digests))
        self._checkpoints.save(
            self.done,
            job=self._name,
            image=self._image,
            light=self._light,
            digests=np.frombuffer(digests, np.uint8).reshape(self.done, -1 if digests else 0),
            seconds=np.array(self._seconds),
        )


@contextmanager
def durable_stack(resume: Resume, shape: tuple[int, ...], name: str) -> Iterator[DurableStack]:
    """The stack of a job, from what is durable of it.

    Raises:
        MigrationError: the folder cannot be made, or another job lies in it.
    """
    try:
        resume.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MigrationError(f"--resume {resume.folder} cannot be made: {error}") from error
    nbytes = 2 * 4 * int(np.prod(shape))
    with resume.checkpoints(resume.folder / "stack", nbytes) as checkpoints:
        found = newest(checkpoints)
        if not found:
            resume.clear()
        yield DurableStack(shape, name, checkpoints, found)


def newest(checkpoints: Checkpointer) -> dict[str, Any]:
    """What the newest checkpoint holds; empty when there is none."""
    return {} if checkpoints.latest() is None else checkpoints.load()


def identity(model: Model, background: Model, survey: Survey, layer: int, codec: Any) -> str:
    """A digest of all that the image depends on."""
    digest = hashlib.sha256()
    for one in (model, background):
        digest.update(one.velocity.tobytes())
        digest.update(repr(tuple(map(float, one.spacing))).encode())
    timing = survey.timing
    numbers = (timing.dt, timing.frequency, timing.steps, timing.every, layer)
    for some in (survey.sources, survey.receivers, numbers):
        digest.update(np.array(some, np.float64).tobytes())
    digest.update(survey.wavelet.tobytes() + name_of_codec(codec).encode())
    return digest.hexdigest()
