"""A diagnosis as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from unspool._doctor.facts import Device, Diagnosis, Directory, Finding, Host, Link
from unspool.stats import size

#: The width of a page, and of the names at its left edge.
WIDTH, MARGIN = 100, 13


def report(found: Diagnosis) -> str:
    """All of it: what there is, then what is missing or poor."""
    lines = [f"Unspool {found.version}"]
    for name, text in [*_facts(found)]:
        lines.append(_paragraph(name, text))
    lines.append("")
    if not found.findings:
        lines.append("Nothing is missing and nothing is poor.")
    for finding in found.findings:
        lines += [*_finding(finding)]
    return "\n".join(lines)


def _paragraph(name: str, text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=name.ljust(MARGIN),
        subsequent_indent=" " * MARGIN,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "driver", _driver(found)
    for device in found.devices:
        yield f"device {device.ordinal}", _device(device)
        yield "  memory", _device_memory(device)
        yield "  links", _links(device)
    yield "NVRTC", _nvrtc(found)
    yield "memory", _host(found.host)
    yield "  pinning", _pinning(found)
    yield "  turns", _turns(found)
    if found.disk is not None:
        yield "disk", _disk(found.disk)
        if found.disk.problem is None:
            yield "  ways", _ways(found.disk)
            yield "  spools", _spools(found.disk)
    yield "libraries", ", ".join(f"{name} {text}" for name, text in found.libraries.items()) or "-"
    yield "automatic", found.automatic_device or 'no device for device="auto"'
    yield "", found.automatic_host


def _driver(found: Diagnosis) -> str:
    cuda = found.cuda
    if not cuda.looked_for:
        return "not looked for"
    if cuda.version is None:
        return "none that can be used"
    module = f", kernel module {cuda.module}" if cuda.module else ""
    return f"CUDA {_version(cuda.version)}, {cuda.path or 'library not found'}{module}"


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _device(device: Device) -> str:
    capability = f"compute capability {_version(device.compute_capability)}"
    link = device.link_now or device.link_most
    at = f"PCI {device.pci}" + (f" ({_link(link)})" if link else "")
    node = "" if device.numa_node is None else f", NUMA node {device.numa_node}"
    start = device.start_seconds
    started = "" if start is None else f", started in {start:.2f} s"
    return f"{device.name}, {capability}, {at}{node}{started}"


def _link(link: Link) -> str:
    name = "PCIe" if link.generation is None else f"PCIe {link.generation}.0"
    return f"{name} x{link.lanes}"


def _device_memory(device: Device) -> str:
    free = "?" if device.free is None else size(device.free)
    pieces = "mapped in pieces" if device.maps_in_pieces else "NOT mapped in pieces"
    return f"{free} free of {size(device.total)}, {pieces}, {device.copy_engines} copy engines"


def _links(device: Device) -> str:
    speeds = device.speeds
    if speeds is None:
        return "not measured"
    return (
        f"pinned, device to host {rate(speeds.device_to_host)}, host to device "
        f"{rate(speeds.host_to_device)}, both at once {rate(speeds.both_each)} each; within the "
        f"device {rate(speeds.within_device)} ({speeds.copies} copies of "
        f"{size(speeds.copy_bytes)} each)"
    )


def _nvrtc(found: Diagnosis) -> str:
    nvrtc = found.nvrtc
    if nvrtc.version is None:
        return "none"
    return f"CUDA {_version(nvrtc.version)}, {nvrtc.path or 'path not known'}"


def _host(host: Host) -> str:
    free = "an unknown amount" if host.free is None else size(host.free)
    total = "" if host.total is None else f" of {size(host.total)}"
    promised = f", {size(host.promised)} of it promised" if host.promised else ""
    return f"{free} free{total} by {host.limit}{promised}; {host.cores} cores"


def _pinning(found: Diagnosis) -> str:
    host = found.host
    soft, hard = (
        "unlimited" if limit is None else size(limit)
        for limit in (host.locked_soft, host.locked_hard)
    )
    counts = {device.pins_are_locked for device in found.devices}
    effect = ""
    if host.locked_soft is not None and counts & {True, False}:
        effect = ", which limits pinning here" if True in counts else ", which pinning ignores here"
    return f"RLIMIT_MEMLOCK {soft} (hard {hard}){effect}; huge pages: {host.huge_pages}"


def _turns(found: Diagnosis) -> str:
    turns = found.turns
    if turns.problem is not None:
        return f"{turns.path}: {turns.problem}"
    if turns.holder is not None:
        return f"{turns.path}, held by process {turns.holder}"
    return f"{turns.path}, {'free' if turns.exists else 'not made yet'}"


def _disk(disk: Directory) -> str:
    if disk.problem is not None:
        return f"{disk.directory}: {disk.problem}"
    free = "?" if disk.free is None else size(disk.free)
    total = "?" if disk.total is None else size(disk.total)
    kind = f"{disk.file_system} of {disk.source}" if disk.file_system else "unknown file system"
    return f"{disk.directory} on {kind}, {free} free of {total}"


def _ways(disk: Directory) -> str:
    def yes(flag: bool | None) -> str:
        return {True: "works", False: "does not work", None: "not tried"}[flag]

    rates = "not measured"
    if disk.write is not None and disk.read is not None:
        rates = (
            f"one thread writes {rate(disk.write)} and reads {rate(disk.read)} "
            f"({size(disk.written_bytes)} in frames of {size(disk.frame_bytes)})"
        )
    return f"O_DIRECT {yes(disk.direct)}, io_uring {yes(disk.io_uring)}; {rates}"


def _spools(disk: Directory) -> str:
    if not disk.spools:
        return "none"
    owners = [spool.owner for spool in disk.spools]
    names = {"alive": "in use", "dead": "left by dead processes", "unknown": "not known whose"}
    counts = [f"{owners.count(owner)} {name}" for owner, name in names.items() if owner in owners]
    return f"{', '.join(counts)}: {size(sum(spool.bytes for spool in disk.spools))}"


def _finding(finding: Finding) -> Iterator[str]:
    yield textwrap.fill(
        f"{finding.level.upper()} ({finding.about}): {finding.what}",
        WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    for name, text in (("means", finding.meaning), ("do", finding.remedy)):
        yield textwrap.fill(
            text,
            WIDTH,
            initial_indent=f"  {name}: ".ljust(9),
            subsequent_indent=" " * 9,
            break_on_hyphens=False,
        )


def rate(bytes_per_second: float) -> str:
    """A rate for people: `55.1 GB/s`."""
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:,.1f} GB/s"
    return f"{bytes_per_second / 1e6:,.0f} MB/s"
