"""What a spool's statistics say about its tiers."""

from __future__ import annotations

from unspool import Stats, TierStats

__all__ = ["registered_bytes", "tier"]


def tier(stats: Stats, name: str) -> TierStats | None:
    """The tier with that name."""
    return next((tier for tier in stats.tiers if tier.name == name), None)


def registered_bytes(stats: Stats) -> tuple[int | None, int]:
    """Bytes of the host tier that are registered with the driver, and its capacity.

    None where the tier does not say: plain memory is not registered.
    """
    host = tier(stats, "host")
    if host is None:
        return None, 0
    return getattr(host, "registered_bytes", None), host.capacity or 0
