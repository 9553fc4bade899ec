"""A history in a file of ADIOS2's engine BP5, a step a checkpoint: a baseline of part `orders`, and
of the paper that it repeats (Maurya et al., HPDC 2023, section 5.2.1).

A checkpoint passes through one pinned buffer: the wheels of ADIOS2 are built without CUDA, whose
support does the same copy. BP5 buffers a step in main memory and writes it in the background while
the next one is filled; it writes and reads through the page cache.
"""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import numpy as np
from unspool_studies.bench.by_hand import NoBaseline, require_disk, view_of
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Application, Experiment

__all__ = ["AdiosHistory"]

NAME = "state"


class AdiosHistory:
    """Checkpoints as steps of one variable, whose length changes from step to step.

    Raises:
        NoBaseline: the package adios2 is not installed.
        OSError: there is too little room on the disk.
    """

    def __init__(self, cuda: Cuda, application: Application, one: Experiment) -> None:
        try:
            import adios2
        except ImportError as error:
            raise NoBaseline(f"it needs ADIOS2: pip install adios2; {error}") from error
        require_disk(one.directory, one.total)
        self._bindings = adios2.bindings
        self._cuda, self._stream, self._sizes = cuda, application.stream, one.sizes
        self._reader: Any = None
        with contextlib.ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="unspool-bench-", dir=one.directory)
            self._path = f"{stack.enter_context(folder)}/history.bp"
            self._buffer = cuda.host_alloc(max(one.sizes))
            stack.callback(cuda.free_host, self._buffer)
            self._adios = self._bindings.ADIOS()
            self._writing = self._declared("writing", {"AsyncWrite": "On"})
            self._writer: Any = self._writing.Open(self._path, self._bindings.Mode.Write)
            self._variable: Any = None
            self._stack = stack.pop_all()

    def save(self, version: int, state: int) -> None:
        """Returns when the bytes are in the buffer of the engine."""
        size = self._sizes[version]
        self._cuda.down(self._buffer, state, size, self._stream)
        self._cuda.wait(self._stream)
        self._writer.BeginStep()
        self._shape(size)
        self._writer.Put(self._variable, self._array(size), self._bindings.Mode.Sync)
        self._writer.EndStep()

    def flush(self) -> None:
        """Waits until all is written, and closes the file."""
        if self._writer is not None:
            self._writer.Close()
            self._writer = None

    def begin_restores(self, order: object) -> None:
        """The order is not made use of."""

    def restore(self, version: int, state: int) -> None:
        """Returns when the bytes are on the device; the first one closes the file, if need be, and
        opens it for reading.
        """
        size = self._sizes[version]
        if self._reader is None:
            self._open()
        self._found.SetStepSelection([version, 1])
        self._found.SetSelection([[0], [size]])
        self._reader.Get(self._found, self._array(size), self._bindings.Mode.Sync)
        self._cuda.up(state, self._buffer, size, self._stream)
        self._cuda.wait(self._stream)

    def close(self) -> None:
        """Closes and removes the file, and gives the buffer back."""
        self._cuda.wait(self._stream)
        self.flush()
        if self._reader is not None:
            self._reader.Close()
        self._stack.close()

    def _open(self) -> None:
        self.flush()
        reading = self._declared("reading", {})
        self._reader = reading.Open(self._path, self._bindings.Mode.ReadRandomAccess)
        self._found = reading.InquireVariable(NAME)

    def _declared(self, name: str, parameters: dict[str, str]) -> Any:
        declared = self._adios.DeclareIO(name)
        declared.SetEngine("BP5")
        declared.SetParameters(parameters)
        return declared

    def _shape(self, size: int) -> None:
        """Gives the variable the length of a checkpoint."""
        if self._variable is None:
            where = [size], [0], [size]
            self._variable = self._writing.DefineVariable(NAME, self._array(size), *where, False)
        else:
            self._variable.SetShape([size])
            self._variable.SetSelection([[0], [size]])

    def _array(self, size: int) -> Any:
        return np.frombuffer(view_of(self._buffer, size), np.uint8)
