"""The doctor answers on every machine: without CUDA, and with drivers broken in every way."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import unspool
from unspool._doctor import Diagnosis, libraries
from unspool._doctor.command import look
from unspool.cli import main

from helpers import children, python

#: Names another library to load as the driver.
DRIVER = "UNSPOOL_CUDA_DRIVER"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a library of C code stand for the CUDA driver."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a broken driver with")

    def build(code: str) -> None:
        source, library = tmp_path / "driver.c", tmp_path / "driver.so"
        source.write_text(code)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        monkeypatch.setenv(DRIVER, str(library))

    return build


@pytest.fixture
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No CUDA driver, on any machine."""
    monkeypatch.setenv(DRIVER, str(tmp_path / "nothing.so"))


def examined(disk: Path | None = None, *, measure: bool = False) -> Diagnosis:
    """What the command finds, in a process of its own: a driver is loaded once and stays."""
    return look(None if disk is None else str(disk), measure, 60)


def levels(found: Diagnosis, about: str) -> list[str]:
    return [finding.level for finding in found.findings if finding.about == about]


def cuda_problem(output: str) -> str:
    """What a report in JSON says is wrong with CUDA."""
    findings = json.loads(output)["findings"]
    return next(finding["what"] for finding in findings if finding["about"] == "CUDA")


def test_without_cuda_the_doctor_says_so_and_what_to_do(no_driver: None) -> None:
    found = examined()
    assert found.cuda.version is None and found.devices == () and not found.has("cuda")
    assert "nothing.so" in (found.cuda.problem or "")
    assert levels(found, "CUDA") == ["missing"]
    finding = found.findings[0]
    assert finding.meaning and 'device="cpu"' in finding.remedy
    assert found.automatic_device is None and found.automatic_host.startswith('host_memory="auto"')


