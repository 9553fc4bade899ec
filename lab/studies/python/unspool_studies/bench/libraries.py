"""The array libraries whose GPU arrays are saved here."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unspool_studies.bench.cuda import Cuda, Stream

__all__ = ["Library", "libraries", "torch_stream"]


@dataclass(frozen=True, slots=True)
class Library:
    """One array library.

    Attributes:
        name: for tables.
        array: a new array of so many bytes.
        current: makes a stream the library's current one.
    """

    name: str
    array: Callable[[int], Any]
    current: Callable[[Stream], contextlib.AbstractContextManager[Any]]


def libraries(cuda: Cuda) -> list[Library]:
    """CuPy, and PyTorch where it is installed and can use the device."""
    found = [Library("CuPy", cuda.array, cuda.current)]
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            found.append(_torch(torch, cuda.ordinal))
    return found


def _torch(torch: Any, ordinal: int) -> Library:
    device = torch.device("cuda", ordinal)

    def array(size: int) -> Any:
        return torch.zeros(size, dtype=torch.uint8, device=device)

    return Library("PyTorch", array, lambda stream: torch_stream(torch, ordinal, stream))


def torch_stream(
    torch: Any, ordinal: int, stream: Stream
) -> contextlib.AbstractContextManager[Any]:
    """Makes a stream of this device PyTorch's current one; may be entered again."""
    external = torch.cuda.ExternalStream(stream.ptr, device=torch.device("cuda", ordinal))
    manager: contextlib.AbstractContextManager[Any] = torch.cuda.stream(external)
    return manager
