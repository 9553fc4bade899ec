"""How good a reconstruction is: errors, and whether a bound holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unspool.codecs.host import host_array, is_lossy_dtype, library, name_of
from unspool.codecs.values import BOUND_ADVICE, Bound
from unspool.errors import ArrayError, MissingLibraryError, OptionError

__all__ = ["Quality", "quality"]

#: Values that are compared at a time, in float64.
BLOCK = 1 << 18

#: Planes that the SSIM is the mean of, at most, evenly spaced; and the edge of its window.
PLANES, WINDOW = 8, 7
#: Values of all those planes together, unless one alone has more.
PLANE_VALUES = 1 << 23

#: Sums over an array depend on their order in the last bits, and bounds that follow from them too.
SLACK = 1.0 + 1e-12


@dataclass(frozen=True, slots=True)
class Quality:
    """A reconstruction against the original; all figures over the values that are finite in it.

    Attributes:
        values: how many values there are; a complex number has two.
        range: the largest minus the smallest value of the original.
        rms: the root mean square of the original.
        max_error: the largest |x' - x|.
        rmse: the root mean square of x' - x.
        rel_l2: the norm of x' - x divided by that of x.
        psnr: 20 log10(range / rmse) in dB, as SZ has it; infinite without an error, and minus
            infinite for an error of values that are all the same.
        bias: the mean of x' - x, divided by the range.
        ssim: the structural similarity: windows of 7 x 7 with equal weights, planes of the last
            two dimensions (the mean of at most 8, evenly spaced), the range of the whole original
            as data range; None where there are no such planes, or where it was not asked for.
        special: values that are NaN or infinite in the original and have other bits now, or are
            finite in it and are not now.
        violations: values that break the bound, the special ones included; None without a bound.
        limit: the largest |x' - x| that the bound allows; None without one, and for `pointwise`.
    """

    values: int
    range: float
    rms: float
    max_error: float
    rmse: float
    rel_l2: float
    psnr: float
    bias: float
    ssim: float | None
    special: int
    violations: int | None
    limit: float | None

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for `json.dump`: what is not finite is text there."""
        figures = dataclasses.asdict(self)
        return {name: _plain(figure) for name, figure in figures.items()}


def _plain(figure: Any) -> Any:
    return str(figure) if isinstance(figure, float) and not math.isfinite(figure) else figure


@dataclass(slots=True)
class _Sums:
    """What one pass over the original finds."""

    low: float = math.inf
    high: float = -math.inf
    squares: float = 0.0
    finite: int = 0

    @property
    def range(self) -> float:
        return self.high - self.low if self.finite else 0.0

    @property
    def rms(self) -> float:
        return math.sqrt(self.squares / self.finite) if self.finite else 0.0


@dataclass(slots=True)
class _Errors:
    """What one pass over both finds."""

    largest: float = 0.0
    squares: float = 0.0
    total: float = 0.0
    special: int = 0
    violations: int = 0


def quality(
    original: Any, other: Any, bound: Bound | None = None, *, ssim: bool = False
) -> Quality:
    """Compares a reconstruction with the original.

    Arguments:
        original: an array of numbers, on the CPU or a GPU.
        other: one of the same shape and dtype.
        bound: count the values that break it.
        ssim: compute the structural similarity, with scikit-image.

    Raises:
        ArrayError: they are not alike; or they are not arrays of numbers.
        OptionError: `bound` is none.
        MissingLibraryError: NumPy, or for `ssim` scikit-image, is not installed.
    """
    if bound is not None and not isinstance(bound, Bound):
        raise OptionError(f"quality(..., bound): {bound!r} is none; {BOUND_ADVICE}.")
    left, right = host_array(original), host_array(other)
    _check_alike(left, right)
    sums = _sums(_components(left))
    limit = None if bound is None else limit_of(bound, sums.range, sums.rms)
    errors = _errors(_components(left), _components(right), bound, limit)
    rmse = math.sqrt(errors.squares / sums.finite) if sums.finite else 0.0
    return Quality(
        values=int(_components(left).size),
        range=sums.range,
        rms=sums.rms,
        max_error=errors.largest,
        rmse=rmse,
        rel_l2=_ratio(rmse, sums.rms),
        psnr=_decibels(sums.range, rmse),
        bias=_ratio(errors.total / sums.finite, sums.range) if sums.finite else 0.0,
        ssim=similarity(left, right, sums.range) if ssim else None,
        special=errors.special,
        violations=None if bound is None else errors.violations,
        limit=limit,
    )


def limit_of(bound: Bound, span: float, rms: float) -> float | None:
    """The largest error that `bound` allows for values with this range and root mean square; None
    for one that is relative to each value."""
    match bound.kind:
        case "abs":
            return bound.value
        case "range":
            return bound.value * span
        case "rms":
            return bound.value * rms
        case "psnr":
            return math.sqrt(3.0) * math.pow(10.0, -bound.value / 20.0) * span
        case "l2":
            return math.sqrt(3.0) * bound.value * rms
        case _:
            return None


