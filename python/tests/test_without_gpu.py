"""Where there is no CUDA driver: what works all the same, and what the errors say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import unspool

import fake_dlpack
from helpers import python

HEAD = """
import numpy as np
import unspool
from fake_dlpack import CUDA, Exporter

class OnGpu(Exporter):
    def __dlpack_device__(self):
        return CUDA, 0

class Interface:
    def __init__(self, array):
        self.__cuda_array_interface__ = {**array.__array_interface__, "stream": 1}

def refused(kind, call):
    try:
        call()
    except kind as refusal:
        print(refusal)
    else:
        raise SystemExit(f"no {kind}")
"""


def run(code: str, tmp_path: Path) -> str:
    """Runs code in an interpreter whose driver is not there; what it printed."""
    paths = [str(Path(fake_dlpack.__file__).parent), str(Path(unspool.__file__).parent.parent)]
    environment = os.environ | {
        "UNSPOOL_CUDA_DRIVER": str(tmp_path / "nothing.so"),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = python(HEAD + code, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_device_tier_is_kept_in_main_memory(tmp_path: Path) -> None:
    code = """
with unspool.Spool(device_memory="1MiB", host_memory="4MiB") as spool:
    assert spool.device == "cpu" and "cuda" not in repr(spool), spool
    with spool.writing(0, 3, "f4", to="numpy") as array:
        array[...] = 7
    print(spool.load(0))
with unspool.Spool(device_memory="auto", host_memory="auto", device="cpu") as spool:
    print(repr(spool))
"""
    assert run(code, tmp_path).startswith("[7. 7. 7.]\n<unspool.Spool device_memory=")


@pytest.mark.parametrize(
    "options", ['device_memory="1MiB", device="cuda"', 'host_memory="1MiB", device="cuda:1"']
)
def test_a_gpu_that_was_asked_for_is_missed(options: str, tmp_path: Path) -> None:
    said = run(f"refused(unspool.errors.DeviceError, lambda: unspool.Spool({options}))", tmp_path)
    assert "driver" in said and "unspool doctor" in said


def test_the_share_of_a_gpu_is_missed(tmp_path: Path) -> None:
    said = run(
        'refused(unspool.errors.DeviceError, lambda: unspool.Spool(device_memory="auto"))', tmp_path
    )
    assert 'device_memory="4GiB"' in said and 'device="cpu"' in said


def test_arrays_on_a_gpu_are_refused_because_the_driver_is_missing(tmp_path: Path) -> None:
    code = """
with unspool.Spool(host_memory="4MiB") as spool:
    for array in (OnGpu(np.zeros(3)), Interface(np.zeros(3))):
        refused(unspool.errors.DeviceError, lambda: spool.save(0, array))
        assert 0 not in spool
    spool.save(0, np.ones(3))
    refused(unspool.errors.DeviceError, lambda: spool.restore(0, OnGpu(np.zeros(3))))
"""
    assert run(code, tmp_path).count("driver") >= 3


def test_the_options_of_a_gpu_are_checked() -> None:
    for nonsense in ("gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", ""):
        with pytest.raises(unspool.errors.OptionError, match="cuda"):
            unspool.Spool(host_memory="1MiB", device=nonsense)
    with pytest.raises(TypeError):
        unspool.Spool(host_memory="1MiB", device=0)
    with unspool.Spool(
        host_memory="1MiB", device="cpu", shrink_ok=True, debug=unspool.Debug(check_order=True)
    ) as spool:
        assert spool.device == "cpu"


def test_arrays_are_made_where_they_can_be(spool: unspool.Spool) -> None:
    spool.save(0, bytearray(3))
    for to, device in [("numpy", "cuda"), ("numpy", "tpu"), ("cupy", "cpu"), ("torch", "cuda:x")]:
        with pytest.raises(unspool.errors.OptionError, match="device"):
            spool.load(0, to=to, device=device)
    assert spool.load(0, to="numpy", device="cpu").nbytes == 3
