"""What paging would bring: the tables of the dissertation, files, and running processes."""

import os
import subprocess
import sys

import numpy as np
import pytest
from unspool import cli
from unspool.advice.paging import memory_saved, miss_seconds, try_codecs

# Ibtesham (2017), Table 3.1: working sets in bytes, at 8x, 4x, 2x and 1x.
WORKING_SETS = {
    "HPCCG": (5414912, 4612096, 4272128, 4202496),
    "miniFE": (5308416, 4517888, 4423680, 4239360),
    "LAMMPS": (8552448, 6193152, 4811776, 4264960),
}
# Tables 3.4, 3.5 and 3.6: percent saved with 4096, 2048 and 1024 KiB of DRAM, at the same sizes.
SAVED = {
    "HPCCG": (20.29, 8.15, 1.64, 0.18, 55.14, 49.08, 45.82, 45.09, 72.57, 69.54, 67.91, 67.54),
    "miniFE": (18.89, 6.45, 4.67, 0.96, 54.44, 48.22, 47.33, 45.48, 72.22, 69.11, 68.67, 67.74),
    "LAMMPS": (45.86, 29.05, 11.55, 1.49, 67.93, 59.52, 50.77, 45.75, 78.97, 74.76, 70.39, 67.87),
}


@pytest.mark.parametrize("program", WORKING_SETS)
def test_the_tables_of_the_dissertation_come_out(program):
    cells = [
        100 * memory_saved(0.9, working_set, dram << 10)
        for dram in (4096, 2048, 1024)
        for working_set in WORKING_SETS[program]
    ]
    assert cells == pytest.approx(SAVED[program], abs=0.01)


def test_what_fits_saves_nothing_and_a_miss_costs_the_codec_and_what_is_left():
    assert memory_saved(0.9, 100, 200) == memory_saved(0.9, 0, 0) == 0
    assert miss_seconds(0.75, 4096, 1e9, 1e10) == pytest.approx(4096e-9 + 1024e-10)


def test_the_kind_of_the_items_is_found_out():
    wave = np.sin(np.linspace(0, 50, 1 << 17)).astype(np.float32).tobytes()
    pieces = [wave[first : first + (128 << 10)] for first in range(0, len(wave), 128 << 10)]
    best = max(try_codecs(pieces), key=lambda one: one.ratio)
    assert best.name in ("float32", "int32") and 0.1 < best.saved < 0.9
    noise = np.random.default_rng(1).bytes(128 << 10)
    assert max(one.saved for one in try_codecs([noise])) < 0.01


def test_a_file_and_a_process_are_looked_at(tmp_path, capsys):
    path = tmp_path / "wave"
    np.sin(np.linspace(0, 50, 1 << 18)).tofile(path)
    assert cli.main(["paging", str(path), "--samples", "4"]) == 0
    text = capsys.readouterr().out
    assert "2.0 MiB, 4 pieces" in text and "float64" in text and "25%" in text
    child = [sys.executable, "-c", "b = b'wave' * (1 << 22); print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(child, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"\n"
        try:
            assert cli.main(["paging", str(process.pid), "--samples", "8"]) == 0
        finally:
            process.kill()
    assert "8 pieces" in capsys.readouterr().out


def test_memory_of_a_process_that_is_not_resident_does_not_count(capsys):
    program = """import mmap
reserved = mmap.mmap(-1, 1 << 31, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
reserved[: 24 << 20] = bytes(range(256)) * (24 << 12)
print(flush=True)
input()
"""
    pipe = subprocess.PIPE
    child = [sys.executable, "-c", program]
    with subprocess.Popen(child, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"\n"
        try:
            assert cli.main(["paging", str(process.pid), "--samples", "40"]) == 0
        finally:
            process.kill()
    text = capsys.readouterr().out
    assert 24 <= float(text.split(" MiB")[0]) < 200 and "40 pieces" in text


@pytest.mark.parametrize(
    "words",
    [
        ["/no/such/file"],
        [os.devnull],
        [__file__, "--samples", "0"],
        [__file__, "--disk", "fast"],
        [__file__, "--disk", "0GB"],
    ],
)
def test_what_cannot_be_looked_at_is_said(words, capsys):
    assert cli.main(["paging", *words]) in (1, 2)
    assert capsys.readouterr().err.startswith("unspool: ")
