"""How many bytes a drive may be written, from what an NVMe drive says of its wear.

Drives do not tell their rated endurance. They tell what was written and how many hundredths of
their life that was, and the quotient is the endurance, as far as the drive is not new.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from pathlib import Path

__all__ = ["endurance_in", "endurance_of"]

#: The system call for a command to a drive's controller, `NVME_IOCTL_ADMIN_CMD`.
ADMIN = 0xC048_4E41

#: "Get log page", the log of its health, the bytes of that, and all name spaces.
GET_LOG, HEALTH, BYTES, ALL = 0x02, 0x02, 512, 0xFFFF_FFFF

#: Bytes of a unit of the log.
UNIT = 512_000


class _Command(ctypes.Structure):
    """`struct nvme_admin_cmd` of the kernel."""

    _fields_ = (
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("reserved", ctypes.c_uint16),
        ("namespace", ctypes.c_uint32),
        ("words", ctypes.c_uint32 * 2),
        ("metadata", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("metadata_bytes", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("more", ctypes.c_uint32 * 6),
        ("milliseconds", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    )


def endurance_of(directory: str, root: Path = Path("/sys/dev/block")) -> tuple[float | None, str]:
    """Bytes that may be written to the drive of a directory in all, or why that is not known."""
    number = os.stat(directory).st_dev
    link = root / f"{os.major(number)}:{os.minor(number)}"
    # A partition lies in the folder of its drive.
    names = [part for part in link.resolve().parts if re.fullmatch(r"nvme\d+n\d+", part)]
    if not names:
        return None, f"{directory} is not on an NVMe drive of this machine"
    device = f"/dev/{names[-1]}"
    page = (ctypes.c_uint8 * BYTES)()
    command = _Command(opcode=GET_LOG, namespace=ALL, address=ctypes.addressof(page), bytes=BYTES)
    command.more[0] = HEALTH | (BYTES // 4 - 1) << 16
    command.milliseconds = 5_000
    try:
        file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            refused = fcntl.ioctl(file, ADMIN, command)
        finally:
            os.close(file)
    except OSError as cause:
        return None, f"{device} does not tell its wear ({cause.strerror})"
    if refused:
        return None, f"{device} has no log of its health"
    return endurance_in(bytes(page))


def endurance_in(page: bytes) -> tuple[float | None, str]:
    """What the log of a drive's health says: hundredths of its life, and what was written."""
    used, written = page[5], int.from_bytes(page[48:64], "little") * UNIT
    if used == 0:
        return None, "less than a hundredth of the drive's life is used, which tells nothing"
    if not written:
        return None, "the drive does not count what is written"
    return written * 100.0 / used, "from the drive's own log of its wear"
