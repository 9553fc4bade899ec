"""A limit on the memory of a process is an error of a call, and nothing that was saved is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import python

PRELUDE = """
import resource, sys
import numpy as np, unspool
from unspool import codecs

def limited(extra, work):
    # Lets the process have `extra` bytes more than it has now while `work` runs.
    with open("/proc/self/status") as status:
        pages = next(line for line in status if line.startswith("VmSize"))
    limit = int(pages.split()[1]) * 1024 + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        return work()
    except (MemoryError, unspool.errors.CapacityError, unspool.errors.StorageError) as refusal:
        return refusal
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""

SAVES = """
spool = unspool.Spool(host_memory="4GiB")
values = np.arange(3.0)
def work():
    for version in range(1 << 40):
        spool.save(version, values)
refusal = limited(EXTRA, work)
assert isinstance(refusal, MemoryError) or "memory" in str(refusal), refusal
count = len(spool)
assert count > 100 and all((spool.load(v) == values).all() for v in range(0, count, 97))
spool.save(-1, values)
"""

HINTS = """
spool = unspool.Spool(host_memory="1MiB")
spool.save(0, np.arange(3))
orders = [range(n, n + 1000) for n in range(0, 10**8, 1000)]
def work():
    for order in orders:
        spool.expect(order)
refusal = limited(EXTRA, work)
assert isinstance(refusal, MemoryError) or "memory" in str(refusal), refusal
assert spool.stats().hints > 1000
spool.forget_hints()
spool.expect([0])
assert (spool.load(0) == np.arange(3)).all()
"""

TRACE = """
spool = unspool.Spool(host_memory="1MiB", debug=unspool.Debug(trace=True))
values = np.arange(3)
def work():
    for version in range(150_000):
        spool.save(version, values)
        spool.discard(version)
limited(EXTRA, work)
stats = spool.stats()
assert stats.dropped_spans > 0
spool.write_trace(sys.argv[1] + "/trace.json")
"""

OUTER = """
values = np.random.default_rng(0).integers(0, 50, 1 << 19)
target = np.empty_like(values)
for outer in ("zstd", "lz4", "archive"):
    whole = codecs.encode(values, None, outer=outer)
    for extra in range(3 << 20, 20 << 20, 1 << 20):
        made = limited(extra, lambda: codecs.encode(values, None, outer=outer))
        if isinstance(made, codecs.Encoded):
            assert (codecs.decode(made) == values).all()
        read = limited(extra, lambda: codecs.decode(whole, target))
        assert read is target or isinstance(read, Exception)
"""

WORKER = """
values = [np.random.default_rng(seed).integers(0, 50, 1 << 17) for seed in range(4)]
target = np.empty_like(values[0])
for compress in ("zstd", "lz4", "archive"):
    for extra in range(1 << 20, 12 << 20, 1 << 20):
        disk = unspool.Disk(sys.argv[1], compress=compress)
        with unspool.Spool(host_memory="3MiB", disk=disk) as spool:
            def work():
                for version in range(8):
                    spool.save(version, values[version % 4])
                spool.flush()
            limited(extra, work)
            for version in spool.versions():
                # What is on the disk may be refused for now, but is not lost.
                limited(extra, lambda: spool.restore(version, target))
                spool.restore(version, target)
                assert (target == values[version % 4]).all()
"""


@pytest.mark.parametrize("extra", ["1 << 20", "8 << 20"])
@pytest.mark.parametrize("work", ["SAVES", "HINTS", "TRACE"])
def test_tables_that_grow_end_in_an_error(work: str, extra: str, tmp_path: Path) -> None:
    code = PRELUDE + globals()[work].replace("EXTRA", extra)
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("work", ["OUTER", "WORKER"])
def test_coders_without_memory_refuse_or_keep_the_bytes_as_they_are(
    work: str, tmp_path: Path
) -> None:
    done = python(PRELUDE + globals()[work], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
