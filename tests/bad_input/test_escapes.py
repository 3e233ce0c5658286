"""Text from data cannot act as a terminal escape, a spreadsheet formula, HTML or markup of rich."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from fedray import cli, report
from fedray.cli.outcome import show_results
from fedray.core.texts import json_text, printable
from fedray.experiment.result import Result
from fedray.runs.folder import RunFolder
from tests.bad_input import corpus
from tests.bad_input.case import answer
from tests.report import folders

NAMES = (
    "=1+1",
    "x[/y]",
    "[bold]x",
    "a\x1b[31mb",
    "<script>alert(1)</script>",
    "$x_{",
    "a|b\nc",
    "-1",
    "@x",
    "\u202eabc",
)
SPEAKERS = ('"><img src=x onerror=alert(1)>', "[/red]", "=2", "'; x")


@pytest.mark.parametrize("names", [NAMES[:5], pytest.param(NAMES[5:], marks=pytest.mark.long)], ids=["first", "last"])
def test_names_in_reports_and_terminals(tmp_path: Path, names: tuple[str, str]) -> None:
    """Names reach reports and terminals as text. A report takes a second to draw, so five names share one."""
    rows = folders.sentences(0, speakers=SPEAKERS)
    for seed, name in enumerate(names):
        settings = folders.config(seed=seed, name=name, data__options__note="<b>&")
        folders.write(tmp_path / f"run{seed}", settings, best=rows, seed_model=folders.sentences(1, SPEAKERS))
    found = report.read(sorted(tmp_path.glob("run*")), group_by=["name", "seed"])
    table = folders.printed(found)
    assert "\x1b" not in table and "\u202e" not in table
    assert all(name in table for name in names if name in ("x[/y]", "[bold]x"))
    found.save(tmp_path / "page")
    page = (tmp_path / "page" / "report.html").read_text()
    assert "<script>alert" not in page and "<img src=x" not in page
    for line in csv.DictReader(io.StringIO((tmp_path / "page" / "report.csv").read_text())):
        assert not any(str(value).startswith(("=", "@", "+")) for value in line.values())
        assert not str(line["name"]).startswith("-")
    markdown = (tmp_path / "page" / "report.md").read_text()
    assert "<script>" not in markdown.split("\n\n", 3)[-1]
    console = Console(file=io.StringIO(), width=120)
    for name in names:
        show_results(
            RunFolder("runs/x"), {**RunFolder(tmp_path / "run0").read_json("results.json"), "name": name}, console
        )
    assert "\x1b" not in console.file.getvalue()


def test_ids_and_texts_in_the_tables_of_the_data(tmp_path: Path) -> None:
    corpus.write(tmp_path)
    head, *rows = corpus.CLIENTS.splitlines()
    rows = [row.replace("ann", "a\x1b]0;title\x07[/red]").replace("one", "o\x1b[2J[b]") for row in rows]
    (tmp_path / "clients.tsv").write_text("\n".join([head, *rows, rows[0]]) + "\n")
    found = answer(tmp_path, "data config.yaml", {})
    assert not found.error and "\x1b" not in found.text and "\x07" not in found.text
    (tmp_path / "clients.tsv").write_text("\n".join([head, *rows]) + "\n")
    found = answer(tmp_path, "data config.yaml", {})
    assert not found.error and found.status in (0, 1) and "\x1b" not in found.text


def test_a_message_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(tmp_path / "a\x1b[31mb")]) == 2
    assert r"a\x1b[31mb" in capsys.readouterr().err
    assert printable("a\tb\nc\x00\x9b\ud800é") == "a\tb\nc\\x00\\x9b\\ud800é"


def test_json_has_null_for_what_it_cannot_hold(tmp_path: Path) -> None:
    text = json_text({"a": math.nan, "b": [math.inf, 1.5, None], "c": {"d": -math.inf}, "e": "NaN"})
    assert json.loads(text) == {"a": None, "b": [None, 1.5, None], "c": {"d": None}, "e": "NaN"}
    settings = folders.config()
    run = folders.write(tmp_path / "run", settings)
    results = json.loads((run / "results.json").read_text())
    results["best"]["test/wer"] = math.nan
    RunFolder(run).write_json("results.json", results)
    assert "NaN" not in (run / "results.json").read_text()
    console = Console(file=io.StringIO(), width=120)
    show_results(RunFolder("x"), RunFolder(run).read_json("results.json"), console)
    assert "nan" in console.file.getvalue() and "nan" in Result.read(run)._repr_html_()
    assert report.read(run).runs[0].value("test/wer") is None
