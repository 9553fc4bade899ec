"""Where the time of a Revolver goes, under the names that pyrevolve uses."""

from __future__ import annotations

from collections import defaultdict
from time import perf_counter

__all__ = ["Profiler", "Timer"]


class Timer:
    """The `with` block of `Profiler.get_timer`."""

    __slots__ = ("_action", "_profiler", "_section", "_start")

    def __init__(self, profiler: Profiler, section: str, action: str) -> None:
        self._profiler, self._section, self._action = profiler, section, action

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_raised: object) -> None:
        elapsed = 1000.0 * (perf_counter() - self._start)
        self._profiler.increment(self._section, self._action, elapsed)


class Profiler:
    """Milliseconds and calls by section and action, such as `timings["forward"]["advance"]`.

    The sections `forward` and `reverse` are `apply_forward` and `apply_reverse`, with the actions
    `advance`, `takeshot`, `lastfw`, `restore`, `reverse` and `remove`. The copies themselves are
    the section `storage`, with `copy_save` and `copy_load`: parts of `takeshot` and `restore`.

    Attributes:
        timings: milliseconds.
        counts: how many times.
    """

    def __init__(self) -> None:
        self.timings: dict[str, dict[str, float]] = {}
        self.counts: dict[str, dict[str, int]] = {}

    def get_timer(self, section: str, action: str) -> Timer:
        """A `with` block whose time is added to this section and action, also when it raises."""
        return Timer(self, section, action)

    def increment(self, section: str, action: str, elapsed: float) -> None:
        """Adds one call of `elapsed` milliseconds."""
        timings = self.timings.setdefault(section, defaultdict(float))
        counts = self.counts.setdefault(section, defaultdict(int))
        timings[action] += elapsed
        counts[action] += 1

    def summary(self) -> str:
        """A table: section, action, milliseconds, calls."""
        lines = ["section  action        milliseconds    calls"]
        for section, actions in self.timings.items():
            for action, elapsed in actions.items():
                count = self.counts[section][action]
                lines.append(f"{section:<8} {action:<12} {elapsed:>13.3f} {count:>8}")
        return "\n".join(lines)

    def get_dict(self) -> dict[str, str | int]:
        """Flat: `forward_advance_timing` (milliseconds, as text) and `forward_advance_counts`."""
        flat: dict[str, str | int] = {}
        for section, actions in self.timings.items():
            for action, elapsed in actions.items():
                flat[f"{section}_{action}_timing"] = f"{elapsed:.2f}"
        for section, counts in self.counts.items():
            for action, count in counts.items():
                flat[f"{section}_{action}_counts"] = count
        return flat
