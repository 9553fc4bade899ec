"""`torch.compile` around the functions of `unspool.torch`, and the end of a program that still has
their graphs: the same gradients, nothing left behind, and not a word on the error output.

Each program runs in a process of its own, as what is tested happens when a process ends.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

#: What a program calls, by name, as `run(x)`: a tensor computed from `x` and `w`.
CALLS = {
    "scan": "run = lambda x: unspool.torch.scan(step, 2 * x, None, 9, segment=3, **own)[0]",
    "adjoint": "run = lambda x: unspool.torch.adjoint(step, 2 * x, None, 9, params=[w], **own)[0]",
    "offload": """
keep = unspool.torch.offload(budget=0, min_bytes=0, **own)
def run(x):
    with keep:
        return torch.tanh(x * w).exp().sin()
""",
    "budget": """
class Block(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x * w).exp().sin()
net = torch.nn.Sequential(*(Block() for _ in range(4)))
blocks = unspool.torch.budget(net, 500, **own)
run = lambda x: net(x.clone().requires_grad_())
""",
}

START = """
import gc, sys, torch, unspool, unspool.torch
torch.set_num_threads(1)
w = torch.tensor(0.9, requires_grad=True)
step = lambda c, _: (torch.tanh(c * w), None)
x = torch.ones(8)
"""


def output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def every(program: str) -> str:
    """A program for each of the calls, one after the other."""
    return "".join(f"def call():\n{indented(each + program)}\ncall()\n" for each in CALLS.values())


def indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def test_a_function_around_each_may_be_compiled() -> None:
    program = """
gradient = lambda run: torch.autograd.grad(run(x).sum() * 3, w)[0].item()
compiled = torch.compile(lambda x: run(x + 1) - 1, backend="aot_eager")
plain = [gradient(lambda x: run(x + 1) - 1) for _ in range(3)]
assert [gradient(compiled) for _ in range(3)] == plain, plain
print("the same")
"""
    own = 'own = {"spool": unspool.Spool(host_memory="8MiB")}\n'
    after = "gc.collect(); assert len(own['spool']) == 0"
    assert output(own + every(program) + after) == "the same\n" * len(CALLS)


def test_a_compiled_step_stays_compiled() -> None:
    program = """
count = []
backend = lambda graph, _: count.append(graph) or graph
inner = torch.compile(step, backend=backend)
for _ in range(2):
    c, _ = unspool.torch.scan(inner, x, None, 9, segment=3, spool=unspool.Spool(host_memory="8MiB"))
    torch.autograd.grad(c.sum(), w)
print(len(count) > 0)
"""
    assert output(program) == "True\n"


@pytest.mark.parametrize(
    "kept",
    [
        "sys.kept.append(run(x))",
        "c = Cycle(); c.c, c.out = c, run(x); sys.kept.append(c)",
        'sys.kept.append(torch.compile(lambda x: run(x) + 1, backend="aot_eager")(x))',
    ],
    ids=["by name", "in a cycle", "compiled"],
)
def test_a_program_may_end_with_graphs_that_nobody_went_back_through(kept: str) -> None:
    program = f"""
for _ in range(3):
    run(x).sum().backward()
{kept}
"""
    start = "own = {}; sys.kept = []\nclass Cycle: pass\n"
    quiet = "import warnings; warnings.simplefilter('ignore', RuntimeWarning)\n"
    assert output(quiet + start + every(program) + "print('the end')") == "the end\n"
