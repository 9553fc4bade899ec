"""Fixtures of all tests of the studies."""

from __future__ import annotations

from fixtures import default_ctrl_c, driver

__all__ = ["driver"]

default_ctrl_c()
