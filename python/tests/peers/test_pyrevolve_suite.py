"""pyrevolve's own tests, from its source distribution, run against the drop-in.

The distribution is fetched for the test; none of it is kept here. It lacks the module `utils` that
the tests import: `pyrevolve_suite/utils.py` stands for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from sdists import fetch

pytest.importorskip("pyrevolve", reason="pip install pyrevolve: its own tests run where it does")

pytestmark = pytest.mark.peer

OURS = Path(__file__).parent / "pyrevolve_suite"

#: Tests of what the drop-in does not offer, with the reason.
NOT_HERE = {
    "test_save_and_restore_with_compression": "BytesStorage and compressors",
    "test_compression_is_used": "a compressor of one's own is refused",
}
#: How many of each file pass, at least. pyrevolve skips two of test_compression.py itself.
PASSED = {"test_pyrevolve": 32, "test_storage": 96, "test_compression": 1, "test_multilevel": 1920}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pyrevolve's tests and our helpers for them."""
    folder = tmp_path_factory.mktemp("pyrevolve")
    for place in (fetch("pyrevolve") / "tests", OURS):
        for source in place.glob("*.py"):
            shutil.copy(source, folder)
    return folder


@pytest.mark.parametrize("file", PASSED)
def test_the_tests_of_pyrevolve_pass(suite: Path, file: str) -> None:
    left_out = " and ".join(f"not {name}" for name in NOT_HERE)
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "-p", "in_place", "-p", "no:cacheprovider"),
            *("--rootdir", str(suite), "-c", os.devnull, "-k", left_out),
            *("--junitxml", f"{file}.xml", f"{file}.py"),
        ],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(suite), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    outcomes = Counter(
        "skipped" if case.find("skipped") is not None else "passed"
        for case in ElementTree.parse(suite / f"{file}.xml").iter("testcase")
    )
    assert outcomes["passed"] >= PASSED[file]
    left = [path.name for path in suite.iterdir() if path.name.startswith(("dat_", "unspool"))]
    assert left == []
