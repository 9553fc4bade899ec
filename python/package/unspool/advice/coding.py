"""What codecs make of arrays: how small they become, how fast, and who says so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from numbers import Number
from typing import Any, Self

from .._trees import flatten
from .._unspool import Spool, codecs_of
from ..codecs.coding import Encoded, decode, encode_into, room_for
from ..codecs.host import host_array, is_lossy_dtype, library, name_of
from ..codecs.values import Bound
from ..errors import OptionError
from .links import Rate
from .sizes import number

#: Encoder and decoder of Twine, in bytes of the arrays: without loss on one H100, for arrays from
#: 8 MiB on, and on four idle cores for a dense wavefield.
ON_GPU = (Rate(550e9, 15e-6), Rate(900e9, 11e-6))
ON_CPU = (Rate(1.8e9), Rate(6.5e9))

GIVEN, MEASURED = "given", "measured on the sample"

#: Seconds that the repetitions of one direction may take, and how many there are at most.
PATIENCE, ROUNDS = 1.0, 5

#: The most bytes of one array that are tried.
MOST = 64 << 20

#: Bytes that are copied in order to see how fast that is.
COPIED = 64 << 20


@dataclass(frozen=True, slots=True)
class Settled:
    """A `Compression` as a plan takes it to be: every figure is known, and where it is from."""

    ratio: float
    encode: Rate
    decode: Rate
    sources: tuple[str, str, str]
    codec: Any

    def held(self, count: int) -> int:
        """What is stored of `count` bytes."""
        return max(1, int(count / self.ratio))

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries and numbers."""
        rates = {"encode": asdict(self.encode), "decode": asdict(self.decode)}
        sources = dict(zip(("ratio", "encode", "decode"), self.sources, strict=True))
        codec = None if self.codec is None else str(self.codec)
        return {"ratio": self.ratio, **rates, "sources": sources, "codec": codec}


@dataclass(frozen=True, slots=True)
class Compression:
    """What is known of the codec that a plan is for.

    Attributes:
        ratio: bytes of a state for each byte that is stored, from 1.
        encode: how fast arrays are encoded, in bytes of the arrays; None for that of Twine as we
            have measured it: on one H100 without loss where the arrays are on a GPU, else on four
            cores.
        decode: how fast they are decoded, likewise.
        codec: the codec, as in `Spool`: it is then among the options of the candidates.
        measured: whether the figures were measured on this machine's cores, by `Compression.of`.

    Raises:
        OptionError: a figure makes no sense, or the speed of the codec is not known here.
    """

    ratio: float
    encode: Rate | None = None
    decode: Rate | None = None
    codec: Any = None
    measured: bool = False

    def __post_init__(self) -> None:
        number("ratio", self.ratio, 1.0)
        for name, rate in (("encode", self.encode), ("decode", self.decode)):
            if rate is not None and not isinstance(rate, Rate):
                raise OptionError(
                    f"{name}={rate!r:.40}: give a Rate in bytes of the arrays per second, such as "
                    "unspool.advice.Rate(100e9), or leave it out."
                )
        codecs_of(self.codec, "Compression(codec=...)")
        if not (self.encode and self.decode):
            _check_known(self.codec)

    @classmethod
    def of(cls, codec: Any, sample: Any) -> Self:
        """Tries a codec on an array like one of the state, with all cores: for about three seconds.

        The speeds hold for arrays in main memory. Where arrays are on a GPU a plan takes the ratio
        and assumes the speeds of Twine: for another codec say `Compression(found.ratio, encode,
        decode, codec)`.

        Raises:
            OptionError: the codec does not take the sample, or none was given.
            ArrayError: the sample is not an array of numbers.
            MissingLibraryError: NumPy is not installed.
        """
        values = host_array(sample)
        if codec is None or not values.nbytes:
            raise OptionError(
                'Compression.of(codec, sample) tries a codec, such as "lossless" or '
                "unspool.Bound(range=1e-4), on an array like one of your states, which has to "
                "have bytes."
            )
        room, target = library().empty(room_for(values, codec, None), "u1"), values.copy()
        # What is written for the first time costs the system's time, not the codec's.
        room.fill(0)
        encoding, (stored, _, _) = _best_of(lambda: encode_into(room, values, codec, None))
        data, shape = room[:stored].tobytes(), tuple(values.shape)
        encoded = Encoded(data, codec, name_of(values.dtype), shape)
        decoding, _ = _best_of(lambda: decode(encoded, target))
        encoder, decoder = (Rate(values.nbytes / seconds) for seconds in (encoding, decoding))
        return cls(max(1.0, encoded.ratio), encoder, decoder, codec, measured=True)

    def settled(self, on_gpu: bool) -> Settled:
        """The codec, with what was neither given nor measured there taken from the tables.

        Raises:
            OptionError: nothing is known of the codec's speed on a GPU.
        """
        known = (None, None) if on_gpu and self.measured else (self.encode, self.decode)
        if None in known:
            _check_known(self.codec)
        said = MEASURED if self.measured else GIVEN
        assumed = f"assumed: Twine on {'one H100' if on_gpu else 'four cores'}"
        encode, decode = (
            rate or usual for rate, usual in zip(known, ON_GPU if on_gpu else ON_CPU, strict=True)
        )
        of_encoder, of_decoder = (said if rate else assumed for rate in known)
        return Settled(self.ratio, encode, decode, (said, of_encoder, of_decoder), self.codec)


