"""What the tests of all engines share."""

from __future__ import annotations

from pathlib import Path

import pytest
from unspool_studies import cli

from small_rtm import Rtm


@pytest.fixture
def rtm(tmp_path: Path) -> Rtm:
    return Rtm(tmp_path)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict]:
    """The image and the report of one process."""
    rtm = Rtm(tmp_path_factory.mktemp("alone"))
    assert cli.rtm(rtm.words("--quiet")) == 0
    return rtm.found()
