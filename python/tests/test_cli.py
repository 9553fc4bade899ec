"""The command `unspool`: its version, and the commands that another package brings."""

import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from unspool import cli


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("unspool ")


def test_the_help_lists_the_commands_of_both_packages(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = capsys.readouterr().out
    for name in ("plan", "advise", "accumulate", "doctor", "rtm", "bench", "codecs", "timeline"):
        assert name in told.split()


@pytest.mark.parametrize("name", ["rtm", "bench", "codecs", "timeline"])
def test_a_command_that_is_not_installed_says_how_to_get_it(name, monkeypatch, capsys):
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    assert cli.main([name, "--whatever"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"`unspool {name}`" in told
    assert "pip install unspool-studies" in told


def test_a_command_that_is_installed_is_given_the_words_after_its_name(monkeypatch):
    given, asked = [], []

    def command(words):
        given.append(words)
        return 3

    def entry_points(**which):
        asked.append(which)
        return [SimpleNamespace(load=lambda: command)]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert cli.main(["rtm", "--out", "x", "plan"]) == 3
    assert given == [["--out", "x", "plan"]]
    assert asked == [{"group": "unspool.commands", "name": "rtm"}]


PROGRAMS = [("messages", "report"), ("messages", "--help"), ("paging", "run")]


@pytest.mark.parametrize("words", PROGRAMS)
def test_a_program_that_is_not_installed_says_how_to_get_it(words, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert cli.main([*words, "--whatever"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"`unspool {' '.join(words)}`" in told
    assert f"pip install unspool-{words[0]}" in told


@pytest.mark.parametrize("words", PROGRAMS)
def test_a_program_that_is_installed_is_given_the_words_and_ends_as_it_ends(words, tmp_path):
    program = tmp_path / f"unspool-{words[0]}"
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    program.chmod(0o755)
    run = "import sys, sysconfig; place = sys.argv.pop(1); sysconfig.get_path = lambda _: place; "
    run += "from unspool import cli; sys.exit(cli.main())"
    command = [sys.executable, "-c", run, str(tmp_path), *words, "--", "a b"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, f"{' '.join(words[1:])} -- a b\n")
