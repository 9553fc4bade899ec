"""Whether the Deepwave that is installed is one whose engine is known here."""

from __future__ import annotations

import importlib
import inspect

from unspool.errors import MissingLibraryError

__all__ = ["WRAPPED", "check"]

#: The releases that are known, by the first numbers of their versions, and how to get one.
KNOWN, INSTALL = ("0", "1"), '`pip install "deepwave>=0.1,<0.2"`'
#: The functions of `deepwave._engine` that are wrapped, with the arguments that they have to have.
WRAPPED = {
    "run_forward_engine": {"make_call", "swap", "raw_forward_storage_manager"},
    "run_backward_core": {"make_call", "swap", "storage_manager", "extra_grad_scratch"},
}


def check() -> None:
    """Imports Deepwave.

    Raises:
        MissingLibraryError: it is not there, or not one that is known.
    """
    try:
        import deepwave
    except ImportError as missing:
        raise MissingLibraryError(
            "unspool.interop.deepwave needs Deepwave, which cannot be imported here "
            f"({missing}): {INSTALL}.",
            name="deepwave",
        ) from missing
    if tuple(deepwave.__version__.split(".")[: len(KNOWN)]) != KNOWN or not _fits():
        raise MissingLibraryError(
            f"unspool.interop.deepwave knows the engine of Deepwave {'.'.join(KNOWN)}, "
            f"and not that of {deepwave.__version__}, which is installed: {INSTALL}.",
            name="deepwave",
        )


def _fits() -> bool:
    try:
        engine = importlib.import_module("deepwave._engine")
        storage = importlib.import_module("deepwave._storage")
        found = {name: inspect.signature(getattr(engine, name)).parameters for name in WRAPPED}
    except (ImportError, AttributeError):
        return False
    return (
        hasattr(engine, "StorageManager")
        and hasattr(storage, "StorageMode")
        and all(needed <= set(found[name]) for name, needed in WRAPPED.items())
    )
