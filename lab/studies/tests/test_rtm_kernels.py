"""The CUDA kernels, compiled for the CPU, against the compiled propagator and against NumPy.

With fused multiply-add on both sides every operation of the two-dimensional scheme is the same in
the same order, so fields, records and images must be equal bit for bit. A CPU without it rounds
twice where the kernels round once: then each step may differ by a few units in the last place, and
`ROUNDING` of the largest amplitude is what 300 steps have been seen to gather, times ten. The NumPy
reference in three dimensions rounds twice as well.
"""

import itertools

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool_studies._native import Acoustic
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.medium import SECOND_DERIVATIVE, Grid, Medium, largest_stable_step
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.propagator import CompiledPropagator
from unspool_studies.rtm.survey import Timing, ricker

import kernel_shim
from kernel_shim import ShimDevice

pytestmark = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

ROUNDING = 2e-5
STEPS = 300


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def device(kernels):
    return ShimDevice(kernels)


def _model(shape=(83, 57), spacing=(9.0, 7.0), seed=3):
    noise = np.random.default_rng(seed).uniform(1900.0, 2500.0, shape)
    return Model(noise.astype(np.float32), spacing, "noise")


def _step(model):
    return 0.9 * largest_stable_step(model.fastest, model.spacing)


def _fused():
    return Acoustic(np.full((8, 8), 2e3, np.float32), (9.0, 9.0), 1e-3, 4).instructions == "avx2"


def _same(left, right):
    """Equal bits where both sides fuse, else equal to rounding."""
    assert np.abs(right).max() > 0
    if _fused():
        np.testing.assert_array_equal(left, right)
    else:
        np.testing.assert_allclose(left, right, rtol=0, atol=ROUNDING * np.abs(right).max())


def _shoot(propagator, steps=STEPS, odd=7):
    """Drives a wavefield between nodes and on them, in groups; returns the field and a record."""
    wavelet = ricker(Timing(1.0, steps, 0.03, 1))
    signal = propagator.load(np.stack([wavelet, -0.5 * wavelet, wavelet], axis=1))
    sources = propagator.points([(301.3, 40.1), (302.0, 41.0), (27.0, 14.0)])
    receivers = propagator.points([(x, 14.0) for x in np.arange(0.0, 738.0, 4.5)])
    waves, record = propagator.wavefield(), propagator.traces(steps, 164)
    for begin in range(0, steps, odd):
        group = signal[begin : begin + odd]
        waves.advance(len(group), sources, group, receivers, record[begin : begin + odd])
    return waves.now, propagator.fetch(record)


def test_every_file_of_kernels_is_known_and_compiled(kernels):
    assert set(kernel_shim.sources()) == set(kernel_shim.FILES.values())
    assert set(kernels) == set(kernel_shim.FILES)


@pytest.mark.parametrize("layer", [0, 20])
def test_fields_and_records_in_two_dimensions_are_those_of_the_cpu(device, layer):
    model = _model()
    dt = _step(model)
    one = GpuPropagator(model, dt, layer, device)
    other = CompiledPropagator(model, dt, layer, threads=2)
    assert one.shape == other.shape
    for left, right in zip(_shoot(one), _shoot(other), strict=True):
        _same(left, right)


def test_the_image_in_two_dimensions_is_that_of_the_cpu(device):
    model = _model()
    images = []
    for propagator in (
        GpuPropagator(model, _step(model), 10, device),
        CompiledPropagator(model, _step(model), 10),
    ):
        field, _ = _shoot(propagator, 60)
        image = propagator.image()
        room = propagator.room()
        room[...] = field[::-1]
        image.add(field, room)
        image.add(room, field)
        images.append(image.result())
    for left, right in zip(*images, strict=True):
        assert left.shape == model.shape
        _same(left, right)


