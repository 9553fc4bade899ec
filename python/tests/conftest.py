"""Fixtures of all tests of the library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import unspool

from fixtures import default_ctrl_c, driver, own_cache

__all__ = ["driver", "gpu_spool", "spool"]

default_ctrl_c()
own_cache()


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    """A spool with room for everything that a test saves: in main memory, or, where the
    environment asks for it (`UNSPOOL_TEST_ON=cuda`), on a GPU."""
    place = os.environ.get("UNSPOOL_TEST_ON")
    tiers = (
        {"device_memory": "64MiB", "host_memory": "64MiB", "device": place}
        if place
        else {"host_memory": "64MiB"}
    )
    with unspool.Spool(**tiers) as opened:
        yield opened


@pytest.fixture(params=["host", "device and host", "device, host and disk"])
def gpu_spool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[unspool.Spool]:
    """Spools of a real GPU for the histories of loops, of which all but the first move what they
    are given from tier to tier. Nothing is left in them."""
    options: dict[str, Any] = {"host_memory": "256MiB"}
    if "device" in request.param:
        options["device_memory"] = "4MiB"
    if "disk" in request.param:
        options |= {"host_memory": "8MiB", "disk": tmp_path}
    with unspool.Spool(**options, device="cuda") as opened:
        yield opened
        assert len(opened) == 0
