"""What the tests of pyrevolve import as `utils`, which its source distribution leaves out.

Written from what those tests expect of it.
"""

import numpy as np
from pyrevolve import Checkpoint, Operator


class SimpleOperator(Operator):
    """Counts steps."""

    def __init__(self):
        self.counter = 0

    def apply(self, *, t_start, t_end):
        assert t_start <= t_end
        self.counter += t_end - t_start


class SimpleCheckpoint(Checkpoint):
    """A state without any arrays; counts how often it is asked for."""

    dtype = np.float32
    size = 1

    def __init__(self):
        self.save_counter = 0
        self.load_counter = 0

    def get_data(self, timestep):
        self.save_counter += 1
        return []

    def get_data_location(self, timestep):
        self.load_counter += 1
        return []


class IncrementOperator(Operator):
    """Adds 1, or takes 1 away, for every step."""

    def __init__(self, direction, field):
        self.direction = direction
        self.field = field

    def apply(self, *, t_start, t_end):
        assert t_start < t_end
        self.field += self.direction * (t_end - t_start)


class YoCheckpoint(Checkpoint):
    """A state of one array."""

    def __init__(self, field):
        self.field = field

    @property
    def dtype(self):
        return self.field.dtype

    @property
    def size(self):
        return self.field.size

    def get_data(self, timestep):
        return [self.field]

    get_data_location = get_data


class IncrementCheckpoint(Checkpoint):
    """A state of several arrays of one dtype."""

    def __init__(self, fields):
        self.fields = fields

    @property
    def dtype(self):
        return self.fields[0].dtype

    @property
    def size(self):
        return sum(field.size for field in self.fields)

    def get_data(self, timestep):
        return self.fields

    get_data_location = get_data


class IncOperator(Operator):
    """Forward: `field` counts the steps. Backward: `errors` stays 0 when it did."""

    def __init__(self, direction, field, errors=None):
        self.direction = direction
        self.field = field
        self.errors = errors
        self.counter = 0

    def apply(self, *, t_start, t_end):
        assert t_start < t_end
        self.counter += t_end - t_start
        if self.direction == 1:
            self.field += t_end - t_start
        else:
            self.errors += abs(self.field - t_end)
