"""`unspool import`: a file of safetensors, or a checkpoint of Orbax, as a checkpoint of a run."""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import _arrays
from ._exporting import VALUES
from ._restart import Checkpointer
from ._restart.options import Stop
from ._trees import REGION, Apart
from .errors import MissingLibraryError, OptionError, StorageError

__all__ = ["SAFETENSORS", "import_file", "is_checkpoint"]

#: The dtypes of the format by their names in a checkpoint.
DTYPES = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "C64": "complex64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}

#: The most bytes of a header, as the format says.
MOST_HEADER = 100_000_000


#: The end of files of safetensors, and the file by which a folder of Orbax is known.
SAFETENSORS = ".safetensors"
ORBAX = "_METADATA"

#: The small values of a file that has none.
NOTHING = '{"values":{},"random":{}}'


class _File(NamedTuple):
    """What a file has: arrays over its bytes, and the texts beside them."""

    arrays: dict[str, Any]
    texts: dict[str, str]


def is_checkpoint(file: Path) -> bool:
    """Whether what lies there is one checkpoint, and not a history of many."""
    return file.suffix == SAFETENSORS or (file / ORBAX).is_file()


def import_file(options: argparse.Namespace) -> int:
    """Saves what a file has as a checkpoint, which counts when this returns.

    Raises:
        OptionError: the file is of another format, or was exported of several ranks; or the step
            does not come after what lies in the folder.
        StorageError: the file cannot be read, or is damaged.
        MissingLibraryError: the format needs a library that is not installed.
    """
    file: Path = options.file
    is_orbax = (file / ORBAX).is_file()
    if not is_checkpoint(file):
        raise OptionError(
            f"{file}: files of safetensors are imported, which end so, and folders of Orbax that "
            f"have a file {ORBAX}"
        )
    found = _read_orbax(file) if is_orbax else _read(file)
    if not isinstance(found, dict) and any(name.startswith("rank-") for name in found.texts):
        raise OptionError(f"{file} has the parts of several ranks: import those of one rank")
    with Checkpointer(options.directory, every=None, stop=Stop(signals=())) as checkpoints:
        if isinstance(found, dict):
            checkpoints.save(options.step, **found)
        else:
            _save(checkpoints, options.step, found)
    print(f"{file} saved as step {options.step} of {options.directory}")
    return 0


def _save(checkpoints: Checkpointer, step: int, found: _File) -> None:
    """Saves arrays with the texts that `unspool export` has written beside them."""
    text = found.texts.get(REGION)
    checkpoints._core.begin(step, found.texts.get(VALUES) or NOTHING)
    try:
        tree = found.arrays if text is None else Apart(found.arrays, text.encode())
        checkpoints.spool.save(step, tree)
        checkpoints._core.commit()
    except BaseException:
        checkpoints._core.abandon()
        raise


def _read_orbax(folder: Path) -> dict[str, Any]:
    """The tree of a checkpoint of Orbax, which tensorstore reads."""
    try:
        tensorstore = importlib.import_module("tensorstore")
    except ImportError as why:
        text = f"{folder} is of Orbax, which needs tensorstore: pip install tensorstore"
        raise MissingLibraryError(text, name="tensorstore") from why
    root: dict[Any, Any] = {}
    try:
        about = json.loads((folder / ORBAX).read_text())
        for one in about["tree_metadata"].values():
            *way, last = [_key(key) for key in one["key_metadata"]]
            holder = root
            for key in way:
                holder = holder.setdefault(key, {})
            holder[last] = _leaf(tensorstore, folder, about, one)
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as why:
        raise StorageError(f"{folder} is no checkpoint of Orbax, or damaged: {why}") from why
    if not all(type(key) is str for key in root):
        raise OptionError(f"{folder} has no names: only dictionaries of trees are imported")
    return {key: _listed(value) for key, value in root.items()}


def _key(about: Mapping[str, Any]) -> Any:
    """A key of a dictionary, or an index."""
    return int(about["key"]) if about["key_type"] == 1 else str(about["key"])


def _leaf(tensorstore: Any, folder: Path, about: Mapping[str, Any], one: Mapping[str, Any]) -> Any:
    """An array, or a number."""
    name = ".".join(key["key"] for key in one["key_metadata"])
    kind = one["value_metadata"]["value_type"]
    if kind not in ("jax.Array", "np.ndarray", "scalar"):
        raise OptionError(f"{name} is a {kind}: arrays and numbers of Orbax are imported alone")
    base = {"driver": "file", "path": f"{folder.absolute()}/"}
    kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    if not about.get("use_ocdbt"):
        kvstore = {"driver": "file", "path": f"{folder.absolute()}/{name}/"}
    driver = "zarr3" if about.get("use_zarr3") else "zarr"
    array = tensorstore.open({"driver": driver, "kvstore": kvstore}, open=True, read=True).result()
    found = array.read().result()
    return found.item() if kind == "scalar" else found


def _listed(value: Any) -> Any:
    """A tree whose dictionaries of indices are lists."""
    if not isinstance(value, dict):
        return value
    items = {key: _listed(one) for key, one in value.items()}
    if items and all(type(key) is int for key in items):
        return [items[key] for key in sorted(items)]
    return items


def _read(file: Path) -> _File:
    import numpy as np

    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(MOST_HEADER, size):
                raise ValueError("its header is cut off")
            header = json.loads(stream.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
        is_empty = size == 8 + length
        content = np.empty(0, "u1") if is_empty else np.memmap(file, np.uint8, "r", 8 + length)
        texts = dict(header.pop("__metadata__", None) or {})
        arrays = {name: _array(content, name, **about) for name, about in header.items()}
    except OSError as why:
        raise StorageError(f"{file} cannot be read: {why}") from why
    except (KeyError, RecursionError, TypeError, ValueError) as why:
        raise StorageError(f"{file} is no file of safetensors, or damaged: {why}") from why
    return _File(arrays, {name: str(text) for name, text in texts.items()})


def _array(content: Any, name: str, *, dtype: str, shape: list[int], data_offsets: Any) -> Any:
    """An array over the bytes of the file."""
    if dtype not in DTYPES:
        raise OptionError(f"{name} has the dtype {dtype}, which is not imported")
    wanted, (first, end) = _arrays.numpy_dtype(DTYPES[dtype]), data_offsets
    whole = math.prod(shape) * wanted.itemsize
    if not 0 <= first <= end <= content.size or end - first != whole or min(shape, default=0) < 0:
        raise ValueError(f"{name} does not lie in it")
    return content[first:end].view(wanted).reshape(shape)
