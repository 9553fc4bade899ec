"""The command `unspool`, and what it shares with commands of other packages."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NoReturn

from ._directory import add_commands
from ._doctor.command import doctor_options, run_doctor
from ._unspool import __version__, size_in_bytes
from .advice import commands as ask
from .advice.paging import paging_options, run_paging
from .errors import Error, MissingLibraryError, OptionError
from .look.command import diff_options, run_diff
from .look.show import run_show, show_options

__all__ = ["Parser", "guarded", "main", "size_in_bytes"]

#: Exit codes: a failure, a mistake of the user, and Ctrl-C and a pipe that nobody reads as shells
#: count them.
FAILED, MISTAKE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

#: Commands of the package `unspool-studies`, which tells where they are in this group of entry
#: points: each is a function of the arguments that returns the exit code.
GROUP = "unspool.commands"
STUDIES = {
    "rtm": "migrate seismic data through a spool",
    "timeline": "draw a trace",
    "bench": "measure this machine",
    "codecs": "try every codec on arrays of yours",
}

#: Commands that are programs of their own, in packages of these names: what they do. The name of a
#: program is that of its package.
PROGRAMS = {
    "messages": "record the messages of an MPI program, and compress them (unspool-messages)",
    "paging": "say what paging would bring, and run a program with it (run: unspool-paging)",
}

#: Commands with one question each: what it does, what adds its options, and what runs it.
QUESTIONS = {
    "plan": ("say which schedule of an adjoint is fastest", ask.plan_options, ask.run_plan),
    "advise": (
        "say how a long job should keep its checkpoints",
        ask.advise_options,
        ask.run_advise,
    ),
    "accumulate": ("say what to compress, and what together", ask.run_options, ask.run_accumulate),
    "doctor": ("say what this machine has and what is missing", doctor_options, run_doctor),
    "diff": ("say where two histories or runs begin to differ", diff_options, run_diff),
    "show": ("show a checkpoint, or one of its arrays", show_options, run_show),
    "paging": (PROGRAMS["paging"], paging_options, run_paging),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage of every option."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with the exit code for a mistake of the user."""
        self.exit(MISTAKE, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")


def guarded(name: str, command: Callable[[], int]) -> int:
    """Runs a command; returns its exit code. Errors are one line on standard error.

    Arguments:
        name: of the program, which stands before an error.
        command: does the work and returns the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names that an output has no letters for are shown by their numbers.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = command()
        print(end="", flush=True)
        return code
    except BrokenPipeError:
        # Whoever reads has seen enough. What is left must not fail at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return BROKEN_PIPE
    except (OptionError, MissingLibraryError, ValueError, TypeError) as error:
        if not isinstance(error, Error):
            raise
        return _say(name, error, MISTAKE)
    except (Error, OSError) as error:
        return _say(name, error, FAILED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "numpy":
            raise
        text = "this command needs the package numpy: pip install 'unspool[numpy]'"
        return _say(name, text, MISTAKE)
    except MemoryError:
        return _say(name, "there is not enough memory for arrays of this size", FAILED)
    except KeyboardInterrupt:
        return _say(name, "interrupted; nothing was written", INTERRUPTED)


def _say(name: str, what: object, code: int) -> int:
    print(f"{name}: {what}", file=sys.stderr)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `unspool`; returns its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    return guarded("unspool", lambda: _run(words))


def _run(words: list[str]) -> int:
    if words and words[0] in STUDIES:
        return _study(words[0])(words[1:])
    if words[:1] == ["messages"] or words[:2] == ["paging", "run"]:
        return _program(f"unspool-{words[0]}", words)
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _study(name: str) -> Callable[[list[str]], int]:
    """A command of `unspool-studies`.

    Raises:
        MissingLibraryError: that package is not installed.
    """
    for entry in metadata.entry_points(group=GROUP, name=name):
        command: Callable[[list[str]], int] = entry.load()
        return command
    raise MissingLibraryError(
        f"`unspool {name}` is part of the package unspool-studies, which is not installed: "
        "pip install unspool-studies",
        name="unspool-studies",
    )


def _program(name: str, words: list[str]) -> int:
    """Becomes a program of another package, with the words after `unspool`'s own one.

    Raises:
        MissingLibraryError: that package is not installed.
    """
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    program = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if program is None:
        raise MissingLibraryError(
            f"`unspool {' '.join(words[:2])}` is a program of the package {name}, which is not "
            f"installed: pip install {name}",
            name=name,
        )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(program, [name, *words[1:]])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="unspool", description="Histories of computations.")
    parser.add_argument("--version", action="version", version=f"unspool {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (text, add_options, run) in QUESTIONS.items():
        command = commands.add_parser(name, help=text)
        add_options(command)
        command.set_defaults(command=run)
    add_commands(commands)
    commands.add_parser("messages", help=PROGRAMS["messages"])
    for name, text in STUDIES.items():
        commands.add_parser(name, help=f"{text} (unspool-studies)")
    return parser
