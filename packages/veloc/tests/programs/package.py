"""What VELOC's Python package does, through ctypes: `Restart_end` gets no argument."""

import ctypes
import pickle
import sys

library, config = sys.argv[1:]
veloc = ctypes.CDLL(library)
assert veloc.VELOC_Init_single(3, config.encode()) == 0


class Client:
    def __init__(self):
        self.veloc = veloc

    def __del__(self):
        print("finalize", self.veloc.VELOC_Finalize(0))


def protect(buffer):
    size = ctypes.c_size_t(len(buffer))
    return veloc.VELOC_Mem_protect(0, ctypes.byref(buffer), size, ctypes.c_size_t(1))


client = Client()
state = {"epoch": 7, "loss": [0.5, 0.25], "name": "é" * 1000}
data = pickle.dumps(state)
buffer = (ctypes.c_char * len(data)).from_buffer_copy(data)
assert protect(buffer) == 0
assert veloc.VELOC_Checkpoint(b"python", 7) == 0
assert veloc.VELOC_Checkpoint_wait() == 0
version = veloc.VELOC_Restart_test(b"python", 0)
assert version == 7
assert veloc.VELOC_Restart_begin(b"python", version) == 0
size = veloc.VELOC_Recover_size(0)
assert size == len(data)
again = (ctypes.c_char * size)()
assert protect(again) == 0
assert veloc.VELOC_Recover_mem() == 0
assert veloc.VELOC_Restart_end() == 0
assert pickle.loads(again.raw) == state
