"""Traces: read strictly, and drawn so that a stall can be seen."""

import json

import numpy as np
import pytest
import unspool
from unspool_studies import cli, timeline


def _event(lane, name, tid, begin, duration):
    return {
        "ph": "X",
        "pid": 1,
        "tid": tid,
        "cat": lane,
        "name": name,
        "ts": begin * 1e6,
        "dur": duration * 1e6,
        "args": {"outcome": "done"},
    }


def _thread(name, tid):
    return {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}


EVENTS = [
    _thread("application 0", 1),
    _thread("host-disk 0", 2),
    _thread("host-disk 1", 3),
    _event("application", "save", 1, 2.0, 0.4),
    _event("application", "stall", 1, 2.1, 0.2),
    _event("host-disk", "flush", 2, 2.0, 0.5),
    _event("host-disk", "flush", 3, 2.5, 0.5),
    _event("somebody-else", "work", 4, 0.0, 9.0),
]


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, "otherData": {"dropped_spans": 3}}))
    return path


def _draw(*arguments):
    return cli.timeline([*map(str, arguments)])


def test_the_lanes_of_a_spool_are_read_and_those_of_others_left_out(trace_file):
    bars = timeline.read_bars(trace_file)
    assert {(bar.lane, bar.row) for bar in bars} == {
        ("application", 1),
        ("host-disk", 2),
        ("host-disk", 3),
    }


def test_time_begins_with_the_first_span(trace_file):
    bars = timeline.read_bars(trace_file)
    assert min(bar.begin for bar in bars) == 0.0
    assert max(bar.end for bar in bars) == pytest.approx(1.0)


def test_a_trace_is_drawn_whole_and_in_part(trace_file, tmp_path):
    pytest.importorskip("matplotlib")
    whole, part = tmp_path / "whole.png", tmp_path / "part.png"
    assert _draw(trace_file, "-o", whole) == 0
    assert _draw(trace_file, "-o", part, "--from", 0.1, "--to", 0.2) == 0
    assert whole.read_bytes().startswith(b"\x89PNG")
    assert part.read_bytes() != whole.read_bytes()


@pytest.mark.parametrize("window", [("--from", 7), ("--from", 0.5, "--to", 0.2)])
def test_a_window_without_anything_in_it_is_refused(trace_file, tmp_path, capsys, window):
    out = tmp_path / "out.png"
    assert _draw(trace_file, "-o", out, *window) == 2
    assert capsys.readouterr().err.startswith("unspool-timeline: ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"traceEvents": [', "cut off"),
        ("[" * 100_000, "cut off"),
        ("[1, 2]", "holds an event that is none"),
        ('{"other": 1}', "no list of events"),
        ('{"traceEvents": []}', "no lane of a spool"),
        ('[{"ph": "X", "cat": "application"}]', "holds an event that is none"),
    ],
)
def test_a_foreign_or_broken_file_is_refused_with_a_reason(tmp_path, text, reason):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(timeline.TraceError, match=reason):
        timeline.read_bars(path)


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(timeline.TraceError, match=r"nowhere\.json"):
        timeline.read_bars(tmp_path / "nowhere.json")


def test_what_a_spool_writes_is_read(tmp_path):
    field = np.arange(1 << 16, dtype=np.float32)
    path = tmp_path / "trace.json"
    with unspool.Spool(
        device_memory="512KiB", host_memory="1MiB", disk=tmp_path, debug=unspool.Debug(trace=True)
    ) as spool:
        for version in range(20):
            spool.save(version, field)
        spool.flush()
        spool.expect(range(20))
        for version in range(20):
            spool.restore(version, field)
        spool.write_trace(path)
    bars = timeline.read_bars(path)
    calls = [bar.name for bar in bars if bar.lane == "application"]
    assert calls.count("save") == 20
    assert calls.count("restore") == 20
    assert {"device-host", "host-disk", "disk-host", "host-device"} <= {bar.lane for bar in bars}
