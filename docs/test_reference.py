"""The reference documents every public name of the package."""

import importlib
import pathlib
import re

import pytest
import unspool

PAGES = pathlib.Path(__file__).resolve().parent / "reference" / "api"
DOCUMENTED = re.compile(r"^::: (\S+)$", re.MULTILINE)


def documented():
    """What the pages name: objects, and modules with all that is in them."""
    return {one for page in PAGES.glob("*.md") for one in DOCUMENTED.findall(page.read_text())}


def module(name):
    """The module of this name; None for an object, and for a module that needs another package."""
    try:
        return importlib.import_module(name)
    except (ImportError, unspool.errors.MissingLibraryError):
        return None


@pytest.mark.parametrize("name", [name for name in unspool.__all__ if name != "__version__"])
def test_every_public_name_is_in_the_reference(name):
    pages = documented()
    modules = [found for found in map(module, pages) if found is not None]
    inside = any(name in getattr(found, "__all__", ()) for found in modules)
    assert f"unspool.{name}" in pages or inside
