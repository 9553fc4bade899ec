"""The migration with Devito's operators gives the same image through a spool as without one."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import unspool

pytest.importorskip("devito", reason="pip install devito to run the example with its operators")
pytest.importorskip("scipy")

EXAMPLE = Path(__file__).parents[2] / "examples" / "devito_rtm.py"
#: One thread: the order in which threads add up what receivers inject is not fixed.
ONE_THREAD = {"opt": ("advanced", {"openmp": False})}


class Arrays(dict):
    """The whole history in plain arrays."""

    def save(self, version, array):
        self[version] = np.array(array)

    def expect(self, versions, once):
        assert once
        assert sorted(versions) == sorted(self)

    def restore(self, version, array):
        array[...] = self.pop(version)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("devito_rtm", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_is_the_same_bit_for_bit(example, tmp_path):
    velocity = example.lens((81, 61))
    survey = example.plan(velocity, 10.0, 1, 20.0)
    true, smooth = example.Earth(velocity, 10.0), example.Earth(np.full_like(velocity, 2000), 10.0)
    data = example.record(true, survey, survey.sources[0], **ONE_THREAD)
    assert np.abs(data).max() > 0

    def image(history):
        source = survey.sources[0]
        return example.migrate(smooth, survey, source, data, history, **ONE_THREAD)

    plain = image(Arrays())
    with unspool.Spool("1MiB", "2MiB", tmp_path) as spool:
        spooled = image(spool)
        stats = spool.stats()
    assert stats.saved_bytes > 8 * 3 * 2**20
    assert np.abs(plain).max() > 0
    assert np.array_equal(spooled, plain)
