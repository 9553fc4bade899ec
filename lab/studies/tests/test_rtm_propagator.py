"""The compiled propagator from Python: its arrays, its refusals, its wavefields."""

import threading

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool_studies._native import Acoustic, largest_stable_step
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.medium import padded_shape
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.propagator import CompiledPropagator

VELOCITY = np.full((40, 30), 2000.0, np.float32)
DT = 1e-3


@pytest.fixture
def core():
    return Acoustic(VELOCITY, (10.0, 10.0), DT, 8)


def _fields(core):
    return np.zeros(core.shape, np.float32), np.zeros(core.shape, np.float32)


def test_fields_have_the_layer_and_the_halo_around_the_model(core):
    assert core.shape == padded_shape((40, 30), 8) == (64, 54)
    assert core.pad == 12


def test_a_wave_spreads_alike_in_all_directions():
    square = Model(np.full((41, 41), 2000.0, np.float32), (10.0, 10.0), "square")
    waves = CompiledPropagator(square, DT, 8)
    field, source = waves.wavefield(), waves.points([(200.0, 200.0)])
    field.advance(60, source, np.ones((60, 1), np.float32))
    now = field.now
    assert np.abs(now).max() > 0
    for turned in (now[::-1], now[:, ::-1], now.T):
        np.testing.assert_allclose(now, turned, rtol=1e-4, atol=1e-6 * np.abs(now).max())


def test_odd_groups_of_steps_end_in_the_same_field_as_one_group():
    waves = CompiledPropagator(Model(VELOCITY, (10.0, 10.0), "m"), DT, 8)
    source = waves.points([(200.0, 150.0)])
    signal = np.sin(np.arange(30, dtype=np.float32))
    one, three = waves.wavefield(), waves.wavefield()
    one.advance(30, source, signal)
    for begin in (0, 7, 14):
        three.advance(7, source, signal[begin : begin + 7])
    three.advance(9, source, signal[21:])
    assert one.now.tobytes() == three.now.tobytes()
    one.reset()
    assert not one.now.any()


def test_points_between_nodes_read_by_bilinear_weights(core):
    older, newer = _fields(core)
    newer[12 + 5, 12 + 6] = 4.0
    points = core.points([(50.0, 60.0), (55.0, 60.0), (55.0, 65.0), (70.0, 60.0)])
    record = np.empty((1, 4), np.float32)
    core.advance(older, newer, 1, receivers=points, record=record)
    on, half, quarter, beyond = record[0] / older[12 + 5, 12 + 6]
    neighbour = older[12 + 6, 12 + 6] / older[12 + 5, 12 + 6]
    assert on == pytest.approx(1.0)
    assert half == pytest.approx((1.0 + neighbour) / 2.0, rel=1e-5)
    assert abs(quarter) < abs(half)
    assert beyond == pytest.approx(older[12 + 7, 12 + 6] / older[12 + 5, 12 + 6], rel=1e-5)


def test_the_portable_code_agrees_to_rounding():
    fast, portable = (Acoustic(VELOCITY, (10.0, 10.0), DT, 8, portable=p) for p in (False, True))
    assert portable.instructions == "portable"
    results = []
    for core in (fast, portable):
        older, newer = _fields(core)
        newer[30, 30] = 1.0
        core.advance(older, newer, 50)
        results.append(newer)
    np.testing.assert_allclose(*results, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a, b: (a, a), "share memory"),
        (lambda a, b: (a[:, ::2], b), "contiguous"),
        (lambda a, b: (a[:-1], b), "elements where"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(core, change, reason):
    with pytest.raises(ValueError, match=reason):
        core.advance(*change(*_fields(core)), 1)


def test_arrays_that_must_not_be_written_are_refused(core):
    older, newer = _fields(core)
    older.flags.writeable = False
    with pytest.raises(ValueError, match="must be writable"):
        core.advance(older, newer, 1)


def test_points_and_values_come_together(core):
    with pytest.raises(ValueError, match="both its points and its values"):
        core.advance(*_fields(core), 1, core.points([(1.0, 1.0)]))


def test_points_of_another_grid_are_refused(core):
    other = Acoustic(VELOCITY, (5.0, 5.0), 1e-4, 8).points([(1.0, 1.0)])
    with pytest.raises(ValueError, match="another grid"):
        core.advance(*_fields(core), 1, other, np.ones(1, np.float32))


def test_points_outside_the_model_are_refused(core):
    with pytest.raises(ValueError, match=r"point 1 .* outside the model of 390 m by 290 m"):
        core.points([(0.0, 0.0), (390.1, 0.0)])


def test_a_step_beyond_the_stability_limit_is_refused():
    limit = largest_stable_step(2000.0, 10.0, 10.0)
    assert limit == pytest.approx(0.5546 * 10.0 / 2000.0, rel=1e-3)
    with pytest.raises(MigrationError, match="unstable"):
        CompiledPropagator(Model(VELOCITY, (10.0, 10.0), "m"), 1.01 * limit, 8)


def test_other_threads_run_while_waves_are_computed(core):
    older, newer = _fields(core)
    counted, go_on = [0], threading.Event()

    def count():
        while not go_on.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    core.advance(older, newer, 20000)
    during = counted[0] - before
    go_on.set()
    thread.join()
    assert during > 0
