"""Messages of arrays on a GPU, on the driver in plain memory."""

from __future__ import annotations

import numpy as np
import pytest
from message_comms import FakeComm, Wire
from unspool import Bound, codecs
from unspool.errors import ArrayError, MessageError
from unspool.messages import Channel

from codec_arrays import BOUNDS, FLOATS, INTEGERS, SHAPES, assert_holds, wave, with_specials
from fake_gpu import CaiArray, DlpackArray, Driver
from helpers import same_bits

pytestmark = pytest.mark.fake_gpu

BOUND = Bound(range=1e-3)


def pair(wire: Wire, bound: Bound | None = None) -> tuple[Channel, Channel]:
    """The channels of ranks 0 and 1 with each other."""
    return Channel(FakeComm(wire, 0), 1, bound=bound), Channel(FakeComm(wire, 1), 0, bound=bound)


def received(driver: Driver, target: CaiArray | DlpackArray) -> np.ndarray:
    driver.synchronize()
    return target.numpy()


@pytest.mark.parametrize("bound", [None, *BOUNDS], ids=repr)
def test_what_arrives_on_a_gpu_is_what_the_cpu_makes_of_it(
    driver: Driver, bound: Bound | None
) -> None:
    wire = Wire()
    left, right = pair(wire, bound)
    for number, (dtype, shape) in enumerate((d, s) for d in FLOATS for s in SHAPES):
        values = with_specials(wave(shape, dtype, number), number)
        left.send(CaiArray(driver, values))
        left.send(values)
        target = CaiArray(driver, np.zeros_like(values))
        right.recv(target)
        on_host = np.zeros_like(values)
        right.recv(on_host)
        found = received(driver, target).reshape(shape)
        assert same_bits(found, on_host)
        assert wire.lengths[-1] == wire.lengths[-2]
        if bound is None:
            assert same_bits(found, values)
        else:
            assert_holds(values, found, bound)


def test_a_gpu_sends_to_main_memory_and_back(driver: Driver) -> None:
    left, right = pair(Wire())
    for number, dtype in enumerate([*FLOATS, *INTEGERS]):
        values = wave((33, 65), dtype, number)
        left.send(CaiArray(driver, values))
        on_host = np.zeros_like(values)
        right.recv(on_host)
        right.send(on_host)
        target = DlpackArray(driver, np.zeros_like(values))
        left.recv(target)
        assert same_bits(received(driver, target), values)


def test_strided_arrays_of_a_gpu_are_sent_and_received(driver: Driver) -> None:
    left, right = pair(Wire())
    whole = wave((60, 80), "float32")
    for cut in [np.s_[::2], np.s_[:, 3:70], np.s_[::-1, ::-3], np.s_[5]]:
        for bytes_as_they_are in (False, True):
            values = np.random.default_rng(0).normal(size=(60, 80)) if bytes_as_they_are else whole
            left.send(CaiArray(driver, values[cut]))
            target = CaiArray(driver, np.zeros_like(values)[cut])
            right.recv(target)
            assert same_bits(received(driver, target), values[cut])


def test_what_is_enqueued_before_a_send_is_in_it_and_what_follows_is_not(driver: Driver) -> None:
    left, right = pair(Wire(), BOUND)
    stream = driver.stream()
    values = wave((64, 64), "float32")
    array = CaiArray(driver, np.zeros_like(values), stream)
    driver.write(array.block, values, stream)
    request = left.isend(array)
    driver.fill(array.block, 0, array.count, stream)
    request.wait()
    out = np.empty_like(values)
    right.recv(out)
    assert same_bits(out, codecs.decode(codecs.encode(values, BOUND)))


def test_rooms_are_used_again_and_not_before_they_are_read(driver: Driver) -> None:
    left, right = pair(Wire())
    arrays = [wave((64, 64), "float32", seed) for seed in range(12)]
    targets = [CaiArray(driver, np.zeros_like(arrays[0]), driver.stream()) for _ in arrays]
    for array, target in zip(arrays, targets, strict=True):
        left.send(CaiArray(driver, array))
        right.recv(target)
    for array, target in zip(arrays, targets, strict=True):
        assert same_bits(received(driver, target), array)


def test_bytes_that_were_changed_do_not_reach_the_gpu(driver: Driver) -> None:
    wire = Wire()

    def flip(data: np.ndarray) -> np.ndarray:
        data[-1] ^= 1
        return data

    wire.damage = flip
    left, right = pair(wire)
    left.send(CaiArray(driver, wave((64, 64), "float32")))
    target = CaiArray(driver, np.zeros((64, 64), "float32"))
    with pytest.raises(MessageError, match=r"rank 1: message 0 with rank 0, tag 0: .*checksum"):
        right.recv(target)
    assert not received(driver, target).any()


def test_a_target_on_a_gpu_that_is_read_only_is_refused(driver: Driver) -> None:
    _, right = pair(Wire())
    with pytest.raises(ArrayError, match="read-only"):
        right.recv(CaiArray(driver, np.zeros(8), read_only=True))
