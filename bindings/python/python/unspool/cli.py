"""The command `unspool`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from unspool import Error, OptionError, __version__

__all__ = ["main"]

#: Exit codes: a failure, a mistake of the user, and Ctrl-C as shells count it.
FAILED, MISTAKE, INTERRUPTED = 1, 2, 130

#: The packages that commands need beyond the library itself.
EXTRAS = {"numpy", "scipy", "matplotlib", "rich"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code. Errors are one line on standard error."""
    try:
        return _run(arguments)
    except (OptionError, ValueError, TypeError) as error:
        if not isinstance(error, Error):
            raise
        return _say(error, MISTAKE)
    except (Error, OSError) as error:
        return _say(error, FAILED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in EXTRAS:
            raise
        text = f"this command needs the package {error.name}: pip install 'unspool[rtm]'"
        return _say(text, MISTAKE)
    except MemoryError:
        return _say("there is not enough memory for arrays of this size", FAILED)
    except KeyboardInterrupt:
        return _say("interrupted; nothing was written", INTERRUPTED)


def _say(what: object, code: int) -> int:
    print(f"unspool: {what}", file=sys.stderr)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage of every option."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKE, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="unspool", description="Histories of computations.")
    parser.add_argument("--version", action="version", version=f"unspool {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    migration = commands.add_parser("rtm", help="migrate seismic data through a spool")
    _add_migration(migration)
    timeline = commands.add_parser("timeline", help="draw a trace")
    _add_timeline(timeline)
    bench = commands.add_parser("bench", help="measure this machine")
    _add_bench(bench)
    plan = commands.add_parser("plan", help="say which schedule of an adjoint is fastest")
    _add_plan(plan)
    accumulate = commands.add_parser("accumulate", help="say what to compress, and what together")
    _add_accumulate(accumulate)
    codecs = commands.add_parser("codecs", help="try every codec on arrays of yours")
    _add_codecs(codecs)
    doctor = commands.add_parser("doctor", help="say what this machine has and what is missing")
    _add_doctor(doctor)
    return parser


def _add_migration(parser: argparse.ArgumentParser) -> None:
    # The options need nothing that is not in Python; the command itself is imported when it runs.
    from unspool.rtm.options import add_options

    add_options(parser)

    def command(options: argparse.Namespace) -> int:
        from unspool.rtm.command import run_command

        return run_command(options)

    parser.set_defaults(command=command)


def _add_timeline(parser: argparse.ArgumentParser) -> None:
    from unspool.timeline import add_options

    add_options(parser)

    def command(options: argparse.Namespace) -> int:
        from unspool.timeline import run_command

        return run_command(options)

    parser.set_defaults(command=command)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    from unspool.bench.options import add_options

    add_options(parser)

    def command(options: argparse.Namespace) -> int:
        from unspool.bench.command import run_command

        return run_command(options)

    parser.set_defaults(command=command)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    from unspool.planning.options import add_options

    add_options(parser)

    def command(options: argparse.Namespace) -> int:
        from unspool.planning.command import run_command

        return run_command(options)

    parser.set_defaults(command=command)


def _add_accumulate(parser: argparse.ArgumentParser) -> None:
    from unspool.accumulate.command import add_options, run_command

    add_options(parser)
    parser.set_defaults(command=run_command)


def _add_codecs(parser: argparse.ArgumentParser) -> None:
    from unspool.codecs.options import add_options

    add_options(parser)

    def command(options: argparse.Namespace) -> int:
        from unspool.codecs.command import run_command

        return run_command(options)

    parser.set_defaults(command=command)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    from unspool.diagnosis.command import add_options, run_command

    add_options(parser)
    parser.set_defaults(command=run_command)
