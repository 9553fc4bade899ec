"""Every Python block of the READMEs and the documents runs, so that no example can go stale.

The blocks of one document run one after the other in one namespace and an empty folder. A block
that is not meant to run is fenced as text; a document whose example the machine's kernel refuses,
or which needs the studies where they are not installed, is skipped. One that needs another
project's package is fenced as `py`, and runs in `make test-peers`.
"""

import pathlib
import re

import pytest
from unspool.errors import RefusedError

ROOT = pathlib.Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", ROOT / "python" / "README.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document):
    """Each Python block of a document, padded so that its lines have the document's numbers."""
    text = document.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        yield "\n" * line + match.group(1)


def documents():
    """The READMEs and the pages of the site that have Python blocks."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in [*READMES, *pages] if "```python" in page.read_text(encoding="utf-8")]


def name(document):
    return document.relative_to(ROOT).as_posix()


def test_the_readme_the_tutorial_and_the_guides_have_examples():
    folders = {name(document).rpartition("/")[0] for document in documents()}
    assert {"", "python", "docs/tutorial", "docs/howto"} <= folders


@pytest.mark.parametrize("document", documents(), ids=name)
def test_examples_run(document, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    namespace = {"__name__": "example"}
    ran = 0
    for block in blocks(document):
        try:
            exec(compile(block, str(document), "exec"), namespace)
        except RefusedError as why:
            pytest.skip(str(why))
        except ModuleNotFoundError as why:
            if why.name != "unspool_studies":
                raise
            pytest.skip("the studies are not installed: `make test WHOLE=1`")
        ran += 1
    assert ran == document.read_text(encoding="utf-8").count("```python")
