"""Random modules in random nests of `unspool.torch`'s functions: every run is that of the program
without them, or ends in an error that says why it cannot be.

Compared are values, gradients, parameters after training, buffers, what generators of random
numbers draw next, Python objects that modules change, and the calls of hooks with what they were
given. A failure prints the seed and the program; `draw(seed)` makes it again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest
import unspool

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from unspool.torch import _moving  # noqa: E402

from torch_random_nests import Drawn, Nest, Training, differences, draw, run  # noqa: E402
from torch_random_parts import HIDDEN, PARTS, PYTHON, REPEATABLE  # noqa: E402

# Said by the plain programs too.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

#: Programs that are drawn; more with UNSPOOL_TEST_MODULES=2000.
DRAWN = int(os.environ.get("UNSPOOL_TEST_MODULES", "200"))

#: Programs of one test.
TOGETHER = 20

#: What every part is tried in.
FUNCTIONS = {
    "scan": {"segment": 2, "xs": True, "y": True, "steps": 5},
    "adjoint": {"schedule": "Revolve", "xs": True, "y": True, "steps": 5},
    "budget": {"size": 512, "fast": False},
    "budget that moves": {"size": 512, "fast": True},
    "offload": {"size": 0},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What is computed here is too small for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_moving, "LEAST", 1)


def one(function: str, name: str) -> Drawn:
    """A part in a function."""
    kind = function.split()[0]
    parts = (Nest("part", name),) * (3 if kind == "budget" else 1)
    nest = Nest(kind, "", parts, tuple(FUNCTIONS.get(function, {}).items()))
    fails = 0 if name == "raises" else None
    return Drawn(1, nest, Training(steps=4 if kind == "budget" else 2, raises=fails))


def may_be_refused(drawn: Drawn) -> bool:
    """Whether nobody could make a second call of something in it equal to the first."""
    names = {each.name for each in drawn.nest.all()}
    training = drawn.training
    return bool(training.between or training.around or names & {*HIDDEN, *PYTHON})


def is_of_pytorch(error: Exception, drawn: Drawn) -> bool:
    """Whether PyTorch's own error says that a step has changed what a gradient needs, as `adjoint`
    takes it of a table that looking up changes in place."""
    kinds = {each.kind for each in drawn.nest.all()} | {each.name for each in drawn.nest.all()}
    return "modified by an inplace operation" in str(error) and {"adjoint", "max norm"} <= kinds


def wrong(drawn: Drawn) -> str | None:
    """What is wrong with a program; `"refused"` where it is refused as it may be."""
    expected = run(drawn, None)
    with unspool.Spool(host_memory="32MiB") as spool:
        try:
            found = run(drawn, spool)
        except unspool.Error as error:
            return "refused" if may_be_refused(drawn) else f"{drawn}: {error}"
        except Exception as error:
            if is_of_pytorch(error, drawn):
                return "refused"
            return f"{drawn}: {type(error).__name__}: {error}"
    exact = all(each.kind != "adjoint" for each in drawn.nest.all())
    found_differences = differences(expected, found, exact)
    return f"{drawn}: {', '.join(found_differences)}" if found_differences else None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_part_is_the_same_in_each_function(function: str) -> None:
    found = {name: wrong(one(function, name)) for name in PARTS}
    refused = [name for name, each in found.items() if each == "refused"]
    assert set(refused) <= {*HIDDEN, *PYTHON, "max norm"}
    assert [each for each in found.values() if each not in (None, "refused")] == []


@pytest.mark.parametrize("first", range(0, DRAWN, TOGETHER))
def test_a_random_program_is_the_same_or_refused(first: int) -> None:
    found = [wrong(draw(seed)) for seed in range(first, first + TOGETHER)]
    assert [each for each in found if each not in (None, "refused")] == []
    assert found.count("refused") < TOGETHER // 2


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("batch norm", "buffer inner.0.inner.num_batches_tracked"),
        ("own torch generator", "step 0: gradient 1"),
        ("own numpy generator", "random own 0"),
        ("forward hooks", "hook after"),
        ("number on the module", "python object 0"),
    ],
)
def test_the_comparison_notices_what_a_second_call_changes(name: str, seen: str) -> None:
    # PyTorch's own checkpoint calls again what it is around.
    drawn = one("checkpoint", name)
    assert name not in REPEATABLE
    assert seen in differences(run(drawn, None), run(drawn, unspool.torch), exact=True)


def test_a_seed_makes_the_same_program_and_the_same_run_again() -> None:
    for seed in range(10):
        one, other = draw(seed), draw(seed)
        assert one == other and str(one) == str(other)
        assert differences(run(one, None), run(other, None), exact=True) == []
    assert dataclasses.replace(one, seed=99) != other
