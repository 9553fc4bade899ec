"""Writes the docstrings of the extension module into its stub, so that they are written once.

The stub (`_unspool.pyi`) has the names, the signatures and the types; what the docstrings say comes
from the comments of the Rust code, by way of the extension that is installed. `make stub` runs
this; a test compares both.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from pathlib import Path
from types import ModuleType

STUB = Path(__file__).parents[1] / "package" / "unspool" / "_unspool.pyi"
WIDTH = 100

Definition = ast.ClassDef | ast.FunctionDef


def main() -> int:
    from unspool import _unspool

    text = STUB.read_text()
    STUB.write_text(with_docstrings(text, _unspool))
    return 0


def with_docstrings(text: str, module: ModuleType) -> str:
    """The stub `text` with the docstrings that the objects of `module` have."""
    lines = text.splitlines()
    # From the end, so that the positions before a change stay what they are.
    for node, shown in reversed(definitions(ast.parse(text), module)):
        documented = fitting(inspect.getdoc(shown) or "", node.col_offset + 4)
        # What has no docstring in the stub is an inner part of the package.
        if documented and ast.get_docstring(node) not in (None, documented):
            replace(lines, node, documented)
    return "\n".join(lines) + "\n"


def definitions(stub: ast.Module, module: ModuleType) -> list[tuple[Definition, object]]:
    """Classes, methods and functions of the stub with their objects, in the order of the text.

    Of an overloaded function the last definition is the documented one; methods whose names begin
    with `_` have the docstrings of Python.
    """
    found: list[tuple[Definition, object]] = []
    for node in last_of_each(stub.body):
        shown = getattr(module, node.name, None)
        if shown is None:
            continue
        found.append((node, shown))
        if isinstance(node, ast.ClassDef):
            members = [m for m in last_of_each(node.body) if not m.name.startswith("_")]
            # By attribute: what the class holds for a static method has the docstring of Python.
            found += [(m, getattr(shown, m.name)) for m in members if m.name in vars(shown)]
    return sorted(found, key=lambda pair: pair[0].lineno)


def last_of_each(body: list[ast.stmt]) -> list[Definition]:
    return list({node.name: node for node in body if isinstance(node, Definition)}.values())


def fitting(documented: str, indent: int) -> str:
    """The docstring, its first paragraph wrapped again where the quotes make its line too long."""
    first, gap, rest = documented.partition("\n\n")
    if len(first.splitlines()[0] if first else "") + len('"""') + indent > WIDTH:
        wrapped = textwrap.fill(" ".join(first.split()), WIDTH - indent, initial_indent="   ")
        first = wrapped.lstrip()
    return first + gap + rest


def replace(lines: list[str], node: Definition, documented: str) -> None:
    """Puts `documented` where the docstring of `node` is."""
    first = node.body[0]
    indent = " " * (node.col_offset + 4)
    block = textwrap.indent(f'"""{documented}', indent, str.strip).splitlines()
    if len(block) == 1 and len(block[0]) + 3 <= WIDTH:
        block[0] += '"""'
    else:
        block.append(f'{indent}"""')
    lines[first.lineno - 1 : first.end_lineno] = block


if __name__ == "__main__":
    sys.exit(main())
