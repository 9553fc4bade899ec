"""The programs of the study: their problems, compiling them, and running them within a time."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unspool.errors import Error

__all__ = ["Bench", "MessagesError", "Outcome", "Program", "known_programs", "missing"]

#: Seconds after which a program is ended: it has met something that it waits for in vain.
LONGEST = 120.0

#: What Open MPI needs on few cores and as root; other MPIs do not read it.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class MessagesError(Error, RuntimeError):
    """A program of the study that cannot be built or run here."""


@dataclass(frozen=True)
class Program:
    """A program and its problems.

    Attributes:
        name: of its source.
        stands_for: the program of the dissertation.
        data: `own` or `random`.
        cube: the sizes of a rank of four and the steps, to see what its messages are.
        slab: those of a rank of two on a slowed network: thin, so that messages matter.
    """

    name: str
    stands_for: str
    data: str
    cube: tuple[str, int]
    slab: tuple[str, int]

    @property
    def title(self) -> str:
        """The name and the data."""
        return f"{self.name}, {self.data}"

    @property
    def lacks(self) -> str | None:
        """What has to be installed before it can be run; None when nothing has."""
        if self.name == "lammps" and shutil.which("lmp") is None:
            return "lammps is left out: lmp is not there, install the package lammps"
        return None

    def words(self, problem: tuple[str, int]) -> tuple[str, ...]:
        """The words of its command line."""
        return problem[0], str(problem[1]), self.data


def known_programs(names: Sequence[str], small: bool) -> list[Program]:
    """The programs with these names, with their own data and with random data."""
    problems = {
        "hpccg": ("HPCCG", ("64x64x32", 150), ("256x256x1", 60)),
        "minife": ("miniFE", ("50x50x100", 100), ("2x192x192", 60)),
        "minimd": ("miniMD", ("8x8x16", 200), ("3x20x20", 80)),
        "lammps": ("LAMMPS", ("20x20x5", 100), ("24x24x3", 40)),
        "wave": ("(none: a wave)", ("48x48x96", 200), ("8x160x160", 100)),
        "su3": ("MILC", ("8x8x8x8", 100), ("2x12x12x12", 50)),
    }
    if small:
        problems |= {
            "hpccg": ("HPCCG", ("32x32x8", 40), ("96x96x1", 20)),
            "minife": ("miniFE", ("16x16x16", 40), ("2x64x64", 20)),
            "minimd": ("miniMD", ("4x4x4", 40), ("3x8x8", 20)),
            "lammps": ("LAMMPS", ("8x8x2", 20), ("8x8x3", 20)),
            "wave": ("(none: a wave)", ("16x16x32", 60), ("8x64x64", 20)),
            "su3": ("MILC", ("4x4x4x4", 10), ("2x8x8x8", 10)),
        }
    return [
        Program(name, stands_for, data, cube, slab)
        for name, (stands_for, cube, slab) in problems.items()
        if name in names
        for data in ("own", "random")
    ]


def missing(command: Path | None) -> str | None:
    """Why nothing can be run here; None when it can."""
    for tool in ("mpicc", "mpirun"):
        if shutil.which(tool) is None:
            return f"{tool} is not there: install an MPI, such as libopenmpi-dev and openmpi-bin"
    if _command(command) is None:
        return (
            "unspool-messages is not there: `cargo build --release --package unspool-recorder` "
            "builds it; name another with --messages-command"
        )
    return None


def _command(named: Path | None) -> Path | None:
    if named is not None:
        return named.absolute() if named.is_file() else None
    folder = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    built = (folder / "release" / "unspool-messages").absolute()
    found = built if built.is_file() else shutil.which("unspool-messages")
    return None if found is None else Path(found)


@dataclass(frozen=True)
class Outcome:
    """What a run has printed.

    Attributes:
        result: a hash of all that it has computed, or sums of it.
        seconds: of its steps, those of the slowest rank.
        told: what `unspool-messages` has said.
    """

    result: str
    seconds: float
    told: str


class Bench:
    """A folder with the compiled programs, and what runs them.

    Raises:
        MessagesError: a tool is missing, or a program is not compiled.
    """

    def __init__(self, folder: Path, sources: Path, command: Path | None) -> None:
        why = missing(command)
        if why is not None:
            raise MessagesError(why)
        script = sources / "build.sh"
        if not script.is_file():
            raise MessagesError(
                f"{script} is not there: run this in the root of the repository, or name the "
                "folder with --messages-sources"
            )
        found = _command(command)
        assert found is not None
        self.folder, self.command = folder, found
        self.call(["sh", str(script.absolute()), str(folder)])

    def call(
        self,
        words: Sequence[str | Path],
        environment: dict[str, str] | None = None,
    ) -> tuple[str, str]:
        """Runs a command in the folder; what it has printed and told.

        Raises:
            MessagesError: it has failed, or takes too long.
        """
        running = subprocess.Popen(
            [str(word) for word in words],
            cwd=self.folder,
            env=os.environ | OPEN_MPI | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, told = running.communicate(timeout=LONGEST)
        except BaseException as why:
            # Its ranks are in its session, and end with it.
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            if isinstance(why, subprocess.TimeoutExpired):
                raise MessagesError(f"{words[0]} took more than {LONGEST:.0f} s") from None
            raise
        if running.returncode != 0:
            line = " ".join(map(str, words))
            raise MessagesError(f"{line} has failed ({running.returncode}): {told[-600:]}")
        return printed, told

    def ranks(self, count: int, program: Program, problem: tuple[str, int]) -> list[str | Path]:
        """The command that runs a program."""
        words = program.words(problem)
        return ["mpirun", "-n", str(count), self.folder / program.name, *words]

    def outcome(self, words: Sequence[str | Path], environment: dict[str, str]) -> Outcome:
        """Runs a program to its end, by itself or by way of `unspool-messages run`."""
        printed, told = self.call(words, environment)
        found = re.findall(r"^result (\S+) seconds ([0-9.]+)$", printed, re.MULTILINE)
        if not found:
            raise MessagesError(f"{words[-4]} has printed no result: {printed[-300:]}")
        # LAMMPS prints one before its first step as well.
        result, seconds = found[-1]
        return Outcome(result, float(seconds), told)
