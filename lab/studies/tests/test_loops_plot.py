"""The picture of time against memory of loops."""

from __future__ import annotations

import json
from pathlib import Path

from unspool_studies.loops.__main__ import main


def test_measurements_of_two_libraries_are_one_picture(tmp_path: Path) -> None:
    for name in ("torch", "jax"):
        points = [
            {"panel": name, "method": method, "label": label, "seconds": seconds, "gib": gib}
            for method, label, seconds, gib in [
                ("all kept", "", 1.0, 50.0),
                ("scan", "every=4", 1.5, 3.0),
                ("scan", "every=1", 2.5, 2.0),
            ]
        ]
        found = {"title": "A loop", "machine": "a GPU", "points": points}
        (tmp_path / f"wave-{name}.json").write_text(json.dumps(found), "utf-8")
    files = sorted(str(file) for file in tmp_path.glob("*.json"))
    main([*files, "--dir", str(tmp_path)])
    assert (tmp_path / "wave.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "wave.svg").read_text("utf-8")
    main([*files, "--dir", str(tmp_path)])
    assert "</svg>" in drawn and drawn == (tmp_path / "wave.svg").read_text("utf-8")
    assert not (tmp_path / "wave-jax.png").exists()
