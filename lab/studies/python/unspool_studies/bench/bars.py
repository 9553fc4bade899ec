"""What pictures of bars have in common: a group for each setting, and in it a bar for each way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["look_of", "set_groups"]


def look_of(at: int) -> dict[str, Any]:
    """The colour of the bars of a way, by its number from 0; from ten on they are hatched."""
    return {"color": f"C{at % 10}", "hatch": "//" if at >= 10 else None}


def set_groups(axes: Any, title: str, groups: Sequence[str]) -> None:
    """Names a panel and its groups; its values are on a logarithmic scale."""
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9)
    axes.set_xticks(range(len(groups)), groups, fontsize=7)
    axes.grid(alpha=0.3, axis="y")
