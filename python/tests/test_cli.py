"""The command `unspool`: its version, and the commands that another package brings."""

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
