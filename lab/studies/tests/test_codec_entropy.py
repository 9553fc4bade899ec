"""The entropy of values: known ones, whatever their representation."""

import math

import numpy as np
import pytest
from unspool_studies.codecs.entropy import entropy


def test_a_fair_coin_has_one_bit_and_a_constant_none():
    coin = entropy(np.array([1.0, 2.0] * 50, np.float32))
    assert (coin.bits, coin.distinct, coin.width, coin.ratio) == (1.0, 2, 32, 32.0)
    same = entropy(np.full(9, 3, np.int16))
    assert same.bits == 0.0 and math.isinf(same.ratio) and same.as_dict()["ratio"] is None


def test_zeros_of_both_signs_and_all_nans_are_one_value():
    values = np.array([0.0, -0.0, np.nan, -np.nan], np.float64)
    values[3:].view("u8")[0] ^= 1
    assert entropy(values).distinct == 2 and entropy(values).bits == 1.0


def test_planes_are_from_the_most_significant_bit_on():
    found = entropy(np.array([0, 128, 1, 129], np.uint8))
    assert found.planes == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert found.plane_bits == found.bits == 2.0


def test_complex_values_are_two_and_nothing_has_none():
    assert entropy(np.array([1 + 2j, 3 + 4j], np.complex64)).distinct == 4
    assert entropy(np.zeros(0, np.float32)).values == 0


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float16", "float32", "float64"])
def test_random_values_have_the_entropy_of_their_distribution(dtype):
    draw = np.random.default_rng(3).choice(4, size=100_000, p=[0.5, 0.25, 0.125, 0.125])
    assert entropy(draw.astype(dtype)).bits == pytest.approx(1.75, abs=0.01)
