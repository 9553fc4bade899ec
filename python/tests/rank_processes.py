"""Ranks that are processes, which talk through pipes, for the tests of `unspool.Checkpointer`.

Each pair of ranks has a pipe; a rank that is killed answers no more, and one that was told to is
silent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("fork")


class Pipes:
    """The ranks of a job, as `Checkpointer(ranks=...)` takes them."""

    def __init__(self, rank: int, to: dict[int, Connection]) -> None:
        self.rank, self.size = rank, len(to) + 1
        self._to = to

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What each rank gave."""
        found: list[bytes | None] = [None] * self.size
        found[self.rank] = message
        for other in self._to.values():
            with contextlib.suppress(OSError):
                other.send_bytes(message)
        end = time.monotonic() + seconds
        for rank, other in self._to.items():
            with contextlib.suppress(OSError, EOFError):
                if other.poll(max(0.0, end - time.monotonic())):
                    found[rank] = other.recv_bytes()
        return found


def tell(told: Path, step: int) -> None:
    """Writes down which step counts, in one piece, for the next job to hold against what it
    finds."""
    part = told.with_suffix(".part")
    part.write_text(str(step))
    part.replace(told)


def start(size: int, work: Callable[..., None], *arguments: Any) -> list[BaseProcess]:
    """Starts `work(ranks, *arguments)` in a process for each rank."""
    pipes: list[dict[int, Connection]] = [{} for _ in range(size)]
    for one in range(size):
        for other in range(one):
            pipes[one][other], pipes[other][one] = CONTEXT.Pipe()

    def run(rank: int) -> None:
        for other, ends in enumerate(pipes):
            if other != rank:
                # Only then does a pipe of a process that has ended say so.
                [end.close() for end in ends.values()]
        work(Pipes(rank, pipes[rank]), *arguments)

    started = [CONTEXT.Process(target=run, args=(rank,)) for rank in range(size)]
    for process in started:
        process.start()
    for ends in pipes:
        [end.close() for end in ends.values()]
    return started


def finish(processes: list[BaseProcess], seconds: float = 60.0) -> list[int | None]:
    """The exit codes of processes; what does not end in time is killed."""
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]
