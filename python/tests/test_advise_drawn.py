"""The rows of `unspool.advise` compared with jobs whose failures are drawn.

The job is written from the text of D. Ibtesham's dissertation (University of New Mexico, 2017,
section 5) alone, and knows no formula of the model: a checkpoint takes the time of encoding and of
the commit, a recovery that of reading and of decoding, failures come at random at any time, also in
a checkpoint and in a recovery, and what was computed since the last checkpoint is lost.
"""

import math
from dataclasses import dataclass
from random import Random

import flat
import pytest
from unspool.advice import Compression, Place, Rate


@dataclass
class Machine:
    """What the dissertation calls c, r_commit, M, and the codec's alpha, r_comp and r_decomp."""

    size: float
    commit: float
    mtbf: float
    saved: float = 0.0
    encodes: float = math.inf
    decodes: float = math.inf
    changes: float = 1.0
    increments: int = 0

    def frame(self, number):
        """Bytes of the arrays in a checkpoint: one in `increments + 1` is full."""
        return self.size if number % (self.increments + 1) == 0 else self.size * self.changes

    def writing(self, number):
        size = self.frame(number)
        return size / self.encodes + (1 - self.saved) * size / self.commit

    def reading(self, number):
        """A recovery reads the full checkpoint and all increments up to this one."""
        first = number - number % (self.increments + 1)
        size = sum(self.frame(each) for each in range(first, number + 1))
        return (1 - self.saved) * size / self.commit + size / self.decodes

    def daly(self):
        """The interval of Daly's higher order, for a mean checkpoint."""
        frames = self.increments + 1
        cost = sum(map(self.writing, range(frames))) / frames
        x = cost / (2 * self.mtbf)
        return math.sqrt(2 * cost * self.mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost


@dataclass
class Seen:
    """What a job took: work over time, and each hour of work."""

    efficiency: float
    checkpoints: float
    failures: float
    bytes: float


def run(machine, interval, wanted, seed):
    """A job of so many intervals."""
    draw = Random(seed)
    clock, kept, written, failures = 0.0, 0, 0.0, 0
    fails = draw.expovariate(1 / machine.mtbf)
    while kept < wanted:
        if clock + interval + machine.writing(kept) <= fails:
            clock += interval + machine.writing(kept)
            written += machine.frame(kept) * (1 - machine.saved)
            kept += 1
            continue
        recovering = True
        while recovering:
            clock, failures = fails, failures + 1
            fails = clock + draw.expovariate(1 / machine.mtbf)
            reading = machine.reading(kept - 1) if kept else 0.0
            recovering = clock + reading > fails
        clock += reading
    work = wanted * interval
    return Seen(work / clock, wanted / work, failures / work, written / wanted)


#: The dissertation's process (683 MB at 1 MB/s, 196,000 of them that fail every five years), one
#: that seldom fails, and one whose recovery hardly ever ends.
MACHINES = [(683e6, 1e6, 804.0), (10e9, 1e9, 600.0), (100e9, 1e9, 150.0)]


@pytest.mark.parametrize(("size", "commit", "mtbf"), MACHINES)
@pytest.mark.parametrize("name", ["none", "lossless", "increments", "lossless, increments"])
def test_a_row_is_what_a_job_with_drawn_failures_takes(size, commit, mtbf, name):
    saved, encodes, decodes = 0.927, size / 683e6 * 154.2e6, size / 683e6 * 564.9e6
    found = flat.advise(
        size,
        Place(commit, commit),
        mtbf=mtbf,
        restart="0s",
        blocking=True,
        codecs=[Compression(1 / (1 - saved), Rate(encodes), Rate(decodes), "lossless")],
        increments=0.2,
        work="1000h",
    )
    (row,) = (one for one in found.choices if one.name == name)
    machine = Machine(size, commit, mtbf)
    if "lossless" in name:
        machine.saved, machine.encodes, machine.decodes = saved, encodes, decodes
    if "increments" in name:
        # As many as a full checkpoint has bytes, where failures are rare, and fewer elsewhere.
        frequency = min(1.0, row.interval / mtbf)
        best = math.sqrt(2 * 0.8 / (frequency * 0.2)) - 1
        machine.changes, machine.increments = 0.2, max(1, round(min(5, best)))
    # So many intervals that thousands of failures are drawn.
    count = max(20_000, round(5000 * mtbf / row.interval))
    seen = run(machine, row.interval, count, seed=7)
    assert row.efficiency == pytest.approx(seen.efficiency, rel=0.03)
    assert row.stored_bytes == pytest.approx(seen.bytes, rel=0.03)
    assert row.checkpoints / found.problem.work == pytest.approx(seen.checkpoints, rel=0.03)
    assert row.failures / found.problem.work == pytest.approx(seen.failures, rel=0.03)
    daly = run(machine, machine.daly(), 20_000, seed=8)
    assert row.efficiency >= daly.efficiency * 0.97
