"""The page, the table and the CSV file are self-contained, escaped and complete."""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedray import report
from fedray.report import tables
from fedray.report.words import kept
from tests.report.folders import classes, config, printed, score, sentences, study, write

NASTY = '<script>alert("ä&")</script>'


def test_a_table_that_is_too_wide_says_what_it_leaves_out(tmp_path: Path) -> None:
    found = report.read(study(tmp_path))
    assert "dev WER" in printed(found) and "No room here" not in printed(found)
    narrow = printed(found, 60)
    assert "time, traffic (GB), failed clients, dev WER (%): see report.html." in " ".join(narrow.split())
    assert max(map(len, narrow.splitlines())) <= 60


def test_the_metric_of_a_sweep_is_a_column(tmp_path: Path) -> None:
    run = write(tmp_path / "t1" / "run", config())
    results = json.loads((run / "results.json").read_text())
    results["best"] |= {"dev/cer": 12.3, "dev/mine": 4.56}
    (run / "results.json").write_text(json.dumps(results))
    assert "mine" not in printed(report.read(tmp_path))
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "metric": "dev/mine", "mode": "max"}))
    said = printed(report.read(tmp_path))
    assert "mine" in said and "4.56" in said


class Page(HTMLParser):
    """Counts the scripts and collects all attributes that name a place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.places += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "action", "data")
        ]


def test_the_page_needs_nothing_else_and_all_text_is_escaped(tmp_path: Path) -> None:
    speakers = (NASTY, "Zoë", "bob", "cid")
    before, after = sentences(1, speakers, wrong=0.9), sentences(2, speakers, wrong=0.5)
    for rows in (before, after):
        for row in rows:
            row["reference"], row["hypothesis"] = (
                f"{NASTY.split()[0]} {row['reference']}",
                f"größer <b> {row['hypothesis']}",
            )
    folder = write(tmp_path / "run", config(name=NASTY, algorithm__note="a $b_ \\frac c$"), before, after)
    with (folder / "failures.jsonl").open("w") as file:
        file.write(json.dumps({"round": 1, "client": NASTY, "reason": NASTY, "traceback": ""}) + "\n")
    text = Path(report.write(folder)).read_text()
    page = Page(text)
    assert not page.scripts and "größer" in text and "Zoë" in text and "&lt;script&gt;" in text and "<b>" not in text
    assert (
        all(place.startswith(("#", "data:")) for place in page.places) and "http" not in text and "@import" not in text
    )
    assert NASTY not in text and "1 failed clients" in text


def test_no_change_is_praised_above_100_percent_or_from_random_weights(tmp_path: Path) -> None:
    half = sentences(2, wrong=0.5)
    loud = [row | {"errors": 2 * row["words"]} for row in half]
    louder = [row | {"errors": 3 * row["words"]} for row in half]
    random = config(name="random", algorithm__pretrain={"steps": 0})
    for folder, settings, before, after in (
        ("a", config(name="never"), louder, loud),
        ("b", config(name="late"), loud, half),
        ("c", random, sentences(1, wrong=0.9), half),
        ("d", config(name="usual"), sentences(1, wrong=0.9), half),
    ):
        write(tmp_path / folder, settings, before, after)
    never, late, start, usual = tables.sentences(report.read(tmp_path))
    assert never == "never takes the test WER from 300.0 to 200.0 %: still at least as many errors as there are words."
    assert late.endswith(
        f"from 200.0 to {score(half):.1f} %: the seed model made at least as many errors as there are words."
    )
    assert start == f"random reaches a test WER of {score(half):.1f} % from random weights."
    assert usual.startswith("usual lowers the test WER from ")


@pytest.mark.usefixtures("unrendered")
def test_the_main_table_leaves_other_scores_to_a_second_one(tmp_path: Path) -> None:
    write(tmp_path / "run")
    text = Path(report.write(tmp_path / "run")).read_text()
    first, second = re.findall(r'<table class="groups">.*?</table>', text, re.DOTALL)
    assert "test WER (%)" in first and "dev WER (%)" not in first and "dev WER (%)" in second
    assert "<th></th>" not in text and re.search(r"<td>\d+\.\d\xa0→\xa0\d+\.\d</td>", first)


def test_lines_of_a_table_break_between_numbers_only() -> None:
    space = "\N{NO-BREAK SPACE}"
    assert kept("61.2 → 25.9 ± 7.5") == f"61.2{space}→{space}25.9 ±{space}7.5"
    assert kept("−51.9 % [−57.1, −45.0]") == f"−51.9{space}% [−57.1,{space}−45.0]"
    assert kept("25, still improving") == "25, still improving" and kept("6.2 min") == f"6.2{space}min"


@pytest.mark.usefixtures("unrendered")
def test_a_run_that_is_not_finished_is_shown(tmp_path: Path) -> None:
    write(tmp_path / "done", config(seed=0))
    write(tmp_path / "half", config(seed=1), played=2)
    write(tmp_path / "new", config(seed=2), played=0)
    found = report.read(tmp_path)
    (group,) = found.groups
    assert [run.rounds for run in group.runs] == [3, 2, 0] and len(group.finished) == 1
    assert "1 of 3 finished" in printed(found) and "Not finished: half, new." in found.caption
    found.save(tmp_path / "out")
    alone = report.read(tmp_path / "half")
    assert alone.metric == "dev/wer" and alone.runs[0].best["round"] == 2  # of 3 rounds, each better than the last
    page = Path(alone.save())
    assert page == tmp_path / "half" / "report.html" and "not finished" in page.read_text()
    assert "0 of 1 finished" in printed(report.read(tmp_path / "new"))
    report.write(tmp_path / "new")


@pytest.mark.usefixtures("unrendered")
def test_recognition_and_classification_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "a", config(name="speech"))
    write(tmp_path / "b", config(name="words"), classes(1, 0.2), classes(2, 0.8))
    found = report.read([tmp_path / "a", tmp_path / "b"])
    assert found.metric == "test/wer" and found.changes[found.groups[1]] is None
    assert "accuracy (%)" in printed(found)
    found.save(tmp_path / "out")


@pytest.mark.usefixtures("unrendered")
def test_no_audio_is_said_and_no_failure(tmp_path: Path) -> None:
    text = Path(report.write(write(tmp_path / "run"))).read_text()
    assert "No audio: a run folder may come from anybody" in text and "<audio" not in text


@pytest.mark.usefixtures("unrendered")
def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    """The NaN that a split without words has as its WER is not shown."""
    folder = write(tmp_path / "run")
    results = json.loads((folder / "results.json").read_text())
    for model in ("seed", "best"):
        results[model] |= {"other/wer": float("nan")}
    (folder / "results.json").write_text(json.dumps(results))
    found = report.read(folder)
    assert "nan" not in printed(found) and found.groups[0].score("other/wer") is None
    assert "nan" not in re.findall("<table.*?</table>", Path(found.save()).read_text(), re.DOTALL)[0]


@pytest.mark.usefixtures("unrendered")
def test_csv_has_a_row_a_run(tmp_path: Path) -> None:
    report.write(study(tmp_path), tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "report.csv").read_text(encoding="utf-8").splitlines()))
    assert (
        len(rows) == 4 and [row["seed"] for row in rows] == ["0", "1", "0", "1"] and rows[0]["algorithm.alpha"] == "0.0"
    )
    assert float(rows[2]["best test/wer"]) == score(sentences(200, wrong=0.2)) and float(rows[0]["time/round_s"]) == 2
    text = (tmp_path / "out" / "report.md").read_text()
    for figure in re.findall(r"\]\((figures/.*?)\)", text):
        assert (tmp_path / "out" / figure).read_bytes()[:4] == b"\x89PNG"
    assert [path.name for path in (tmp_path / "out").rglob(".*")] == [".fedray"], "temporary files are left"


@pytest.mark.usefixtures("unrendered")
def test_more_groups_than_colours(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / f"{number:02}", config(algorithm__alpha=number / 10, algorithm__client__lr=0.1 * 2**number))
    found = report.read(tmp_path)
    assert len(found.groups) == 12 and len({group.label for group in found.groups}) == 12
    assert Path(found.save()).read_text().count("<figure") >= 5


@pytest.mark.long
def test_nothing_of_ray_is_imported_to_read_and_print(tmp_path: Path) -> None:
    code = "import sys; from fedray import report; report.read(sys.argv[1]).table(); sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(write(tmp_path / "run"))], check=True)


@pytest.mark.usefixtures("unrendered")
def test_a_report_imports_nothing_that_a_run_folder_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module that a run folder names is imported, even from the working folder: run folders may be anybody's."""
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    found = report.read(write(tmp_path / "run", config(imports=["stranger"])))
    found.save(tmp_path / "report")
    assert "No audio" in (tmp_path / "report" / "report.html").read_text() and "stranger" not in sys.modules


