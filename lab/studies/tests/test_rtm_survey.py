"""The plan of a survey: positions, time steps, how often wavefields are saved."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.survey import BANDWIDTH, plan, ricker

MODEL = Model(np.full((101, 61), 2000.0, np.float32), (10.0, 10.0), "uniform")


def test_shots_are_spread_evenly_and_every_column_has_a_receiver():
    survey = plan(MODEL, shots=4)
    x = [position[0] for position in survey.sources]
    # To the nearest cell: sources lie on nodes.
    np.testing.assert_allclose(np.diff(x), 250.0, atol=10.0)
    assert x[0] == pytest.approx(1000.0 - x[-1], abs=10.0)
    assert len(survey.receivers) == 101
    assert {depth for _, depth in (*survey.sources, *survey.receivers)} == {20.0}


def test_the_step_is_stable_and_the_time_is_kept():
    survey = plan(MODEL, shots=1, time=0.5)
    assert survey.timing.dt < 0.5546 * 10.0 / 2000.0
    assert survey.timing.steps * survey.timing.dt == pytest.approx(0.5, abs=survey.timing.dt)
    assert plan(MODEL, shots=1, steps=77).timing.steps == 77


def test_wavefields_are_saved_twice_as_often_as_nyquist_asks():
    timing = plan(MODEL, shots=1, frequency=10.0, time=1.0).timing
    nyquist = 1.0 / (2.0 * BANDWIDTH * 10.0)
    assert timing.every * timing.dt <= nyquist / 2.0 < (timing.every + 1) * timing.dt
    assert timing.saves == -(-timing.steps // timing.every)


def test_the_wavelet_begins_and_ends_in_silence():
    timing = plan(MODEL, shots=1, frequency=12.0, time=1.0).timing
    wavelet = ricker(timing)
    assert wavelet.dtype == np.float32
    assert wavelet.max() == pytest.approx(1.0, abs=1e-3)
    assert abs(wavelet[0]) < 1e-4
    assert np.abs(wavelet[int(2 * timing.delay / timing.dt) :]).max() < 1e-4


def test_too_coarse_a_grid_is_warned_of_with_what_it_carries():
    survey = plan(MODEL, shots=1, frequency=40.0)
    assert "numerical dispersion" in survey.warnings[0]
    limit = float(survey.warnings[0].split("at most ")[1].split(" Hz")[0])
    assert plan(MODEL, shots=1, frequency=limit - 0.1).warnings == ()


def test_too_rare_wavefields_are_warned_of():
    survey = plan(MODEL, shots=1, every=40, time=1.0)
    assert "aliasing" in survey.warnings[0]


def test_the_default_frequency_is_what_the_grid_carries():
    assert plan(MODEL, shots=1).timing.frequency == 15.0
    coarse = Model(MODEL.velocity, (25.0, 10.0), "coarse")
    assert plan(coarse, shots=1).timing.frequency < 10.0
    assert plan(coarse, shots=1).warnings == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"shots": 0},
        {"shots": 1, "frequency": -3.0},
        {"shots": 1, "frequency": float("nan")},
        {"shots": 1, "steps": 0},
        {"shots": 1, "time": -1.0},
        {"shots": 1, "every": 0},
        {"shots": 1, "steps": 5, "time": 1.0},
    ],
)
def test_figures_without_sense_are_refused(wrong):
    with pytest.raises(MigrationError):
        plan(MODEL, **wrong)
