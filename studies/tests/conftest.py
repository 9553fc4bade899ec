"""Fixtures of all tests of the studies."""

from __future__ import annotations

from fixtures import driver

__all__ = ["driver"]
