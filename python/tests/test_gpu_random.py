"""Random histories on a real GPU, compared byte for byte there."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import unspool

from helpers import gpu_library

cupy = gpu_library("cupy")
pytestmark = pytest.mark.gpu

SEQUENCES = 1000
SECONDS = 60


@pytest.fixture(autouse=True)
def device() -> None:
    try:
        assert cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError as absent:
        pytest.skip(f"no CUDA device: {absent}")


class Sequence:
    """One random history. The content of a checkpoint follows from its version and the seed."""

    def __init__(self, spool: unspool.Spool, streams: list[Any], seed: int) -> None:
        self.spool, self.streams, self.random = spool, streams, random.Random(seed)
        self.saved: dict[int, tuple[int, int]] = {}
        self.version = 0

    def content(self, first: int, count: int) -> Any:
        return (cupy.arange(first, first + count, dtype=cupy.uint32) * 2654435761) >> 7

    def new(self) -> tuple[int, int]:
        return self.random.randrange(1 << 20), self.random.randint(1, 100_000)

    def old(self) -> tuple[int, Any]:
        version = self.random.choice(list(self.saved))
        return version, self.content(*self.saved[version])

    def remember(self, what: tuple[int, int]) -> None:
        self.saved[self.version] = what
        self.version += 1

    def save(self) -> None:
        what = self.new()
        array = self.content(*what)
        self.spool.save(self.version, array)
        array.fill(0)
        self.remember(what)

    def save_strided(self) -> None:
        what = self.new()
        whole = cupy.zeros(2 * what[1], cupy.uint32)
        view = whole[::-2] if self.random.random() < 0.5 else whole[::2]
        view[...] = self.content(*what)
        self.spool.save(self.version, view)
        whole.fill(1)
        self.remember(what)

    def write(self) -> None:
        what = self.new()
        with self.spool.writing(self.version, what[1], "uint32", to="cupy") as array:
            array[...] = self.content(*what)
        self.remember(what)

    def restore(self) -> None:
        version, expected = self.old()
        target = cupy.zeros(expected.size, cupy.uint32)
        if self.random.random() < 0.3:
            target = cupy.zeros(3 * expected.size, cupy.uint32)[::3]
        self.spool.restore(version, target)
        assert bool((target == expected).all())

    def read(self) -> None:
        version, expected = self.old()
        with self.spool.reading(version, to="cupy") as array:
            assert bool((array == expected).all())

    def load(self) -> None:
        version, expected = self.old()
        to = self.random.choice(["cupy", "numpy"])
        assert bool((cupy.asarray(self.spool.load(version, to=to)) == expected).all())

    def expect(self) -> None:
        self.spool.expect(self.random.sample(list(self.saved), min(4, len(self.saved))))

    def discard(self) -> None:
        version = self.random.choice(list(self.saved))
        self.spool.discard(version)
        del self.saved[version]

    def run(self, steps: int) -> None:
        new = [self.save, self.save_strided, self.write]
        old = [self.restore, self.restore, self.read, self.load, self.expect]
        for _ in range(steps):
            with self.random.choice(self.streams):
                actions = new + (old if self.saved else [])
                actions += [self.discard] if len(self.saved) > 4 else []
                self.random.choice(actions)()
        for version, what in self.saved.items():
            assert bool((self.spool.load(version, to="cupy") == self.content(*what)).all())


def test_a_thousand_random_histories_come_back_byte_for_byte(tmp_path: Path) -> None:
    streams = [cupy.cuda.Stream.null, *(cupy.cuda.Stream(non_blocking=True) for _ in range(3))]
    begin, done = time.monotonic(), 0
    while done < SEQUENCES and time.monotonic() - begin < SECONDS:
        tiers = {"device_memory": "1MiB", "host_memory": "2MiB", "disk": tmp_path}
        # The check of the order is slow, and orders what it should only watch.
        with unspool.Spool(
            **tiers, device="cuda", debug=unspool.Debug(check_order=done % 10 == 0)
        ) as spool:
            Sequence(spool, streams, done).run(20)
        done += 1
    print(f"{done} histories in {time.monotonic() - begin:.1f} s")
    assert done >= 100
