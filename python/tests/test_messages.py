"""Messages of `unspool.messages` between two channels of one process, over a communicator that
looks like one of mpi4py."""

from __future__ import annotations

from array import array as numbers

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_comms import FakeComm, Wire
from unspool import Bound, errors
from unspool.errors import ArrayError, MessageError, OptionError, WaitTimeoutError
from unspool.messages import Channel

import fake_dlpack
from codec_arrays import BOUNDS, FLOATS, INTEGERS, SHAPES, assert_holds, wave, with_specials
from helpers import same_bits

HEADER = 64


def pair(wire: Wire, bound: Bound | None = None, timeout: float = 60.0) -> tuple[Channel, Channel]:
    """The channels of ranks 0 and 1 with each other."""
    options = {"tag": 3, "bound": bound, "timeout": timeout}
    return Channel(FakeComm(wire, 0), 1, **options), Channel(FakeComm(wire, 1), 0, **options)


def sent(values: np.ndarray, bound: Bound | None = None) -> np.ndarray:
    """What arrives of an array."""
    left, right = pair(Wire(), bound)
    left.send(values)
    out = np.full(values.shape, 1, values.dtype)
    right.recv(out)
    return out


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_what_arrives_without_a_bound_are_the_bits_that_were_sent(dtype: str) -> None:
    for number, shape in enumerate(SHAPES):
        values = wave(shape, dtype, number)
        if dtype in FLOATS:
            values = with_specials(values, number)
        assert same_bits(sent(values), values), shape


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
def test_what_arrives_with_a_bound_holds_it(bound: Bound) -> None:
    for number, dtype in enumerate(FLOATS):
        values = with_specials(wave((40, 50), dtype, number), number)
        assert_holds(values, sent(values, bound), bound)
    whole = np.arange(2000)
    assert same_bits(sent(whole, bound), whole)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FLOATS), st.sampled_from(SHAPES)), max_size=8))
def test_messages_of_any_sizes_arrive_in_their_order(which: list[tuple[str, tuple]]) -> None:
    wire = Wire()
    left, right = pair(wire)
    arrays = [wave(shape, dtype, number) for number, (dtype, shape) in enumerate(which)]
    begun = [left.isend(array) for array in arrays]
    targets = [np.empty_like(array) for array in arrays]
    requests = [right.irecv(target) for target in targets]
    for request in begun + requests:
        request.wait()
        request.wait()
    for array, target in zip(arrays, targets, strict=True):
        assert same_bits(array, target)
    # No message is longer than its array and a header.
    for length, array in zip(wire.lengths, arrays, strict=True):
        assert length <= HEADER + array.nbytes
    assert left.sent_bytes == sum(array.nbytes for array in arrays)
    assert left.wire_bytes == sum(wire.lengths)


def test_smooth_arrays_shrink_and_random_ones_are_sent_as_they_are() -> None:
    wire = Wire()
    left, _ = pair(wire)
    smooth, noise = np.linspace(0, 1, 4096), np.random.default_rng(0).bytes(4096)
    left.send(smooth)
    left.send(np.frombuffer(noise, "u1"))
    assert wire.lengths[0] < smooth.nbytes // 2
    assert wire.lengths[1] == HEADER + 4096


def test_an_array_may_be_changed_when_its_send_was_begun() -> None:
    left, right = pair(Wire())
    values = wave((40, 50), "float32")
    before = values.copy()
    request = left.isend(values)
    values[:] = 0
    request.wait()
    out = np.empty_like(before)
    right.recv(out)
    assert same_bits(out, before)


def test_arrays_in_any_strides_are_sent_and_received() -> None:
    left, right = pair(Wire())
    whole = wave((60, 80), "float32")
    for cut in [np.s_[::2], np.s_[:, 3:70], np.s_[::-1, ::-3], np.s_[5]]:
        target = np.zeros_like(whole)
        left.send(whole[cut])
        right.recv(target[cut])
        wanted = np.zeros_like(whole)
        wanted[cut] = whole[cut]
        assert same_bits(target, wanted)


def test_both_directions_of_a_pair_are_independent() -> None:
    left, right = pair(Wire())
    for number in range(5):
        there, back = wave((20, 30), "float64", number), wave((7,), "float32", number)
        left.send(there)
        right.send(back)
        got_there, got_back = np.empty_like(there), np.empty_like(back)
        right.recv(got_there)
        left.recv(got_back)
        assert same_bits(there, got_there) and same_bits(back, got_back)


