"""Pictures of `unspool diff --plot` and `unspool show --png`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unspool import Disk, Spool, cli

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.peer

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in "ab":
        disk = Disk(tmp_path / name, durable=True)
        with Spool(host_memory="16MiB", device="cpu", disk=disk) as spool:
            for step in range(5):
                u = np.linspace(-1, 1, 600).reshape(20, 30)
                u[3, 4] += 10.0**-step * (name == "b" and step > 1)
                spool.save(step, {"u": u, "line": u[0], "t": np.nan if step == 3 else 0.5})
    return tmp_path / "a", tmp_path / "b"


def test_of_a_comparison(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "x.png"
    assert cli.main(["diff", *map(str, pair), "--plot", str(out)]) == 1
    assert out.read_bytes().startswith(PNG)
    assert cli.main(["diff", str(pair[0]), str(pair[0]), "--plot", str(out)]) == 0


@pytest.mark.parametrize("name", ["u", "line"])
def test_of_an_array(pair: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    out = tmp_path / "x.png"
    assert cli.main(["show", str(pair[0]), "last", name, "--png", str(out)]) == 0
    assert out.read_bytes().startswith(PNG)
