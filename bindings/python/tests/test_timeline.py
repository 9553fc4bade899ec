"""Traces: read strictly, and drawn so that a stall can be seen."""

import json

import numpy as np
import pytest

import unspool
from unspool import timeline


def _event(name, tid, begin, duration, **args):
    return {
        "ph": "X",
        "pid": 1,
        "tid": tid,
        "name": name,
        "ts": begin * 1e6,
        "dur": duration * 1e6,
        "args": {"outcome": "done", **args},
    }


def _thread(name, tid):
    return {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}


EVENTS = [
    _thread("application 0", 1),
    _thread("host-disk 0", 2),
    _thread("host-disk 1", 3),
    _event("save", 1, 0.0, 0.4),
    _event("stall", 1, 0.1, 0.2),
    _event("flush", 2, 0.0, 0.5),
    _event("flush", 3, 0.5, 0.5, outcome="failed"),
]


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, "otherData": {"dropped_spans": 3}}))
    return path


def test_a_lane_has_a_row_for_each_of_its_workers(trace_file):
    trace = timeline.read(trace_file)
    assert [(lane.name, len(lane.rows)) for lane in trace.lanes] == [
        ("application", 1),
        ("host-disk", 2),
    ]
    assert trace.dropped == 3
    assert trace.end == pytest.approx(1.0)


def test_the_stall_of_a_window_is_the_part_that_lies_in_it(trace_file):
    application = timeline.read(trace_file).lanes[0]
    assert application.busy("stall", 0.0, 1.0) == pytest.approx(0.2)
    assert application.busy("stall", 0.2, 1.0) == pytest.approx(0.1)
    assert application.busy("stall", 0.5, 1.0) == 0


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_trace_is_drawn_whole_and_in_part(trace_file, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    trace = timeline.read(trace_file)
    whole, part = tmp_path / f"whole.{suffix}", tmp_path / f"part.{suffix}"
    timeline.draw(trace, whole)
    timeline.draw(trace, part, begin=0.1, end=0.2)
    assert whole.stat().st_size > 1000
    assert part.read_bytes() != whole.read_bytes()


def test_a_window_without_anything_in_it_is_refused(trace_file, tmp_path):
    with pytest.raises(timeline.TraceError, match=r"lasts 1\.000 s"):
        timeline.draw(timeline.read(trace_file), tmp_path / "out.png", begin=7.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"traceEvents": [', "cut off"),
        ("[1, 2]", "no Chrome trace"),
        ('{"traceEvents": []}', "not one of a spool"),
        ('[{"ph": "X", "name": "a"}]', "not as the format says"),
    ],
)
def test_a_foreign_or_broken_file_is_refused_with_a_reason(tmp_path, text, reason):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(timeline.TraceError, match=reason):
        timeline.read(path)


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(timeline.TraceError, match=r"nowhere\.json"):
        timeline.read(tmp_path / "nowhere.json")


def test_what_a_spool_writes_is_read(tmp_path):
    field = np.arange(1 << 16, dtype=np.float32)
    path = tmp_path / "trace.json"
    with unspool.Spool(device="512KiB", host="1MiB", disk=tmp_path, trace=True) as spool:
        for version in range(20):
            spool.save(version, field)
        spool.flush()
        spool.expect(range(20))
        for version in range(20):
            spool.restore(version, field)
        spool.write_trace(path)
    lanes = {lane.name: lane for lane in timeline.read(path).lanes}
    names = [work.name for row in lanes["application"].rows for work in row]
    assert names.count("save") == 20
    assert names.count("restore") == 20
    assert {"device-host", "host-disk", "disk-host", "host-device"} <= lanes.keys()
