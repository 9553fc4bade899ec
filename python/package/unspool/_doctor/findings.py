"""What is missing or poor on a machine, judged from what was found and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unspool._doctor import libraries
from unspool._doctor.diagnosis import Diagnosis
from unspool._doctor.facts import SLOW_LINK, Facts, Finding, rate
from unspool.stats import size

#: Less than this is free: a tier would be too small to be of use.
LITTLE = 1 << 30
#: The share of its rate that a direction should keep while the other one runs.
GOOD_SHARE = 0.6
#: Seconds after which the start of a device sets it up from nothing.
SLOW_START = 3.0
#: Slower than a disk with moving parts.
SLOW_DISK = 2e8

#: The worst first.
LEVELS = ("missing", "poor", "note")


def judge(found: Diagnosis, more: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Everything that is missing or poor, `more` of it included, the worst first."""
    findings = [*more, *_cuda(found)]
    for device in found.devices:
        findings += _device(device)
    findings += [*_nvrtc(found), *_memory(found)]
    if found.disk is not None:
        findings += _disk(found.disk)
    findings += libraries.findings(found.cuda.version)
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


def _cuda(found: Diagnosis) -> Iterator[Finding]:
    if found.cuda.problem is not None:
        yield Finding(
            "missing",
            "CUDA",
            f"CUDA cannot be used: {found.cuda.problem}.",
            "Spools work, with a device tier in main memory; arrays on a GPU cannot be saved.",
            "If this machine has a GPU, mend what the message says; `nvidia-smi` shows whether the "
            "driver works. Without a GPU nothing is to be done: leave `device=` out, or say "
            'device="cpu".',
        )
    path = found.cuda.path
    if path is not None and not path.rpartition("/")[2].startswith("libcuda.so"):
        yield Finding(
            "note",
            "CUDA",
            f"{path} stands for the driver (UNSPOOL_CUDA_DRIVER).",
            "What is found here is not what the machine's own driver would say.",
            "Unset the variable unless this is a test.",
        )


def _nvrtc(found: Diagnosis) -> Iterator[Finding]:
    compiler, driver = found.nvrtc, found.cuda.version
    if driver is None or not found.compiled_on:
        return
    if compiler.problem is not None:
        yield Finding(
            "missing",
            "NVRTC",
            compiler.problem,
            "No kernels came with this build for a device of this machine. Its arrays are encoded "
            "by the host; those whose items are scattered in memory are refused, and those of "
            "small rows are copied more slowly.",
            "Install a wheel of Unspool, which has kernels for all supported devices; or pip "
            "install nvidia-cuda-nvrtc, in the release of your driver's CUDA, or name the library "
            "in UNSPOOL_NVRTC.",
        )
    if compiler.version is not None and compiler.version[0] > driver[0]:
        yield Finding(
            "poor",
            "NVRTC",
            "NVRTC is of CUDA {}.{} and the driver of CUDA {}.{}.".format(
                *compiler.version, *driver
            ),
            "The driver may refuse kernels of a newer CUDA.",
            f"Install a newer driver, or NVRTC of CUDA {driver[0]}.",
        )