def test_a_diagnosis_has_figures_text_and_json(no_driver: None, tmp_path: Path) -> None:
    found = examined(tmp_path, measure=True)
    assert found.version == unspool.__version__ and found.usable
    assert found.host.total and found.host.free and found.host.cores >= 1
    assert found.disk is not None and found.disk.directory == str(tmp_path.resolve())
    assert found.disk.write > 0 and found.disk.read > 0
    assert children(tmp_path) == []
    text = str(found)
    for part in ("driver", "memory", "RLIMIT_MEMLOCK", "disk", "O_DIRECT", "MISSING (CUDA)"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100 + len(str(tmp_path))
    copied = json.loads(json.dumps(found.to_dict()))
    assert copied["disk"]["direct"] is found.disk.direct
    assert copied["libraries"]["numpy"] == found.libraries["numpy"]


def test_in_a_program_the_doctor_is_a_function(no_driver: None) -> None:
    done = python("import unspool; print(unspool.doctor(measure=False))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Unspool ") and "nothing.so" in done.stdout


def test_what_is_not_asked_for_is_not_looked_for() -> None:
    found = unspool.doctor(cuda=False, measure=False)
    assert not found.cuda.looked_for and found.cuda.problem is None
    assert levels(found, "CUDA") == [] and found.disk is None
    assert not found.has("direct-io") and not found.has("io-uring")


def test_a_directory_that_is_not_there_is_not_usable_and_not_made(tmp_path: Path) -> None:
    found = unspool.doctor(tmp_path / "missing", cuda=False)
    assert not found.usable and levels(found, "disk") == ["missing"]
    assert children(tmp_path) == []


def test_spools_that_dead_processes_left_are_told_and_left_alone(tmp_path: Path) -> None:
    dead = tmp_path / "unspool-4000000-0123456789abcdef"
    dead.mkdir()
    (dead / "lock").write_text("process 4000000\n")
    found = unspool.doctor(tmp_path, cuda=False, measure=False)
    assert found.disk is not None and [spool.pid for spool in found.disk.spools] == [4_000_000]
    # What else is said depends on the disk: how full it is, and what it is.
    (told,) = [finding for finding in found.findings if "Processes that died" in finding.what]
    assert (told.about, told.level) == ("disk", "note") and dead.is_dir()
    with unspool.Spool(disk=tmp_path):
        assert not dead.exists(), "as the finding says"


def test_the_command_prints_a_report(no_driver: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-measure"]) == 0
    output = capfd.readouterr()
    assert output.out.startswith(f"Unspool {unspool.__version__}\n") and output.err == ""
    assert "MISSING (CUDA)" in output.out


def test_the_command_prints_json(
    no_driver: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--no-measure", "--json", "--disk", str(tmp_path)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["usable"] and found["disk"]["directory"] == str(tmp_path.resolve())


def test_what_is_required_and_missing_is_the_exit_code(
    no_driver: None, capfd: pytest.CaptureFixture[str]
) -> None:
    required = ["--require", "numpy", "--require", "cuda", "--require", "direct-io"]
    assert main(["doctor", "--no-measure", *required]) == 1
    assert capfd.readouterr().err == ("unspool doctor: required and not there: cuda, direct-io\n")
    assert main(["doctor", "--no-measure", "--require", "numpy"]) == 0


def test_a_directory_that_cannot_be_used_is_the_exit_code(tmp_path: Path) -> None:
    assert main(["doctor", "--no-measure", "--disk", str(tmp_path / "missing")]) == 1


def test_a_driver_that_ends_the_process_is_reported(
    driver: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    driver("#include <stdlib.h>\n__attribute__((constructor)) static void load(void) { abort(); }")
    assert main(["doctor", "--no-measure", "--json", "--require", "cuda"]) == 1
    assert "was ended by SIGABRT" in cuda_problem(capfd.readouterr().out)


def test_a_driver_that_never_answers_is_reported_in_time(
    driver: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    driver(
        "#include <unistd.h>\n"
        "__attribute__((constructor)) static void load(void) { for (;;) pause(); }"
    )
    assert main(["doctor", "--no-measure", "--json", "--timeout", "4"]) == 0
    problem = cuda_problem(capfd.readouterr().out)
    assert "no answer within 4 s while loading the CUDA driver" in problem


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("int nothing(void) { return 0; }", "too old"),
        (
            "#include <stdio.h>\n__attribute__((constructor)) static void load(void) "
            '{ puts("a driver talks"); fflush(stdout); }',
            "too old",
        ),
    ],
)
def test_a_library_that_is_no_driver_is_reported(
    driver: Callable[[str], None], capfd: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    driver(code)
    assert main(["doctor", "--no-measure", "--json"]) == 0
    assert said in cuda_problem(capfd.readouterr().out)


def test_a_file_that_is_no_library_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.so").write_bytes(bytes(4096))
    monkeypatch.setenv(DRIVER, str(tmp_path / "driver.so"))
    assert "driver.so" in (examined().cuda.problem or "")


def test_a_process_that_cannot_even_look_without_cuda_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unspool._doctor.command.PROGRAM", "raise SystemExit('no luck')")
    assert main(["doctor"]) == 1
    output = capfd.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert "could not be examined" in output.err and "no luck" in output.err


def test_what_lies_in_the_working_directory_is_not_imported(
    no_driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--no-measure"]) == 0


def packages(**versions: str) -> Callable[[str], str | None]:
    """Versions of packages, their names with underscores."""
    return lambda package: versions.get(package.replace("-", "_"))


def test_libraries_are_found_by_their_packages() -> None:
    found = libraries.installed(packages(torch="2.9.0+cpu", cupy_cuda13x="14.0.1"))
    assert found == {"torch": "2.9.0+cpu", "cupy": "14.0.1 (cupy-cuda13x)"}
    assert libraries.installed(packages()) == {}
    assert "numpy" in libraries.installed()


def test_libraries_without_cuda_are_noted_where_there_is_a_gpu() -> None:
    installed = packages(torch="2.9.0+cpu", jax="0.8.0")
    found = libraries.findings((13, 0), installed)
    assert [(finding.level, finding.about) for finding in found] == [
        ("note", "PyTorch"),
        ("note", "JAX"),
    ]
    assert "jax[cuda13]" in found[1].remedy
    assert libraries.findings(None, installed) == []


def test_an_nvcomp_that_cannot_be_used_is_told() -> None:
    def told(driver: int, **versions: str) -> list[tuple[str, str]]:
        found = libraries.findings((driver, 0), packages(**versions))
        return [(finding.level, finding.remedy) for finding in found]

    assert told(13, nvidia_libnvcomp_cu13="6.0.0.12") == []
    assert told(12, nvidia_libnvcomp_cu12="5.3.0.16") == []
    assert "unspool[nvcomp]" in told(13, nvidia_libnvcomp_cu13="7.0.0.1")[0][1]
    both = {"nvidia_libnvcomp_cu12": "6.0.0.12", "nvidia_libnvcomp_cu13": "6.0.0.12"}
    assert "Uninstall both" in told(12, **both)[0][1]
    level, remedy = told(12, nvidia_libnvcomp_cu13="6.0.0.12")[0]
    assert level == "missing" and "nvidia-libnvcomp-cu12" in remedy
    found = libraries.installed(packages(nvidia_libnvcomp_cu13="6.0.0.12"))
    assert found == {"nvcomp": "6.0.0.12 (nvidia-libnvcomp-cu13)"}


def test_libraries_for_a_newer_cuda_than_the_drivers_are_missing() -> None:
    installed = packages(cupy_cuda13x="14.0", jax="0.8.0", jax_cuda13_plugin="0.8.0")
    found = libraries.findings((12, 0), installed)
    assert [finding.level for finding in found] == ["missing", "missing"]
    assert any("cupy-cuda12x" in finding.remedy for finding in found)
    assert libraries.findings((13, 0), installed) == []
