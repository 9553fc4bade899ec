"""`unspool-codecs`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from unspool_studies.cli import codecs as main

from codec_arrays import wave

pytest.importorskip("rich")


@pytest.fixture
def field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    values = wave((4, 60, 70), "float32")
    np.save("wave.npy", values)
    return values


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 2
    return capsys.readouterr().err


def test_every_codec_is_tried_and_nothing_is_violated(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    (array,) = figures(capsys, "wave.npy", "--bound", "range=1e-3,abs=1e-4", "--zfp", "rate=8")[
        "arrays"
    ]
    assert (array["dtype"], array["shape"]) == ("float32", [4, 60, 70])
    assert array["range"] == float(np.ptp(field)) and array["refused"] == []
    names = [codec["codec"] for codec in array["codecs"]]
    assert names[:5] == ["twine", "twine + zstd", "lz4", "zstd", "archive"]
    assert names[5:] == [
        "twine range=0.001",
        "twine range=0.001 + zstd",
        "zfp range=0.001",
        "twine abs=0.0001",
        "twine abs=0.0001 + zstd",
        "zfp abs=0.0001",
        "zfp rate=8",
    ]
    for codec in array["codecs"]:
        assert codec["ratio"] > 0.9 and codec["encode_bytes_per_second"] > 0
        assert codec["raw_bytes"] == field.nbytes and codec["on"] == "cpu"
        assert codec["quality"]["violations"] in (0, None)
    tight, loose = array["codecs"][8], array["codecs"][5]
    assert tight["ratio"] < loose["ratio"]
    assert tight["quality"]["psnr"] > loose["quality"]["psnr"] > 60


def test_a_floor_is_part_of_the_name_of_a_bound(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--bound", "pointwise=1e-3,floor=1e-9,pointwise=1e-3", "--only", "twine"]
    names = [one["codec"] for one in figures(capsys, "wave.npy", *options)["arrays"][0]["codecs"]]
    assert [name for name in names if "+" not in name] == [
        "twine",
        "twine pointwise=0.001,floor=1e-09",
        "twine pointwise=0.001",
    ]


def test_a_table_is_printed(field: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wave.npy", "--only", "twine"]) == 0
    shown = capsys.readouterr().out
    assert "wave.npy: float32, 4 x 60 x 70" in shown and "violations" in shown
    assert "twine range=0.001 + zstd" in shown and "zfp" not in shown


def test_integers_are_only_tried_without_loss(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("count.npy", np.arange(1000, dtype=np.int16))
    assert main(["count.npy"]) == 0
    shown = capsys.readouterr().out
    assert "only encoded without loss" in shown and "range=" not in shown


def test_raw_files_need_a_dtype_and_a_shape_that_fits(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    field.tofile("wave.f32")
    field.astype(">f4").tofile("wave.bin")
    names = ["--only", "twine", "--bound", "abs=1e-3"]
    (array,) = figures(capsys, "wave.f32", "--shape", "4x60x70", *names)["arrays"]
    assert array["shape"] == [4, 60, 70]
    (big,) = figures(capsys, "wave.bin", "--shape", "4,60,70", "--dtype", ">f4", *names)["arrays"]
    assert [one["stored_bytes"] for one in big["codecs"]] == [
        one["stored_bytes"] for one in array["codecs"]
    ]
    assert "--dtype float32" in refusal(capsys, "wave.bin")
    assert "check --shape" in refusal(capsys, "wave.f32", "--shape", "4x60")
    assert "no such dtype" in refusal(capsys, "wave.bin", "--dtype", "flot")
    assert "slowest first" in refusal(capsys, "wave.f32", "--shape", "4by60")


def test_parts_of_archives_and_hdf5_files_are_read(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("both.npz", u=field, v=field[0])
    files = ["both.npz:v"]
    try:
        import h5py
    except ModuleNotFoundError:
        pass
    else:
        with h5py.File("both.h5", "w") as file:
            file["group/u"], file["v"] = field, field[0]
        files.append("both.h5:group/u")
        assert "group/u, v" in refusal(capsys, "both.h5")
    arrays = figures(capsys, *files, "--only", "lz4")["arrays"]
    assert [array["shape"] for array in arrays] == [[60, 70], [4, 60, 70]][: len(files)]
    assert "name one" in refusal(capsys, "both.npz")
    assert "holds no array w" in refusal(capsys, "both.npz:w")


def test_of_a_large_array_the_middle_is_taken_and_that_is_said(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    (array,) = figures(capsys, "wave.npy", "--most", "40KiB", "--only", "twine")["arrays"]
    assert array["shape"] == [2, 60, 70] and "1 to 3 of 4 along axis 0" in array["notes"][0]
    (array,) = figures(capsys, "wave.npy", "--most", "8KiB", "--only", "twine")["arrays"]
    assert array["shape"] == [29, 70]


def test_a_picture_shows_what_is_lost(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    options = ["--only", "twine", "--bound", "range=1e-2", "-o", "seen.png"]
    assert main(["wave.npy", *options]) == 0
    assert Path("seen.png").read_bytes().startswith(b"\x89PNG")
    np.save("row.npy", field.reshape(-1))
    assert main(["row.npy", *options]) == 0
    assert "one FILE" in refusal(capsys, "wave.npy", "row.npy", "-o", "seen.png")
    assert "no such directory" in refusal(capsys, "wave.npy", "-o", "nowhere/seen.png")
    assert ".png" in refusal(capsys, "wave.npy", "-o", "seen.pdf")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.npy"], "there is no file"),
        (["."], "is a directory"),
        (["text.npy"], "no .npy file that holds numbers"),
        (["words.npy"], "no numbers"),
        (["wave.npy", "--bound", "rnge=1e-3"], "abs, range, rms"),
        (["wave.npy", "--bound", "range"], "range=1e-3"),
        (["wave.npy", "--bound", "abs=0"], "above 0"),
        (["wave.npy", "--zfp", "bits=3"], "rate, precision"),
        (["wave.npy", "--only", "gzip"], "twine, zfp"),
        (["wave.npy", "--most", "many"], "--most many"),
        (["wave.npy", "--shape", "3x3"], "leave --shape out"),
        (["wave.npy:u"], "only HDF5 and .npz"),
    ],
)
def test_mistakes_are_told_in_one_line(
    field: np.ndarray, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    Path("text.npy").write_text("no array")
    np.save("words.npy", np.array(["a", "b"]))
    shown = refusal(capsys, *arguments)
    assert said in shown and shown.count("\n") == 1 and shown.startswith("unspool-codecs: ")


def test_zfp_says_which_values_it_cannot_take(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    field[0, 0, 0] = np.nan
    np.save("wave.npy", field)
    (array,) = figures(capsys, "wave.npy", "--bound", "abs=1e-3")["arrays"]
    assert {one["codec"].split()[0] for one in array["refused"]} == {"zfp"}
    twine = [one for one in array["codecs"] if one["codec"].startswith("twine")]
    assert len(twine) == 4 and all(one["quality"]["violations"] == 0 for one in twine)


def test_names_of_files_are_printed_as_they_are(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("[red]m.npz", a=field)
    assert main(["[red]m.npz:a", "--only", "lz4"]) == 0
    assert "[red]m.npz:a: float32" in capsys.readouterr().out


def test_numbers_near_the_largest_are_tried_as_well(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("large.npy", field.astype("f8") / float(np.abs(field).max()) * 1e300)
    (array,) = figures(capsys, "large.npy", "--bound", "range=1e-3,l2=1e-3", "--only", "twine,zfp")[
        "arrays"
    ]
    names = [codec["codec"] for codec in array["codecs"]]
    assert "zfp range=0.001" in names and "zfp l2=0.001" not in names
    assert "twine l2=0.001" in names


def test_the_entropy_of_the_values_stands_beside_what_codecs_reach(
    field: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    (array,) = figures(capsys, "wave.npy", "--entropy", "--only", "twine")["arrays"]
    assert array["entropy"]["values"] == field.size and len(array["entropy"]["planes"]) == 32
    assert main(["wave.npy", "--entropy", "--only", "twine"]) == 0
    told = capsys.readouterr().out
    assert "bits a value" in told and "twine" in told.partition("entropy:")[2]
    (plain,) = figures(capsys, "wave.npy", "--only", "twine")["arrays"]
    assert plain["entropy"] is None
