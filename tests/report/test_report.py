"""`fedray report` on run folders: groups, metrics, sweeps, and the errors for wrong input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean

import pytest

from fedray import cli, report
from fedray.report import bootstrap
from fedray.report.groups import short_names
from fedray.report.words import minus
from fedray.runs.folder import RunFolder
from fedray.storage.base import below
from tests.report.folders import classes, config, counts, printed, score, sentences, study, write
from tests.stores import s3

pytestmark = pytest.mark.usefixtures("unrendered")


def test_seeds_are_pooled_and_numbers_are_those_of_the_files(tmp_path: Path) -> None:
    found = report.read(study(tmp_path), baseline="first")
    assert [group.label for group in found.groups] == ["alpha=0", "alpha=0.5"] and [
        len(group.runs) for group in found.groups
    ] == [2, 2]
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
    assert f"Against alpha=0: {minus(found.against[group])} over speakers." in page
    text = printed(found)
    spread = abs(score(after[0]) - score(after[1])) / math.sqrt(2)  # of two seeds
    assert f"{mean(map(score, before)):.1f} → {mean(map(score, after)):.1f} ± {spread:.1f}" in text
    assert "Not finished" not in text


def test_only_what_is_asked_for_tells_groups_apart(tmp_path: Path) -> None:
    write(tmp_path / "a", config(algorithm__alpha=0.1, rounds=2))
    write(tmp_path / "b", config(algorithm__alpha=0.2, rounds=4, engine__actors=3))
    assert [group.label for group in report.read(tmp_path, group_by=["rounds"]).groups] == ["rounds=2", "rounds=4"]
    assert [group.label for group in report.read(tmp_path).groups] == [
        "alpha=0.1",
        "alpha=0.2",
    ]  # alpha is enough to tell them apart
    write(tmp_path / "c", config(algorithm__alpha=0.2, rounds=4, engine__actors=5, tracker__kind="mlflow"))
    assert len(report.read(tmp_path).groups) == 2  # engine and tracker do not change the results
    with pytest.raises(ValueError, match="has the key algorithm.aplha"):
        report.read(tmp_path, group_by=["algorithm.aplha"])


def test_seeds_pair_runs_whatever_else_differs_between_the_groups(tmp_path: Path) -> None:
    """Keys that only one method has, and settings of the engine, do not keep runs from pairing."""
    for seed in (0, 1):
        for kind, more in (("fedavg", {"engine__actors": 2}), ("fedprox", {"algorithm__mu": 0.1, "engine__actors": 4})):
            write(tmp_path / f"{kind}-{seed}", config(algorithm__kind=kind, seed=seed, data__seed=seed, **more))
    for asked in ({"group_by": ["algorithm.kind"]}, {}):
        found = report.read(tmp_path, baseline="first", **asked)
        assert [len(group.runs) for group in found.groups] == [2, 2]
        assert found.against[found.groups[1]] is not None and "(2)" not in printed(found)


def test_what_runs_of_a_group_and_seed_differ_in_is_a_part_of_the_pair(tmp_path: Path) -> None:
    for kind in ("fedavg", "fedprox"):
        for alpha in (0.1, 0.2):
            write(tmp_path / f"{kind}-{alpha}", config(algorithm__kind=kind, algorithm__alpha=alpha))
    one, other = report.read(tmp_path, group_by=["algorithm.kind"], baseline="first").groups
    assert one.members.keys() == other.members.keys() == {("0.1",), ("0.2",)}


def test_an_interval_and_a_share_need_all_predictions_of_the_same_units(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(tmp_path / "one" / f"{seed}", config(seed=seed))
        other = sentences(200 + seed, speakers=("eve", "fay"))
        write(tmp_path / "other" / f"{seed}", config(seed=seed, algorithm__alpha=0.1), other, other)
    here, there = report.read(tmp_path).groups[::-1]
    assert here.recovered(here, "test/wer") is not None and here.recovered(there, "test/wer") is None
    assert here.interval("test/wer") is not None
    (tmp_path / "one" / "1" / "predictions.tsv").unlink()
    (group,) = report.read(tmp_path / "one").groups
    assert group.interval("test/wer") is None


def test_a_project_is_no_run(tmp_path: Path) -> None:
    """A project is not read as a run, although `fedray new` writes a config.yaml next to runs/."""
    (tmp_path / "config.yaml").write_text("name: mine\n")
    write(tmp_path / "runs" / "one")
    write(tmp_path / "runs" / "two", config(seed=1))
    assert [run.name for run in report.read(tmp_path).runs] == ["one", "two"]


def test_totals_of_a_run_that_is_not_finished(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", played=2)
    rows = [json.loads(line) | {"traffic/up_bytes": 5} for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run,) = report.read(folder).runs
    assert run.value("traffic/up_bytes") == 10 and run.value("traffic/total_bytes") == 2 * 10**9


def test_a_run_whose_dev_was_scored_once_is_not_called_improving(tmp_path: Path) -> None:
    folder = write(tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row | {"dev/wer": None} for row in rows[:-1]] + rows[-1:]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run,) = report.read(folder).runs
    assert not run.still_improving("test/wer")


def test_labels_are_as_short_as_can_be() -> None:
    keys = ["algorithm.kind", "algorithm.client.lr", "algorithm.server.lr", "cohort.size"]
    assert list(short_names(keys).values()) == ["algorithm", "client.lr", "server.lr", "size"]


def test_classification_is_accuracy_in_points(tmp_path: Path) -> None:
    before, after = classes(1, 0.2), classes(2, 0.8)
    write(tmp_path / "run", config(name="words"), before, after)
    found = report.read(tmp_path / "run")
    assert found.metric == "test/accuracy"
    (change,) = found.changes.values()
    assert change == bootstrap.change([counts(before)], [counts(after)], "points")
    page = Path(found.save()).read_text()
    assert (
        f"words raises the test accuracy from {score(before):.1f} to {score(after):.1f} %" in page
        and "Most confused classes" in page
    )


def test_folders_of_tune(tmp_path: Path) -> None:
    """The last attempt of a trial counts; a name that only Tune knows is a key; a trial without a run is named."""
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
    (tmp_path / "sweep.json").write_text(
        json.dumps(asked | {"reference": "share=0.5", "figures": [{"kind": "trend", "key": "share"}]})
    )
    found = report.read(tmp_path)
    assert [group.label for group in found.groups] == ["share=0.1", "share=0.5"]
    assert [run.name for run in found.runs] == ["t1", "t2"] and found.groups[1].score("test/wer") == 0
    assert found.recovered[found.groups[1]] == bootstrap.Interval(100, 100, 100)
    gained = score(sentences(100, wrong=0.6)) - score(sentences(200))
    assert found.recovered[found.groups[0]].mean == pytest.approx(100 * gained / score(sentences(100, wrong=0.6)))
    assert "Ended before a run began: t3." in " ".join(printed(found).split())
    text = Path(found.save()).read_text()
    assert "of what share=0.5 gains." in text
    assert "How &lt;large&gt;?" in text and (tmp_path / "figures" / "trend-test-wer.svg").exists()


def test_a_sweep_that_is_under_way(tmp_path: Path) -> None:
    """The page names figures that cannot be drawn yet, and a reference that has not started."""
    write(tmp_path / "t1" / "run", config(algorithm__alpha=0.1), played=1)
    write(tmp_path / "t2" / "run", config(algorithm__alpha=0.2), played=0)
    figures = [{"kind": "trend", "key": "algorithm.alpha"}, {"kind": "curves", "metrics": ["dev/wer"]}]
    asked = {
        "keys": ["algorithm.alpha", "cohort.fraction"],
        "metric": "dev/wer",
        "reference": "alpha=0.9",
        "figures": figures,
    }
    (tmp_path / "sweep.json").write_text(json.dumps(asked))
    found = report.read(tmp_path)
    assert "The reference, alpha=0.9, is not among the runs." in found.caption
    text = Path(found.save()).read_text()
    assert (
        "Not drawn yet: trend-test-wer (no run has the metric test/wer" in text
        and (tmp_path / "figures" / "curves-dev-wer.svg").exists()
    )


def test_a_sweep_whose_metric_does_not_exist_yet(tmp_path: Path) -> None:
    """It ranks by the report's own metric until a run has the sweep's."""
    for name, wrong in (("bad", 0.6), ("good", 0.1)):
        write(tmp_path / name / "run", config(algorithm__alpha=wrong), best=sentences(200, wrong=wrong))
    asked = {"keys": ["algorithm.alpha"], "metric": "personal/test/macro_f1", "mode": "max"}
    (tmp_path / "sweep.json").write_text(json.dumps(asked))
    with pytest.raises(ValueError, match="no run has the metric personal/test/macro_f1"):
        report.read(tmp_path)
    write(tmp_path / "new" / "run", config(algorithm__alpha=0.9), played=1)
    found = report.read(tmp_path)
    assert found.ranked_by == "test/wer" and [group.label for group in found.ranked()] == ["alpha=0.1", "alpha=0.6"]
    assert Path(found.save()).exists()


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
        assert [run.name for run in found.runs] == ["trial-0.1", "trial-0.2"] and "trial-0.1/run-01" in found.runs[
            0
        ].folder.place
        assert [group.label for group in found.groups] == ["share=0.1", "share=0.2"]
        assert found.save() == RunFolder(place).storage.shown("report.html") and "far away" in RunFolder(
            place
        ).read_text("report.html")


def test_runs_that_are_called_so_and_are_no_trials_attempts_all_count(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / f"run-{number}", config(seed=number))
    assert [run.name for run in report.read(tmp_path).runs] == ["run-1", "run-2"]


def test_what_is_asked_for_and_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study(tmp_path / "study")
    for arguments, words in (
        ([str(tmp_path / "nowhere")], "no such folder: name a run folder"),
        ([str(folder), "--metric", "test/wre"], "did you mean test/wer?"),
        ([str(folder), "--baseline", "alpha"], "matches several groups; the groups are: alpha=0; alpha=0.5"),
        ([str(folder), "--baseline", "beta"], "'beta' is not a group"),
    ):
        assert cli.main(["report", *arguments]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", str(tmp_path / "empty")]) == 2 and "holds no run: a run" in capsys.readouterr().err
    (folder / "sweep.json").write_text("[1]")
    assert cli.main(["report", str(folder)]) == 2 and "sweep.json: is not a JSON object" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = study(tmp_path / "study")
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "out"), "--metric", "dev/wer"]) == 0
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *(str(path) for path in sorted(folder.iterdir()))]) == 0
    assert (tmp_path / "report" / "report.html").exists()


def test_runs_that_were_too_short_and_rows_that_spent_unequal_amounts(tmp_path: Path) -> None:
    """The toy is best in its last round and still improving; a run that is best in round 9 of 10 is not."""
    write(tmp_path / "short", config(name="short"))
    done = write(tmp_path / "done", config(name="done", rounds=10))
    results = json.loads((done / "results.json").read_text())
    (done / "results.json").write_text(json.dumps(results | {"best": results["best"] | {"round": 9}}))
    found = report.read(tmp_path)
    assert {run.name: run.still_improving(found.metric) for run in found.runs} == {"short": True, "done": False}
    assert "Still improving, with the best dev score in the last tenth of the rounds: short." in found.caption
    assert "The rows differ in traffic in GB: 3 (short) to 10 (done)." in found.caption
    assert "learning rates" not in found.caption and "gradient steps" not in found.caption
    assert "3, still improving" in printed(found)
    rows = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    (done / "metrics.jsonl").write_text(json.dumps(rows[0] | {"lr/client": 0.3}) + "\n")
    again = report.read(tmp_path)
    assert "The rows differ in client learning rates: 0.1 (short) to 0.3 (done)." in again.caption
    assert not again.groups[0].runs[0].still_improving("test/wer"), "dev was scored once"


def test_repeated_runs_and_few_speakers_are_told(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        write(tmp_path / name, config(seed=seed))
    found = report.read(tmp_path)
    assert len(found.groups[0].runs) == 3
    assert "Same settings and seed as another run of their row, but counted too: one." in found.caption
    assert "speakers, the interval is too narrow." in found.caption


def test_where_a_language_model_makes_the_labels_its_wer_is_compared(tmp_path: Path) -> None:
    for name, settings in {"fednst": {"lm_weight": 2.0}, "fedavg": {"lm_weight": 2.0}}.items():
        run = write(tmp_path / name, config(algorithm__kind=name, task__decode=settings))
        results = json.loads((run / "results.json").read_text())
        scored = {part: results[part] | {"test/wer_lm": 7.0} for part in ("seed", "best")}
        (run / "results.json").write_text(json.dumps(results | scored))
    assert report.read(tmp_path).metric == report.read(tmp_path / "fednst").metric == "test/wer_lm"
    assert report.read(tmp_path / "fedavg").metric == "test/wer", "there the model alone learns"
    write(tmp_path / "greedy", config(task__decode={"lm_weight": 0.0}))
    assert report.read(tmp_path / "greedy").metric == "test/wer"


def test_the_fewest_speakers_of_any_row_are_told(tmp_path: Path) -> None:
    for name, speakers in (("few", ["ann", "bob"]), ("many", [f"s{number}" for number in range(25)])):
        write(tmp_path / name, config(name=name), sentences(100, speakers), sentences(200, speakers))
    assert "With only 2 speakers, the interval is too narrow." in report.read(tmp_path).caption