def _check_alike(left: Any, right: Any) -> None:
    if left.dtype != right.dtype:
        text = f"an array of {left.dtype} cannot be compared with one of {right.dtype}"
        raise ArrayError(f"{text}: convert one of them first")
    if left.shape != right.shape:
        text = f"an array of shape {left.shape} cannot be compared with one of {right.shape}"
        raise ArrayError(f"{text}: reshape one of them first")
    name_of(left.dtype)


def _decibels(span: float, rmse: float) -> float:
    if not rmse:
        return math.inf
    found = span / rmse
    return 20.0 * math.log10(found) if found else -math.inf


def _ratio(one: float, other: float) -> float:
    if other:
        return one / other
    return math.inf if one else 0.0


def _blocks(*arrays: Any) -> Iterator[tuple[Any, ...]]:
    for begin in range(0, arrays[0].size, BLOCK):
        yield tuple(array[begin : begin + BLOCK] for array in arrays)


def _sums(values: Any) -> _Sums:
    numpy, sums = library(), _Sums()
    for (block,) in _blocks(values):
        numbers = _widened(numpy, block)
        finite = numbers[numpy.isfinite(numbers)]
        if finite.size:
            sums.low = min(sums.low, float(finite.min()))
            sums.high = max(sums.high, float(finite.max()))
            sums.squares += _squares(numpy, finite)
            sums.finite += finite.size
    return sums


def _widened(numpy: Any, values: Any) -> Any:
    """As float64; NaNs that signal do so without a warning."""
    with numpy.errstate(invalid="ignore"):
        return values.astype(numpy.float64)


def _squares(numpy: Any, values: Any) -> float:
    """The sum of the squares; infinite for numbers near the largest."""
    with numpy.errstate(over="ignore"):
        return float(values @ values)


def _errors(left: Any, right: Any, bound: Bound | None, limit: float | None) -> _Errors:
    numpy, errors = library(), _Errors()
    bits = f"u{left.dtype.itemsize}"
    for block, again in _blocks(left, right):
        before, after = _widened(numpy, block), _widened(numpy, again)
        finite = numpy.isfinite(before)
        same = block.view(bits) == again.view(bits)
        special = ~numpy.where(finite, numpy.isfinite(after), same)
        errors.special += int(special.sum())
        compared = finite & ~special
        before = before[compared]
        with numpy.errstate(over="ignore"):
            apart = after[compared] - before
        errors.squares += _squares(numpy, apart)
        errors.total += float(apart.sum())
        size = numpy.abs(apart)
        errors.largest = max(errors.largest, float(size.max(initial=0.0)))
        if bound is not None:
            broken = size > _allowed(numpy, bound, limit, before)
            errors.violations += int(broken.sum()) + int(special.sum())
    return errors


def _allowed(numpy: Any, bound: Bound, limit: float | None, before: Any) -> Any:
    if limit is not None:
        return limit if bound.kind in ("abs", "range") else limit * SLACK
    size = numpy.abs(before)
    # What is below the floor may become 0.
    return numpy.where(size < (bound.floor or 0.0), size, bound.value * size)


def similarity(left: Any, right: Any, span: float) -> float | None:
    """The mean SSIM over planes of the last two dimensions, as `Quality.ssim` says.

    Raises:
        MissingLibraryError: scikit-image is not installed.
    """
    numpy = library()
    if left.ndim < 2 or min(left.shape[-2:]) < WINDOW or not is_lossy_dtype(name_of(left.dtype)):
        return None
    if left.dtype.kind == "c" or not span:
        return None
    try:
        from skimage.metrics import structural_similarity
    except ModuleNotFoundError as cause:
        text = "the structural similarity needs scikit-image: pip install scikit-image"
        raise MissingLibraryError(text, name="skimage") from cause
    planes = [array.reshape(-1, *array.shape[-2:]) for array in (left, right)]
    count = len(planes[0])
    if not count:
        return None
    most = min(max(PLANE_VALUES // planes[0][0].size, 1), PLANES)
    chosen = sorted({round((i + 0.5) * count / most - 0.5) for i in range(most)})
    found = []
    for index in chosen:
        # In parts of the range: squares of the largest numbers are none.
        pair = [plane[index].astype(numpy.float64) / span for plane in planes]
        if not all(numpy.isfinite(plane).all() for plane in pair):
            return None
        options = {"win_size": WINDOW, "data_range": 1.0, "gaussian_weights": False}
        found.append(structural_similarity(*pair, **options))
    return float(numpy.mean(found))


def _components(array: Any) -> Any:
    """The values of an array in a row; a complex number has two."""
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
