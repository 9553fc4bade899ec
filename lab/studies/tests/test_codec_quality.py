"""How good a reconstruction is: figures against their definitions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import unspool
from unspool.codecs import Bound
from unspool_studies.codecs import quality


def pair(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(3, 40, 50)).cumsum(2)
    return left, left + rng.uniform(-1e-3, 1e-3, left.shape)


def test_figures_follow_their_definitions() -> None:
    left, right = pair()
    found, apart, span = quality(left, right), right - left, np.ptp(left)
    assert found.values == left.size and found.range == span
    assert found.max_error == np.abs(apart).max()
    assert found.rmse == pytest.approx(np.sqrt((apart**2).mean()))
    assert found.rel_l2 == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(left))
    assert found.psnr == pytest.approx(20 * np.log10(span / found.rmse))
    assert found.bias == pytest.approx(apart.mean() / span)
    assert (found.special, found.violations, found.limit, found.ssim) == (0, None, None, None)


def test_arrays_longer_than_a_block_are_compared_as_a_whole() -> None:
    left = np.arange(600_000, dtype=np.float64)
    right = left.copy()
    right[[0, 300_000, 599_999]] += [1.0, -2.0, 3.0]
    found = quality(left, right, Bound(abs=1.5))
    assert (found.max_error, found.violations) == (3.0, 2)
    assert found.rmse == pytest.approx(math.sqrt(14 / 600_000))


def test_equal_arrays_have_no_error() -> None:
    left, _ = pair()
    found = quality(left, left.copy(), Bound(abs=1e-30))
    assert (found.max_error, found.rmse, found.bias, found.violations) == (0.0, 0.0, 0.0, 0)
    assert found.psnr == math.inf
    assert json.loads(json.dumps(found.as_dict()))["psnr"] == "inf"


@pytest.mark.parametrize(
    ("bound", "limit"),
    [
        (Bound(abs=1e-3), 1e-3),
        (Bound(range=1e-3), 2e-3),
        (Bound(rms=1e-3), 1e-3),
        (Bound(psnr=60), math.sqrt(3) * 2e-3),
        (Bound(l2=1e-3), math.sqrt(3) * 1e-3),
    ],
    ids=repr,
)
def test_values_beyond_a_bound_are_counted(bound: Bound, limit: float) -> None:
    left = np.tile([1.0, -1.0], 500)
    right = left + np.linspace(0.0, 2 * limit, 1000)
    found = quality(left, right, bound)
    assert found.limit == pytest.approx(limit)
    assert found.violations == np.count_nonzero(np.abs(right - left) > found.limit)
    assert 490 <= found.violations <= 510


def test_a_relative_bound_is_one_for_each_value_and_small_ones_may_vanish() -> None:
    left = np.array([1.0, 100.0, 1e-9, 1e-9, -2.0])
    right = np.array([1.01, 100.5, 0.0, 3e-9, -2.0])
    found = quality(left, right, Bound(pointwise=6e-3, floor=1e-6))
    assert found.violations == 2 and found.limit is None


def test_values_that_are_not_finite_have_to_keep_their_bits() -> None:
    left = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    assert quality(left, left.copy(), Bound(abs=1e-3)).special == 0
    right = np.array([1.0, np.nan, np.inf, np.inf, np.nan])
    found = quality(left, right, Bound(abs=1e-3))
    assert (found.special, found.violations, found.max_error) == (2, 2, 0.0)
    payload = left.copy()
    payload.view(np.uint64)[1] ^= 1
    assert quality(left, payload).special == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "int16"])
def test_every_dtype_of_numbers_is_compared(dtype: str) -> None:
    left = np.arange(100).astype(dtype)
    right = left.copy()
    right[7] += 2
    found = quality(left, right, Bound(abs=1.0))
    assert (found.max_error, found.violations) == (2.0, 1)
    assert found.values == (200 if dtype.startswith("complex") else 100)


def test_bfloat16_is_compared() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    left = np.arange(64).astype(ml_dtypes.bfloat16)
    assert quality(left, left + left.dtype.type(1)).max_error == 1.0


def test_empty_arrays_and_constants_have_figures() -> None:
    assert quality(np.zeros(0), np.zeros(0), Bound(range=1e-3)).violations == 0
    found = quality(np.ones(5), np.full(5, 1.5))
    assert (found.range, found.bias, found.psnr) == (0.0, math.inf, -math.inf)
    assert found.rel_l2 == 0.5


def test_arrays_that_are_not_alike_are_refused() -> None:
    with pytest.raises(unspool.errors.ArrayError, match="reshape"):
        quality(np.zeros(3), np.zeros(4))
    with pytest.raises(unspool.errors.ArrayError, match="convert"):
        quality(np.zeros(3), np.zeros(3, np.float32))
    with pytest.raises(unspool.errors.ArrayError):
        quality(np.array(["a"]), np.array(["a"]))


def test_structural_similarity_is_that_of_scikit_image() -> None:
    metrics = pytest.importorskip("skimage.metrics")
    left, right = pair()
    planes = [
        metrics.structural_similarity(*both, win_size=7, data_range=np.ptp(left))
        for both in zip(left, right, strict=True)
    ]
    assert quality(left, right, ssim=True).ssim == pytest.approx(np.mean(planes))
    assert quality(left[0, 0], right[0, 0], ssim=True).ssim is None
    assert quality(left[:, :6], right[:, :6], ssim=True).ssim is None


def test_an_error_of_values_that_are_all_the_same_is_no_perfect_one() -> None:
    same = np.full((10, 10), 2.0)
    assert quality(same, same + 0.5).psnr == -math.inf
    assert quality(same, same).psnr == math.inf


def test_similarity_does_not_depend_on_the_unit() -> None:
    pytest.importorskip("skimage")
    left, right = pair()
    found = quality(left, right, ssim=True).ssim
    for unit in (1e300, 1e-300):
        scaled = quality(left * unit, right * unit, ssim=True).ssim
        assert scaled == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("bound", [1e-3, "lossless", unspool.codecs.Zfp(rate=8)])
def test_a_bound_that_is_none_is_refused(bound: object) -> None:
    left, right = pair()
    with pytest.raises(unspool.errors.OptionError, match="is none"):
        quality(left, right, bound)  # type: ignore[arg-type]
