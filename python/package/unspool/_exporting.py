"""`unspool export`: checkpoints as files of other programs."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ._holdings import lost_of, parts_of, steps_of
from ._restart.parts import Place
from ._trees import REGION
from .errors import (
    ArrayError,
    CorruptCheckpointError,
    LostCheckpointError,
    MissingLibraryError,
    OptionError,
    StorageError,
    UnknownVersionError,
)

__all__ = ["export"]

#: What stands for the step in the name of a file.
STEP = "{step}"

#: The name of the small values of a run, beside those of arrays.
VALUES = "unspool.values"

#: What a checkpoint may fail with while others are exported.
UNREADABLE = (
    ArrayError,
    CorruptCheckpointError,
    LostCheckpointError,
    StorageError,
    UnknownVersionError,
)

#: Arrays by name, and texts by name.
Arrays = Mapping[str, Any]
Texts = Mapping[str, str]


def export(options: argparse.Namespace, choose: Callable[[str, list[int]], list[int]]) -> int:
    """Writes checkpoints to files; 1 when one of them could not be.

    Raises:
        OptionError: there is no such checkpoint, or a file is there.
        MissingLibraryError: the format needs a library that is not installed.
    """
    path, out = options.directory, options.out
    write = _writer(out)
    steps = choose(options.steps, steps_of(path))
    if len(steps) > 1 and STEP not in out:
        raise OptionError(f"{len(steps)} checkpoints need {STEP} in the name: -o 'OUT/{STEP}.npz'")
    files = {step: Path(out.replace(STEP, str(step))) for step in steps}
    there = [file for file in files.values() if file.exists()]
    if there and not options.force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise OptionError(f"{there[0]}{more} would be replaced: --force allows it")
    wanted = (options.array or [], options.region)
    if options.region is not None and not options.array:
        raise OptionError("--region is of an array: name it with --array")
    done = [_export_one(path, step, file, write, wanted) for step, file in files.items()]
    print(f"{sum(done)} checkpoint{'' if sum(done) == 1 else 's'} written to {out}")
    lost = lost_of(path)
    for version, why in lost.items():
        print(f"unspool export: version {version} is lost: {why}", file=sys.stderr)
    return 0 if all(done) and not lost else 1


def _writer(out: str) -> Callable[[Path, Arrays, Texts], None]:
    """What writes files of this name.

    Raises:
        OptionError: the end of the name says no format.
        MissingLibraryError: its library is not installed.
    """
    suffix = Path(out).suffix
    if suffix not in FORMATS:
        raise OptionError(f"-o {out}: its end says the format, one of {', '.join(FORMATS)}")
    library, write = FORMATS[suffix]
    try:
        import_module(library)
    except ImportError as why:
        raise MissingLibraryError(
            f"{suffix} files need {library}: pip install {library} ({why})", name=library
        ) from why
    return write


def _export_one(
    path: Place,
    step: int,
    file: Path,
    write: Callable[[Path, Arrays, Texts], None],
    wanted: tuple[list[str], Any],
) -> bool:
    """Whether a checkpoint was written; why not is on standard error."""
    try:
        arrays, texts = _gathered(path, step, *wanted)
        file.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(file) as part:
            write(part, arrays, texts)
    except (*UNREADABLE, MissingLibraryError) as why:
        print(f"unspool export: step {step}: {why}", file=sys.stderr)
        return False
    return True


def _gathered(
    path: Place, step: int, names: list[str], region: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """All arrays of a checkpoint, of all ranks, and the texts beside them; with names, a region of
    those alone.
    """
    arrays: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for part in parts_of(path, step):
        with part.opened() as spool:
            if names:
                found = {name: spool.load(step, name, region=region) for name in names}
                arrays |= {part.prefix + name: array for name, array in found.items()}
                continue
            regions = spool._load_parts(step)
        if REGION in regions:
            texts[part.prefix + REGION] = regions.pop(REGION).decode()
        if part.manifest is not None:
            texts[part.prefix + VALUES] = part.manifest.values
        arrays |= {part.prefix + name: array for name, array in regions.items()}
    return arrays, texts


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Gives a path to write to, a file or a directory; it becomes `file` when the block ends well.

    Raises:
        StorageError: what is there must not be replaced.
    """
    part = file.with_name(f".{os.getpid()}.{file.name}")
    old = file.with_name(f".{os.getpid()}.old.{file.name}")
    try:
        yield part
        if file.is_dir():
            if not any((file / name).exists() for name in (".zgroup", "zarr.json")):
                raise StorageError(f"{file} is a directory of something else, and stays")
            file.replace(old)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True) if part.is_file() else shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _write_npz(part: Path, arrays: Arrays, texts: Texts) -> None:
    from zipfile import ZipFile

    import numpy as np

    # As numpy.savez, which takes no array of the name "file".
    with part.open("wb") as stream, ZipFile(stream, "w") as archive:
        described = {name: np.array(text) for name, text in texts.items()}
        for name, values in {**arrays, **described}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)


def _write_hdf5(part: Path, arrays: Arrays, texts: Texts) -> None:
    import h5py

    with h5py.File(part, "w") as file:
        for name, values in arrays.items():
            plain, dtype = _plain(values, "Mm")
            try:
                made = file.create_dataset(name, data=plain)
            except (TypeError, ValueError) as why:
                raise _unheld(name, values, "HDF5", ".npz or .zarr") from why
            if dtype is not None:
                made.attrs["dtype"] = dtype
        for name, text in texts.items():
            file.create_dataset(name, data=text)


def _write_zarr(part: Path, arrays: Arrays, texts: Texts) -> None:
    import zarr

    # Version 2 of the format: every reader has it, and it has every dtype of NumPy.
    group = zarr.open_group(str(part), mode="w", zarr_format=2)
    for name, values in arrays.items():
        plain, dtype = _plain(values, "")
        try:
            made = group.create_array(name, data=plain)
        except (TypeError, ValueError) as why:
            raise _unheld(name, values, "Zarr", ".npz") from why
        if dtype is not None:
            made.attrs["dtype"] = dtype
    for name, text in texts.items():
        group.attrs[name] = text


def _write_safetensors(part: Path, arrays: Arrays, texts: Texts) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    for name, values in arrays.items():
        try:
            save_file({name: values[:0] if values.ndim else values}, part)
        except SafetensorError as why:
            raise _unheld(name, values, "safetensors", ".npz, .h5 or .zarr") from why
    save_file(dict(arrays), part, metadata=dict(texts) or None)


#: The library of each format, and what writes it.
FORMATS: dict[str, tuple[str, Callable[[Path, Arrays, Texts], None]]] = {
    ".npz": ("numpy", _write_npz),
    ".h5": ("h5py", _write_hdf5),
    ".hdf5": ("h5py", _write_hdf5),
    ".zarr": ("zarr", _write_zarr),
    ".safetensors": ("safetensors", _write_safetensors),
}


def _plain(values: Any, counted: str) -> tuple[Any, str | None]:
    """An array that has a dtype of NumPy alone, and the dtype that it stands for, if another one.

    Types that NumPy has not, such as bfloat16, become bytes; dates and times become integers where
    `counted` has their kind.
    """
    dtype = values.dtype
    if dtype.kind in tuple(counted):
        return values.view("i8"), dtype.str
    if dtype.kind == "V" and dtype.names is None and dtype.name != f"void{8 * dtype.itemsize}":
        return values.view(f"V{dtype.itemsize}"), dtype.name
    return values, None


def _unheld(name: str, values: Any, which: str, instead: str) -> ArrayError:
    return ArrayError(f"{name}: a {which} file cannot hold {values.dtype}: write {instead} instead")
