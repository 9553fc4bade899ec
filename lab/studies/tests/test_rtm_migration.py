"""Migration puts reflectors where they are, and the history decides nothing about the image."""

import dataclasses

import numpy as np
import pytest
import unspool

pytest.importorskip("scipy")

from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import ArrayHistory, Memory
from unspool_studies.rtm.image import agreement, expected, finish
from unspool_studies.rtm.job import Job, migrate_again, run
from unspool_studies.rtm.migration import migrate_shot, mute_direct_wave, record_shot
from unspool_studies.rtm.model import Model, smooth
from unspool_studies.rtm.passes import Passes
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.propagator import CompiledPropagator
from unspool_studies.rtm.survey import plan

LAYER = 20


def _say_nothing(phase, steps):
    assert phase in {"record", "forward", "backward"}
    assert steps > 0


def _uniform(speed=2000.0):
    return Model(np.full((141, 81), speed, np.float32), (10.0, 10.0), "uniform")


def _changed(change, speed=2600.0):
    model = _uniform()
    model.velocity[change] = speed
    return model


def _job(model, background, tmp_path, **planned):
    survey = plan(model, **{"shots": 2, "frequency": 14.0, **planned})
    memory = Memory("1MiB", "2MiB", tmp_path)
    return Job(model, background, survey, LAYER, 2, memory)


def _image(job):
    migrated = run(job, Silence()).migrated
    return finish(migrated.image, migrated.illumination, job.model)


def test_a_flat_reflector_is_imaged_at_its_depth(tmp_path):
    job = _job(_changed(np.s_[:, 50:]), _uniform(), tmp_path)
    image = _image(job)
    middle = np.abs(image[40:-40, 15:-6]).mean(axis=0)
    # The step in speed from 500 m on is shown as a pair of opposite bands around that depth.
    assert abs(15 + int(np.argmax(middle)) - 50) <= 3
    quiet = np.concatenate([middle[:15], middle[-5:]])
    assert middle.max() > 4 * quiet.mean()


def test_a_small_body_is_focused_to_a_point(tmp_path):
    job = _job(_changed(np.s_[69:72, 44:47], 2300.0), _uniform(), tmp_path, shots=5)
    image = np.abs(_image(job)[:, 20:])
    x, z = np.unravel_index(np.argmax(image), image.shape)
    assert abs(x - 70) <= 2
    assert abs(20 + z - 45) <= 3


def test_faster_is_positive(tmp_path):
    slower, faster = (
        _image(_job(_changed(np.s_[69:72, 44:47], speed), _uniform(), tmp_path, shots=5))
        for speed in (1800.0, 2200.0)
    )
    assert faster[70, 45] > 0 > slower[70, 45]


def test_the_generated_model_is_recognised_in_its_image(tmp_path):
    model = generated_model(301, 101, 15.0)
    job = _job(model, smooth(model, 120.0), tmp_path, shots=4, frequency=8.0)
    agrees = agreement(_image(job), expected(job.model, job.background, job.survey.timing), model)
    assert agrees > 0.4


@pytest.mark.parametrize("every", [1, 3, None])
def test_a_spool_gives_the_same_bits_as_plain_arrays(tmp_path, every):
    model = generated_model(101, 61, 15.0)
    job = _job(model, smooth(model, 60.0), tmp_path, every=every, time=0.7)
    outcome = run(job, Silence(), keep_records=True)
    again = migrate_again(job, outcome.records, Silence())
    assert outcome.migrated.digests == again.digests
    assert outcome.migrated.image.tobytes() == again.image.tobytes()
    assert outcome.migrated.illumination.tobytes() == again.illumination.tobytes()
    assert np.abs(again.image).max() > 0
    if every == 1:
        assert job.kept.peak_bytes > 3 * 3 * 2**20, "the history must not fit into memory"
    assert outcome.stats.saves == outcome.stats.restores == 2 * (job.survey.timing.saves - 1)


def test_threads_do_not_change_a_bit(tmp_path):
    model = generated_model(101, 61, 15.0)
    job = _job(model, smooth(model, 60.0), tmp_path, shots=1, time=0.6)
    images = [
        run(dataclasses.replace(job, threads=threads), Silence()).migrated.image
        for threads in (1, 3)
    ]
    assert images[0].tobytes() == images[1].tobytes()


def test_the_default_sampling_of_the_history_loses_nothing_that_counts(tmp_path):
    model = generated_model(201, 81, 15.0)
    background = smooth(model, 120.0)
    jobs = [_job(model, background, tmp_path, every=every, frequency=8.0) for every in (1, None)]
    assert jobs[1].survey.timing.every > 1
    dense, sampled = map(_image, jobs)
    likeness = np.corrcoef(dense.ravel(), sampled.ravel())[0, 1]
    assert likeness > 0.999


def test_the_mute_silences_the_direct_wave_and_nothing_later():
    model = _uniform()
    survey = plan(model, shots=1, frequency=14.0, time=0.9)
    propagator = CompiledPropagator(model, survey.timing.dt, LAYER)
    data = record_shot(propagator, survey, 0, Clock(), _say_nothing)
    loud = np.abs(data).max()
    late = np.ones_like(data)
    mute_direct_wave(data, survey, 0, 2000.0)
    mute_direct_wave(late, survey, 0, 2000.0)
    assert np.abs(data).max() < 0.02 * loud
    assert (late[-1] == 1.0).all()
    assert late[0].max() == 0.0


def test_every_wavefield_is_saved_and_comes_back_last_one_first():
    calls = []

    class Listening(ArrayHistory):
        def save(self, version, array):
            calls.append(("save", version))
            super().save(version, array)

        def expect(self, versions):
            calls.append(("expect", *versions))

        def restore(self, version, array):
            calls.append(("restore", version))
            super().restore(version, array)

    survey = plan(_uniform(), shots=2, steps=10, every=4)
    propagator = CompiledPropagator(_uniform(), survey.timing.dt, LAYER)
    data = np.zeros((10, len(survey.receivers)), np.float32)
    passes = Passes(propagator, survey, 1, data, Clock(), _say_nothing)
    migrate_shot(passes, Listening())
    assert calls == [
        ("save", 0),
        ("save", 1),
        ("save", 2),
        ("expect", 2, 1, 0),
        ("restore", 2),
        ("restore", 1),
        ("restore", 0),
    ]


def test_waves_go_on_from_levels_that_were_put_back():
    survey = plan(_uniform(), shots=1, steps=30, every=7)
    propagator = CompiledPropagator(_uniform(), survey.timing.dt, LAYER)
    data = np.zeros((30, len(survey.receivers)), np.float32)
    passes = Passes(propagator, survey, 0, data, Clock(), _say_nothing)
    passes.forward(None, 0, 3)
    kept = [level.copy() for level in passes.levels()]
    passes.forward(None, 3, 4)
    wanted = [level.copy() for level in passes.levels()]
    assert np.abs(wanted[1]).max() > 0
    passes.forward(None, 4, 5)
    for level, copy in zip(passes.levels(), kept, strict=True):
        level[...] = copy
    passes.forward(None, 3, 4)
    for level, copy in zip(passes.levels(), wanted, strict=True):
        np.testing.assert_array_equal(level, copy)
    assert passes.now() is passes.levels()[1]


def test_a_grid_that_is_too_large_is_refused():
    with pytest.raises(unspool.Error, match="too many"):
        CompiledPropagator(_uniform(), 1e-4, 10**7)