def test_what_lends_its_memory_is_received_into() -> None:
    left, right = pair(Wire())
    for target in (bytearray(100), memoryview(bytearray(100)), numbers("B", bytes(100))):
        left.send(np.arange(100, dtype="u1"))
        right.recv(target)
        assert bytes(target) == bytes(range(100))
    lent = fake_dlpack.Exporter(np.zeros(8))
    with pytest.raises(ArrayError, match=r"does not lend its memory|cannot be used"):
        right.recv(lent)


def test_a_target_that_is_read_only_and_what_is_no_array_are_refused() -> None:
    left, right = pair(Wire())
    fixed = np.zeros(8)
    fixed.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        right.recv(fixed)
    for thing in ("text", object(), [1, 2], np.array(["a"]), np.array([(1, 2.0)], "i4,f8")):
        with pytest.raises(ArrayError):
            left.send(thing)
    # Nothing was on its way: the channel goes on.
    left.send(np.arange(8.0))
    out = np.empty(8)
    right.recv(out)
    assert (out == np.arange(8.0)).all()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (np.zeros((40, 50), "float64")[::2], "float32.*float64"),
        (np.zeros((40, 50), "int32"), "int32"),
        (np.zeros((50, 40), "float32"), "same dtype and shape"),
        (np.zeros((2000,), "float32"), "1 dimensions|2 dimensions"),
        (np.zeros((41, 50), "float32"), "8200 bytes"),
        (np.zeros((), "float32"), "TRUNCATE"),
    ],
)
def test_a_target_of_another_dtype_or_shape_is_an_error(target: np.ndarray, says: str) -> None:
    left, right = pair(Wire())
    left.send(wave((40, 50), "float32"))
    with pytest.raises(MessageError, match=says) as raised:
        right.recv(target)
    assert str(raised.value).startswith("rank 1: message 0 with rank 0, tag 3: ")
    with pytest.raises(MessageError, match=r"has ended: message 0.*another tag"):
        right.send(target)


@pytest.mark.parametrize("place", range(HEADER))
def test_a_header_that_was_changed_is_an_error(place: int) -> None:
    wire = Wire()

    def flip(data: np.ndarray) -> np.ndarray:
        data[place] ^= 0x10
        return data

    wire.damage = flip
    left, right = pair(wire)
    left.send(wave((40, 50), "float32"))
    with pytest.raises(
        MessageError, match=r"rank 1: message 0 with rank 0, tag 3: .*(header|not a)"
    ):
        right.recv(np.zeros((40, 50), "float32"))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["flip", "cut", "random"]))
def test_bytes_that_were_changed_are_an_error(seed: int, how: str) -> None:
    rng, wire = np.random.default_rng(seed), Wire()

    def damage(data: np.ndarray) -> np.ndarray:
        if how == "cut":
            return data[: rng.integers(0, data.size)]
        if how == "random":
            return rng.integers(0, 256, data.size, "u1")
        data[rng.integers(HEADER, data.size)] ^= rng.integers(1, 256, dtype="u1")
        return data

    wire.damage = damage
    left, right = pair(wire)
    left.send(wave((40, 50), "float32", seed))
    with pytest.raises(MessageError, match=r"rank 1: message 0 with rank 0, tag 3: "):
        right.recv(np.full((40, 50), np.nan, "float32"))


def test_a_message_that_is_lost_is_seen_by_the_next_one() -> None:
    wire = Wire()
    left, right = pair(wire)
    wire.damage = lambda data: None
    left.send(np.arange(5.0))
    wire.damage = lambda data: data
    left.send(np.arange(5.0))
    with pytest.raises(MessageError, match="message 1 came where message 0 was expected"):
        right.recv(np.zeros(5))


def test_a_rank_that_sends_nothing_is_waited_for_no_longer_than_asked() -> None:
    _, right = pair(Wire(), timeout=0.01)
    request = right.irecv(np.zeros(5))
    with pytest.raises(WaitTimeoutError, match=r"nothing came in 0\.01 s") as first:
        request.wait()
    with pytest.raises(WaitTimeoutError) as second:
        request.wait(60)
    assert second.value is first.value and isinstance(first.value, errors.Error)
    with pytest.raises(MessageError, match="has ended"):
        right.irecv(np.zeros(5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"peer": 2},
        {"peer": -1},
        {"peer": True},
        {"peer": 1.0},
        {"tag": -1},
        {"tag": "a"},
        {"bound": 1e-3},
        {"bound": "lossless"},
        {"timeout": 0},
        {"timeout": float("nan")},
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Channel(FakeComm(Wire(), 0), **({"peer": 1} | wrong))
