"""Fixtures of all tests of the studies."""

from __future__ import annotations

from fixtures import default_ctrl_c, driver, own_cache

__all__ = ["driver"]

default_ctrl_c()
own_cache()
