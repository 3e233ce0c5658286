"""`fedray report` on folders as runs leave them: groups, tables, the page, and what is wrong with what it is given."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean

import pytest
from rich.console import Console

from fedray import cli, report
from fedray.core.storage import below
from fedray.engine.folder import RunFolder
from fedray.report import bootstrap
from fedray.report.groups import short_names
from fedray.report.words import minus
from tests.report.folders import classes, config, counts, score, sentences, write
from tests.stores import s3

NASTY = '<script>alert("ä&")</script>'


def study(root: Path) -> Path:
    """Two values of alpha, two seeds each."""
    for alpha in (0.5, 0.0):
        for seed in (0, 1):
            best = sentences(200 + seed, wrong=0.2 if alpha else 0.4)
            write(root / f"alpha-{alpha}" / str(seed), config(algorithm__alpha=alpha, seed=seed, data__seed=seed), best=best)
    return root


def printed(found: report.Report, width: int = 250) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(found.table(console))
    return console.file.getvalue()


def test_seeds_are_pooled_and_numbers_are_those_of_the_files(tmp_path: Path) -> None:
    found = report.read(study(tmp_path), baseline="first")
    assert [group.label for group in found.groups] == ["alpha=0", "alpha=0.5"] and [len(group.runs) for group in found.groups] == [2, 2]
    before = [sentences(100 + seed, wrong=0.6) for seed in (0, 1)]
    after = [sentences(200 + seed, wrong=0.2) for seed in (0, 1)]
    other = [sentences(200 + seed, wrong=0.4) for seed in (0, 1)]
    group = found.groups[1]
    assert group.score("test/wer") == pytest.approx(mean(map(score, after)))
    assert group.score("test/wer", "seed") == pytest.approx(mean(map(score, before)))
    assert found.changes[group] == bootstrap.change([counts(rows) for rows in before], [counts(rows) for rows in after])
    assert found.against[group] == bootstrap.change([counts(rows) for rows in other], [counts(rows) for rows in after])
    assert found.against[found.groups[0]] is None
    sentence = f"(−{-found.changes[group].mean:.1f} % [" if found.changes[group] else ""
    assert sentence in (page := Path(found.save(tmp_path / "out")).read_text())
    assert f"Against alpha=0: {minus(found.against[group])}." in page
    text = printed(found)
    assert f"{mean(map(score, before)):.1f} → {mean(map(score, after)):.1f}" in text
    assert "Not finished" not in text


def test_only_what_is_asked_for_tells_groups_apart(tmp_path: Path) -> None:
    write(tmp_path / "a", config(algorithm__alpha=0.1, rounds=2))
    write(tmp_path / "b", config(algorithm__alpha=0.2, rounds=4, engine__actors=3))
    assert [group.label for group in report.read(tmp_path, group_by=["rounds"]).groups] == ["rounds=2", "rounds=4"]
    assert [group.label for group in report.read(tmp_path).groups] == ["alpha=0.1", "alpha=0.2"]  # that is enough to tell them apart
    write(tmp_path / "c", config(algorithm__alpha=0.2, rounds=4, engine__actors=5))
    assert len(report.read(tmp_path).groups) == 2  # the engine changes nothing of the results
    with pytest.raises(ValueError, match="has the key algorithm.aplha"):
        report.read(tmp_path, group_by=["algorithm.aplha"])


def test_labels_are_as_short_as_can_be() -> None:
    keys = ["algorithm.kind", "algorithm.client.lr", "algorithm.server.lr", "cohort.size"]
    assert list(short_names(keys).values()) == ["algorithm", "client.lr", "server.lr", "size"]


def test_a_run_that_is_not_finished_is_shown(tmp_path: Path) -> None:
    write(tmp_path / "done", config(seed=0))
    write(tmp_path / "half", config(seed=1), played=2)
    write(tmp_path / "new", config(seed=2), played=0)
    found = report.read(tmp_path)
    (group,) = found.groups
    assert [run.rounds for run in group.runs] == [3, 2, 0] and len(group.finished) == 1
    assert "1 of 3 finished" in (text := printed(found)) and "Not finished: half, new." in text
    found.save(tmp_path / "out")
    alone = report.read(tmp_path / "half")
    assert alone.metric == "dev/wer" and alone.runs[0].best["round"] == 2  # of 3 rounds each better than the last
    page = Path(alone.save())
    assert page == tmp_path / "half" / "report.html" and "not finished" in page.read_text()
    assert "0 of 1 finished" in printed(report.read(tmp_path / "new"))
    report.write(tmp_path / "new")


def test_classification_is_accuracy_in_points(tmp_path: Path) -> None:
    before, after = classes(1, 0.2), classes(2, 0.8)
    write(tmp_path / "run", config(name="words"), before, after)
    found = report.read(tmp_path / "run")
    assert found.metric == "test/accuracy"
    (change,) = found.changes.values()
    assert change == bootstrap.change([counts(before)], [counts(after)], "points")
    page = Path(found.save()).read_text()
    assert f"words raises the test accuracy from {score(before):.1f} to {score(after):.1f} %" in page and "Most confused classes" in page


def test_recognition_and_classification_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "a", config(name="speech"))
    write(tmp_path / "b", config(name="words"), classes(1, 0.2), classes(2, 0.8))
    found = report.read([tmp_path / "a", tmp_path / "b"])
    assert found.metric == "test/wer" and found.changes[found.groups[1]] is None
    assert "accuracy (%)" in printed(found)
    found.save(tmp_path / "out")


def test_a_table_that_is_too_wide_says_what_it_leaves_out(tmp_path: Path) -> None:
    found = report.read(study(tmp_path))
    assert "dev WER" in printed(found) and "No room here" not in printed(found)
    narrow = printed(found, 60)
    assert "time, traffic (GB), failed clients, dev WER (%): see report.html." in " ".join(narrow.split())
    assert max(map(len, narrow.splitlines())) <= 60


class Page(HTMLParser):
    """All tags that are not void, and all attributes that name a place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.places: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.places += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "action", "data")]


