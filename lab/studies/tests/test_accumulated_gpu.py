"""The pipelines of the part `accumulated-gpu`, on a device in plain memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_bench import column
from unspool.accumulate import CodecCost, Profile
from unspool_studies.accumulated import gpu as accumulated_gpu
from unspool_studies.accumulated.gpu import NvCompPacker, Pipeline
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.virtual import Case
from unspool_studies.bench import report
from unspool_studies.bench.options import Plan

from fake_cuda import FakeCuda

SIZE = 1 << 16


class Packer:
    """Keeps every tenth byte."""

    problem = ""

    def __init__(self) -> None:
        self.inputs: list[int] = []

    def pack(self, source):
        self.inputs.append(len(source))
        packed = source[: len(source) // 10].copy()
        return packed.ctypes.data, len(packed), packed


def asked(checkpoints: int = 12) -> Accumulated:
    cache = 8 * SIZE
    return Accumulated(
        checkpoints=checkpoints, size=SIZE, cache=cache, caches=(cache, 16 * SIZE),
        ratios=(4.0, 10.0), rates=(40e9,), tables=("ratio", "rate", "cache"),
    )  # fmt: skip


def case(checkpoints: int = 12) -> Case:
    return Case("x", Profile.of([SIZE] * checkpoints, ratio=10.0, interval=1e-6), 8 * SIZE)


DECISIONS = [
    *("raw", "alone", "hold", "hold", "together", "raw"),
    *("hold", "together", "raw", "raw", "alone", "raw"),
]


def test_a_pipeline_compresses_what_is_held_in_one_call():
    cuda, packer = FakeCuda(), Packer()
    pipeline = Pipeline(cuda, asked(), cuda.stream(), packer)
    pipeline.fill(10.0)
    assert pipeline.follow(case(), DECISIONS) > 0
    assert packer.inputs == [SIZE, 3 * SIZE, 2 * SIZE, SIZE]
    pipeline.close()
    assert cuda.leaked == 0


def test_a_pipeline_moves_raw_and_compressed_bytes():
    cuda, packer = FakeCuda(), Packer()
    pipeline = Pipeline(cuda, asked(), cuda.stream(), packer)
    pipeline.fill(10.0)
    cuda.copied = 0
    pipeline.follow(case(3), ["raw", "hold", "together"])
    # Three copies within the device, one raw and one compressed transfer.
    assert cuda.copied == 3 * SIZE + SIZE + 2 * SIZE // 10
    pipeline.close()


def test_a_machine_without_nvcomp_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "nvidia.nvcomp", None)
    assert NvCompPacker(FakeCuda().stream()).problem


@pytest.mark.parametrize("works", [True, False])
def test_the_part_makes_a_table_for_each_thing_that_varies(monkeypatch, works):
    packer = Packer()
    packer.problem = "" if works else "it is not there"
    monkeypatch.setattr(accumulated_gpu, "NvCompPacker", lambda _stream: packer)
    cuda, shown = FakeCuda(), report.Report({})
    accumulated_gpu.run(cuda, Plan(accumulated=asked()), shown)
    names = [table.name for table in shown.tables]
    assert names == [f"accumulated-gpu-{name}" for name in ("ratio", "rate", "cache")]
    for table in shown.tables:
        for spool in ("no compression", "Twine single", "Twine batched"):
            assert all(cell is not None for cell in column(table, spool))
        assert all(cell is None for cell in column(table, "nvCOMP single"))
        assert any("cannot be had here" in note for note in table.notes)
        assert all((cell is not None) == works for cell in column(table, "by hand: accumulated"))
    assert cuda.leaked == 0


def test_pipelines_by_hand_plan_with_the_cost_that_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(accumulated_gpu, "NvCompPacker", lambda _stream: Packer())
    # A link for which the costs of an H100 compress something.
    monkeypatch.setattr(accumulated_gpu, "_link", lambda cuda, size: 1e9)
    schedules = {}
    slow = tmp_path / "slow.json"
    CodecCost.linear("slow", 1.0, 1e9).save_to(slow)
    for file, said in ((None, "as on an H100"), (slow, f"planned with slow, of {slow}")):
        shown, sizes = report.Report({}), replace(asked(), tables=("rate",), nvcomp=file)
        accumulated_gpu.run(FakeCuda(), Plan(accumulated=sizes), shown)
        (table,) = shown.tables
        assert sum(said in note for note in table.notes) == 1
        (schedules[file],) = column(table, "schedule")
        (model,) = column(table, "model")
        assert model > 0
    assert schedules[slow] == "12 raw" and "together" in schedules[None]
