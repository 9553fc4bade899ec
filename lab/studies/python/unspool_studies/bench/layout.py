"""Where checkpoints of several sizes lie in a device tier that is filled in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layout", "layout_of"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of checkpoints, by version.

    A version is saved when `before` of it was flushed, and prefetched, in reverse order, when
    `after` of it was restored: all that it shares bytes with is gone then.

    Attributes:
        places: bytes from the beginning of the tier.
        before: the newest earlier version with which it shares bytes; -1: none.
        after: the oldest later version with which it shares bytes; the number of versions: none,
            and it stays in the tier until it is restored.
    """

    places: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def flushed(self) -> tuple[int, ...]:
        """The versions that have to leave the tier, oldest first."""
        count = len(self.places)
        return tuple(version for version in range(count) if self.after[version] < count)


def layout_of(sizes: Sequence[int], room: int) -> Layout:
    """One after the other from the beginning of a tier of `room` bytes, which is no smaller than
    the largest; one that does not fit before the tier's end begins at its beginning again.
    """
    assert max(sizes) <= room
    places, end = [], 0
    for size in sizes:
        place = end if end + size <= room else 0
        places.append(place)
        end = place + size

    def share(one: int, other: int) -> bool:
        first, second = places[one], places[other]
        return first < second + sizes[other] and second < first + sizes[one]

    versions = range(len(sizes))
    before = (next((j for j in reversed(range(k)) if share(j, k)), -1) for k in versions)
    after = (next((k for k in versions[j + 1 :] if share(j, k)), len(sizes)) for j in versions)
    return Layout(tuple(places), tuple(before), tuple(after))
