"""`unspool` does not import PyTorch, and `unspool.torch` says what it needs where it is missing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import unspool
assert "torch" not in sys.modules and "unspool.torch" not in sys.modules
sys.modules["torch"] = None
try:
    import unspool.torch
except unspool.errors.MissingLibraryError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


def test_the_package_is_light_and_the_room_says_what_to_install() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "pip install torch" in found.stdout
