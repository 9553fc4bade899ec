"""What this machine has for a spool, how good it is, and what to do about what is missing.

The command is `unspool doctor`; in a program, `unspool.doctor()` gives the same as an object.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Any

from unspool._doctor.diagnosis import Diagnosis
from unspool._doctor.facts import Facts, Finding, facts

__all__ = ["Diagnosis", "Facts", "Finding", "diagnose", "doctor", "folders"]


def doctor(
    disk: str | os.PathLike[str] | None = None,
    *,
    cuda: bool = True,
    measure: bool = True,
    timeout: float = 30.0,
) -> Diagnosis:
    """Looks at what this machine has for a spool: `print` the result for a report.

    With a GPU it starts a context on each device of this process, for about a second each. A driver
    that is so broken that it ends the process ends yours: the command `unspool doctor` looks in a
    process of its own.

    Arguments:
        disk: the directory of a disk tier to look at; nothing stays in it.
        cuda: load the CUDA driver and start its devices.
        measure: measure the links of the devices and the disk, for about a second each.
        timeout: the longest that the driver, and then the disk, may take to answer, in seconds.

    Raises:
        Error: a mistake in Unspool itself. What is missing on the machine raises nothing.
    """
    from unspool._unspool import examine

    directory = None if disk is None else os.fsdecode(disk)
    return diagnose(examine(directory, cuda, measure, folders(), timeout))


def diagnose(found: Mapping[str, Any], *more: Finding) -> Diagnosis:
    """What the extension found, with everything that is missing or poor in it."""
    # A program that only imports the package needs none of these.
    from unspool._doctor import findings, libraries, system

    seen = {name: facts(value) for name, value in found.items()}
    vars(seen["host"]).update(system.settings(seen["host"].turns))
    if seen["disk"] is not None:
        usable = seen["disk"].problem is None
        seen["disk"].spools = system.spools(seen["disk"].directory) if usable else ()
    diagnosis = Diagnosis(**seen, libraries=libraries.installed())
    return dataclasses.replace(diagnosis, findings=findings.judge(diagnosis, more))


def folders() -> list[str]:
    """Where Python's packages are, NVIDIA's among them."""
    return [path for path in sys.path if path and os.path.isdir(path)]
