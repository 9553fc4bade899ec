"""What `unspool.doctor()` returns, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unspool._doctor.facts import SLOW_LINK, Facts, Finding, rate
from unspool.stats import size

#: The width of a page, and of the names at its left edge.
WIDTH, MARGIN = 100, 13


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
        automatic_device: what `device_memory="auto"` would take now, in a sentence; None without a
            device.
        automatic_host: what `host_memory="auto"` would take now, in a sentence.
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
        """All of it: what there is, then what is missing or poor."""
        lines = [f"Unspool {self.version}"]
        lines += [_filled(text, name.ljust(MARGIN), MARGIN) for name, text in _facts(self)]
        lines.append("")
        if not self.findings:
            lines.append("Nothing is missing and nothing is poor.")
        for finding in self.findings:
            lines += [
                _filled(f"{finding.level.upper()} ({finding.about}): {finding.what}", "", 2),
                _filled(finding.meaning, "  means: ", 9),
                _filled(finding.remedy, "  do:    ", 9),
            ]
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    """The inverse of `facts`."""
    if isinstance(value, Facts):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _filled(text: str, first: str, margin: int) -> str:
    import textwrap

    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "driver", _driver(found.cuda)
    for device in found.devices:
        yield f"device {device.ordinal}", _device(device)
        pieces = "mapped in pieces" if device.maps_in_pieces else "NOT mapped in pieces"
        yield "  memory", f"{_free(device)}, {pieces}"
        yield "  links", _links(device.speeds)
    yield "kernels", found.kernels
    yield "NVRTC", _nvrtc(found.nvrtc)
    yield "memory", _memory(found.host)
    yield "  pinning", _pinning(found)
    yield "  turns", f"{found.host.turns}, {found.host.turns_problem or 'usable'}"
    if found.disk is not None:
        yield from _disk(found.disk)
    yield "libraries", ", ".join(f"{name} {text}" for name, text in found.libraries.items()) or "-"
    yield "automatic", found.automatic_device or 'no device for device_memory="auto"'
    yield "", found.automatic_host


def _driver(cuda: Facts) -> str:
    if cuda.version is None:
        return "none that can be used" if cuda.looked_for else "not looked for"
    return f"CUDA {_version(cuda.version)}, {cuda.path or 'library not found'}"


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _device(device: Facts) -> str:
    start = device.start_seconds
    started = "" if start is None else f", started in {start:.2f} s"
    capability = f"compute capability {_version(device.compute_capability)}"
    return f"{device.name}, {capability}, PCI {device.pci}{started}"


def _free(of: Facts) -> str:
    free, total = ("?" if count is None else size(count) for count in (of.free, of.total))
    return f"{free} free of {total}"


def _links(speeds: Facts | None) -> str:
    if speeds is None:
        return "not measured"
    return (
        f"pinned, device to host {rate(speeds.device_to_host)}, host to device "
        f"{rate(speeds.host_to_device)}, both at once {rate(speeds.both_each)} each; within the "
        f"device {rate(speeds.within_device)}; {rate(SLOW_LINK)} and more are good"
    )


def _nvrtc(nvrtc: Facts) -> str:
    if nvrtc.version is None:
        return "none"
    return f"CUDA {_version(nvrtc.version)}, {nvrtc.path or 'path not known'}"


def _memory(host: Facts) -> str:
    return f"{_free(host)} by {host.limit}; {host.cores} cores"


def _pinning(found: Diagnosis) -> str:
    limits = (found.host.locked_soft, found.host.locked_hard)
    soft, hard = ("unlimited" if limit is None else size(limit) for limit in limits)
    counts = {device.pins_are_locked for device in found.devices}
    effect = ""
    if limits[0] is not None and counts & {True, False}:
        effect = ", which limits pinning here" if True in counts else ", which pinning ignores here"
    pages = found.host.huge_pages or "unknown"
    return f"RLIMIT_MEMLOCK {soft} (hard {hard}){effect}; huge pages: {pages}"


def _disk(disk: Facts) -> Iterator[tuple[str, str]]:
    if disk.problem is not None:
        yield "disk", f"{disk.directory}: {disk.problem}"
        return
    yield "disk", f"{disk.directory} on {disk.file_system or 'unknown'}, {_free(disk)}"
    works = {True: "works", False: "does not work", None: "not tried"}
    rates = "not measured"
    if disk.write is not None:
        rates = f"one thread writes {rate(disk.write)} and reads {rate(disk.read)}"
    yield "  ways", f"O_DIRECT {works[disk.direct]}, io_uring {works[disk.io_uring]}; {rates}"
    owners = [spool.owner for spool in disk.spools]
    names = {"alive": "in use", "dead": "left by dead processes", "unknown": "not known whose"}
    counts = [f"{owners.count(owner)} {name}" for owner, name in names.items() if owner in owners]
    taken = size(sum(spool.bytes for spool in disk.spools))
    yield "  spools", f"{', '.join(counts)}: {taken}" if counts else "none"
