"""`unspool import`: a checkpoint out of a file of safetensors, or a history out of a Zarr group or
an HDF5 file, step by step.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from .._importing import SAFETENSORS, import_file, is_checkpoint
from .._types import Disk
from .._unspool import Spool
from ..errors import MissingLibraryError, OptionError, StorageError

__all__ = ["import_options"]

#: The library of each format of histories.
LIBRARIES = {".zarr": "zarr", ".h5": "h5py", ".hdf5": "h5py", ".nc": "h5py"}

#: The array that has the numbers of the steps, where there is one of this name.
STEPS = "step"

#: The main memory through which steps go to the disk.
MEMORY = "256MiB"


def import_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `unspool import`."""
    kinds = ", ".join((SAFETENSORS, *LIBRARIES))
    parser.add_argument("file", metavar="FILE", type=Path, help=f"its end is one of {kinds}")
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="the folder of a run, or a durable directory"
    )
    parser.add_argument(
        "step",
        metavar="STEP",
        type=int,
        nargs="?",
        help="the step of safetensors or Orbax",
    )
    parser.set_defaults(command=_import)
    parser.add_argument(
        "--array", metavar="NAME", action="append", help="only this one; may be given repeatedly"
    )
    parser.add_argument(
        "--steps",
        metavar="NAME",
        help=f"the array with the numbers of the steps; `{STEPS}`, or else they count from 0",
    )
    parser.add_argument("--lossless", action="store_true", help="compress without loss")


def _import(options: argparse.Namespace) -> int:
    """Saves what the file has; returns 0.

    Raises:
        OptionError: a step is missing, or given for a file that has all steps.
    """
    is_one = is_checkpoint(options.file)
    of_history = [options.array, options.steps, options.lossless or None]
    if is_one and options.step is None:
        raise OptionError(f"{options.file}: say the step: import FILE DIR STEP")
    if is_one and any(one is not None for one in of_history):
        raise OptionError("--array, --steps and --lossless are of Zarr and HDF5")
    if not is_one and options.step is not None and options.file.suffix in LIBRARIES:
        raise OptionError(f"{options.file} has all steps: leave {options.step} out (--steps)")
    return import_file(options) if is_one else _import_history(options)


def _import_history(options: argparse.Namespace) -> int:
    with _opened(options.file) as arrays:
        steps, chosen = _chosen(arrays, options)
        disk = Disk(options.directory, durable=True)
        codec: Any = "lossless" if options.lossless else None
        with Spool(host_memory=MEMORY, device="cpu", disk=disk, codec=codec) as spool:
            if there := sorted(set(steps) & set(spool.versions())):
                raise OptionError(f"{options.directory} has step {there[0]} already")
            for place, step in enumerate(steps):
                spool.save(step, {name: array[place] for name, array in chosen.items()})
    count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    print(f"{count} of {', '.join(chosen)} imported to {options.directory}")
    return 0


def _chosen(
    arrays: Mapping[str, Any], options: argparse.Namespace
) -> tuple[list[int], dict[str, Any]]:
    """The numbers of the steps, and the arrays that have them.

    Raises:
        OptionError: there is no such array, or arrays do not have as many steps.
    """
    source = options.file
    for name in (*(options.array or ()), *filter(None, [options.steps])):
        if name not in arrays:
            known = ", ".join(map(repr, list(arrays)[:8])) or "none"
            raise OptionError(f"{source} has no array {name!r}, but {known}")
    numbers = options.steps or (STEPS if STEPS in arrays else None)
    names = options.array or [name for name in arrays if name != numbers]
    chosen = {name: arrays[name] for name in names}
    if not chosen:
        raise OptionError(f"{source} has no arrays")
    lengths = {name: one.shape[0] if one.shape else None for name, one in chosen.items()}
    if numbers is not None:
        lengths[numbers] = arrays[numbers].shape[0] if len(arrays[numbers].shape) == 1 else None
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length is None or length != lengths[first]:
            raise OptionError(
                f"{source}: {name!r} has the shape {tuple(arrays[name].shape)}, and {first!r} "
                f"{tuple(arrays[first].shape)}: choose arrays of the same steps by --array"
            )
    return _numbers(arrays, numbers, lengths[first] or 0), chosen


def _numbers(arrays: Mapping[str, Any], name: str | None, length: int) -> list[int]:
    if name is None:
        return list(range(length))
    found = arrays[name][:]
    if found.dtype.kind not in "iu" or len(set(found.tolist())) < length:
        raise OptionError(f"--steps {name}: it has to have integers, each of them once")
    return [int(step) for step in found.tolist()]


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Any]]:
    """All arrays of a file by the ways to them.

    Raises:
        OptionError: the end of its name says no format, or nothing is there.
        MissingLibraryError: its library is not installed.
        StorageError: it cannot be read.
    """
    library = LIBRARIES.get(path.suffix)
    if library is None:
        known = ", ".join((SAFETENSORS, *LIBRARIES))
        raise OptionError(f"{path}: its end says the format, one of {known}")
    if not path.exists():
        raise OptionError(f"{path} is not there")
    try:
        module = import_module(library)
    except ImportError as why:
        text = f"{path.suffix} files need {library}: pip install {library} ({why})"
        raise MissingLibraryError(text, name=library) from why
    with ExitStack() as stack:
        try:
            if library == "zarr":
                found = _of_zarr(module, path)
            else:
                found = _of_hdf5(module, stack.enter_context(module.File(path, "r")))
        except OSError as why:
            raise StorageError(f"{path} cannot be read: {why}") from why
        yield found


def _of_zarr(zarr: Any, path: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        # On what is in the folder beside arrays, and on dtypes without a specification.
        warnings.simplefilter("ignore")
        group = zarr.open_group(str(path), mode="r")
        members = group.members(max_depth=None)
    return {name: one for name, one in sorted(members) if isinstance(one, zarr.Array)}


def _of_hdf5(h5py: Any, file: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def see(name: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset):
            found[name] = one

    file.visititems(see)
    return found
