"""Restart of long jobs: `unspool.Checkpointer`, and what it is made of."""

from .checkpointer import Checkpointer
from .parts import CheckpointPart

__all__ = ["CheckpointPart", "Checkpointer"]
