"""`unspool ls`, `verify`, `export`, `copy`, `clean`, `rm`: checkpoints seen from outside.

All but `clean` and `rm` open it for reading, so they work on a read-only file system, on what
belongs to somebody else, and while a run still writes it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import Disk, Spool
from ._copying import copy
from ._exporting import export
from ._holdings import holds_history, reading
from ._partial import region_of
from ._restart.command import Choose, list_run, remove_steps, verify_run
from ._restart.core import Chains, RestartCore
from ._restart.parts import holds_copies, holds_run, whole
from ._trees import REGION
from .errors import (
    CorruptCheckpointError,
    LostCheckpointError,
    OptionError,
    StorageError,
    UnknownVersionError,
)
from .look.importing import import_options
from .stats import size

__all__ = ["add_commands"]

#: The exit code when a checkpoint is damaged or missing.
DAMAGED = 1

VERSIONS = """Versions are numbers and ranges as in Python, with commas between them: `3,10:20,0::5`
are version 3, those from 10 to 19, and every fifth one. Write --versions=-1 for a negative one."""


STEPS = """Steps are numbers and ranges as in Python, with commas between them: `3,10:20,0::5`, and
`:` for all. PATH is the folder of a run that a Checkpointer has saved, or, but for rm, a place that
it has copied to, such as s3://bucket/run, or a durable directory of a spool; a step is a version
there. Options come first, and then --, where STEPS begin
with a minus."""


IMPORT = """Saves a file of safetensors, or a folder of Orbax, as one checkpoint of a run, from
which a Checkpointer goes on: import FILE DIR STEP. Or saves a history that a Zarr group or an HDF5
file has, of whose arrays the first dimension are the steps, into a durable directory: import FILE
DIR."""


def add_commands(commands: Any) -> None:
    """Adds the commands to the subparsers of `unspool`."""
    adding: tuple[tuple[str, str, Callable[[argparse.Namespace], int]], ...] = (
        ("ls", "list the checkpoints in a directory", _ls),
        ("verify", "read every checkpoint in a directory and say which are damaged", _verify),
        ("clean", "remove what killed runs left in a directory, or checkpoints", _clean),
    )
    kind: Callable[[str], Path | str]
    for name, text, command in adding:
        parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        kind, where = Path, "where the checkpoints are"
        if name in ("ls", "verify"):
            kind, where = _place, f"{where}: a directory, or a remote place such as s3://bucket/run"
        parser.add_argument("directory", metavar="DIR", type=kind, help=where)
        if name in ("ls", "verify"):
            parser.add_argument("--json", action="store_true", help="print JSON")
        if name == "clean":
            parser.add_argument(
                "--lost", action="store_true", help="discard what is listed as lost"
            )
            parser.add_argument("--discard", metavar="VERSIONS", help="discard these checkpoints")
        else:
            parser.add_argument("--versions", metavar="VERSIONS", help="only these")
        parser.epilog = VERSIONS
        parser.set_defaults(command=command)
    text = "remove checkpoints of a run that a Checkpointer has saved"
    removing = _add_taking(commands, "rm", text, remove_steps, Path)
    removing.add_argument(
        "--keep-copies",
        action="store_true",
        help="leave those in the remote place and of partners, from which a step can come back",
    )
    text = "write checkpoints as files: .npz, .h5, .zarr, .safetensors"
    exporting = _add_taking(commands, "export", text, export)
    exporting.add_argument(
        "-o",
        dest="out",
        metavar="FILE",
        required=True,
        help="its end says the format; {step} in it stands for the step",
    )
    exporting.add_argument(
        "--array", metavar="NAME", action="append", help="only this one; may be given repeatedly"
    )
    exporting.add_argument(
        "--region", metavar="INDEX", type=region_of, help="of each --array: 0:10,...,3"
    )
    text = "save what another program has written: .safetensors, .zarr, .h5, Orbax"
    import_options(commands.add_parser("import", help=text, description=IMPORT))
    copying = _add_taking(commands, "copy", "copy checkpoints into another folder", copy)
    copying.add_argument("to", metavar="DEST", help="that folder")
    for parser in (exporting, copying):
        parser.add_argument("--force", action="store_true", help="replace what is there")


def _add_taking(
    commands: Any,
    name: str,
    text: str,
    command: Callable[[argparse.Namespace, Choose], int],
    kind: Callable[[str], Path | str] | None = None,
) -> argparse.ArgumentParser:
    """A command on checkpoints that are named."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text.capitalize()}.", epilog=STEPS
    )
    parser.add_argument(
        "directory", metavar="PATH", type=kind or _place, help="the folder or place that has them"
    )
    parser.add_argument("steps", metavar="STEPS", help="these, as in 300 or 100:200")
    parser.set_defaults(command=lambda options: command(options, _steps))
    return parser


