"""What `unspool.doctor()` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any


class Facts(SimpleNamespace):
    """Figures of one thing by their names, as the extension gives them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is missing or poor.

    Attributes:
        level: `"missing"`, `"poor"`, or `"note"` where nothing is wrong.
        about: what it is about: `"CUDA"`, `"device 0"`, `"main memory"`, `"disk"`, ...
        what: what was found.
        meaning: what that means for a spool.
        remedy: what to do about it.
    """

    level: str
    about: str
    what: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What this machine has for a spool; `print` it for a report.

    Sizes are in bytes, rates in bytes per second. None stands for what could not be found out, or
    was not asked for; a `problem` says why something does not work.

    Attributes:
        version: the version of Unspool.
        host: main memory: `cores`, `total`, `free`, `limit` (who leaves that much), `locked_soft`,
            `locked_hard` (`ulimit -l`; None: no limit), `huge_pages` (`"always"`, `"madvise"`,
            `"never"`), `strict_overcommit`, `turns` (the locks by which processes of one user take
            turns to pin memory), `turns_problem`.
        cuda: the CUDA driver: `looked_for`, `version` (major and minor), `path`, `problem`.
        devices: those that this process sees: `ordinal`, `name`, `compute_capability`, `pci`,
            `free`, `total`, `maps_in_pieces`, `start_seconds`, `pins_are_locked` (whether pinned
            memory counts against `ulimit -l`), `problem`, and `speeds`: `device_to_host`,
            `host_to_device`, `both_each` (each direction while the other one runs),
            `within_device`.
        kernels: what the kernels that came with the package are for, in a sentence.
        compiled_on: the devices whose kernels the compiler has to make.
        nvrtc: the compiler for kernels, which only such devices need: `path`, `version`, `problem`.
        disk: the directory that was asked about: `directory`, `file_system`, `medium` (`"local"`,
            `"memory"`, `"remote"`), `free`, `total`, `direct` (O_DIRECT), `direct_problem`,
            `io_uring`, `io_uring_problem`, `write`, `read` (rates of one thread), `problem`, and
            `spools` in it: `path`, `bytes`, `owner` (`"alive"`, `"dead"`, `"unknown"`), `pid`.
        automatic_device: what `device="auto"` would take now, in a sentence; None without a device.
        automatic_host: what `host="auto"` would take now, in a sentence.
        libraries: optional libraries by name, with their versions.
        findings: what is missing or poor, the worst first.
    """

    version: str
    host: Facts
    cuda: Facts
    devices: tuple[Facts, ...]
    kernels: str
    compiled_on: tuple[int, ...]
    nvrtc: Facts
    disk: Facts | None
    automatic_device: str | None
    automatic_host: str
    libraries: Mapping[str, str]
    findings: tuple[Finding, ...] = ()

    def has(self, need: str) -> bool:
        """Whether something is there and works.

        Arguments:
            need: `"cuda"`, `"nvrtc"`, `"direct-io"` or `"io-uring"` (with `disk`), or the name of a
                library: `"numpy"`, `"cupy"`, `"torch"`, `"jax"`, `"nvcomp"`.
        """
        match need:
            case "cuda":
                return any(device.free is not None for device in self.devices)
            case "nvrtc":
                return self.nvrtc.version is not None
            case "direct-io":
                return self.disk is not None and self.disk.direct is True
            case "io-uring":
                return self.disk is not None and self.disk.io_uring is True
        return need in self.libraries

    @property
    def usable(self) -> bool:
        """Whether everything works that was asked about: without a `disk`, always."""
        return self.disk is None or self.disk.problem is None

    def to_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`."""
        return {**_plain(asdict(self)), "usable": self.usable}

    def __str__(self) -> str:
        from unspool._doctor.text import report

        return report(self)


def facts(found: Any) -> Any:
    """What the extension found, dictionaries as `Facts` and lists as tuples."""
    if isinstance(found, dict):
        return Facts(**{name: facts(value) for name, value in found.items()})
    return tuple(map(facts, found)) if isinstance(found, list | tuple) else found


def _plain(value: Any) -> Any:
    """The inverse of `facts`."""
    if isinstance(value, Facts):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def rate(bytes_per_second: float) -> str:
    """A rate for people: `55.1 GB/s`."""
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:,.1f} GB/s"
    return f"{bytes_per_second / 1e6:,.0f} MB/s"
