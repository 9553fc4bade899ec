"""Processes that are spoken to line by line, and do each phase at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["LIMIT", "Process", "ProcessError", "phase", "started"]

#: The longest that an answer of a process is waited for, in seconds.
LIMIT = 120.0


class ProcessError(Exception):
    """A process failed or did not answer."""


class Process:
    """One process: never more than one answer is under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, word: str) -> None:
        """Gives it a line.

        Raises:
            ProcessError: it has ended; the text has its last words.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise ProcessError(self._why()) from error

    def hear(self, limit: float | None = None) -> str:
        """Its next line, within `limit` seconds; None: `LIMIT`. One that takes longer is ended.

        Raises:
            ProcessError: there is none.
        """
        assert self.process.stdout is not None
        limit = LIMIT if limit is None else limit
        there, _, _ = select.select([self.process.stdout], [], [], limit)
        if not there:
            self.process.kill()
            raise ProcessError(f"a process did not answer within {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise ProcessError(self._why())
        return line.strip()

    def _why(self) -> str:
        assert self.process.stderr is not None
        self.process.wait(LIMIT)
        last = self.process.stderr.read().strip().splitlines()[-1:]
        return f"a process failed with {self.process.returncode}: {' '.join(last)}"


@contextlib.contextmanager
def started(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> Iterator[list[Process]]:
    """Starts processes, each of which says that it is ready; they end with the block.

    Raises:
        ProcessError: one of them said something else.
    """
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(_process(command, environment)) for command in commands]
        for one in found:
            if (word := one.hear()) != "ready":
                raise ProcessError(f"a process said {word!r} instead of being ready")
        yield found


def phase(
    processes: Sequence[Process], name: str, limit: float | None = None
) -> list[dict[str, Any]]:
    """Lets all do this at the same time; what each says, as it says it in JSON."""
    for one in processes:
        one.tell(name)
    return [json.loads(one.hear(limit)) for one in processes]


@contextlib.contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Process]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield Process(process)
    except BaseException:
        # What it does is not wanted any more, and nobody measures beside it.
        process.kill()
        raise
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Lets a process end by itself, and ends it when it does not."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
