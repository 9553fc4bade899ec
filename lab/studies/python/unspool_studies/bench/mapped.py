"""Memory whose addresses are reserved at once and backed piece by piece, of a device or of a NUMA
node of the host (CUDA driver API, section "Virtual Memory Management").
"""

from __future__ import annotations

import ctypes

from unspool_studies.bench.driver import ON_DEVICE, ON_HOST_NODE, Driver, Location

__all__ = ["MappedMemory"]

#: `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
PINNED, READ_WRITE = 1, 3

#: `CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID`: the node closest to a device, -1 where there are none.
CLOSEST_NODE = 134

NO_FLAGS = ctypes.c_ulonglong(0)


class _Properties(ctypes.Structure):
    """`CUmemAllocationProp`; what is zero asks for nothing."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("system", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class MappedMemory:
    """Memory that one device reads and writes. Its context has to be current on the threads that
    call this.

    Args:
        ordinal: the device's number.
        count: bytes.
        piece: bytes that are backed at once.
        host: whether the bytes lie on the NUMA node of the host that is closest to the device.

    Attributes:
        address: of the first byte.
        count: bytes, up to the next border of the driver's pages.
        mapped: bytes that are backed; all before this one can be used.

    Raises:
        DriverError: the driver refused, as one without NUMA nodes does.
    """

    def __init__(self, ordinal: int, count: int, piece: int, host: bool = False) -> None:
        self._driver = Driver()
        device = Location(ON_DEVICE, ordinal)
        location = Location(ON_HOST_NODE, self._node(ordinal)) if host else device
        self._properties = _Properties(PINNED, 0, location)
        self._access = _Access(device, READ_WRITE)
        page = self._granularity()
        self.count, self._piece = _up(count, page), _up(piece, page)
        self.mapped = 0
        address = ctypes.c_uint64()
        reserved = (ctypes.byref(address), ctypes.c_size_t(self.count), ctypes.c_size_t(0))
        self._driver.call("cuMemAddressReserve", *reserved, ctypes.c_uint64(0), NO_FLAGS)
        self.address = address.value
        self._pieces: list[tuple[int, int]] = []

    def grow(self) -> bool:
        """Backs the next piece; whether there was one.

        Raises:
            DriverError: there is too little memory.
        """
        count = min(self._piece, self.count - self.mapped)
        if not count:
            return False
        place, size = ctypes.c_uint64(self.address + self.mapped), ctypes.c_size_t(count)
        handle = ctypes.c_uint64()
        properties = ctypes.byref(self._properties)
        self._driver.call("cuMemCreate", ctypes.byref(handle), size, properties, NO_FLAGS)
        try:
            self._driver.call("cuMemMap", place, size, ctypes.c_size_t(0), handle, NO_FLAGS)
        finally:
            # What is mapped keeps the memory.
            self._driver.call("cuMemRelease", handle)
        self._pieces.append((place.value, count))
        access = ctypes.byref(self._access)
        self._driver.call("cuMemSetAccess", place, size, access, ctypes.c_size_t(1))
        self.mapped += count
        return True

    def close(self) -> None:
        """Gives everything back; nothing may use it any more."""
        for place, count in self._pieces:
            self._driver.call("cuMemUnmap", ctypes.c_uint64(place), ctypes.c_size_t(count))
        self._pieces.clear()
        place, size = ctypes.c_uint64(self.address), ctypes.c_size_t(self.count)
        self._driver.call("cuMemAddressFree", place, size)

    def _node(self, ordinal: int) -> int:
        node, device = ctypes.c_int(), ctypes.c_int()
        self._driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        asked = (ctypes.byref(node), ctypes.c_int(CLOSEST_NODE), device)
        self._driver.call("cuDeviceGetAttribute", *asked)
        return max(0, node.value)

    def _granularity(self) -> int:
        page = ctypes.c_size_t()
        asked = (ctypes.byref(page), ctypes.byref(self._properties), ctypes.c_int(0))
        self._driver.call("cuMemGetAllocationGranularity", *asked)
        return page.value


def _up(count: int, page: int) -> int:
    return -(-count // page) * page