def _device(device: Facts) -> Iterator[Finding]:
    about = f"device {device.ordinal}"
    if device.problem is not None:
        level, what, meaning = "poor", "could not be measured", "A spool may fail in the same way."
        if device.free is None:
            level, what, meaning = "missing", "cannot be started", "No spool can use this device."
        yield Finding(
            level,
            about,
            f"It {what}: {device.problem}",
            meaning,
            "See whether `nvidia-smi` shows it as healthy, whether another process has it for "
            "itself (compute mode), and whether its memory is full.",
        )
    if not device.maps_in_pieces:
        yield Finding(
            "missing",
            about,
            "Its memory cannot be mapped in pieces (virtual memory management).",
            "A device tier cannot be made on it.",
            "Use a driver and a device with virtual memory management: it is off for some virtual "
            "GPUs, and for those who hand them out to turn on.",
        )
    if device.free is not None and device.free < LITTLE:
        yield Finding(
            "poor",
            about,
            f"Only {size(device.free)} of {size(device.total)} are free.",
            "There is no room for a device tier; checkpoints go to the host tier at the rate of "
            "the link.",
            "Free memory that this or another process holds: `nvidia-smi` lists them. PyTorch and "
            "CuPy keep what they have freed (torch.cuda.empty_cache(), "
            "cupy.get_default_memory_pool().free_all_blocks()), and JAX takes 75 % at its start "
            "(XLA_PYTHON_CLIENT_PREALLOCATE=false).",
        )
    if device.start_seconds is not None and device.start_seconds > SLOW_START:
        yield Finding(
            "poor",
            about,
            f"Its context took {device.start_seconds:.1f} s to start.",
            "Every process that uses it waits as long before its first step.",
            "Turn persistence mode on (nvidia-smi -pm 1, or the service nvidia-persistenced).",
        )
    if device.speeds is not None:
        yield from _links(about, device.speeds)


def _links(about: str, speeds: Facts) -> Iterator[Finding]:
    slower = min(speeds.device_to_host, speeds.host_to_device)
    if slower < SLOW_LINK:
        yield Finding(
            "poor",
            about,
            f"Pinned copies run at {rate(slower)}; {rate(SLOW_LINK)} and more are usual.",
            "Flushes and prefetches between the device and the host tier are no faster.",
            "Measure again while nothing else uses the link. Bind the process to the processor "
            "that the device hangs on (`nvidia-smi topo -m` shows it; numactl). See whether the "
            "slot gives the card all of its lanes and its generation (`nvidia-smi -q`, PCIe while "
            "copies run). In a virtual machine an IOMMU without huge pages can be the reason.",
        )
    elif speeds.both_each < GOOD_SHARE * slower:
        yield Finding(
            "note",
            about,
            f"Each direction gives {rate(speeds.both_each)} while the other one runs, and "
            f"{rate(slower)} alone.",
            "Flushes and prefetches slow each other down when they overlap.",
            "Announce what is read back once before the forward pass: expect(..., once=True) holds "
            "prefetches back until the first restore.",
        )


def _memory(found: Diagnosis) -> Iterator[Finding]:
    host, about = found.host, "main memory"
    if host.free is not None and host.free < LITTLE:
        yield Finding(
            "poor",
            about,
            f"Only {size(host.free)} are free, by {host.limit}.",
            "There is no room for a host tier; checkpoints go to the disk at its rate.",
            "Close what uses memory, or raise the limit of the control group (docker: --memory, "
            "Slurm: --mem). Where the machine is given more memory as it uses it, give `host=` a "
            "size and set UNSPOOL_CHECK_FREE=0.",
        )
    counts = any(device.pins_are_locked for device in found.devices)
    if host.locked_soft is not None and counts:
        yield Finding(
            "poor",
            about,
            f"At most {size(host.locked_soft)} can be locked (RLIMIT_MEMLOCK), and pinning counts.",
            "The host tier cannot be pinned beyond that; copies to the rest are several times "
            "slower.",
            "Raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity "
            "in a systemd unit, or memlock in /etc/security/limits.conf.",
        )
    if host.huge_pages == "never":
        yield Finding(
            "poor",
            about,
            "Transparent huge pages are switched off.",
            "Preparing the arenas takes two to three times as long: measured, 19 against 40 to 52 "
            "GB/s to pin, and 11 against 36 GB/s to touch with 8 threads.",
            "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled. Only programs "
            "that ask for them get them then, as Unspool does.",
        )
    if host.strict_overcommit:
        yield Finding(
            "note",
            about,
            "The system promises no more memory than it has (vm.overcommit_memory is 2).",
            "A large arena may be refused although its pages would still be free.",
            "Choose a smaller `host=`, or as root: sysctl vm.overcommit_memory=0.",
        )
    if host.turns_problem is not None and found.cuda.version is not None:
        yield Finding(
            "poor",
            "turns",
            f"The lock {host.turns} cannot be used: {host.turns_problem}.",
            "Processes of this node do not take turns to pin their memory, which slows all of them "
            "down.",
            "Remove the folder of that file: the next process makes it again. In containers, share "
            "/dev/shm between them.",
        )