@pytest.mark.long
def test_in_a_notebook_a_report_shows_its_page_and_the_worst_utterances(tmp_path: Path) -> None:
    """The page is escaped once more in its frame; without the corpus, the reason replaces the players."""
    speakers = (NASTY, "bob")
    rows = [sentences(seed, speakers, wrong=0.5) for seed in (1, 2)]
    for row in [*rows[0], *rows[1]]:
        row["hypothesis"] = f"<b> {row['hypothesis']}"
    found = report.read(write(tmp_path / "run", config(), *rows))
    shown = found._repr_html_()
    assert shown.startswith("<iframe") and "<script" not in shown and html.unescape(shown).count("<h1>") == 1
    worst = found.worst(2)
    assert repr(found).startswith("<Report of ") and repr(worst) == "<Worst: 2 utterances; iterate over them>"
    text = worst._repr_html_()
    assert len(worst) == 2 and text.count('class="utterance"') == 2
    assert "No audio" in text and "<b>" not in text and "&lt;script&gt;" in text
    assert found.drawings()["speakers-test-wer"]._repr_png_().startswith(b"\x89PNG")


def test_without_a_finished_run_there_is_no_worst_utterance(tmp_path: Path) -> None:
    write(tmp_path / "run", config(), played=1)
    with pytest.raises(ValueError, match="no run of this report is finished"):
        report.read(tmp_path / "run").worst()