def test_the_page_needs_nothing_else_and_all_text_is_escaped(tmp_path: Path) -> None:
    speakers = (NASTY, "Zoë", "bob", "cid")
    before, after = sentences(1, speakers, wrong=0.9), sentences(2, speakers, wrong=0.5)
    for rows in (before, after):
        for row in rows:
            row["reference"], row["hypothesis"] = f"{NASTY.split()[0]} {row['reference']}", f"größer <b> {row['hypothesis']}"
    folder = write(tmp_path / "run", config(name=NASTY, algorithm__note="a $b_ \\frac c$"), before, after)
    with (folder / "failures.jsonl").open("w") as file:
        file.write(json.dumps({"round": 1, "client": NASTY, "reason": NASTY, "traceback": ""}) + "\n")
    text = Path(report.write(folder)).read_text()
    page = Page(text)
    assert not page.scripts and "größer" in text and "Zoë" in text and "&lt;script&gt;" in text and "<b>" not in text
    assert all(place.startswith(("#", "data:")) for place in page.places) and "http" not in text and "@import" not in text
    assert NASTY not in text and "1 failed clients" in text


def test_no_audio_is_said_and_no_failure(tmp_path: Path) -> None:
    text = Path(report.write(write(tmp_path / "run"))).read_text()
    assert "No audio: the corpus of this run is not at hand on this machine" in text and "<audio" not in text


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    """A split without words has NaN for its WER."""
    folder = write(tmp_path / "run")
    results = json.loads((folder / "results.json").read_text())
    for model in ("seed", "best"):
        results[model] |= {"other/wer": float("nan")}
    (folder / "results.json").write_text(json.dumps(results))
    found = report.read(folder)
    assert "nan" not in printed(found) and found.groups[0].score("other/wer") is None
    assert "nan" not in re.findall("<table.*?</table>", Path(found.save()).read_text(), re.DOTALL)[0]