def _best_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and what the last one returned."""
    best, spent = math.inf, 0.0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        answer = work()
        seconds = max(time.perf_counter() - begin, 1e-9)
        best, spent = min(best, seconds), spent + seconds
        if spent > PATIENCE:
            break
    return best, answer


def _check_known(codec: Any) -> None:
    """Refuses a codec whose speed is not known without measuring it."""
    if codec is not None and codec != "lossless" and not isinstance(codec, Bound):
        raise OptionError(
            f"codec={codec!r:.60}: its speed is not known here; give encode= and decode=, in bytes "
            "of the arrays per second, as the command unspool-codecs measures them."
        )


@dataclass(frozen=True, slots=True)
class Coded:
    """What a codec makes of a checkpoint.

    Attributes:
        name: for people: "lossless", "Bound(range=0.0001)".
        codec: as `Checkpointer` takes it, or None where only figures are known.
        ratio: bytes of the arrays for each that is stored.
        encode, decode: bytes of the arrays per second.
        source: where the figures come from, in words.
    """

    name: str
    codec: Any
    ratio: float
    encode: float
    decode: float
    source: str = "given"

    @property
    def saved(self) -> float:
        """The share of the bytes that it saves."""
        return 1.0 - 1.0 / self.ratio


def sample_of(checkpoint: Any) -> list[Any] | None:
    """The arrays of a checkpoint as `save` takes it, or None where only its size was given."""
    if isinstance(checkpoint, Number | str):
        return None
    named, _ = flatten(checkpoint)
    for name, array in named:
        if not hasattr(array, "nbytes"):
            text = name or repr(array)[:60]
            raise OptionError(f"advise(checkpoint): {text} is not an array.")
    arrays = [array for _, array in named if array.nbytes]
    if not arrays:
        raise OptionError(
            'advise(checkpoint): give the bytes of one rank\'s checkpoint, such as "80GB", or its '
            "arrays."
        )
    return arrays


def is_on_gpu(arrays: Sequence[Any]) -> bool:
    """Whether most of the bytes are on a GPU."""
    there = sum(one.nbytes for one in arrays if _is_there(one))
    return bool(2 * there > sum(one.nbytes for one in arrays))


def _is_there(array: Any) -> bool:
    # Tensors of PyTorch that need a gradient refuse to show the interface.
    known = getattr(array, "is_cuda", None)
    return hasattr(array, "__cuda_array_interface__") if known is None else bool(known)


def coded(codec: Any, arrays: Sequence[Any] | None, on_gpu: bool) -> Coded:
    """A codec tried on all arrays, or as it was given with its figures.

    Raises:
        OptionError: the codec has to be tried and there are no arrays.
    """
    if isinstance(codec, Compression):
        return _settled(codec, on_gpu)
    if arrays is None:
        raise OptionError(
            f"codecs={codec!r:.60}: nothing is known of what it does to your arrays; give them in "
            "place of their size, or a Compression(ratio=...)."
        )
    total = stored = encoding = decoding = 0.0
    for array in arrays:
        found, count = _tried(codec, array, on_gpu), array.nbytes
        total, stored = total + count, stored + count / found.ratio
        encoding, decoding = encoding + count / found.encode, decoding + count / found.decode
    ratio = max(1.0, total / stored)
    source = found.source if len(arrays) == 1 else f"{found.source}, {len(arrays)} arrays"
    return Coded(str(codec), codec, ratio, total / encoding, total / decoding, source)


def _tried(codec: Any, array: Any, on_gpu: bool) -> Coded:
    """What is measured on an array, or a part of it."""
    if isinstance(codec, Bound) and not is_lossy_dtype(name_of(array.dtype)):
        codec = "lossless"
    return _settled(Compression.of(codec, _part(array)), on_gpu)


def _part(array: Any) -> Any:
    """The middle of an array that is large, along its first dimension."""
    if array.nbytes <= MOST or not array.shape:
        return array
    rows = max(1, array.shape[0] * MOST // array.nbytes)
    first = (array.shape[0] - rows) // 2
    return array[first : first + rows]


def _settled(given: Compression, on_gpu: bool) -> Coded:
    found = given.settled(on_gpu)
    name = f"ratio {found.ratio:.3g}" if given.codec is None else str(given.codec)
    rates = found.encode.bytes_per_second, found.decode.bytes_per_second
    source = "; ".join(dict.fromkeys(found.sources))
    return Coded(name, given.codec, found.ratio, *rates, source)


def copy_rate(on_gpu: bool) -> float:
    """Bytes per second of a copy that an asynchronous save makes: into main memory as measured
    here, within a GPU as on an H100."""
    if on_gpu:
        return 1.4e12
    source, best = bytearray(b"\1") * COPIED, 0.0
    with Spool(host_memory=COPIED + (1 << 20), device="cpu") as spool:
        # The first one touches the memory.
        for version in range(4):
            begin = time.perf_counter()
            spool.save(version, source)
            best = max(best, COPIED / max(time.perf_counter() - begin, 1e-9))
            spool.discard(version)
    return best
