"""The reference documents every public name of the package."""

import pathlib
import re
import types

import pytest
import unspool

PAGES = pathlib.Path(__file__).resolve().parent / "reference" / "api"
DOCUMENTED = re.compile(r"^::: (\S+)$", re.MULTILINE)


def public_objects():
    """Each public object by its path, those of public modules included."""
    for name in unspool.__all__:
        found = getattr(unspool, name)
        if isinstance(found, types.ModuleType):
            inside = {f"unspool.{name}.{inner}": getattr(found, inner) for inner in found.__all__}
            yield from inside.items()
        elif name != "__version__":
            yield f"unspool.{name}", found


OBJECTS = dict(public_objects())
NAMED = {one for page in PAGES.glob("*.md") for one in DOCUMENTED.findall(page.read_text())}


def is_documented(path):
    """Whether a page names the object, or the public module that it is in."""
    return path in NAMED or path.rpartition(".")[0] in NAMED


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_name_is_in_the_reference(name):
    paths = [path for path, found in OBJECTS.items() if found is OBJECTS[name]]
    assert any(map(is_documented, paths))
