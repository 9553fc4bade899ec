"""Which of their storages is which of our tiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_schedules import StorageType
from unspool.errors import OptionError

__all__ = ["storages", "tiers"]

_TIERS = ("device", "host", "disk", "remote", None)


def tiers(changes: Mapping[Any, str | None]) -> dict[Any, str | None]:
    """The tier of what each of their storages holds; `changes` by name or by StorageType."""
    found = {StorageType.RAM: "host", StorageType.DISK: "disk", StorageType.WORK: None}
    if not isinstance(changes, Mapping):
        raise OptionError(f'storage_map={changes!r}: write a mapping such as {{"DISK": "host"}}')
    for label, tier in changes.items():
        storage = _storage(label)
        if storage not in found or tier not in _TIERS:
            raise OptionError(
                f"storage_map has {label!r}: {tier!r}; it maps RAM, DISK and WORK to "
                '"device", "host", "disk", "remote" or None'
            )
        found[storage] = tier
    return found


def storages(choice: Any) -> dict[str | None, Any]:
    """The storage of copies in each of our tiers. `choice` is one storage, for copies that name no
    tier, or a mapping from tiers.
    """
    found = {"device": StorageType.RAM, "host": StorageType.RAM, None: StorageType.RAM}
    found |= {"disk": StorageType.DISK, "remote": StorageType.DISK}
    changes = choice if isinstance(choice, Mapping) else {None: choice}
    for tier, label in changes.items():
        storage = _storage(label)
        if tier not in found or storage not in (StorageType.RAM, StorageType.DISK):
            raise OptionError(f'copies of tier {tier!r} in {label!r}: choose "RAM" or "DISK"')
        found[tier] = storage
    return found


def _storage(label: Any) -> Any:
    """A StorageType from itself or its name; None when there is no such storage."""
    if isinstance(label, str):
        return StorageType.__members__.get(label.upper())
    return label if isinstance(label, StorageType) else None
