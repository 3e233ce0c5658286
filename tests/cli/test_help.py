"""The command line without a run: help, lists of the files that come with fedray, completion."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from rich.console import Console

import fedray
from fedray.cli import main, starting
from fedray.cli.arguments import command_line, parse
from fedray.config import shipped

(COMMANDS,) = (action.choices for action in command_line()._actions if isinstance(action.choices, dict))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fedray {fedray.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_every_command_has_an_example_that_parses(command: argparse.ArgumentParser) -> None:
    text = command.format_help()
    (example,) = re.findall(r"\nexample:\n  (.*)\n", text)
    (arguments,) = re.findall(r"fedray ([^)]*)", example)
    options = parse(shlex.split(arguments))
    assert options.command == command.prog.removeprefix("fedray ")
    for kind, given in (("configs", getattr(options, "config", None)), ("sweeps", getattr(options, "file", None))):
        assert given is None or shipped.find(kind, given)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_every_argument_is_explained(command: argparse.ArgumentParser) -> None:
    assert command.description and command.description[0].isupper() and command.description.endswith(".")
    for action in command._actions:
        assert action.help and not action.help.endswith(".") and not action.help[0].isupper() or action.dest == "config"


@pytest.mark.parametrize("kind", shipped.ENDINGS)
def test_the_list_has_one_line_a_file_by_paper(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, kind).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == list(shipped.files(kind))
    papers = [
        line.strip() for line in lines if line.strip() in {path.name for path in (shipped.folder("configs")).iterdir()}
    ]
    assert papers == sorted(papers) and "fednst" in papers


def test_the_list_is_filtered_by_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "configs", "LibriSpeech").splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["fednst", "fednst/librispeech"]
    assert main(["sweeps", "librispeech"]) == 2
    assert "no name or description contains 'librispeech'" in capsys.readouterr().err


def test_a_narrow_terminal_cuts_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    starting.show(Namespace(command="configs", filter="gao/"), Console(width=60))
    lines = capsys.readouterr().out.splitlines()
    names = [name for name in shipped.files("configs") if name.startswith("gao/")]
    assert [line.split()[0] for line in lines[1 : len(names) + 1]] == names
    assert max(map(len, lines[:-2])) == 60


def test_an_unknown_sweep_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "fednst_lamda"]) == 2
    assert "the nearest names are fednst_lambda, " in capsys.readouterr().err


def test_a_sweep_imports_what_lies_beside_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_it.py").write_text("answer = 42\n")
    (tmp_path / "mine.py").write_text("import sys\nimport beside_it\nsys.exit(beside_it.answer)\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit, match="42"):
        main(["sweep", str(tmp_path / "mine.py")])


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("fedray com", {"completion"}),
        ("fedray run fednst/emb", {"fednst/embedded"}),
        ("fedray doctor --estimate ditto/", {"ditto/embedded"}),
        ("fedray new project --from fednst/base", {name for name in shipped.files("configs") if "fednst/base" in name}),
        ("fedray sweep gao_w", {"gao_wrong"}),
        ("fedray run mi", {"mine.yaml"}),
        ("fedray run --dr", {"--dry-run"}),
    ],
)
def test_bash_completes(typed: str, completed: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").touch()
    words = typed.split()
    tried = (
        f"{said(capsys, 'completion', 'bash')}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_shtab_fedray; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    answer = subprocess.run(["bash", "-c", tried], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == completed


def test_zsh_can_read_its_completion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "completion", "zsh")
    assert text.startswith("#compdef fedray") and "_fedray_sweeps() { _alternative" in text
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(
    ("config", "override", "dropped"),
    [
        ("fedavg/keywords", "algorithm.kind=fedprox", "algorithm.client.lr, algorithm.client.batch"),
        ("fedavg/keywords", "cohort.size=4", None),
        ("privacy/keywords", "privacy.kind=none", None),  # it has none of the keys that are dropped
    ],
)
def test_a_dry_run_names_the_keys_that_another_kind_drops(
    config: str, override: str, dropped: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", config, override, "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == (dropped is not None)
    if dropped is not None:
        assert told.startswith(f"{override} replaces the section algorithm of ") and dropped in told
        assert told.endswith("; give them again to keep them\n")
