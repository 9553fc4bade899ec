"""What was found on a machine, as plain figures: what `unspool.doctor()` returns.

Sizes are in bytes, rates in bytes per second, times in seconds. None stands for what could not be
found out, or was not asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


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
class Host:
    """Main memory and its limits.

    Attributes:
        kernel: the version of the kernel.
        cores: cores that this process may use.
        total: all memory of the machine.
        available: what the machine can give without swapping.
        free: what the tightest of the machine and the control groups leaves.
        limit: who sets that limit.
        promised: what arenas of this process were promised and have not used yet.
        locked_soft: the soft limit on locked memory (`ulimit -l`); None is no limit.
        locked_hard: the hard one.
        huge_pages: the setting of transparent huge pages: `"always"`, `"madvise"`, `"never"`, or
            `"unknown"`.
        strict_overcommit: whether `vm.overcommit_memory` is 2.
    """

    kernel: str | None
    cores: int
    total: int | None
    available: int | None
    free: int | None
    limit: str
    promised: int
    locked_soft: int | None
    locked_hard: int | None
    huge_pages: str
    strict_overcommit: bool


@dataclass(frozen=True, slots=True)
class Cuda:
    """The CUDA driver.

    Attributes:
        looked_for: whether it was asked for.
        version: the newest CUDA that it supports, major and minor.
        path: its library.
        module: the version of its kernel module.
        problem: why it cannot be used.
    """

    looked_for: bool
    version: tuple[int, int] | None
    path: str | None
    module: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Link:
    """A PCI link.

    Attributes:
        generation: of PCI Express.
        lanes: its width.
        bytes_per_second: what it can carry in one direction, before packet headers.
    """

    generation: int | None
    lanes: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured between a device and pinned memory.

    Attributes:
        device_to_host: alone.
        host_to_device: alone.
        both_each: each direction while the other one runs; the slower one.
        within_device: bytes copied from device memory to device memory.
        copy_bytes: the size of each copy.
        copies: copies of each kind.
    """

    device_to_host: float
    host_to_device: float
    both_each: float
    within_device: float
    copy_bytes: int
    copies: int


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device.

    Attributes:
        ordinal: its number in this process.
        name: as the driver gives it.
        compute_capability: major and minor.
        free: memory that is free, with this process's context there.
        total: all of its memory.
        maps_in_pieces: whether it has virtual memory management, which a device tier needs.
        copy_engines: how many copies run beside kernels and each other.
        pci: `domain:bus:device.function`.
        link_now: what its link ran at after the measurement; idle links slow down.
        link_most: the most that the device can do.
        numa_node: the node that it hangs on.
        start_seconds: how long its context took to start.
        speeds: what was measured.
        pins_are_locked: whether pinned memory counts against `ulimit -l`.
        problem: what did not work.
    """

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    free: int | None
    total: int
    maps_in_pieces: bool
    copy_engines: int
    pci: str
    link_now: Link | None
    link_most: Link | None
    numa_node: int | None
    start_seconds: float | None
    speeds: Speeds | None
    pins_are_locked: bool | None
    problem: str | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Made from what the extension found."""
        parts = {"link_now": Link, "link_most": Link, "speeds": Speeds}
        made = {name: _made(kind, found[name]) for name, kind in parts.items()}
        made["compute_capability"] = tuple(found["compute_capability"])
        return cls(**{**found, **made})


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The compiler for kernels.

    Attributes:
        path: its library.
        version: the CUDA that it belongs to, major and minor.
        problem: why there is none.
    """

    path: str | None
    version: tuple[int, int] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Turns:
    """The lock by which processes of this node take turns to pin memory.

    Attributes:
        path: its file.
        exists: whether a process has made it already.
        holder: the process that has its turn now, as far as the system tells.
        problem: why it cannot be used.
    """

    path: str
    exists: bool
    holder: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Leftover:
    """The directory of an ephemeral spool.

    Attributes:
        path: where it is.
        bytes: what its files take.
        owner: `"alive"`, `"dead"`, or `"unknown"` where it cannot be told.
        pid: the process that made it.
    """

    path: str
    bytes: int
    owner: str
    pid: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory for a disk tier.

    Attributes:
        directory: where it is.
        file_system: the type of its file system.
        mount_point: where that is mounted.
        source: what is mounted there.
        free: what this user may still write.
        total: the whole file system.
        direct: whether bytes can go past the page cache (O_DIRECT).
        direct_problem: why they cannot.
        io_uring: whether io_uring works there.
        io_uring_problem: why it does not.
        notes: what the disk tier says about itself there.
        write: the rate at which one thread writes, without a sync.
        read: the rate at which one thread reads.
        written_bytes: what was written to measure that.
        frame_bytes: in pieces of this size.
        spools: the directories of spools in it.
        problem: why it cannot be used.
    """

    directory: str
    file_system: str | None
    mount_point: str | None
    source: str | None
    free: int | None
    total: int | None
    direct: bool | None
    direct_problem: str | None
    io_uring: bool | None
    io_uring_problem: str | None
    notes: tuple[str, ...]
    write: float | None
    read: float | None
    written_bytes: int
    frame_bytes: int
    spools: tuple[Leftover, ...]
    problem: str | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Made from what the extension found."""
        spools = tuple(Leftover(**spool) for spool in found["spools"])
        return cls(**{**found, "notes": tuple(found["notes"]), "spools": spools})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What this machine has for a spool; `print` it for a report.

    Attributes:
        version: the version of Unspool.
        host: main memory.
        cuda: the CUDA driver.
        devices: the devices that this process sees.
        nvrtc: the compiler for kernels.
        turns: the lock of the node.
        disk: the directory that was asked about.
        libraries: array libraries by name, with their versions.
        automatic_device: what `device="auto"` would take now, in a sentence; None without a device.
        automatic_host: what `host="auto"` would take now, in a sentence.
        findings: what is missing or poor, the worst first.
    """

    version: str
    host: Host
    cuda: Cuda
    devices: tuple[Device, ...]
    nvrtc: Nvrtc
    turns: Turns
    disk: Directory | None
    libraries: Mapping[str, str]
    automatic_device: str | None
    automatic_host: str
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls,
        found: Mapping[str, Any],
        libraries: Mapping[str, str],
        more: Sequence[Finding] = (),
    ) -> Self:
        """Made from what the extension found, and what is known of Python's packages."""
        findings = [Finding(**finding) for finding in found["findings"]] + list(more)
        parts = {
            "host": Host(**found["host"]),
            "cuda": _versioned(Cuda, found["cuda"]),
            "devices": tuple(Device.of(device) for device in found["devices"]),
            "nvrtc": _versioned(Nvrtc, found["nvrtc"]),
            "turns": Turns(**found["turns"]),
            "disk": None if found["disk"] is None else Directory.of(found["disk"]),
            "libraries": dict(libraries),
            "findings": tuple(sorted(findings, key=_badness)),
        }
        return cls(**{**found, **parts})

    def has(self, need: str) -> bool:
        """Whether something is there and works.

        Arguments:
            need: `"cuda"`, `"nvrtc"`, `"direct-io"` or `"io-uring"` (with `disk`), or the name of a
                library: `"numpy"`, `"cupy"`, `"torch"`, `"jax"`.
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

    def as_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`."""
        return {**dataclasses.asdict(self), "usable": self.usable}

    def __str__(self) -> str:
        from unspool._doctor.text import report

        return report(self)


def _made(kind: type[Any], found: Mapping[str, Any] | None) -> Any:
    return None if found is None else kind(**found)


def _versioned(kind: type[Any], found: Mapping[str, Any]) -> Any:
    """JSON, which the command sends through a pipe, knows no tuples."""
    version = found["version"]
    return kind(**{**found, "version": None if version is None else tuple(version)})


def _badness(finding: Finding) -> int:
    return ("missing", "poor", "note").index(finding.level)
