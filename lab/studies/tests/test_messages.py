"""Part `messages` of `unspool-bench`: samples, differences, and the programs where an MPI is."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from unspool_studies.bench.options import PLAIN_PARTS, Plan
from unspool_studies.bench.report import Report
from unspool_studies.messages import samples, study
from unspool_studies.messages.network import (
    Network,
    best_break_even,
    break_even,
    coded_flows,
    expected_change,
    no_namespace,
)
from unspool_studies.messages.options import PROGRAMS, Messages
from unspool_studies.messages.programs import Bench, MessagesError, known_programs, missing

SOURCES = Path(__file__).parents[1] / "messages"


def part_of(kept: list[tuple[int, int, bytes]]) -> bytes:
    """A part as the reference has it: two rows a table, and samples (row, number, payload)."""
    words = [0] * (64 + 512 + 2 * (12 + 16 + 3 + 5))
    words[1:6] = 1, 2, 2, 2, 2
    out = struct.pack(f"<{len(words)}Q", *words)
    for row, number, payload in kept:
        out += struct.pack("<8s5Q", b"UNSPSAMP", row, number, len(payload), len(payload), 0)
        out += payload + bytes(-len(payload) % 8)
    return out


def test_samples_are_runs_of_consecutive_messages_of_a_channel(tmp_path):
    kept = [(0, n, bytes([n]) * 9) for n in range(14)] + [(1, 5, b"a" * 64), (0, 64, b"b" * 9)]
    file = tmp_path / "0.part"
    file.write_bytes(part_of(kept) + b"UNSPSAMP torn")
    runs = sorted(samples.runs_of(file))
    assert [len(run) for run in runs] == [12, 2, 1, 1]
    assert runs[0][:2] == [bytes(9), b"\1" * 9] and runs[-1] == [b"b" * 9]


@pytest.fixture(params=["bsdiff", "bytes"])
def tool(request, monkeypatch):
    if request.param == "bytes":
        monkeypatch.setattr(samples, "bsdiff4", None)
    elif samples.bsdiff4 is None:
        pytest.skip("the package bsdiff4 is not here")


def noise(count: int) -> list[bytes]:
    return list(map(bytes, np.random.default_rng(1).integers(0, 256, (count, 4000), np.uint8)))


def test_two_levels_gain_nothing_where_one_level_does_not(tool):
    sizes = samples.sizes_of([noise(12)], 12)
    assert len(sizes.originals) == 12 and len(sizes.one) == 11 and len(sizes.two) == 8
    assert len(sizes.window) == 12
    assert max(samples.factors(sizes.one, sizes.one_of)) < 5
    assert samples.volume(sizes.window, sizes.window_of) < 5


def test_samples_are_spread_over_all_runs():
    runs = [[bytes(100 + n)] * 12 for n in range(10)]
    assert set(samples.sizes_of(runs, 36).originals) == {100, 104, 108}
    assert samples.sizes_of(runs, 0).originals == samples.sizes_of([], 36).originals == []


def test_messages_that_change_evenly_are_small_as_differences(tool):
    one, step = np.frombuffer(b"".join(noise(2)), np.uint8).reshape(2, -1)
    sizes = samples.sizes_of([[(one + n * (step & 1)).tobytes() for n in range(12)]], 12)
    assert (
        samples.volume(sizes.one, sizes.one_of) > 50 > samples.volume(sizes.alone, sizes.originals)
    )


def test_only_so_many_messages_are_coded():
    runs = [noise(12) for _ in range(6)]
    assert len(samples.sizes_of(runs, 24).originals) == 24
    assert not samples.sizes_of(runs, 0).originals


def test_histograms_are_shares_of_all_messages():
    assert study.shares_by_factor([-3, 0, 9.9, 55, 100]) == [20, 40, 0, 0, 0, 0, 20, 0, 0, 0, 20]


def test_what_coding_is_expected_to_change_is_none_at_the_break_even():
    outcome = {"scheme": "LZ4", "factor": 0.5, "encode": 1e9, "decode": 4e9}
    flow = {"tag": 7, "least": 4096, "bytes": 2e9, "outcomes": [outcome]}
    report = {"flows": [flow], "ranks": 2}
    coded = coded_flows(report, {"7": "LZ4"}, 0.1e9)
    assert break_even(coded) == best_break_even(report) == pytest.approx(0.4e9)
    assert expected_change(coded, 2, 0.4e9) == pytest.approx(0, abs=1e-9)
    assert expected_change(coded, 2, 0.1e9) == pytest.approx(1.25 - 5)
    assert coded_flows(report, {"8": "LZ4"}, 0.1e9) == []


def test_what_is_not_here_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "mpicc" in missing(None)
    with pytest.raises(MessagesError, match="install an MPI"):
        study.run(Plan(), Report({}))
    assert "messages" in PLAIN_PARTS


def test_every_program_has_its_source():
    found = {program.name for program in known_programs(PROGRAMS, small=True)}
    assert found == set(PROGRAMS)
    assert all(any(SOURCES.glob(f"{name}.*")) for name in found)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """The compiled programs; what records them is not asked for here."""
    why = missing(Path(__file__))
    if why is not None:
        pytest.skip(why)
    return Bench(tmp_path_factory.mktemp("programs"), SOURCES, Path(__file__))


#: The same problem on one rank and on two.
DIVIDED = {
    "hpccg": ("8x8x8", "8x8x4"),
    "minife": ("8x8x8", "4x8x8"),
}


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("data", ["own", "random"])
def test_a_problem_has_one_solution_on_any_number_of_ranks(bench, name, data):
    residuals = []
    for ranks, sizes in zip((1, 2), DIVIDED[name], strict=True):
        words = ["mpirun", "-n", str(ranks), bench.folder / name, sizes, "8", data]
        printed, _ = bench.call(words)
        residuals.append(re.search(r"residual squared ([0-9.e+-]+) of ([0-9.e+-]+)", printed))
    one, two = residuals
    assert float(two[1]) == pytest.approx(float(one[1]), rel=1e-3, abs=1e-9)
    assert 0 < float(one[1]) < float(one[2])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_on_a_slowed_network(bench, name):
    program = known_programs([name], small=True)[0]
    if program.lacks is not None:
        pytest.skip(program.lacks)
    problem = (program.slab[0], 3)
    words = bench.ranks(2, program, problem)
    plain = bench.outcome(words, {})
    assert plain.result == bench.outcome(words, Network(1e9, False).environment(bench)).result


def test_a_network_is_slowed_by_tc(bench):
    why = no_namespace()
    if why is not None:
        pytest.skip(why)
    network = Network(1e9, True)
    program = known_programs(["hpccg"], small=True)[0]
    words = bench.ranks(2, program, (program.slab[0], 3))
    slowed = bench.outcome(network.wrap(words), network.environment(bench))
    assert slowed.result == bench.outcome(words, {}).result


def test_a_program_that_fails_says_so(bench):
    program = known_programs(["wave"], small=True)[0]
    with pytest.raises(MessagesError, match="sizes and steps"):
        bench.outcome(bench.ranks(1, program, ("8x8", 1)), {})


def test_the_whole_study_of_one_program(bench, tmp_path, capsys, monkeypatch):
    why = missing(None)
    if why is not None:
        pytest.skip(why)
    monkeypatch.setattr(study, "RATES", {90: (1.41, 1.35)})
    monkeypatch.setattr(study, "networks_of", lambda _: ([Network(0.1e9, False)], None))
    asked = Messages(
        plots=tmp_path, programs=("wave",), sources=SOURCES, compared=12, analysis=0.5, rounds=1,
        networks=(0.1e9,), scales=(4, 8), small=True,
    )  # fmt: skip
    report = Report({}, tmp_path / "all.json")
    study.run(Plan(messages=asked), report)
    assert capsys.readouterr().out.count("written:") == 8
    tables = {table.name: table for table in report.tables}
    assert [row[0] for row in tables["messages-duplicates"].rows] == ["wave, own", "wave, random"]
    rows = [row for row in tables["messages-networks"].rows if row[-1] is not None]
    assert all(row[-1] == "yes" for row in rows)
    assert (tmp_path / "messages-sizes.svg").stat().st_size > 10_000
