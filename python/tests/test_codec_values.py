"""Codecs and bounds as values, and what is said of those that are none."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import unspool
from unspool import Bound
from unspool._unspool import codecs_of
from unspool.codecs import Achieved, NvComp, Zfp

VALUES = [
    Bound(abs=1e-3),
    Bound(range=1e-4),
    Bound(rms=1e-2),
    Bound(psnr=80),
    Bound(l2=1e-3),
    Bound(pointwise=1e-3, floor=1e-12),
    Zfp(rate=8),
    Zfp(precision=20),
    Zfp(tolerance=1e-4),
    NvComp("bitcomp"),
    NvComp("bitcomp", abs=1e-4),
]
NAMES = {"Bound": Bound, "Zfp": Zfp, "NvComp": NvComp}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_codec_is_an_immutable_value_that_is_written_as_it_was_made(value: object) -> None:
    assert eval(repr(value), NAMES) == value
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    assert {value: 1}[pickle.loads(pickle.dumps(value))] == 1
    assert [other for other in VALUES if other == value] == [value]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 2.0)  # type: ignore[arg-type]


def test_a_bound_says_which_it_is() -> None:
    assert (Bound(pointwise=1e-3).kind, Bound(pointwise=1e-3).value) == ("pointwise", 1e-3)
    assert (Zfp(precision=20).kind, Zfp(precision=20).value) == ("precision", 20.0)
    assert Bound(abs=np.float32(0.25)) == Bound(abs=0.25)
    assert type(Bound(abs=1).abs) is float and type(Zfp(precision=20.0).precision) is int


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Bound(), "nothing was given"),
    (lambda: Bound(abs=1, range=0.5), "abs and range together"),
    (lambda: Bound(abs=0), 'write "lossless"'),
    (lambda: Bound(abs=-1), "above 0"),
    (lambda: Bound(abs=float("nan")), "above 0"),
    (lambda: Bound(abs=float("inf")), "above 0"),
    (lambda: Bound(abs="1e-3"), "not a number"),  # type: ignore[arg-type]
    (lambda: Bound(abs=True), "not a number"),
    (lambda: Bound(range=1.0), "leaves nothing"),
    (lambda: Bound(l2=2.0), "leaves nothing"),
    (lambda: Bound(psnr=2000), '"lossless"'),
    (lambda: Bound(abs=1.0, floor=0.1), "Bound(pointwise=1e-3, floor=1e-12)"),
    (lambda: Bound(pointwise=0.1, floor=-1), "from 0"),
    (lambda: Zfp(), "nothing was given"),
    (lambda: Zfp(rate=65), "64 bits"),
    (lambda: Zfp(precision=1.5), "whole number"),
    (lambda: NvComp("gzip"), '"gdeflate"'),
    (lambda: NvComp("lz4", abs=1e-3), "loses nothing"),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_codec_that_makes_no_sense_is_refused_with_what_to_write(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(unspool.errors.OptionError) as raised:
        make()
    assert said in str(raised.value)


@pytest.mark.parametrize("value", [None, "lossless", "auto", *VALUES], ids=repr)
def test_a_codec_reaches_the_extension_and_comes_back_as_it_was(value: object) -> None:
    assert codecs_of(value, "here") == (value, {})


def test_codecs_are_given_one_for_all_or_one_for_each_array() -> None:
    assert codecs_of("raw", "here") == (None, {})
    mapping = {"u": Bound(abs=1e-3), 0: Zfp(rate=8), "mask": None, "*": "lossless"}
    default, named = codecs_of(mapping, "here")
    assert default == "lossless"
    assert named == {"u": Bound(abs=1e-3), "0": Zfp(rate=8), "mask": None}
    assert codecs_of({"u": "lossless"}, "here") == (None, {"u": "lossless"})


@pytest.mark.parametrize(
    ("codec", "said"),
    [
        ("losless", "'losless' is not a codec"),
        (1e-3, "a bound has to say of what"),
        (Bound, "but a class"),
        ({}, "an empty mapping"),
        ({1.5: None}, "not a name of an array"),
        ({0: "lossless", "0": None}, "0 and '0' are the same array"),
        ({"u": "zip"}, "'u': 'zip' is not a codec"),
        (np.zeros((50, 50)), "is not a codec but an array (one that is called codec"),
        (np.array("raw"), "is not a codec but an array"),
    ],
)
def test_what_is_no_codec_is_refused_with_what_to_write(codec: object, said: str) -> None:
    with pytest.raises(unspool.errors.OptionError) as raised:
        codecs_of(codec, "Spool(codec=...)")
    assert str(raised.value).startswith("Spool(codec=...): ") and said in str(raised.value)


def test_what_was_achieved_knows_its_ratio() -> None:
    achieved = Achieved("twine", 4000, 1000, 1000, 1e-3, 5e-4, 0)
    assert achieved.ratio == 4.0
    assert Achieved("raw", 0, 0, 0, 0.0, 0.0, 0).ratio == 1.0
