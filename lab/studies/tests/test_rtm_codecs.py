"""Codecs in `unspool-rtm`, what they do to the image, and the parts of `unspool-bench` about it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound
from unspool.codecs import NvComp, Zfp
from unspool_studies import cli

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies.bench import wavefields
from unspool_studies.bench.error_maps import draw_maps, enlarged
from unspool_studies.bench.models import GENERATED
from unspool_studies.bench.rtm_codecs_options import KINDS
from unspool_studies.rtm.codec import codec_of, is_lossy, name_of_codec
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.quality import image_quality

SMALL = ["--shape", "101x61", "--spacing", "15", "--shots", "2", "--steps", "360", "--every", "2"]
SMALL += ["--device-memory", "2MiB", "--host-memory", "16MiB", "--layer", "20"]


@pytest.fixture
def rtm(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Migrates a small job; returns its report."""

    def call(*options: str) -> dict[str, Any]:
        places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
        assert cli.rtm([*SMALL, *places, "--quiet", *options]) == 0
        found: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
        return found

    return call


@pytest.mark.parametrize(("text", "codec"), [
    ("none", None),
    ("lossless", "lossless"),
    ("auto", "auto"),
    ("range=1e-3", Bound(range=1e-3)),
    ("psnr=60", Bound(psnr=60)),
    ("pointwise=0.01,floor=1e-12", Bound(pointwise=0.01, floor=1e-12)),
    ("zfp:rate=4", Zfp(rate=4)),
    ("zfp:precision=20", Zfp(precision=20)),
    ("nvcomp:lz4", NvComp("lz4")),
    ("nvcomp:bitcomp,abs=1e-4", NvComp("bitcomp", abs=1e-4)),
])  # fmt: skip
def test_codecs_are_written_as_they_are_read(text: str, codec: Any) -> None:
    assert codec_of(text) == codec
    assert codec_of(name_of_codec(codec)) == codec


@pytest.mark.parametrize(("text", "said"), [
    ("zip", "there are none, lossless"),
    ("range", "there are none, lossless"),
    ("zfp rate=8", "'zfp rate' is not known; there are none, lossless"),
    ("rate=8", "zfp:rate=8"),
    ("zfp:bits=8", "'bits' is not known"),
    ("nvcomp:lz4,level=3", "'level' is not known"),
    ("nvcomp:lz4,name=3", "'name' is not known"),
    ("nvcomp:zip", "nvCOMP has no such codec"),
    ("range=", "'range=' has no finite number"),
    ("range=x", "'range=x' has no finite number"),
    ("range=1e-3=2", "no finite number"),
    ("pointwise=nan", "no finite number"),
    ("range=1e-3,range=1e-4", "range= comes twice"),
    ("range=-1", "above 0"),
    ("range=1e-3,abs=2", "together"),
    ("zfp:", "write one of Zfp("),
    ("zfp:rate=0", "above 0"),
])  # fmt: skip
def test_what_is_no_codec_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(said)) as refused:
        codec_of(text)
    assert "argument" not in str(refused.value) and repr(text) in str(refused.value)


def test_lossy_codecs_are_known() -> None:
    words = ["none", "lossless", "auto", "nvcomp:lz4"]
    assert not any(is_lossy(codec_of(word)) for word in words)
    words = ["abs=1", "zfp:rate=4", "nvcomp:bitcomp,abs=1"]
    assert all(is_lossy(codec_of(word)) for word in words)


def test_images_are_judged_by_their_relative_error() -> None:
    wanted = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=wanted.shape).astype(np.float32)
    words = []
    for part in (0.0, 5e-4, 5e-3, 3e-2, 0.1, 0.5):
        found = image_quality(wanted + np.float32(part) * noise, wanted)
        assert found.rel_l2 == pytest.approx(part, rel=0.2)
        words.append(found.verdict)
    assert words == ["same to the eye", "same to the eye", "good", "visible", "poor", "RUINED"]
    assert image_quality(wanted, wanted).cosine == pytest.approx(1.0)
    lost = wanted.copy()
    lost[3, 4] = np.nan
    assert image_quality(lost, wanted).verdict == "RUINED"
    assert json.dumps(image_quality(lost, wanted).as_dict())


def test_a_lossless_history_gives_the_same_image(rtm: Any) -> None:
    report = rtm("--codec", "lossless", "--check")
    assert report["check"]["identical"]
    assert report["codec"]["name"] == "lossless" and report["codec"]["ratio"] > 1.2
    assert report["codec"]["max_error"] == 0


def test_a_bound_is_reported_with_what_it_did_to_the_image(rtm: Any) -> None:
    errors = []
    for bound in ("range=1e-6", "range=1e-4", "range=0.1"):
        report = rtm("--codec", bound, "--check")
        assert report["check"]["codec"] == report["codec"]["name"] == bound
        errors.append(report["check"]["quality"]["rel_l2"])
    assert 0 < errors[0] < errors[1] < errors[2]
    assert report["check"]["quality"]["verdict"] == "RUINED"
    assert report["codec"]["stored_bytes"] < report["codec"]["raw_bytes"] / 20