def test_two_runs_of_the_kernels_give_the_same_bits(device):
    model = _model()
    first, second = (_shoot(GpuPropagator(model, _step(model), 10, device), 80) for _ in range(2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def test_groups_of_steps_that_are_replayed_give_the_bits_of_one_group(device):
    model = _model()
    propagator = GpuPropagator(model, _step(model), 10, device)
    whole, _ = _shoot(propagator, 90, odd=90)
    for group in (1, 2, 7, 16):
        np.testing.assert_array_equal(_shoot(propagator, 90, odd=group)[0], whole)


def test_a_signal_may_be_played_again_from_any_row(device):
    propagator = GpuPropagator(_model(), 1e-3, 10, device)
    source, waves = propagator.points([(300.0, 200.0)]), propagator.wavefield()
    signal = propagator.load(np.sin(np.arange(40, dtype=np.float32)))
    fields = []
    for begin in (10, 0, 10, 30):
        waves.reset()
        waves.advance(10, source, signal[begin : begin + 10])
        fields.append(waves.now.copy())
    assert np.abs(fields[0]).max() > 0
    np.testing.assert_array_equal(fields[0], fields[2])
    assert (fields[0] != fields[1]).any()
    assert (fields[0] != fields[3]).any()


def test_signals_and_records_that_do_not_fit_are_refused(device):
    propagator = GpuPropagator(_model(), 1e-3, 10, device)
    points, waves = propagator.points([(300.0, 200.0)]), propagator.wavefield()
    signal, record = propagator.load(np.ones(9, np.float32)), propagator.traces(9, 1)
    with pytest.raises(MigrationError, match="signal of 3 rows is too short for 4"):
        waves.advance(4, points, signal[6:])
    with pytest.raises(MigrationError, match="record of 2 rows is too short for 4"):
        waves.advance(4, points, signal[:4], points, record[7:])
    with pytest.raises(MigrationError, match="row 2, and the record in row 0"):
        waves.advance(4, points, signal[2:6], points, record)
    assert not waves.now.any()


def _laplacian(field, spacing):
    total = np.zeros_like(field)
    inner = (slice(4, -4),) * field.ndim
    for axis, d in enumerate(spacing):
        weights = np.float32([w / d**2 for w in SECOND_DERIVATIVE])
        total[inner] += (weights[0] * field)[inner]
        for i in range(1, 5):
            sides = np.roll(field, i, axis) + np.roll(field, -i, axis)
            total[inner] += (weights[i] * sides)[inner]
    return total


def _reference(model, dt, layer, cell, signal):
    """The scheme in NumPy, in any number of dimensions, with a source on a node."""
    grid = Grid(model.shape, model.spacing, layer)
    medium = Medium.of(model, grid, dt)
    damp = sum(np.ix_(*medium.damping)).astype(np.float32)
    older, newer = np.zeros(grid.shape, np.float32), np.zeros(grid.shape, np.float32)
    inner = (slice(4, -4),) * newer.ndim
    at = tuple(grid.pad + n for n in cell)
    response = medium.push[at] / (np.prod(model.spacing) * (1.0 + damp[at]))
    for value in signal:
        pushed = medium.push * _laplacian(newer, model.spacing)
        following = (2 * newer - (1 - damp) * older + pushed) / (1 + damp)
        older[inner] = following[inner]
        older[at] += value * response
        older, newer = newer, older
    return newer


# Lengths along z that leave the last group of four cells full, and not; along x that leave the
# last chunk of planes full, and not; spacings that differ.
@pytest.mark.parametrize(
    ("shape", "spacing", "layer"),
    [
        ((20, 18, 16), (10.0, 10.0, 10.0), 6),
        ((25, 12, 17), (10.0, 12.0, 8.0), 5),
        ((41, 9, 30), (8.0, 9.0, 10.0), 0),
    ],
)
def test_fields_in_three_dimensions_are_those_of_numpy(device, shape, spacing, layer):
    model = _model(shape, spacing)
    dt, cell = _step(model), tuple(n // 2 for n in shape)
    signal = ricker(Timing(1.0, 60, 0.05, 1))
    propagator = GpuPropagator(model, dt, layer, device)
    waves = propagator.wavefield()
    source = propagator.points([tuple(n * d for n, d in zip(cell, spacing, strict=True))])
    waves.advance(60, source, propagator.load(signal))
    expected = _reference(model, dt, layer, cell, signal)
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(waves.now, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())
    for axis, side in itertools.product(range(3), (0, -1)):
        edge = np.moveaxis(waves.now, axis, 0)[slice(0, 4) if side == 0 else slice(-4, None)]
        assert not edge.any(), "the halo stays silent"


def test_rows_in_three_dimensions_begin_at_sixteen_bytes(device):
    propagator = GpuPropagator(_model((12, 12, 13), (9.0,) * 3), 1e-3, 5, device)
    assert propagator.shape == (30, 30, 32)


def test_a_wave_in_three_dimensions_spreads_alike_along_all_axes(device):
    # The rows along z have three cells more behind the layer: the layer must hide them.
    model = Model(np.full((25, 25, 25), 2000.0, np.float32), (10.0,) * 3, "cube")
    propagator = GpuPropagator(model, _step(model), 8, device)
    waves, source = propagator.wavefield(), propagator.points([(120.0, 120.0, 120.0)])
    waves.advance(25, source, propagator.load(np.ones(25, np.float32)))
    inner = waves.now[12:37, 12:37, 12:37]
    scale = np.abs(inner).max()
    for turned in (inner[::-1], inner[:, ::-1], inner[..., ::-1], inner.transpose(2, 0, 1)):
        np.testing.assert_allclose(inner, turned, rtol=0, atol=1e-4 * scale)


def test_adding_is_the_transpose_of_reading_in_three_dimensions(device):
    model = _model((14, 13, 12), (9.0, 8.0, 7.0))
    propagator = GpuPropagator(model, _step(model), 4, device)
    points = propagator.points([(30.5, 41.0, 22.2), (30.9, 41.3, 22.0), (54.0, 40.0, 35.0)])
    field = propagator.room()
    field[...] = np.random.default_rng(1).standard_normal(field.shape)
    values, read = np.float32([[0.3, -1.7, 2.0]]), propagator.traces(1, 3)
    begun = device.load(np.zeros(1, np.int32))
    points.read(field, read.array, begun, 0)
    added = propagator.room()
    points.add(added, propagator.load(values).array, begun, 0)
    # What is added is scaled by the medium of each cell: here taken out again.
    grid = Grid(model.shape, model.spacing, 4)
    medium = Medium.of(model, grid, _step(model))
    at = np.nonzero(added)
    added[at] /= medium.response(at, 9.0 * 8.0 * 7.0)
    assert float((propagator.fetch(read) * values).sum()) == pytest.approx(
        float((field * added).sum()), rel=1e-4
    )


def test_points_outside_the_model_are_refused(device):
    propagator = GpuPropagator(_model((40, 30), (10.0, 10.0)), 1e-3, 8, device)
    with pytest.raises(MigrationError, match=r"point 1 .* outside the model of 390 m by 290 m"):
        propagator.points([(0.0, 0.0), (390.1, 0.0)])
    with pytest.raises(MigrationError, match="outside"):
        propagator.points([(np.nan, 0.0)])


def test_a_step_beyond_the_stability_limit_is_refused(device):
    model = _model((10, 10, 10), (10.0,) * 3)
    limit = largest_stable_step(model.fastest, model.spacing)
    with pytest.raises(MigrationError, match="unstable"):
        GpuPropagator(model, 1.01 * limit, 4, device)


def test_a_grid_that_is_too_large_is_refused(device):
    with pytest.raises(MigrationError, match="too many"):
        GpuPropagator(_model(), 1e-4, 10**5, device)
