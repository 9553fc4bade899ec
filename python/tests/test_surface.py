"""What the package shows: stubs, docstrings and exceptions agree with what is there."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import unspool
from unspool import _unspool, errors, look, messages

import stub

PACKAGE = Path(unspool.__file__).parent
STUB = ast.parse((PACKAGE / "_unspool.pyi").read_text())
SPOOL = next(n for n in STUB.body if isinstance(n, ast.ClassDef) and n.name == "Spool")
PROPERTIES = {"closed", "codec", "device", "learn"}
OVERLOADED = {"save", "restore", "writing"}
SCHEDULES = next(n for n in STUB.body if isinstance(n, ast.ClassDef) and n.name == "ScheduleCore")
STATIC = next(n for n in SCHEDULES.body if isinstance(n, ast.FunctionDef) and n.name == "z_cut")
METHODS = {node.name: node for node in SPOOL.body if isinstance(node, ast.FunctionDef)}
EXCEPTIONS = [getattr(errors, name) for name in errors.__all__]


def test_the_extension_exports_its_initialiser_and_nothing_else() -> None:
    if not shutil.which("nm"):
        pytest.skip("no nm")
    words = ["nm", "--dynamic", "--defined-only", "--format=posix", _unspool.__file__]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["PyInit__unspool"]


def test_the_room_of_pytorch_has_four_names_and_all_are_in_the_reference() -> None:
    # Read, not imported: PyTorch need not be here.
    tree = ast.parse((PACKAGE / "torch" / "__init__.py").read_text())
    (names,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(names) == ["adjoint", "budget", "offload", "scan"]
    page = Path(__file__).parents[2] / "docs" / "reference" / "api" / "torch.md"
    shown = re.findall(r"^::: unspool\.torch\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(shown) == ["adjoint", "budget", "offload", "scan"]


def test_the_room_of_jax_has_four_names_and_all_are_in_the_reference() -> None:
    # Read, not imported: JAX need not be here.
    tree = ast.parse((PACKAGE / "jax" / "__init__.py").read_text())
    (names,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(names) == ["SpoolAdjoint", "forget", "scan", "while_loop"]
    page = Path(__file__).parents[2] / "docs" / "reference" / "api" / "jax.md"
    shown = re.findall(r"^::: unspool\.jax\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(shown) == ["SpoolAdjoint", "forget", "scan", "while_loop"]


def test_the_room_of_messages_has_two_names_and_both_are_in_the_reference() -> None:
    assert messages.__all__ == ["Channel", "Request"]
    page = Path(__file__).parents[2] / "docs" / "reference" / "api" / "messages.md"
    shown = re.findall(r"^::: unspool\.messages\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(shown) == ["Channel", "Request"]


def test_the_room_of_looking_inside_has_four_names_and_all_are_in_the_reference() -> None:
    assert look.__all__ == ["Comparison", "Difference", "diff", "zarr_store"]
    page = Path(__file__).parents[2] / "docs" / "reference" / "api" / "look.md"
    shown = re.findall(r"^::: unspool\.look\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(shown) == look.__all__


def test_the_stub_names_every_method_and_no_other() -> None:
    shown = {name for name in vars(unspool.Spool) if not name.startswith("_")}
    dunders = {"__new__", "__contains__", "__len__", "__bool__", "__enter__", "__exit__"}
    dunders |= {"__getitem__", "__iter__"}
    private = {"_expect_bytes", "_load_parts", "_prefer", "_read_parts", "_stored"}
    assert set(METHODS) == shown | dunders | private
    assert dunders <= set(vars(unspool.Spool))


def test_the_docstrings_of_the_stub_are_those_of_the_extension() -> None:
    path = PACKAGE / "_unspool.pyi"
    assert stub.with_docstrings(path.read_text(), _unspool) == path.read_text(), "run `make stub`"
    assert ast.get_docstring(STATIC) == inspect.getdoc(_unspool.ScheduleCore.z_cut)


def test_every_public_method_has_a_docstring_that_names_its_errors() -> None:
    for name, node in METHODS.items():
        if not name.startswith("_") and name not in PROPERTIES:
            assert "Raises:" in (ast.get_docstring(node) or ""), name


def test_the_docstrings_name_only_exceptions_that_exist() -> None:
    texts = [ast.get_docstring(node) or "" for node in METHODS.values()]
    named = set(re.findall(r"\w+Error", "".join(texts)))
    builtin = {"TypeError"}
    assert named <= {kind.__name__ for kind in EXCEPTIONS} | builtin


def test_the_signatures_of_the_stub_are_those_of_the_extension() -> None:
    for name, node in METHODS.items():
        if name.startswith("_") or name in PROPERTIES or name in OVERLOADED:
            continue
        real = list(inspect.signature(getattr(unspool.Spool, name)).parameters)
        rest = [node.args.vararg] if node.args.vararg else []
        stubbed = node.args.posonlyargs + node.args.args + rest + node.args.kwonlyargs
        assert real == [argument.arg for argument in stubbed], name


def test_everything_public_is_exported_and_documented() -> None:
    for name in unspool.__all__:
        shown = getattr(unspool, name)
        assert inspect.getdoc(shown), name
    assert (PACKAGE / "py.typed").exists()
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", unspool.__version__)
    assert unspool.Spool.__module__ == "unspool"


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_every_exception_is_an_error_and_survives_pickling(kind: type[unspool.Error]) -> None:
    assert issubclass(kind, unspool.Error)
    raised = kind("what, why, what to do")
    raised.version = 7
    copied = pickle.loads(pickle.dumps(raised))
    assert type(copied) is kind and copied.version == 7
    assert str(copied) == "what, why, what to do"


def test_exceptions_are_also_what_python_programs_catch() -> None:
    for kind, builtin in [
        (errors.UnknownVersionError, KeyError),
        (errors.WaitTimeoutError, TimeoutError),
        (errors.StorageError, OSError),
        (errors.OptionError, ValueError),
        (errors.OptionError, TypeError),
        (errors.MissingLibraryError, ImportError),
        (errors.ArrayError, TypeError),
        (errors.ArrayError, ValueError),
    ]:
        assert issubclass(kind, builtin)


def test_the_extension_has_no_names_that_the_stub_does_not_know() -> None:
    known = {node.name for node in STUB.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    known |= {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    shown = {name for name in dir(_unspool) if not name.startswith("__")} | {"__version__"}
    assert shown <= known


def test_formats_of_the_buffer_protocol_are_only_described() -> None:
    exporter = _unspool.Exporter("d", 8)
    assert memoryview(exporter).format == "d" and memoryview(exporter).nbytes == 0
    assert memoryview(exporter).readonly
    with pytest.raises(ValueError):
        _unspool.Exporter("d\0", 8)
