"""A diagnosis as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from unspool._doctor.facts import Diagnosis, Facts, rate
from unspool._doctor.findings import SLOW_LINK
from unspool.stats import size

#: The width of a page, and of the names at its left edge.
WIDTH, MARGIN = 100, 13


def report(found: Diagnosis) -> str:
    """All of it: what there is, then what is missing or poor."""
    lines = [f"Unspool {found.version}"]
    lines += [_filled(text, name.ljust(MARGIN), MARGIN) for name, text in _facts(found)]
    lines.append("")
    if not found.findings:
        lines.append("Nothing is missing and nothing is poor.")
    for finding in found.findings:
        lines += [
            _filled(f"{finding.level.upper()} ({finding.about}): {finding.what}", "", 2),
            _filled(finding.meaning, "  means: ", 9),
            _filled(finding.remedy, "  do:    ", 9),
        ]
    return "\n".join(lines)


def _filled(text: str, first: str, margin: int) -> str:
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
    yield "automatic", found.automatic_device or 'no device for device="auto"'
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
