"""Velocity models: read from files, generated, smoothed."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool_studies.rtm.errors import MigrationError, ModelFileError
from unspool_studies.rtm.generated import SALT, WATER, generated_model, salt_model
from unspool_studies.rtm.model import Model, coarser, extended, smooth, water
from unspool_studies.rtm.modelfile import read_model

MARMOUSI = Path(__file__).parents[4] / "shared" / "data" / "marmousi_vp_x1601_z401.f32"
VALUES = np.linspace(1.5, 4.5, 12 * 9, dtype="<f4").reshape(12, 9)


def test_raw_values_have_depth_fastest_and_become_metres_per_second(tmp_path):
    path = tmp_path / "model.f32"
    VALUES.tofile(path)
    model = read_model(path, (12, 9), (7.5, 5.0))
    assert model.spacing == (7.5, 5.0)
    assert model.extent == (11 * 7.5, 8 * 5.0)
    np.testing.assert_allclose(model.velocity, VALUES * 1000.0, rtol=1e-6)
    assert "km/s" in model.notes[-1]


def test_npy_of_any_number_type_and_layout_is_read(tmp_path):
    path = tmp_path / "model.npy"
    np.save(path, np.asfortranarray(VALUES.astype(">f8") * 1000.0))
    model = read_model(path, spacing=(10.0, 10.0))
    assert model.velocity.dtype == np.float32
    assert model.velocity.flags.c_contiguous
    np.testing.assert_allclose(model.velocity, VALUES * 1000.0, rtol=1e-6)


def test_segy_says_its_own_spacing(tmp_path):
    segyio = pytest.importorskip("segyio")
    path = tmp_path / "model.sgy"
    spec = segyio.spec()
    spec.format, spec.samples, spec.tracecount = 5, np.arange(9) * 5.0, 12
    with segyio.create(str(path), spec) as file:
        file.bin[segyio.BinField.Interval] = 5000
        for column, values in enumerate(VALUES * 1000.0):
            file.header[column] = {
                segyio.TraceField.CDP_X: column * 1250,
                segyio.TraceField.SourceGroupScalar: -100,
            }
            file.trace[column] = values
    model = read_model(path)
    assert model.spacing == (12.5, 5.0)
    np.testing.assert_allclose(model.velocity, VALUES * 1000.0, rtol=1e-6)
    assert read_model(path, spacing=(1.0, 2.0)).spacing == (1.0, 2.0)


def test_units_can_be_said_instead_of_guessed(tmp_path):
    path = tmp_path / "model.npy"
    np.save(path, VALUES)
    with pytest.raises(ModelFileError, match="check --units"):
        read_model(path, spacing=(10.0, 10.0), units="m/s")


def _raw(path):
    VALUES.tofile(path)


def _big_endian(path):
    VALUES.astype(">f4").tofile(path)


def _text(path):
    path.write_text("no numbers")


def _one_dimension(path):
    np.save(path, VALUES.ravel())


def _pickled(path):
    np.save(path, np.array([{}, {}], dtype=object), allow_pickle=True)


def _nothing(path):
    assert not path.exists()


def _empty(path):
    np.save(path, np.zeros((0, 10), np.float32))


@pytest.mark.parametrize(
    ("name", "write", "options", "reason"),
    [
        ("a.f32", _nothing, {}, "no model file"),
        ("a.f32", _raw, {}, "give --shape"),
        ("a.f32", _raw, {"shape": (9, 13)}, "432 bytes; 9 by 13 float32 values are 468"),
        ("a.f32", _raw, {"shape": (12, 9)}, "give --spacing"),
        ("a.f32", _big_endian, {"shape": (12, 9), "spacing": (1.0, 1.0)}, "little-endian"),
        ("a.npy", _text, {}, r"no \.npy file"),
        ("a.npy", _one_dimension, {}, "two dimensions"),
        ("a.npy", _pickled, {}, r"no \.npy file"),
        ("a.f32", _raw, {"shape": (12, 9), "spacing": (-1.0, 1.0)}, "not positive"),
        ("a.f32", _raw, {"shape": (12, 9), "spacing": (1e300, 1.0)}, "apart"),
        ("a.npy", _empty, {"spacing": (1.0, 1.0)}, "no model in it"),
    ],
)
def test_a_file_that_holds_no_model_is_refused_with_a_reason(
    tmp_path, name, write, options, reason
):
    write(tmp_path / name)
    with pytest.raises(MigrationError, match=reason):
        read_model(tmp_path / name, **options)


def test_a_file_that_is_no_segy_is_refused(tmp_path):
    pytest.importorskip("segyio")
    path = tmp_path / "model.segy"
    path.write_bytes(bytes(4000))
    with pytest.raises(ModelFileError, match="not a SEG-Y file"):
        read_model(path)


@pytest.mark.parametrize("length", [-1.0, np.nan, np.inf, 1e300])
def test_a_model_is_smoothed_over_a_part_of_it(length):
    model = Model(np.full((10, 10), 2000.0, np.float32), (10.0, 10.0), "flat")
    with pytest.raises(MigrationError, match="smoothing length"):
        smooth(model, length)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_model_has_positive_finite_speeds(value):
    velocity = np.full((10, 10), 2000.0, np.float32)
    velocity[3, 4] = value
    with pytest.raises(MigrationError, match="positive finite"):
        Model(velocity, (10.0, 10.0), "wrong")


def test_the_generated_model_is_the_same_every_time_and_has_what_it_should():
    model, again = generated_model(301, 101), generated_model(301, 101)
    assert model.velocity.tobytes() == again.velocity.tobytes()
    assert model.velocity.tobytes() != generated_model(301, 101, seed=8).velocity.tobytes()
    assert (model.velocity[:, 0] == WATER).all()
    assert 0.03 < (model.velocity == SALT).mean() < 0.2
    assert len(np.unique(model.velocity[40])) > 10, "layers"
    assert np.abs(np.diff(model.velocity[:, 60])).max() > 50.0, "faults"


def test_the_body_of_salt_is_among_layers_and_does_not_reach_the_sides():
    model, space = salt_model(301, 101), salt_model(61, 41, 20.0, ny=51)
    assert model.velocity.tobytes() == salt_model(301, 101).velocity.tobytes()
    assert model.velocity.tobytes() != salt_model(301, 101, seed=8).velocity.tobytes()
    for one in (model, space):
        body = one.velocity == SALT
        assert 0.01 < body.mean() < 0.3
        assert not (body[0].any() or body[-1].any() or body[..., 0].any() or body[..., -1].any())
        assert (one.velocity[..., 0] == WATER).all()
        assert len(np.unique(one.velocity[0])) > 10, "layers"
    assert not (space.velocity[:, 0] == SALT).any() and not (space.velocity[:, -1] == SALT).any()
    assert (space.velocity != space.velocity[:, :1]).any()


def test_a_section_is_repeated_along_y_and_made_coarser():
    section = generated_model(41, 31, 10.0)
    space = extended(section, 9)
    assert space.shape == (41, 9, 31) and space.spacing == (10.0, 10.0, 10.0)
    assert (space.velocity == section.velocity[:, None]).all()
    assert extended(space, 20) is space
    coarse = coarser(section, 2)
    assert coarse.shape == (21, 16) and coarse.spacing == (20.0, 20.0)
    assert (coarse.velocity == section.velocity[::2, ::2]).all()
    assert coarser(section, 1) is section
    with pytest.raises(MigrationError, match="too small"):
        coarser(section, 10)
    with pytest.raises(MigrationError, match="whole numbers from 1"):
        coarser(section, 0)
    with pytest.raises(MigrationError, match="at least one"):
        extended(section, 0)


def test_smoothing_keeps_the_water_and_the_travel_time():
    model = generated_model(301, 101)
    smoothed = smooth(model, 60.0)
    wet = water(model)
    assert (smoothed.velocity[wet] == model.velocity[wet]).all()
    steps = [np.abs(np.diff(m.velocity, axis=1)).max() for m in (smoothed, model)]
    assert steps[0] < 0.5 * steps[1]
    times = [(1.0 / m.velocity).sum(axis=1) for m in (smoothed, model)]
    np.testing.assert_allclose(times[0], times[1], rtol=0.06)
    assert smooth(model, 0.0) is model


def test_a_surface_that_is_no_water_has_none():
    land = Model(np.full((20, 20), 2200.0, np.float32), (10.0, 10.0), "land")
    assert not water(land).any()


@pytest.mark.skipif(not MARMOUSI.exists(), reason="the Marmousi model is not here")
def test_the_marmousi_model_is_read():
    model = read_model(MARMOUSI, (1601, 401), (7.5, 7.5))
    assert model.extent == (12000.0, 3000.0)
    assert (model.slowest, model.fastest) == (pytest.approx(1028, abs=1), pytest.approx(4700))
    assert water(model)[:, :20].all()
