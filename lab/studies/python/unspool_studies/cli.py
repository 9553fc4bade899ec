"""The commands `unspool-rtm`, `unspool-bench`, `unspool-codecs` and `unspool-timeline`.

The options of a command need nothing that is not in Python; the command itself is imported when it
runs, so that `--help` and mistakes in the options are told at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from unspool import __version__
from unspool.cli import Parser, guarded

__all__ = ["bench", "codecs", "rtm", "timeline"]

Arguments = Sequence[str] | None


def rtm(arguments: Arguments = None) -> int:
    """Runs `unspool-rtm`; returns its exit code."""
    from unspool_studies.rtm.options import add_options

    def command(options: argparse.Namespace) -> int:
        from unspool_studies.rtm.command import run_command

        return run_command(options)

    return _run("unspool-rtm", add_options, command, arguments)


def bench(arguments: Arguments = None) -> int:
    """Runs `unspool-bench`; returns its exit code."""
    from unspool_studies.bench.options import add_options

    def command(options: argparse.Namespace) -> int:
        from unspool_studies.bench.command import run_command

        return run_command(options)

    return _run("unspool-bench", add_options, command, arguments)


def codecs(arguments: Arguments = None) -> int:
    """Runs `unspool-codecs`; returns its exit code."""
    from unspool_studies.codecs.options import add_options

    def command(options: argparse.Namespace) -> int:
        from unspool_studies.codecs.command import run_command

        return run_command(options)

    return _run("unspool-codecs", add_options, command, arguments)


def timeline(arguments: Arguments = None) -> int:
    """Runs `unspool-timeline`; returns its exit code."""
    from unspool_studies.timeline import add_options, run_command

    return _run("unspool-timeline", add_options, run_command, arguments)


def _run(
    name: str,
    add_options: Callable[[argparse.ArgumentParser], None],
    command: Callable[[argparse.Namespace], int],
    arguments: Arguments,
) -> int:
    def run() -> int:
        parser = Parser(prog=name)
        parser.add_argument("--version", action="version", version=f"{name} {__version__}")
        add_options(parser)
        return command(parser.parse_args(arguments))

    return guarded(name, run)
