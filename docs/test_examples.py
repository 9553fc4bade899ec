"""Every Python block of the README and the guides runs, so that no example can go stale.

The blocks of one document run one after the other in one namespace and an empty folder. A block
that is not meant to run is fenced as text.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document):
    """Each Python block of a document, padded so that its lines have the document's numbers."""
    text = document.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        yield "\n" * line + match.group(1)


def test_the_readme_and_the_guides_have_examples():
    assert len(DOCUMENTS) > 3
    assert list(blocks(DOCUMENTS[0])), "the README has no Python block"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    ran = 0
    for block in blocks(document):
        exec(compile(block, str(document), "exec"), namespace)
        ran += 1
    assert ran == document.read_text(encoding="utf-8").count("```python")
