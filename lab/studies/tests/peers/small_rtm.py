"""A migration of seconds, for the tests of all engines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.survey import plan

SHOTS = 6
WORDS = ["--shape", "71x41", "--spacing", "15", "--shots", SHOTS, "--steps", "420", "--every", "2"]
WORDS += ["--device-memory", "1MiB", "--host-memory", "1MiB", "--layer", "12"]


class Rtm:
    """`unspool-rtm` with a small model, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.disk, self._out = folder / "disk", folder / "out"
        self.disk.mkdir()

    def words(self, *options: object) -> list[str]:
        """Its arguments."""
        return [*map(str, (*WORDS, "--out", self._out, "--disk-dir", self.disk, *options))]

    def found(self) -> tuple[bytes, dict]:
        """What it has written: the image's bytes and the report."""
        report = json.loads((self._out / "report.json").read_text())
        image = np.load(self._out / "image.npy")
        assert np.abs(image).max() > 0
        return image.tobytes(), report


def job_of(disk: Path, steps: int) -> Job:
    """A job of so many steps a shot."""
    model = generated_model(71, 41, 15.0)
    survey = plan(model, shots=SHOTS, steps=steps, every=2)
    return Job(model, smooth(model, 60.0), survey, 12, 1, Memory("1MiB", "1MiB", disk))
