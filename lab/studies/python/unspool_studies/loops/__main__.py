"""Draws what `python_loops.py` and `python_torch_budget.py` wrote by `--json`.

    python -m unspool_studies.loops wave.json budget.json --dir docs/images

A file NAME.json becomes NAME.png and NAME.svg in the folder. Files of the same name but for a last
part after a dash (wave-torch.json, wave-jax.json) become one picture, with a panel for each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .plot import draw

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m unspool_studies.loops", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="JSON of the benchmarks")
    parser.add_argument("--dir", type=Path, default=Path(), help="for the pictures")
    given = parser.parse_args(arguments)
    for name, files in together(given.files).items():
        found = [json.loads(file.read_text("utf-8")) for file in files]
        for kind in ("png", "svg"):
            draw(merged(found), given.dir / f"{name}.{kind}")


def together(files: list[Path]) -> dict[str, list[Path]]:
    """The files of each picture."""
    found: dict[str, list[Path]] = {}
    for file in files:
        name, _, last = file.stem.rpartition("-")
        found.setdefault(name if name and last in ("torch", "jax") else file.stem, []).append(file)
    return found


def merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Several measurements as one."""
    points = [point for each in found for point in each["points"]]
    machines = ", ".join(dict.fromkeys(each["machine"] for each in found))
    return {"title": found[0]["title"], "machine": machines, "points": points}


if __name__ == "__main__":
    main()