def test_several_processes_add_up_what_their_codecs_did(rtm: Any) -> None:
    alone = rtm("--codec", "range=1e-4")
    crew = rtm("--codec", "range=1e-4", "--jobs", "2")
    for name in ("raw_bytes", "stored_bytes", "ratio", "max_error"):
        assert crew["codec"][name] == pytest.approx(alone["codec"][name])


def test_the_benchmark_shows_a_ruined_image_as_such(tmp_path: Path, capsys: Any) -> None:
    plot = tmp_path / "codecs.png"
    options = ["--image-shape", "101x61", "--image-shots", "1", "--image-plot", str(plot)]
    codecs = ["--image-codecs", "lossless range=1e-6 range=1e-1"]
    assert cli.bench(["--only", "rtm-codecs", *options, *codecs]) == 0
    rows = capsys.readouterr().out.splitlines()
    verdicts = [row for row in rows if row.startswith(("lossless", "range="))]
    assert "same to the eye" in verdicts[0] and "RUINED" in verdicts[2]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_benchmark_draws_images_and_their_errors(tmp_path: Path, capsys: Any) -> None:
    maps = tmp_path / "pictures" / "maps"
    options = ["--image-generated", "salt", "--image-shape", "101x61", "--image-shots", "1"]
    codecs = ["--image-codecs", "lossless range=1e-4 zfp:rate=4", "--image-maps", str(maps)]
    assert cli.bench(["--only", "rtm-codecs", *options, *codecs]) == 0
    assert f"written: 8 pictures in {maps}" in capsys.readouterr().out
    stems = ("all", "lossless", "range-1e-4", "zfp-rate-4")
    names = [f"{stem}{ending}" for stem in stems for ending in (".png", ".svg")]
    assert sorted(file.name for file in maps.iterdir()) == names
    assert all((maps / name).read_bytes().startswith(b"\x89PNG") for name in names[::2])
    assert all(b"<svg" in (maps / name).read_bytes() for name in names[1::2])


def test_a_difference_is_enlarged_by_the_power_of_ten_that_leaves_it_within_the_scale() -> None:
    wanted = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    assert enlarged(wanted, wanted) == 1
    for part, times in ((0.03, 10), (3e-4, 1000), (3.0, 1)):
        assert enlarged(wanted * np.float32(1.0 + part), wanted) == times
    spike = wanted.copy()
    spike[3, 4] += 1e-3
    assert enlarged(spike, wanted) >= 1000
    spike[3, 4] = np.nan
    assert enlarged(spike, wanted) == 1


def test_pictures_of_ruined_images_and_of_volumes_are_drawn(tmp_path: Path) -> None:
    model = generated_model(31, 21, 10.0, ny=25)
    plain = np.random.default_rng(0).normal(size=model.shape).astype(np.float32)
    lost = plain.copy()
    lost[3, 12, 5] = np.nan
    assert len(draw_maps(model, {"none": plain, "abs=1": lost, "dark": 0 * plain}, tmp_path)) == 6


def test_a_volume_without_a_gpu_is_refused(tmp_path: Path, capsys: Any) -> None:
    options = ["--image-shape", "41x31", "--image-extended", "16"]
    assert cli.bench(["--only", "rtm-codecs", *options]) == 1
    assert "add --image-gpu" in capsys.readouterr().out


def test_the_models_that_are_named_are_those_that_are_made() -> None:
    assert tuple(GENERATED) == KINDS


def test_the_benchmark_compares_approaches(tmp_path: Path, capsys: Any) -> None:
    plot, file = tmp_path / "runs.png", tmp_path / "runs.json"
    options = ["--accumulated-checkpoints", "20", "--accumulated-plot", str(plot)]
    assert cli.bench(["--only", "accumulated", *options, "--json", str(file)]) == 0
    assert "Twine batched GB/s" in capsys.readouterr().out
    tables = {table["name"]: table["rows"] for table in json.loads(file.read_text())["tables"]}
    assert [len(rows) for rows in tables.values()] == [5, 4, 5, 4, 4]
    for rows in tables.values():
        for row in rows:
            assert row["nvCOMP accumulated GB/s"] >= row["nvCOMP single GB/s"]
            assert row["Twine batched GB/s"] >= row["Twine single GB/s"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_fields_for_measurements_are_silent_ahead_of_their_front_and_full_at_last() -> None:
    fields = [wavefields.field(np, (768, 1536), number) for number in range(wavefields.COUNT)]
    busy = [float((one != 0).mean()) for one in fields]
    assert busy == sorted(busy) and busy[0] < 0.35 and busy[-1] > 0.9
    assert all(one.dtype == np.float32 and np.isfinite(one).all() for one in fields)
    ratios = []
    for one in (fields[0], fields[-1]):
        with unspool.Spool(host_memory="16MiB", codec="lossless", device="cpu") as spool:
            spool.save(0, one)
            ratios.append(spool.achieved(0)["0"].ratio)
    assert ratios[0] > 2.5 and 1.0 < ratios[1] < 2.5