def _place(text: str) -> Path | str:
    """A directory, or an address as it is."""
    return text if "://" in text else Path(text)


def _ls(options: argparse.Namespace) -> int:
    if holds_run(options.directory) or holds_copies(options.directory):
        return list_run(options, _steps)
    with _reading(options.directory) as spool:
        found = {v: _described(spool, v) for v in _chosen(spool, options.versions)}
        lost = spool.lost()
    if options.json:
        checkpoints = [{"version": v, **about} for v, about in found.items()]
        _print_json(options.directory, checkpoints=checkpoints, lost=lost)
        return 0
    rows = [("version", "bytes", "stored", "arrays")]
    rows += [
        (str(v), size(about["nbytes"]), size(about["nbytes_stored"]), _arrays(about["arrays"]))
        for v, about in found.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for *numbers, arrays in rows:
        cells = [text.rjust(width) for text, width in zip(numbers, widths, strict=True)]
        print("  ".join([*cells, arrays]))
    total, stored = (sum(a[key] for a in found.values()) for key in ("nbytes", "nbytes_stored"))
    print(f"{_counted(len(found))}, {size(total)}, {size(stored)} stored")
    _print_lost(lost)
    return 0


def _described(spool: Spool, version: int) -> dict[str, Any]:
    stored = {name: about.stored_bytes for name, about in spool.achieved(version).items()}
    regions = spool.regions(version)
    arrays = [
        {
            "name": region.name,
            "dtype": region.dtype,
            "shape": list(region.shape),
            "nbytes": region.nbytes,
            "nbytes_stored": stored[region.name],
        }
        for region in regions
    ]
    total = sum(region.nbytes for region in regions)
    return {"nbytes": total, "nbytes_stored": sum(stored.values()), "arrays": arrays}


def _arrays(arrays: Iterable[dict[str, Any]]) -> str:
    def text(array: dict[str, Any]) -> str:
        if array["name"] == REGION:
            return "(tree)"
        name = "" if array["name"].isdecimal() else f"{array['name']} "
        return f"{name}{array['dtype']}[{', '.join(map(str, array['shape']))}]"

    return "  ".join(map(text, arrays))


def _verify(options: argparse.Namespace) -> int:
    if holds_run(options.directory) or holds_copies(options.directory):
        return verify_run(options, _steps, _fault)
    with _reading(options.directory) as spool:
        versions = _chosen(spool, options.versions)
        damaged = spool.lost()
        chains = RestartCore.chains(spool)
        for version in versions:
            if why := _fault(spool, version, chains):
                damaged[version] = why
    damaged = dict(sorted(damaged.items()))
    if options.json:
        _print_json(options.directory, checked=versions, damaged=damaged)
    else:
        _print_lost(damaged)
        print(f"{_counted(len(versions))} read, {len(damaged)} damaged or missing")
    return DAMAGED if damaged else 0


def _fault(spool: Spool, version: int, chains: Chains) -> str | None:
    """What is wrong with a checkpoint, after all of it was read."""
    try:
        with whole(spool, version, chains) as there, there.reading(version):
            return None
    except UnknownVersionError:
        # Its writer discarded it meanwhile.
        return None
    except (CorruptCheckpointError, LostCheckpointError, StorageError) as why:
        return str(why)


def _clean(options: argparse.Namespace) -> int:
    _check_directory(options.directory)
    before = _files(options.directory)
    gone: list[int] = []
    if holds_history(options.directory):
        # Opening it for writing removes what an earlier run left unfinished.
        disk = Disk(options.directory, durable=True)
        with _quiet(), Spool(device="cpu", disk=disk) as spool:
            gone += _chosen(spool, options.discard) if options.discard else []
            gone += spool.lost() if options.lost else []
            for version in gone:
                spool.discard(version)
    elif options.discard or options.lost:
        raise OptionError(_no_history(options.directory))
    # Opening a place for what does not outlive its process removes what dead processes had there.
    Spool(device="cpu", disk=Disk(options.directory)).close()
    left = _files(options.directory)
    removed = [path for path in before if path not in left]
    freed = sum(before[path] for path in removed)
    files = f"{len(removed)} file{'' if len(removed) == 1 else 's'}"
    print(f"{_counted(len(gone))} discarded, {files} removed, {size(freed)}")
    return 0


def _files(directory: Path) -> dict[Path, int]:
    """The files of a directory and of those in it, with the bytes that each takes."""
    found = {}
    for path in (*directory.glob("*"), *directory.glob("unspool-*/*")):
        try:
            data = path.lstat()
        except FileNotFoundError:
            continue
        if not path.is_dir():
            found[path] = data.st_blocks * 512
    return found


@contextmanager
def _reading(directory: Path) -> Iterator[Spool]:
    """A history for reading.

    Raises:
        OptionError: there is none.
    """
    _check_directory(directory)
    if not holds_history(directory):
        raise OptionError(_no_history(directory))
    with reading(directory) as spool:
        yield spool


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _check_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise OptionError(f"{directory} is not a directory")


def _no_history(directory: Path) -> str:
    if holds_run(directory):
        return f"{directory} is the folder of a run: name the `data` folder of a rank in it"
    return f"{directory} holds no durable checkpoints: no spool had it as Disk(..., durable=True)"


def _chosen(spool: Spool, text: str | None) -> list[int]:
    """The versions of a spool that `--versions` or `--discard` names.

    Raises:
        OptionError: the text is not one of versions, or none of them is there.
    """
    there = spool.versions()
    return there if text is None else _steps(text, there)


def _steps(text: str, there: list[int]) -> list[int]:
    """Those of the versions that are there that a text names.

    Raises:
        OptionError: the text is not one of versions, or none of them is there.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        found = _matching(part, there)
        if not found:
            raise OptionError(f"there is no version {part!r} (unspool ls lists what there is)")
        chosen.update(found)
    return sorted(chosen)


def _matching(part: str, there: list[int]) -> list[int]:
    try:
        numbers = [int(number) if number.strip() else None for number in part.split(":")]
        if len(numbers) == 1 and numbers[0] is not None:
            return [version for version in there if version == numbers[0]]
        first, end, step = (*numbers, None, None)[:3]
        if len(numbers) in (2, 3) and (step is None or step > 0):
            low = there[0] if first is None and there else first or 0
            high = there[-1] + 1 if end is None and there else end or 0
            return [version for version in there if version in range(low, high, step or 1)]
    except ValueError:
        pass
    raise OptionError(f"{part!r} is neither a version nor a range as 10:20 or 0:100:5")


def _counted(count: int) -> str:
    return f"{count} checkpoint{'' if count == 1 else 's'}"


def _print_lost(lost: dict[int, str], file: Any = None) -> None:
    for version, why in lost.items():
        print(f"version {version}: {why}", file=file)


def _print_json(directory: Path, **fields: Any) -> None:
    print(json.dumps({"directory": str(directory), **fields}, indent=2))
