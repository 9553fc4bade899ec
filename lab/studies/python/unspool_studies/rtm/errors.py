"""What a user of the migration can get wrong."""

from __future__ import annotations

from unspool.errors import Error

__all__ = ["GpuError", "MigrationError", "ModelFileError"]


class MigrationError(Error, ValueError):
    """Options that make no sense together, or a job that this machine cannot run."""


class GpuError(Error):
    """A GPU that failed while it computed."""


class ModelFileError(MigrationError):
    """A velocity model that cannot be read."""
