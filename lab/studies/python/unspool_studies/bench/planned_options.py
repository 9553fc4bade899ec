"""The options of the part `plan` of `unspool-bench`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from unspool_studies.words import adder, count_of, given_as, size_of, words_of

__all__ = ["Prediction", "add_prediction_options", "prediction_of"]

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Prediction:
    """What part `plan` measures.

    Attributes:
        cells: of the square, in each direction.
        steps: of the adjoint.
        device: bytes of the device tier.
        host: bytes of the host tier.
        disk: bytes of the disk tier.
        limit: schedules that are predicted to take longer are left out, in seconds.
        names: words that the names of schedules contain; empty: all.
    """

    cells: int = 2048
    steps: int = 201
    device: int = 256 * MIB
    host: int = GIB
    disk: int = 12 * GIB
    limit: float = 30.0
    names: tuple[str, ...] = ()


#: What `--quick` changes, where no option says otherwise.
QUICK = {"cells": 1024, "steps": 101, "device": 64 * MIB, "host": 256 * MIB, "disk": 2 * GIB}


def add_prediction_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the part."""
    add = adder(parser.add_argument_group("plan"), "prediction", "plan")
    add("--plan-cells", count_of, "N", "of the square, in each direction (2048)")
    add("--plan-steps", count_of, "N", "of the adjoint (201)")
    add("--plan-device", size_of, "SIZE", "the device tier (256MiB)")
    add("--plan-host", size_of, "SIZE", "the host tier (1GiB)")
    add("--plan-disk", size_of, "SIZE", "the disk tier, in --dir (12GiB)")
    add("--plan-limit", float, "S", "leave schedules out that take longer (30)")
    add("--plan-names", words_of, "WORD[,WORD]", "only schedules with such a word")


def prediction_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options ask of the part; what they leave out is as in the class above."""
    given = given_as("prediction", options)
    return {"prediction": Prediction(**((QUICK if options.quick else {}) | given))}
