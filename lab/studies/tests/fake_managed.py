"""The interface of `unspool_studies.bench.managed.Managed` on the device in plain memory."""

import ctypes

from unspool_studies.bench.managed import NotManaged


class FakeManaged:
    """Unified memory in plain memory: what is enqueued takes effect at once."""

    def __init__(self, cuda):
        self._cuda = cuda
        self._here, self._range, self.peak = {}, (0, 0), 0
        self.made.append(self)

    made: list["FakeManaged"] = []  # noqa: RUF012

    def allocate(self, count):
        if count > self._cuda.free_memory():
            raise NotManaged("more than is free")
        address = self._cuda.malloc(count)
        self._range = (address, address + count)
        return address

    def free(self, address):
        self._cuda.free(address)

    def copy(self, to, source, count, stream):
        ctypes.memmove(to, source, count)
        for place in (to, source):
            if self._range[0] <= place < self._range[1]:
                self._bring(place, count)

    def wait_for(self, stream, event):
        self._cuda.wait_event(event)

    def to_device(self, address, count, stream):
        self._bring(address, count)

    def to_host(self, address, count, stream):
        assert self._here.pop(address) == count

    def discard(self, address, count, stream):
        assert self._here.pop(address) == count
        ctypes.memset(address, 0xEE, count)

    def read_in_place(self, address, count):
        assert address not in self._here

    def _bring(self, address, count):
        self._here[address] = count
        self.peak = max(self.peak, sum(self._here.values()))
