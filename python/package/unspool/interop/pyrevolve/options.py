"""What the options of all Revolvers mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from typing import Any

from unspool import Spool
from unspool.errors import OptionError

__all__ = ["STAGED", "disk_spool", "positive", "refuse_compression", "version"]

#: With copies on disk, how many of them are in main memory on their way there and back.
STAGED = 4


def disk_spool(host: int, filedir: str | os.PathLike[str]) -> Spool:
    """A spool with this many bytes of main memory, and a directory, made if it is missing."""
    os.makedirs(filedir, exist_ok=True)
    return Spool(host_memory=host, disk=filedir)


def refuse_compression(params: Mapping[str, Any] | None) -> None:
    """Refuses every compression but none.

    Raises:
        OptionError: a scheme is named.
    """
    scheme = params.get("scheme") if isinstance(params, Mapping) else params
    if scheme is not None:
        raise OptionError(
            f"compression_params: the scheme {scheme!r} cannot be used here: the copies go into a "
            f"spool, which takes them straight from the arrays and keeps their bytes as they are. "
            f"Leave compression_params out; if memory is short, set diskstorage=True, or give "
            f'spool=unspool.Spool(host_memory="32GiB", disk="/scratch").'
        )


def positive(name: str, value: int) -> int:
    """`value` as an integer of 1 or more.

    Raises:
        OptionError: it is none.
    """
    try:
        number = index(value)
    except TypeError as cause:
        raise OptionError(f"{name}={value!r}: give a whole number, 1 or more.") from cause
    if number < 1:
        raise OptionError(f"{name}={value!r}: give 1 or more.")
    return number


def version(name: str, value: int) -> int:
    """`value` as a version of a spool.

    Raises:
        OptionError: it is none.
    """
    try:
        number = index(value)
    except TypeError as cause:
        raise OptionError(f"{name}={value!r}: give a whole number.") from cause
    if not -1 << 63 <= number < 1 << 63:
        raise OptionError(f"{name}={value!r}: versions are integers of 64 bits.")
    return number