def test_csv_has_a_row_a_run(tmp_path: Path) -> None:
    report.write(study(tmp_path), tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "report.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 4 and [row["seed"] for row in rows] == ["0", "1", "0", "1"] and rows[0]["algorithm.alpha"] == "0.0"
    assert float(rows[2]["best test/wer"]) == score(sentences(200, wrong=0.2)) and float(rows[0]["time/round_s"]) == 2
    text = (tmp_path / "out" / "report.md").read_text()
    for figure in re.findall(r"\]\((figures/.*?)\)", text):
        assert (tmp_path / "out" / figure).read_bytes()[:4] == b"\x89PNG"
    assert not [path for path in (tmp_path / "out").rglob(".*")]


def test_folders_of_tune(tmp_path: Path) -> None:
    """The last attempt of a trial counts; what Tune drew under a name of its own is a key; a trial without a run is named."""
    for trial, share in (("t1", 0.1), ("t2", 0.5)):
        write(tmp_path / trial / "run", config(data__options__clients=[share, 1 - share]))
        (tmp_path / trial / "params.json").write_text(json.dumps({"share": share, "seed": 0}))
    write(tmp_path / "t2" / "run-01", config(data__options__clients=[0.5, 0.5]), best=sentences(3, wrong=0))
    (tmp_path / "t3").mkdir()
    (tmp_path / "t3" / "params.json").write_text("{}")
    write(tmp_path / "t1" / "checkpoint_000001" / "run")
    asked = {
        "name": "toy sweep",
        "question": "How <large>?",
        "keys": ["share", "seed"],
        "metric": "dev/wer",
        "mode": "min",
        "search": "grid",
    }
    (tmp_path / "sweep.json").write_text(json.dumps(asked | {"reference": "share=0.5", "figures": [{"kind": "trend", "key": "share"}]}))
    found = report.read(tmp_path)
    assert [group.label for group in found.groups] == ["share=0.1", "share=0.5"]
    assert [run.name for run in found.runs] == ["t1", "t2"] and found.groups[1].score("test/wer") == 0
    assert found.recovered[found.groups[1]] == bootstrap.Interval(100, 100, 100)
    gained = score(sentences(100, wrong=0.6)) - score(sentences(200))
    assert found.recovered[found.groups[0]].mean == pytest.approx(100 * gained / score(sentences(100, wrong=0.6)))
    assert "Ended before a run began: t3." in printed(found)
    text = Path(found.save()).read_text()
    assert "of what share=0.5 gains." in text
    assert "How &lt;large&gt;?" in text and (tmp_path / "figures" / "trend-test-wer.svg").exists()


def test_a_sweep_that_is_under_way(tmp_path: Path) -> None:
    """What it is to draw of results is said to be missing; a reference that has not begun too."""
    write(tmp_path / "t1" / "run", config(algorithm__alpha=0.1), played=1)
    write(tmp_path / "t2" / "run", config(algorithm__alpha=0.2), played=0)
    figures = [{"kind": "trend", "key": "algorithm.alpha"}, {"kind": "curves", "metrics": ["dev/wer"]}]
    asked = {"keys": ["algorithm.alpha", "cohort.fraction"], "metric": "dev/wer", "reference": "alpha=0.9", "figures": figures}
    (tmp_path / "sweep.json").write_text(json.dumps(asked))
    found = report.read(tmp_path)
    assert "The reference, alpha=0.9, is not among the runs." in found.caption
    text = Path(found.save()).read_text()
    assert (
        "Not drawn yet: trend-test-wer (no run has the metric test/wer" in text and (tmp_path / "figures" / "curves-dev-wer.svg").exists()
    )


def test_an_experiment_on_object_storage(tmp_path: Path) -> None:
    with s3() as new:
        place = new()
        for alpha in (0.1, 0.2):
            RunFolder(below(place, f"trial-{alpha}")).write_json("params.json", {"share": alpha})
            for attempt in ("run", "run-01"):
                local = write(tmp_path / f"{alpha}" / attempt, config(algorithm__alpha=alpha))
                RunFolder(below(place, f"trial-{alpha}/{attempt}")).storage.upload(local)
        RunFolder(place).write_json("sweep.json", {"name": "far away", "keys": ["share"]})
        found = report.read(place)
        assert [run.name for run in found.runs] == ["trial-0.1", "trial-0.2"] and "trial-0.1/run-01" in found.runs[0].folder.place
        assert [group.label for group in found.groups] == ["share=0.1", "share=0.2"]
        assert found.save() == RunFolder(place).storage.shown("report.html") and "far away" in RunFolder(place).read_text("report.html")


def test_runs_that_are_called_so_and_are_no_trials_attempts_all_count(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / f"run-{number}", config(seed=number))
    assert [run.name for run in report.read(tmp_path).runs] == ["run-1", "run-2"]


def test_what_is_asked_for_and_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study(tmp_path / "study")
    for arguments, words in (
        ([str(tmp_path / "nowhere")], "there is no such folder"),
        ([str(folder), "--metric", "test/wre"], "did you mean test/wer?"),
        ([str(folder), "--baseline", "alpha"], "are several groups; there are: alpha=0; alpha=0.5"),
        ([str(folder), "--baseline", "beta"], "'beta' is no group"),
    ):
        assert cli.main(["report", *arguments]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", str(tmp_path / "empty")]) == 2 and "there is no run in it" in capsys.readouterr().err
    (folder / "sweep.json").write_text("[1]")
    assert cli.main(["report", str(folder)]) == 2 and "sweep.json: is not a JSON object" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = study(tmp_path / "study")
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "out"), "--metric", "dev/wer"]) == 0
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *(str(path) for path in sorted(folder.iterdir()))]) == 0
    assert (tmp_path / "report" / "report.html").exists()


def test_more_groups_than_colours(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / f"{number:02}", config(algorithm__alpha=number / 10, algorithm__client__lr=0.1 * 2**number))
    found = report.read(tmp_path)
    assert len(found.groups) == 12 and len({group.label for group in found.groups}) == 12
    assert Path(found.save()).read_text().count("<figure") >= 5


def test_nothing_of_ray_is_imported_to_read_and_print(tmp_path: Path) -> None:
    code = "import sys; from fedray import report; report.read(sys.argv[1]).table(); sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(write(tmp_path / "run"))], check=True)