def _disk(disk: Facts) -> Iterator[Finding]:
    if disk.problem is not None:
        yield Finding(
            "missing",
            "disk",
            f"{disk.directory} cannot be used as it is: {disk.problem}.",
            "A spool with this disk tier may not open, or may fail later.",
            "Choose a directory on a local disk that exists, that you may write to and that has "
            "room.",
        )
        return
    yield from _medium(disk)
    yield from _rates(disk)
    yield from _leftovers(disk)


def _medium(disk: Facts) -> Iterator[Finding]:
    if disk.medium == "memory":
        yield Finding(
            "poor",
            "disk",
            f"{disk.directory} lies in main memory ({disk.file_system}).",
            "The disk tier would take memory from the host tier and from the program.",
            "Choose a directory on a local disk. For more room in memory raise `host=` instead.",
        )
    elif disk.direct_problem is not None:
        yield Finding(
            "poor",
            "disk",
            f"Direct input and output do not work: {disk.direct_problem}",
            "Every byte is copied once more, through the page cache, and pushes other files out of "
            "it.",
            "Choose a directory on ext4, xfs or a local NVMe disk; overlay file systems of "
            "containers often lack it, and a mounted volume has it.",
        )
    if disk.medium == "remote":
        where = "most likely on" if disk.file_system == "fuse" else "on"
        yield Finding(
            "note",
            "disk",
            f"{disk.directory} lies {where} another machine ({disk.file_system}).",
            "Its rate changes with what others do, and what a killed process leaves may stay.",
            "For histories that need not outlive the run, choose a local disk of the node.",
        )


def _rates(disk: Facts) -> Iterator[Finding]:
    if disk.write is not None and min(disk.write, disk.read) < SLOW_DISK:
        yield Finding(
            "poor",
            "disk",
            f"One thread writes {rate(disk.write)} and reads {rate(disk.read)}.",
            "A history that does not fit into memory moves at this rate, and the program waits for "
            "it.",
            "Choose a faster disk, a larger `host=`, or save fewer steps. Disks of cloud machines "
            "are often held to a rate that can be raised.",
        )
    if disk.free is not None and disk.free < LITTLE:
        yield Finding(
            "poor",
            "disk",
            f"Only {size(disk.free)} are free there.",
            "Saves fail once the disk and the memory tiers are full.",
            "Make room, or choose another directory.",
        )
    if disk.io_uring_problem is not None and disk.direct:
        yield Finding(
            "note",
            "disk",
            f"io_uring does not work: {disk.io_uring_problem}",
            "Nothing is lost: the disk tier uses plain direct calls unless it is told otherwise.",
            "Containers often forbid it; allow its system calls if you want to compare.",
        )


def _leftovers(disk: Facts) -> Iterator[Finding]:
    dead = [spool.bytes for spool in disk.spools if spool.owner == "dead"]
    if dead:
        yield Finding(
            "note",
            "disk",
            f"Processes that died left {len(dead)} directories of spools there: {size(sum(dead))}.",
            "They take room and nobody needs them.",
            "The next spool that is opened with this `disk=` removes them; nothing is to be done.",
        )
    unknown = [spool.bytes for spool in disk.spools if spool.owner == "unknown"]
    if unknown:
        yield Finding(
            "note",
            "disk",
            f"For {len(unknown)} directories of spools there it cannot be told whether they are in "
            "use.",
            "They belong to another user, or the file system has no locks; no spool of yours "
            "removes them.",
            f"Ask their owner. As far as can be seen they take {size(sum(unknown))}.",
        )
