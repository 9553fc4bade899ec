"""The array of `unspool.tiled`. A tile is a sequence of versions in one spool: writing it saves the
next one and discards the one before, so that what is written is there as a whole or not at all."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np

from .._arrays import dtype_name, numpy_dtype
from .._unspool import Spool
from ..codecs import Bound, Zfp
from ..errors import ArrayError, OptionError, UnknownVersionError
from ..stats import TiledStats
from .grid import Grid, grid_of, ranges_of
from .order import Order, Turn

__all__ = ["TiledArray", "checked_dtype", "checked_fill", "grid_of"]

Mode = Literal["r", "w", "rw"]
Library = Literal["numpy", "cupy", "torch"]


def checked_dtype(dtype: Any) -> tuple[str, np.dtype[Any]]:
    """The name of a dtype in checkpoints, and that of NumPy.

    Raises:
        OptionError: it is not one of numbers.
    """
    try:
        name = dtype_name(dtype)
    except OptionError:
        raise OptionError(
            f"tiled(dtype={dtype!r}): tiles hold numbers and booleans in the order of bytes of "
            "this machine."
        ) from None
    return name, numpy_dtype(name)


def checked_fill(fill: Any, dtype: np.dtype[Any]) -> Any:
    """The value that fills tiles.

    Raises:
        OptionError: the dtype does not have it.
    """
    try:
        lost = np.iscomplexobj(fill) and dtype.kind != "c"
        value = None if lost else np.full((), fill, dtype)[()]
    except (TypeError, ValueError, OverflowError) as wrong:
        raise OptionError(f"tiled(fill={fill!r}): {wrong}.") from None
    if lost or (dtype.kind in "biu" and value != fill):
        raise OptionError(f"tiled(fill={fill!r}): {dtype} has no such value.")
    return value


class TiledArray:
    """An array of which tiles are worked on while the others lie in a spool; `unspool.tiled` makes
    it. Its tiles are numbered from 0, in C order.

    All methods may be called from several threads. Leaving a `with` block of the array closes it.
    """

    # Without it Python would go through rows by `array[0]`, `array[1]`, ...
    __iter__ = None

    def __init__(
        self,
        grid: Grid,
        name: str,
        fill: Any,
        spool: Spool,
        to: Library | Literal["auto"] | None,
        codec: Any,
    ) -> None:
        self._grid, self._name, self._fill = grid, name, fill
        self._dtype: np.dtype[Any] = numpy_dtype(name)
        self._spool = spool
        self._on_gpu = spool.device != "cpu" and spool.stats().tiers[0].name == "device"
        found: Library = "cupy" if self._on_gpu else "numpy"
        self._to = found if to == "auto" else to
        bounded = isinstance(codec, Bound | Zfp) or getattr(codec, "abs", None) is not None
        self._lossy = bounded and (self._dtype.kind in "fc" or name == "bfloat16")
        # Held for bookkeeping; announcements are made meanwhile, in the order in which they are
        # decided. An order is code of the application, which may call the array.
        self._lock = threading.RLock()
        self._filling = threading.Lock()
        self._written = [0] * grid.tiles
        self._encoded = [0] * grid.tiles
        self._writers: set[int] = set()
        self._filled: dict[tuple[int, ...], int] = {}
        self._order: Order | None = None
        self._reads = self._writes = self._corrections = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._grid.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype, as NumPy's."""
        return self._dtype

    @property
    def tiles(self) -> int:
        """The number of its tiles."""
        return self._grid.tiles

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of its tiles; those at the ends may be smaller."""
        return self._grid.tile

    @property
    def spool(self) -> Spool:
        """The spool that its tiles lie in, for statistics and traces. What is saved there or
        discarded by others breaks the array."""
        return self._spool

    def slices(self, index: int) -> tuple[slice, ...]:
        """Where a tile is in the array.

        Raises:
            OptionError: there is no such tile.
        """
        return self._grid.slices(self._index(index))

    def tile(
        self, index: int, mode: Mode = "r", *, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """A `with` block in which a tile is an array: `with array.tile(3, "rw") as a:`.

        The block has what was written last, by a block that has ended. Leaving it in mode `"w"` or
        `"rw"` writes the tile; leaving it by an exception leaves the tile as it was. The array is
        over memory of the spool and may be used in the block only (see `Spool.reading` and
        `Spool.writing`).

        Args:
            index: the number of the tile.
            mode: `"r"` to read; the array must not be written, and one of NumPy cannot be.
                `"w"` to write all of it: what it holds at first is unspecified. `"rw"` for both.
            stream: the stream of a GPU that the work is on, as for `Spool.writing`.

        Raises:
            OptionError: there is no such tile or mode; or another block writes the tile.
            CapacityError: every tier is full; or the tile is larger than the fastest one.
            All that `Spool.reading` and `Spool.writing` raise.
        """
        index = self._index(index)
        if mode == "r":
            return self._reading(index, stream)
        return self._writing(index, _checked(mode) == "rw", stream)

    def sweep(
        self, mode: Mode = "r", *, halo: int = 0, stream: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """All tiles in their order, as pairs of number and array: `for i, a in array.sweep("rw"):`.

        Each is as in a block of `tile` until the next one is asked for. Leaving the loop by `break`
        or an exception leaves the last tile as it was. The sweep announces itself where no order is
        followed.

        Args:
            mode: as for `tile`.
            halo: planes of the tiles before and after that each array has besides, along the first
                axis; none beyond the ends of the array. It is then a copy, in mode `"r"`, taken
                before the loop gets the tile before it: writing each tile in the loop, by a block
                of its own, changes no halo. At most the rows of a tile.
            stream: as for `tile`.

        Raises:
            OptionError: there is no such mode, or no such halo.
            All that `tile` raises, in the loop.
        """
        if not halo:
            return self._sweep(_checked(mode), stream)
        rows = self._grid.tile[0] if self.shape else 0
        if mode != "r" or any(count > 1 for count in self._grid.counts[1:]) or self._to is None:
            raise OptionError(
                "sweep(halo=...) needs mode='r', tiles along the first axis alone, and arrays of "
                "a library."
            )
        if not 0 < operator.index(halo) <= rows:
            raise OptionError(f"sweep(halo={halo!r}): tiles have {rows} rows; give up to as many.")
        return self._halos(operator.index(halo), stream)

    def map(
        self, kernel: Callable[[int, Any], object], mode: Mode = "rw", *, threads: int = 1
    ) -> None:
        """Calls `kernel(number, array)` with every tile, as in a block of `tile`. After an
        exception no further tiles are begun, and it is raised; tiles that were done stay so.

        Args:
            kernel: what is done with each tile.
            mode: as for `tile`.
            threads: how many tiles are worked on at a time. On a GPU one thread enqueues without
                waiting; in main memory others decode and encode beside the one that computes.

        Raises:
            OptionError: `threads` makes no sense.
            All that `tile` and the kernel raise.
        """
        if operator.index(threads) < 1 or (threads > 1 and self._on_gpu):
            raise OptionError(f"map(threads={threads!r}): give at least 1, and 1 on a GPU.")
        with self._announced(_checked(mode)):
            _in_threads(threads, self.tiles, lambda index: self._call(kernel, index, mode))

    def expect(
        self,
        order: Iterable[int] | None = None,
        *,
        cycle: Iterable[int] | None = None,
        mode: Literal["r", "rw"] = "rw",
    ) -> None:
        """Announces the tiles that will be read, in this order, in place of what was announced
        before: `expect(cycle=range(array.tiles))` for one sweep after the other, without an end.

        They are brought back before their turns, and what is read last goes first. It is advice:
        reads out of order are served all the same, and what `array[...]` reads does not count. An
        iterator may never end: as many turns are taken from it as there are tiles.

        Args:
            order: numbers of tiles.
            cycle: numbers that are repeated after those, for ever. With neither, what was announced
                is forgotten.
            mode: what becomes of a tile between its turns: `"rw"` that it is rewritten, so that the
                next turn reads what is not there yet; `"r"` that it stays. For each tile, what its
                last two turns were like counts from then on.

        Raises:
            OptionError: something is not a tile; for an iterator also where a tile is read.
        """
        if mode not in ("r", "rw"):
            raise OptionError(f'expect(mode={mode!r}): write "r" or "rw"; what is read counts.')
        try:
            first = iter(() if order is None else order)
            repeated = iter(() if cycle is None else cycle)
        except TypeError as wrong:
            raise OptionError(f"expect(): {wrong}; give numbers of tiles.") from None
        source = itertools.chain(first, itertools.cycle(repeated))
        with self._lock:
            self._spool.forget_hints()
            self._order = None
            if order is not None or cycle is not None:
                made = Order(source, self.tiles, mode == "rw")
                self._announce(made.more(self._written))
                self._order = made

    def stats(self) -> TiledStats:
        """What was done with its tiles; `spool.stats()` has tiers, links and codecs."""
        with self._lock:
            return TiledStats(
                tiles=self.tiles,
                never_written=self._written.count(0),
                reads=self._reads,
                writes=self._writes,
                lossy_most=max(self._encoded, default=0),
                corrections=self._corrections,
            )

    def close(self) -> None:
        """Gives its tiles and their memory back; a second call does nothing."""
        self._spool.close()

    def __enter__(self) -> TiledArray:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __getitem__(self, key: Any) -> Any:
        """A copy of a part, as a NumPy array. Each tile of it is read as a whole.

        Raises:
            ArrayError: the key is not made of integers, slices and an ellipsis.
            All that `Spool.load` raises.
        """
        ranges, gone, turns = ranges_of(key, self.shape)
        part = np.empty([len(one) for one in ranges], self._dtype)
        for index, inside, place in self._grid.parts(ranges):
            part[place] = self._load(index)[inside]
        return part.squeeze(axis=tuple(gone))[turns]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes a part. Each tile of it is written as a whole, and read before where the part is
        not all of it; after an error those before have the new values, the others the old ones.

        Raises:
            ArrayError: as for reading; or the value has another shape.
            OptionError: a block writes the tile.
            All that `Spool.load` and `Spool.save` raise.
        """
        ranges, gone, turns = ranges_of(key, self.shape)
        shape = tuple(len(one) for one in ranges)
        kept = tuple(n for axis, n in enumerate(shape) if axis not in gone)
        try:
            value = np.broadcast_to(np.asarray(value), kept)[turns].reshape(shape)
        except ValueError as wrong:
            raise ArrayError(f"array[{key!r}] = ...: {wrong}.") from None
        for index, inside, place in self._grid.parts(ranges):
            with self._writer(index):
                part, whole = value[place], self._grid.shape_of(index)
                afresh = part.shape == whole
                values = np.empty(whole, self._dtype) if afresh else self._load(index)
                values[inside] = part
                self._spool.save(self._next(index), values)
                self._wrote(index, afresh=afresh)

    def __array__(self, *_arguments: Any, **_options: Any) -> Any:
        raise ArrayError(
            "A tiled array is not copied into memory as a whole unasked: array[...] does that, and "
            "array[key] a part."
        )

    def __repr__(self) -> str:
        return f"<unspool.tiled {self.shape} {self._name}: {self.tiles} tiles of {self.tile_shape}>"

    @contextlib.contextmanager
    def _reading(self, index: int, stream: Any) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            yield self._found(
                index,
                lambda version: stack.enter_context(
                    self._spool.reading(version, stream=stream, to=self._to)
                ),
            )

    @contextlib.contextmanager
    def _writing(self, index: int, reads: bool, stream: Any) -> Iterator[Any]:
        shape = self._grid.shape_of(index)
        with self._writer(index):
            block = self._spool.writing(
                self._next(index), shape, self._name, stream=stream, to=self._to
            )
            with block as array:
                if reads:
                    self._found(
                        index, lambda version: self._spool.restore(version, array, stream=stream)
                    )
                yield array
            self._wrote(index, afresh=not reads)

    @contextlib.contextmanager
    def _writer(self, index: int) -> Iterator[None]:
        """A block in which nobody else writes the tile."""
        with self._lock:
            if index in self._writers:
                taken = OptionError(
                    f"Tile {index} is being written by another block: leave that one first."
                )
                taken.retryable = True
                raise taken
            self._writers.add(index)
        try:
            yield
        finally:
            with self._lock:
                self._writers.discard(index)

    def _sweep(self, mode: Mode, stream: Any) -> Iterator[tuple[int, Any]]:
        with self._announced(mode):
            for index in range(self.tiles):
                with self.tile(index, mode, stream=stream) as array:
                    yield index, array

    def _halos(self, halo: int, stream: Any) -> Iterator[tuple[int, Any]]:
        library = importlib.import_module(self._to or "numpy")
        join = library.cat if self._to == "torch" else library.concatenate

        def copied(index: int) -> Any:
            with self._reading(index, stream) as array:
                return join([array])

        with self._announced("r"):
            before: list[Any] = []
            here: Any = copied(0) if self.tiles else None
            for index in range(self.tiles):
                after = copied(index + 1) if index + 1 < self.tiles else None
                beyond = [] if after is None else [after[:halo]]
                yield index, join([*before, here, *beyond])
                before, here = [here[-halo:]], after

    def _call(self, kernel: Callable[[int, Any], object], index: int, mode: Mode) -> None:
        with self.tile(index, mode) as array:
            kernel(index, array)

    @contextlib.contextmanager
    def _announced(self, mode: Mode) -> Iterator[None]:
        """A block in which all tiles are read in their order."""
        own = None
        with self._lock:
            if mode != "w" and not self._order:
                self.expect(range(self.tiles), mode=mode)
                own = self._order
        try:
            yield
        finally:
            with self._lock:
                if own is not None and self._order is own:
                    self._order = None
                    if own and not self._spool.closed:
                        self._spool.forget_hints()

    def _index(self, index: int) -> int:
        found = operator.index(index)
        if not 0 <= found < self.tiles:
            raise OptionError(f"There is no tile {found}: the array has {self.tiles}, from 0 on.")
        return found

    def _found(self, index: int, get: Callable[[int], Any]) -> Any:
        """What `get` gives for the version of a tile that was written last."""
        with self._lock:
            if self._order is not None and self._order.stale:
                self._spool.forget_hints()
                self._announce(self._order.again(self._written))
                self._corrections += 1
        count, found = self._latest(index, get)
        with self._lock:
            self._reads += 1
            if self._order is not None:
                self._order.read(index, count)
                self._announce(self._order.more(self._written))
        return found

    def _latest(self, index: int, get: Callable[[int], Any]) -> tuple[int, Any]:
        while True:
            count = self._written[index]
            try:
                return count, get(self._saved(index, count))
            except UnknownVersionError:
                # It was written, and discarded, in between.
                if count == self._written[index]:
                    raise

    def _load(self, index: int) -> Any:
        """A tile as a new NumPy array, past what is announced."""
        _, loaded = self._latest(index, self._spool.load)
        with self._lock:
            self._reads += 1
            if self._order is not None:
                # The spool has taken it for the turn of this tile.
                self._order.stale = True
        return loaded

    def _version(self, index: int, count: int) -> int:
        """The version of a tile that was written `count` times. Before the first time it shares one
        with all that have its shape."""
        if count:
            return index + count * self.tiles
        with self._lock:
            return self._filled.setdefault(self._grid.shape_of(index), -1 - len(self._filled))

    def _saved(self, index: int, count: int) -> int:
        version = self._version(index, count)
        if count == 0:
            with self._filling:
                if version not in self._spool:
                    filled = np.full(self._grid.shape_of(index), self._fill, self._dtype)
                    self._spool.save(version, filled, codec="lossless")
        return version

    def _next(self, index: int) -> int:
        """The version that a writer of the tile saves."""
        version = self._version(index, self._written[index] + 1)
        if version in self._spool:
            # Ctrl-C came after that save and before it counted.
            self._spool.discard(version)
        return version

    def _wrote(self, index: int, afresh: bool) -> None:
        with self._lock:
            before = self._written[index]
            self._written[index] += 1
            self._writes += 1
            self._encoded[index] = self._lossy * (1 if afresh else self._encoded[index] + 1)
            if self._order is not None:
                self._order.wrote(index, before + 1)
        if before:
            self._spool.discard(self._version(index, before))

    def _announce(self, turns: list[Turn]) -> None:
        if turns:
            versions = [self._version(tile, count) for tile, count, _ in turns]
            last = [again and count > 0 for _, count, again in turns]
            self._spool.expect(versions, last=last)


def _checked(mode: Mode) -> Mode:
    if mode not in ("r", "w", "rw"):
        raise OptionError(f'mode={mode!r}: write "r", "w" or "rw".')
    return mode


def _in_threads(threads: int, count: int, work: Callable[[int], None]) -> None:
    """Does `work` for every number up to `count`, in their order, in several threads."""
    if threads == 1:
        for index in range(count):
            work(index)
        return
    numbers, lock, stop = iter(range(count)), threading.Lock(), threading.Event()

    def one_thread() -> None:
        while not stop.is_set():
            with lock:
                index = next(numbers, None)
            if index is None:
                return
            try:
                work(index)
            except BaseException:
                stop.set()
                raise

    with ThreadPoolExecutor(threads) as pool:
        try:
            for done in [pool.submit(one_thread) for _ in range(threads)]:
                done.result()
        finally:
            stop.set()
