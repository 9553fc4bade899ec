"""`unspool import`: a file of safetensors as a checkpoint of a run."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from . import _arrays
from ._exporting import VALUES
from ._restart import Checkpointer
from ._restart.options import Stop
from ._trees import REGION, Apart
from .errors import OptionError, StorageError

__all__ = ["import_file"]

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


#: The small values of a file that has none.
NOTHING = '{"values":{},"random":{}}'


class _File(NamedTuple):
    """What a file has: arrays over its bytes, and the texts beside them."""

    arrays: dict[str, Any]
    texts: dict[str, str]


def import_file(options: argparse.Namespace) -> int:
    """Saves what a file has as a checkpoint, which counts when this returns.

    Raises:
        OptionError: the file is of another format, or was exported of several ranks; or the step
            does not come after what lies in the folder.
        StorageError: the file cannot be read, or is damaged.
    """
    file: Path = options.file
    if file.suffix != ".safetensors":
        raise OptionError(f"{file}: files of safetensors are imported, which end so")
    arrays, texts = _read(file)
    if any(name.startswith("rank-") and name.endswith(VALUES) for name in texts):
        raise OptionError(f"{file} has the parts of several ranks: import those of one rank")
    text = texts.get(REGION)
    tree = arrays if text is None else Apart(arrays, text.encode())
    with Checkpointer(options.directory, every=None, stop=Stop(signals=())) as checkpoints:
        checkpoints._core.begin(options.step, texts.get(VALUES) or NOTHING)
        checkpoints.spool.save(options.step, tree)
        checkpoints._core.commit()
    print(f"{file} saved as step {options.step} of {options.directory}")
    return 0


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
