"""A device of a propagator whose memory is that of the driver of the tests.

The kernels are those of the shim, on what is read from the device and written back to it.
"""

import numpy as np

from fake_gpu import CaiArray
from kernel_shim import ShimDevice


class DriverArray(CaiArray):
    """An array on the driver, with as much of an array as a propagator needs."""

    def put(self, values):
        self.driver.write(self.address, np.ascontiguousarray(values))

    def fill(self, value):
        self.driver.synchronize()
        self.put(np.full(self.shape, value, self.dtype))

    def copy(self):
        self.driver.synchronize()
        return DriverArray(self.driver, self.numpy(), self.stream)

    def __setitem__(self, where, array):
        assert where is ...
        self.driver.synchronize()
        self.put(array.numpy())


class DriverDevice(ShimDevice):
    """A device whose memory only the driver reads and writes."""

    name = "a driver in plain memory"
    on = "cuda:0"

    def __init__(self, kernels, driver):
        super().__init__(kernels)
        self._driver, self._stream = driver, driver.stream()

    def zeros(self, shape):
        return DriverArray(self._driver, np.zeros(shape, np.float32), self._stream)

    def load(self, array):
        return DriverArray(self._driver, np.ascontiguousarray(array), self._stream)

    def fetch(self, array):
        self._driver.synchronize()
        return array.numpy()

    def pinned(self, shape):
        return np.zeros(shape, np.float32)

    def download(self, array, to):
        self._driver.synchronize()
        to[...] = array.numpy()

    def upload(self, array, of):
        self._driver.synchronize()
        array.put(of)

    def kernel(self, name):
        kernel = super().kernel(name)

        def launch(grid, block, arguments):
            # What was enqueued before, copies of the spool among it, is done before.
            self._driver.synchronize()
            here = [self._here(argument) for argument in arguments]
            kernel(grid, block, here)
            for argument, array in zip(arguments, here, strict=True):
                if isinstance(argument, DriverArray):
                    argument.put(array)

        return launch

    def _here(self, argument):
        if not isinstance(argument, DriverArray):
            return argument
        return ShimDevice({}).load(argument.numpy())

    def capture(self, enqueue):
        return enqueue
