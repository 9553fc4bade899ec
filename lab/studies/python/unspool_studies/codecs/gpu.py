"""Codecs on the GPU: through a spool, as a program of the user's would run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from unspool import Spool
from unspool.codecs.host import is_lossy_dtype, name_of
from unspool.errors import DeviceError, Error
from unspool_studies.bench.tiers import wait_until_ready
from unspool_studies.codecs.trial import Candidate, Trial, Wishes, best_of, judged, words_of_bound

__all__ = ["Runner"]

#: The least that a device tier gets.
ROOM = 64 << 20


class Runner:
    """Encodes and decodes arrays of CuPy; times are those of the host, from the call until the GPU
    is done."""

    def __init__(self) -> None:
        try:
            import cupy
        except ModuleNotFoundError as cause:
            wheel = "'unspool-studies[cuda13]', or cuda12, as the driver is"
            text = f"--gpu needs CuPy: pip install {wheel}"
            raise DeviceError(text) from cause
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as cause:
            raise DeviceError(f"--gpu: {cause}; `unspool doctor` says what is missing") from cause
        if not count:
            raise DeviceError("--gpu: there is no GPU; `unspool doctor` says what is missing")
        self._cupy = cupy

    def candidates(self, values: Any, wishes: Wishes) -> Iterator[Candidate]:
        """What the GPU can run on this array."""
        yield from (one for one in _candidates(values, wishes) if _asked(one, wishes))

    def run(
        self, values: Any, candidate: Candidate, keep: Callable[[Any], None] | None = None
    ) -> Trial:
        """Runs a codec; see `unspool_studies.codecs.trial.on_cpu`.

        Raises:
            Error: the codec does not take these values.
        """
        cupy = self._cupy
        try:
            array = cupy.asarray(values)
            target = cupy.zeros_like(array)
            found = self._timed(array, target, candidate)
            again = cupy.asnumpy(target)
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise Error(f"the memory of the GPU is too small: {error}") from error
        except (TypeError, ValueError) as error:
            if isinstance(error, Error):
                raise
            raise Error(f"CuPy cannot hold these values: {error}") from error
        if keep is not None:
            keep(again)
        return judged(candidate, "gpu", values, again, found)

    def _timed(self, array: Any, target: Any, candidate: Candidate) -> tuple[int, float, float]:
        """The stored bytes, and the seconds of both ways."""
        done = self._cupy.cuda.Device().synchronize

        def save() -> None:
            spool.save(0, array)
            done()

        def restore() -> None:
            spool.restore(0, target)
            done()

        def forget() -> None:
            if 0 in spool:
                spool.discard(0)

        room = max(ROOM, 3 * array.nbytes)
        with Spool(device_memory=room, device="cuda", codec=candidate.codec) as spool:
            # The first calls ask for kernels, the best of which are compiled in the background.
            save()
            restore()
            wait_until_ready(spool)
            encoding, _ = best_of(save, forget)
            decoding, _ = best_of(restore)
            stored = sum(one.stored_bytes for one in spool.achieved(0).values())
        return stored, encoding, decoding


def _asked(candidate: Candidate, wishes: Wishes) -> bool:
    return candidate.name.split()[0] in wishes.only


def _candidates(values: Any, wishes: Wishes) -> Iterator[Candidate]:
    yield Candidate("twine", "lossless")
    if not is_lossy_dtype(name_of(values.dtype)):
        return
    for bound in wishes.bounds:
        shown = words_of_bound(bound)
        yield Candidate(f"twine {shown}", bound, None, bound)
    if name_of(values.dtype) in ("float32", "float64"):
        for codec in wishes.zfp:
            if codec.kind == "rate":
                yield Candidate(f"zfp rate={codec.value:g}", codec)
