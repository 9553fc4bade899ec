"""Jobs whose failures are drawn: what the model of `unspool.advise` is compared with.

They follow the policy event by event, in virtual time, and know no formula.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


def one_level(interval, level, mtbf, checkpoints, seed):
    """Work over time of a job until so many checkpoints are durable."""
    draw = Random(seed)
    now, kept, fails = 0.0, 0, draw.expovariate(1.0 / mtbf)
    while True:
        begun, done = now, kept
        while True:
            durable = begun + interval + level.durable
            if durable > fails:
                break
            kept = done = done + 1
            if done == checkpoints:
                return checkpoints * interval / durable
            begun += interval + level.blocked
        now = fails
        fails = now + draw.expovariate(1.0 / mtbf)
        while fails - now < level.restart:
            now = fails
            fails = now + draw.expovariate(1.0 / mtbf)
        now += level.restart


@dataclass
class Job:
    """A job with a near and a far place. A copy to the far place goes on after a failure that the
    near place survives, once the job runs again."""

    interval: float
    count: int
    levels: object
    mtbf: float
    target: int
    draw: Random
    now: float = 0.0
    near: int = 0
    far: int = 0
    is_near: bool = True
    copy: list = field(default_factory=list)
    fails: float = 0.0

    def run(self):
        """Work over time until so many checkpoints are in the far place."""
        self.fails = self._drawn()
        ended = self._stretch(0)
        while ended is None:
            ended = self._stretch(self._restarted())
        return self.target * self.interval / ended

    def _drawn(self):
        return self.now + self.draw.expovariate(1.0 / self.mtbf)

    def _stretch(self, done):
        """Computes from a checkpoint until the next failure; when all is done if it gets there."""
        near, begun = self.levels.near, self.now
        while True:
            extra = self.levels.far.blocked if (done + 1) % self.count == 0 else 0.0
            durable = begun + self.interval + near.durable + extra
            if self.copy and self.copy[1] <= min(durable, self.fails):
                self.far, ended = self.copy
                self.copy = []
                if self.far >= self.target:
                    return ended
            if self.fails < durable:
                return None
            done += 1
            self.near, self.is_near = done, True
            if done % self.count == 0 and done > self.far:
                self.copy = [done, durable + self.levels.far.durable]
            begun += self.interval + near.blocked + extra

    def _restarted(self):
        """After a failure, and those while it restarts: the checkpoint from which it goes on."""
        self.now = self.fails
        while True:
            is_far = not self.is_near or self.draw.random() >= self.levels.healed
            restart = self.levels.far.restart if is_far else self.levels.near.restart
            if is_far:
                self.copy, self.is_near = [], False
            self.fails = self._drawn()
            spent = min(restart, self.fails - self.now)
            if self.copy:
                self.copy[1] += spent
            self.now += spent
            if spent == restart:
                return self.far if is_far else self.near


def two_levels(interval, count, levels, mtbf, cycles, seed):
    """Work over time of a job until so many copies are in the far place."""
    return Job(interval, count, levels, mtbf, cycles * count, Random(seed)).run()
