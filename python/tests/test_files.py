"""Files of JSON: marked with what they are, written as a whole, and refused with what is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from unspool._files import Format, whole, write_json
from unspool.advice.links import LinksError

from helpers import children

FORMAT = Format("unspool_test", 2, "file of tests", LinksError)


def one(fields: dict[str, Any]) -> int:
    return int(fields["one"])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "tests.json"
    write_json(file, FORMAT.marked({"one": 1}))
    assert FORMAT.read(file, lambda found: FORMAT.made(found, one)) == 1
    assert children(tmp_path) == ["tests.json"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a file of tests, as it is not JSON: Expecting value: line 1"),
        ("[" * 100_000, "as it is not JSON"),
        ("[]", 'it lacks "unspool_test": 2'),
        ('{"one": 1}', 'it lacks "unspool_test": 2'),
        ('{"unspool_test": 3, "one": 1}', "has format 3, and only 2 is read here"),
        ('{"unspool_test": 2}', "incomplete or changed: it lacks 'one'"),
        ('{"unspool_test": 2, "one": "x"}', "incomplete or changed: invalid literal"),
        ('{"unspool_test": 2, "one": null}', "incomplete or changed: int"),
    ],
)
def test_what_is_something_else_is_refused_with_its_path(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "tests.json"
    file.write_text(text)
    with pytest.raises(LinksError) as refused:
        FORMAT.read(file, lambda found: FORMAT.made(found, one))
    assert str(refused.value).startswith(f"{file}: this ") and why in str(refused.value)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), whole(file) as part:
        part.write_text("half")
        _ = 1 / 0
    assert (file.read_text(), children(tmp_path)) == ("old", ["kept"])


def test_a_file_of_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_json(os.fspath(tmp_path / "missing" / "tests.json"), {})
