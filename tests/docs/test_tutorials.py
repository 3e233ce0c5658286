"""The tutorials run from top to bottom, as a reader would type them in a clone.

A fenced block with a title is a file, `python` is executed, and each line of `sh` is a command. Other blocks are shown
only.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fedray import cli

ROOT = Path(__file__).parent.parent.parent
# These take half a minute or more.
NIGHTLY = (
    *("sweep", "on-a-cluster", "weighting-rule", "from-a-result", "device-time", "privacy", "your-recogniser"),
    "pre-trained-encoder",
)
LONG = ("your-data",)
# Around `fedray.open`, without Ray.
IN_ONE_PROCESS = ("a-personal-head", "debug-a-client", "distillation", "write-an-algorithm")
MARKS = dict.fromkeys(LONG, [pytest.mark.long]) | dict.fromkeys(NIGHTLY, [pytest.mark.nightly])
FILES = [*sorted((ROOT / "docs" / "tutorials").glob("*.md")), ROOT / "docs" / "write-an-algorithm.md"]
PAGES = [
    pytest.param(page, id=page.stem, marks=MARKS.get(page.stem, []))
    for page in FILES
    if page.stem not in IN_ONE_PROCESS
]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_runs(cluster: None, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", [page for page in FILES if page.stem in IN_ONE_PROCESS], ids=lambda page: page.stem)
def test_a_tutorial_runs_in_one_process(
    workbench: None, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(page, tmp_path, monkeypatch)


def follow(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what a page says, in a folder of its own."""
    for name in ("configs", "docs", "cluster.yaml", "cluster-local.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = ModuleType(page.stem.replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for language, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, page.name, "exec"), module.__dict__)
        elif language == "sh":
            for command in text.splitlines():
                assert play(command, monkeypatch) == 0, command


def play(command: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a command line in this process and return its exit status."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "fedray":
        return cli.main(arguments)
    assert program == "python", f"a tutorial can run fedray and python, not {program}"
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(arguments[0], run_name="__main__")
    return ended.value.code
