"""Fixtures of all tests of the library."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import unspool

from fixtures import default_ctrl_c, driver, own_cache

__all__ = ["driver", "spool"]

default_ctrl_c()
own_cache()


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    """A spool with room for everything that a test saves: in main memory, or, where the
    environment asks for it (`UNSPOOL_TEST_ON=cuda`), on a GPU."""
    place = os.environ.get("UNSPOOL_TEST_ON")
    tiers = {"device": "64MiB", "host": "64MiB", "on": place} if place else {"host": "64MiB"}
    with unspool.Spool(**tiers) as opened:
        yield opened
