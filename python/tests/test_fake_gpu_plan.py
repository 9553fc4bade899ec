"""The probe of a plan on the driver that `UNSPOOL_CUDA_DRIVER` names: no library of arrays is
needed, and nothing stays on the device.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import unspool
from unspool.advice.sizes import OPTIONS

from fake_gpu import MEMORY, Driver
from helpers import children

pytestmark = pytest.mark.fake_gpu


def given_back(driver: Driver) -> bool:
    """Whether the device's memory is free again, but for what the library keeps for later."""
    deadline = time.monotonic() + 30
    while driver.free_memory() < MEMORY - (64 << 20) and time.monotonic() < deadline:
        driver.synchronize()
    return driver.free_memory() >= MEMORY - (64 << 20)


@pytest.mark.parametrize("names", [("device",), ("device", "host"), ("device", "host", "disk")])
def test_links_of_a_gpu_are_measured_and_its_memory_is_given_back(
    driver: Driver, tmp_path: Path, names: tuple[str, ...]
) -> None:
    options = {OPTIONS[name]: tmp_path if name == "disk" else "1GiB" for name in names}
    links = unspool.advice.measure_links(
        **options, device="cuda", checkpoint_bytes="1MiB", limit=1.0
    )
    assert (links.device, links.on_gpu, links.tiers) == ("cuda:0", True, names)
    rates = [links.save, links.restore]
    rates += [rate for link in links.links for rate in (link.flush, link.prefetch)]
    assert all(rate.bytes_per_second > 0 for rate in rates)
    assert all(link.contention == 0.0 for link in links.links) and links.first_touch == 0.0
    assert given_back(driver)
    assert children(tmp_path) == []


def test_arrays_on_a_gpu_reach_a_host_tier_over_the_link(driver: Driver) -> None:
    links = unspool.advice.measure_links(
        host_memory="64MiB", device="cuda", checkpoint_bytes="1MiB", limit=1.0
    )
    assert links.device == "cuda:0" and links.save.bytes_per_second > 0


def test_another_gpu_is_measured_where_it_is_asked_for(driver: Driver) -> None:
    try:
        links = unspool.advice.measure_links(
            device_memory="64MiB", device="cuda:1", checkpoint_bytes="1MiB", limit=1
        )
    except unspool.errors.DeviceError:
        pytest.skip("the driver has one device: set FAKECUDA_DEVICES=2")
    assert links.device == "cuda:1"


def test_main_memory_stays_main_memory_beside_a_gpu(driver: Driver) -> None:
    links = unspool.advice.measure_links(
        device_memory="64MiB", device="cpu", checkpoint_bytes="1MiB", limit=1.0
    )
    assert links.device == "cpu" and not links.on_gpu


def test_a_plan_for_a_gpu_names_the_spool_that_it_is_for(driver: Driver) -> None:
    found = unspool.plan(40, "1MiB", 1e-3, device_memory="8MiB", host_memory="32MiB", device="cuda")
    assert found.links.on_gpu and found.best.options["device"] == "cuda"
    assert any(one.tiers == ("device", "host") for one in found.candidates)
    with unspool.Spool(**found.best.options) as spool:
        assert spool.device == "cuda:0"
