"""What GPUs take that share links, in virtual time."""

import argparse
import itertools
import json
from dataclasses import replace

import pytest
from unspool import advice
from unspool.advice import Link, Links, Rate
from unspool.schedules import StoreAll
from unspool_studies.bench import options
from unspool_studies.bench.command import run_parts
from unspool_studies.bench.report import Report
from unspool_studies.scaling import figures, recorded
from unspool_studies.scaling.cluster import COMMITS, Cluster, cluster_of
from unspool_studies.scaling.simulate import NoSimulation, bound_of, simulated

MIB, GIB = 1 << 20, 1 << 30

#: A tenth of the usual history and tiers.
SMALL = Cluster(history=4 * GIB, device=512 * MIB, host=3 * GIB)


def plan_of(*words):
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    return options.plan_of(parser.parse_args(words))


@pytest.mark.parametrize("steps", [2e-3, 10e-3])
def test_one_gpu_takes_what_the_forecast_of_its_schedule_says(steps):
    one = replace(SMALL, gpus=1, links=1, order="reverse", compute=steps)
    within, link = Rate(1460e9, 5e-6), Rate(55e9, 10e-6)
    written, read = Rate(5e9, 100e-6), Rate(6e9, 100e-6)
    between = (Link("device", "host", link, link), Link("host", "disk", written, read))
    links = Links("cuda:0", ("device", "host", "disk"), within, within, between)
    tiers = {"device_memory": one.device, "host_memory": one.host, "disk": 1 << 50}
    # A schedule saves one state less than it has steps.
    found = advice.predict(
        StoreAll(33), one.checkpoint, steps, links=links, device="cuda:0", **tiers
    )
    assert simulated(one).seconds == pytest.approx(found.seconds, rel=0.03)


def test_nodes_share_the_file_system_and_not_their_disks():
    def seconds(nodes, disk):
        return simulated(replace(SMALL, nodes=nodes, disk=disk)).seconds

    assert seconds(1, "nvme") == seconds(1000, "nvme")
    few, many, twice = (seconds(nodes, "fs") for nodes in (1, 64, 128))
    assert few < many < twice
    assert twice == pytest.approx(2 * many, rel=0.1)


@pytest.mark.parametrize("disk", ["nvme", "fs"])
@pytest.mark.parametrize("order", ["sequential", "reverse", "irregular"])
def test_nothing_is_used_beyond_its_capacity_and_no_run_beats_its_bound(disk, order):
    cluster = replace(SMALL, nodes=8, disk=disk, order=order, compute=1e-3)
    found = simulated(cluster)
    assert all(0 <= one.used <= 1 + 1e-9 for one in found.shared)
    assert found.busiest.used > 0.3
    assert bound_of(cluster) <= found.seconds * (1 + 1e-6)


def test_more_bandwidth_is_not_slower():
    times = [
        simulated(replace(SMALL, nvme_write=speed, nvme_read=speed)).seconds
        for speed in (1e9, 2e9, 4e9, 8e9, 16e9)
    ]
    assert all(after <= before * 1.01 for before, after in itertools.pairwise(times))
    assert times[0] > 3 * times[-1]


def test_who_is_coupled_waits_for_others_and_who_is_not_does_not():
    variable = replace(SMALL, sizes="variable")
    free, bound = simulated(variable), simulated(replace(variable, coupled=True))
    assert free.meeting == 0 < bound.meeting
    assert bound.seconds >= free.seconds * 0.99


def test_a_commit_goes_to_host_memory_at_once_and_to_the_file_system_later():
    cluster = replace(Cluster(**COMMITS), checkpoint=GIB, history=4 * GIB, host=2 * GIB)
    cluster = replace(cluster, compute=10.0, disk="fs")
    found = simulated(cluster)
    # Two GPUs on a link of 55 GB/s.
    assert found.processes[0]["save_seconds"] == pytest.approx(4 * 2 * GIB / 55e9, rel=0.05)
    assert found.flush == pytest.approx(8 * GIB / 25e9, rel=0.05)
    assert found.restore is None and bound_of(cluster) is None
    slow = simulated(replace(cluster, nodes=1000, fs=50e9))
    assert slow.processes[0]["save_stall_seconds"] > 100


def test_what_is_read_is_what_was_written():
    found = cluster_of("nodes=64,gpus=4,link=25GB/s,compute=3ms,disk=fs,coupled=yes,device=0")
    assert (found.nodes, found.gpus, found.link, found.compute) == (64, 4, 25e9, 3e-3)
    assert found.coupled and (found.disk, found.device) == ("fs", 0)
    assert found.processes == 256
    assert cluster_of("") == Cluster()
    assert cluster_of("workload=commits,gpus=4") == replace(Cluster(**COMMITS), gpus=4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node=3", "a key of nodes"),
        ("nodes", "KEY=VALUE"),
        ("nodes=0", "nodes: "),
        ("compute=3", "10ms"),
        ("disk=tape", "nvme, fs, none"),
        ("gpus=2,links=4", "4 for 2 GPUs"),
        ("history=128MiB", "two checkpoints"),
        ("host=1MiB", "host tier"),
        ("checkpoint=4KiB", "are the most"),
    ],
)
def test_what_cannot_be_read_is_told(text, why):
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        cluster_of(text)


def test_a_node_with_fewer_gpus_has_a_link_for_each():
    assert (cluster_of("gpus=2").links, cluster_of("gpus=8").links) == (2, 4)


def test_what_does_not_fit_is_told():
    with pytest.raises(NoSimulation, match="room"):
        simulated(replace(SMALL, disk="none"))


def test_the_command_answers_what_if_with_a_table_and_a_file(tmp_path, capsys):
    file = tmp_path / "found.json"
    small = "history=4GiB,device=512MiB,host=3GiB"
    plan = plan_of("--simulate", f"nodes=64,{small}", "--simulate", f"disk=fs,{small}")
    assert plan.parts == ("scaling",)
    assert run_parts(plan.parts, plan, None, Report({}, file))
    (table,) = json.loads(file.read_text())["tables"]
    assert [row["GPUs"] for row in table["rows"]] == [512, 8]
    assert "In virtual time" in capsys.readouterr().out


def test_all_figures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDED", recorded.RECORDED[-1:])
    words = ("--only", "scaling", "--quick", "--scaling-plot", str(tmp_path / "scaling.png"))
    plan = plan_of(*words)
    plan = replace(plan, scaling=replace(plan.scaling, nodes=(1, 64), history=4 * GIB))
    report = Report({})
    figures.run(plan, report)
    assert [table.name for table in report.tables] == [
        "scaling-shots",
        "scaling-commits",
        "scaling-recorded",
    ]
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize("one", recorded.RECORDED, ids=lambda one: one.what)
def test_the_model_is_within_sixteen_percent_of_what_was_measured(one):
    # All are within 15 % but four GPUs that write to fresh memory, which are 15.02 % off.
    assert one.simulated() == pytest.approx(one.figure, rel=0.16)
