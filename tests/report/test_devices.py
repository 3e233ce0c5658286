"""Reports of runs with devices: trips, staleness, fairness, and what runs spend until they reach a target."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from fedray import cli, report
from fedray.report import Fairness, Labels, Staleness, Trips, devices, further, page
from fedray.report.drawing.draw import draw
from fedray.report.effort import spent
from fedray.report.errors import of_labels
from fedray.runs.folder import RunFolder
from tests.report import folders
from tests.report.folders import add_devices, classes, config, trip, write

TRIPS = [
    trip(1, "ann", "fast"),
    trip(1, "bob", "fast", end_s=5400.0),
    trip(1, "cid", "slow", fate="late"),
    trip(2, "ann", "fast"),
    trip(2, "dee", "slow", model=0, end_s=9000.0),
    trip(3, "ann", "fast", used=False),
    trip(3, "eve", "slow", fate="lost"),
    trip(3, "cid", "slow", fate="aborted"),
]
SIZES = {"slow": 6, "fast": 2}


@pytest.fixture
def alone(tmp_path: Path) -> report.Report:
    return report.read(add_devices(write(tmp_path / "run", config()), TRIPS, SIZES))


def test_how_trips_end(alone: report.Report) -> None:
    found = devices.ends(alone.groups[0])
    assert list(found) == ["slow", "fast"], "as in the configuration"
    assert dict(found["fast"].trips) == {"used": 3, "unused": 1}
    assert dict(found["slow"].trips) == {"late": 1, "used": 1, "lost": 1, "aborted": 1}
    assert found["fast"].share("unused") == 25 and found["fast"].seconds_a_trip == 3600 * (0.5 + 1.5 + 0.5 + 0.5) / 4
    assert found["slow"].seconds_a_trip == 3600 * (0.5 + 2.5 + 0.5 + 0.5) / 4


def test_arrivals_have_a_staleness(alone: report.Report) -> None:
    assert devices.staleness(alone.groups[0]).tolist() == [0, 0, 0, 1, 0]


def test_fairness_counts_clients_that_never_took_part(alone: report.Report) -> None:
    """Of 8 clients, three have updates that count: ann two and bob one on fast devices, dee one on a slow one."""
    found = devices.fairness(alone.groups[0])
    assert found is not None
    assert found.updates == {"fast": 75, "slow": 25} and found.devices == {"fast": 25, "slow": 75}
    assert found.jain == pytest.approx((2 + 1 + 1) ** 2 / (8 * (4 + 1 + 1)))


def test_a_run_under_way_has_trips_and_no_fairness_yet(tmp_path: Path) -> None:
    run = add_devices(write(tmp_path / "run", config(), played=2), TRIPS[:5], SIZES)
    found = report.read(run)
    (group,) = found.groups
    assert not (run / "trips.parquet").exists() and devices.ends(group)["fast"].trips.total() == 3
    assert devices.fairness(group) is None and "Jain" in printed_further(found)
    assert group.score("virtual/hours") == 2, "the total so far, no mean over rounds"
    with pytest.raises(ValueError, match="no finished run has devices"):
        draw(Fairness(), found)


def test_the_lines_of_an_older_end_do_not_hide_newer_trips(tmp_path: Path) -> None:
    """A finished run that continues loses its results but keeps trips.parquet; its newer trips are read as well."""
    run = add_devices(write(tmp_path / "run", config()), TRIPS[:5], SIZES)
    RunFolder(run).append("trips.jsonl", TRIPS[5:])
    assert report.read(run).runs[0].trips.num_rows == 5
    (run / "results.json").unlink()
    assert report.read(run).runs[0].trips.num_rows == 8


def test_figures_of_devices_stand_in_the_report_of_a_run_that_has_them(alone: report.Report, tmp_path: Path) -> None:
    shown = [figure.described() for figure in page.figures(alone)]
    assert {"trips", "staleness", "fairness"} < {figure["kind"] for figure in shown}
    over = [figure["over"] for figure in shown if figure["kind"] == "curves" and figure["metrics"] == ["dev/wer"]]
    assert over == ["round", "hours"]
    svg = draw(Fairness(), alone).svg
    assert "Jain's index 0.33" in svg and "share of the devices" in svg
    assert "45.0 min a trip" in draw(Trips(), alone).svg
    assert "mean 0.2" in draw(Staleness(), alone).svg
    without = report.read(write(tmp_path / "without"))
    assert not {"trips", "staleness", "fairness"} & {figure.described()["kind"] for figure in page.figures(without)}
    assert not further.tables(without)
    for figure in (Trips(), Staleness(), Fairness()):
        with pytest.raises(ValueError, match="devices"):
            draw(figure, without)


def test_of_many_classes_the_largest_are_drawn(tmp_path: Path) -> None:
    sizes = {f"class-{place:02}": place for place in range(1, 15)}
    trips = [trip(1, f"{name}-{place}", name) for name, size in sizes.items() for place in range(size)]
    found = report.read(add_devices(write(tmp_path / "run", config()), trips, sizes))
    for figure in (Trips(), Fairness()):
        svg = draw(figure, found).svg
        assert "the 12 largest of 14" in svg and "class-03" in svg and "class-02" not in svg


def test_efforts_begin_with_virtual_hours(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add_devices(write(tmp_path / name, config(name=name)), TRIPS, SIZES)
    found = report.read(tmp_path)
    shown = [figure.described() for figure in page.figures(found)]
    over = [figure["over"] for figure in shown if figure["kind"] == "curves" and figure["metrics"] == ["dev/wer"]]
    assert over == ["round", "hours", "device_hours", "energy", "visits", "bytes"]
    assert spent(found.runs[0], "hours").tolist() == [1, 2, 4] and spent(found.runs[0], "energy")[-1] == 40


def test_who_loses_by_label(tmp_path: Path) -> None:
    run = write(tmp_path / "run", config(devices__kind="classes", devices__by="label"))
    found = report.read(run)
    assert Labels("test/wer") in page.figures(found)
    rows = [
        row
        for row in csv.DictReader((run / "predictions.tsv").read_text().splitlines(), delimiter="\t")
        if row["model"] == "best"
    ]
    for label, score in of_labels(found.runs, "test/wer", "best").items():
        mine = [row for row in rows if row["label"] == label]
        assert score == pytest.approx(
            100 * sum(int(row["errors"]) for row in mine) / sum(int(row["words"]) for row in mine)
        )
    assert "seen" in draw(Labels(), found).svg


def study(root: Path) -> Path:
    """Write runs with dev 60, 50, 40; `quick` takes half or a third of the hours, and one of its runs stays at 50."""
    hours = {("sync", 0): (2, 4, 8), ("sync", 1): (3, 6, 9), ("quick", 0): (1, 2, 4), ("quick", 1): (1, 2, 3)}
    for (name, seed), now in hours.items():
        run = add_devices(write(root / f"{name}-{seed}", config(name=name, seed=seed)), TRIPS, SIZES, now)
        folder = RunFolder(run)
        dev = (60, 50, 50 if (name, seed) == ("quick", 1) else 40)
        rows = [row | {"dev/wer": score} for row, score in zip(folder.rows("metrics.jsonl"), dev, strict=True)]
        folder.rewrite("metrics.jsonl", rows)
        results = folder.read_json("results.json")
        folder.write_json("results.json", results | {"seed": results["seed"] | {"dev/wer": 70.0}})
    return root


def printed_further(found: report.Report) -> str:
    return "\n".join(str(row) for table in further.tables(found) for row in table.rows)


def test_the_target_is_the_best_score_that_all_runs_reach(tmp_path: Path) -> None:
    found = report.read(study(tmp_path), baseline="sync")
    table, _ = further.tables(found)
    assert table.title == "Until dev WER 50.0 %" and "the best score that all runs reach" in table.caption
    quick, sync = table.rows
    assert sync["reached by"] == "2 of 2 runs" and sync["virtual hours"] == "5 (4–6)"  # after two rounds
    assert quick["virtual hours"] == "2 (2–2)" and quick["energy (Wh)"] == "20 (20–20)" and quick["rounds"] == "2 (2–2)"
    middle = math.sqrt((2 / 4) * (2 / 6))
    assert quick["virtual hours / sync"] == f"{middle:.3g}x (0.333x–0.5x)"
    assert quick["traffic / sync"] == "1x (1x–1x)" and sync["rounds / sync"] == ""
    assert "updates a round" not in table.caption


def test_rounds_of_different_size_are_named(tmp_path: Path) -> None:
    root = study(tmp_path)
    for seed in (0, 1):
        folder = RunFolder(root / f"quick-{seed}")
        folder.rewrite("metrics.jsonl", [row | {"clients/ok": 1} for row in folder.rows("metrics.jsonl")])
    found = report.read(tmp_path, baseline="sync")
    usual = found.runs[-1].rows[0]["clients/ok"]
    assert f"1 updates a round (quick) to {usual} (sync)" in further.tables(found)[0].caption


def test_accuracies_reach_a_target_from_below(tmp_path: Path) -> None:
    best = {"good": classes(2, 0.9), "poor": classes(2, 0.5)}
    for name, rows in best.items():
        add_devices(write(tmp_path / name, config(name=name), classes(1, 0.1), rows), TRIPS, SIZES)
    found = report.read(tmp_path)
    assert [group.label for group in found.ranked()] == ["good", "poor"]
    assert found.target is not None and found.target.value == pytest.approx(folders.score(best["poor"]))
    reached = {run.name: found.target.reached(run) for run in found.runs}
    assert reached["poor"] == 3 and reached["good"] in (1, 2)


def test_what_is_not_reached_is_said(tmp_path: Path) -> None:
    found = report.read(study(tmp_path), baseline="sync", target=45.0)
    quick, sync = further.tables(found)[0].rows
    assert quick["reached by"] == "1 of 2 runs" and quick["virtual hours"] == "4"
    assert quick["virtual hours / sync"] == "0.5x", "of the one pair that reaches it"
    never = further.tables(report.read(tmp_path, target=5.0))[0].rows[0]
    assert never["reached by"] == "0 of 2 runs" and never["virtual hours"] == never["rounds"] == "not reached"
    at_once = further.tables(report.read(tmp_path, target=70.0, baseline="sync"))[0].rows[0]
    assert at_once["virtual hours"] == "0 (0–0)" and at_once["virtual hours / sync"] == ""


def test_a_target_without_devices_counts_rounds_and_traffic(tmp_path: Path) -> None:
    found = report.read(write(tmp_path / "run"), target=90.0)
    (table,) = further.tables(found)
    assert (
        list(table.rows[0]) == ["", "reached by", "rounds", "traffic (GB)"] and "which was asked for" in table.caption
    )


@pytest.mark.usefixtures("unrendered")
def test_the_files_hold_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["report", str(study(tmp_path / "study")), "--target", "45", "--out", str(out)]) == 0
    said, markdown, html = capsys.readouterr().out, (out / "report.md").read_text(), (out / "report.html").read_text()
    for text in (said, markdown, html):
        assert "Until dev WER 45.0 %" in text and "not" in text and "Jain" in text
    rows = list(csv.DictReader((out / "report.csv").read_text().splitlines()))
    reached = {row["run"]: row["virtual hours to dev/wer 45"] for row in rows}
    assert reached == {"quick-0": "4.0", "quick-1": "", "sync-0": "8.0", "sync-1": "9.0"}
    assert {row["virtual/wasted_share"] for row in rows} == {"0.25"}


def test_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = add_devices(write(tmp_path / "run"), TRIPS, SIZES)
    with pytest.raises(ValueError, match="a dev score is a finite number"):
        report.read(run, target=math.nan)
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"devices": {"fast": "two"}}))
    with pytest.raises(ValueError, match="devices must be an object of numbers of clients"):
        report.read(run)
    (run / "results.json").write_text(json.dumps(results))
    (run / "trips.parquet").write_text("PAR1")
    assert cli.main(["report", str(run)]) == 2 and "trips.parquet: is damaged" in capsys.readouterr().err
    (run / "trips.parquet").write_bytes((run / "clients.parquet").read_bytes())
    assert cli.main(["report", str(run)]) == 2 and "columns of trips are missing" in capsys.readouterr().err
    (run / "trips.parquet").unlink()
    assert report.read(run).runs[0].trips.num_rows == len(TRIPS), "from the lines"
    undone = write(tmp_path / "undone", config(), played=0)
    with pytest.raises(ValueError, match="target: no run has a dev score that could reach 5"):
        further.tables(report.read(undone, target=5.0))


@pytest.mark.usefixtures("unrendered")
def test_the_last_row_of_a_run_without_arrivals(tmp_path: Path) -> None:
    run = add_devices(write(tmp_path / "run", config()), [trip(1, "ann", "fast", fate="lost")], SIZES)
    found = report.read(run)
    fair = devices.fairness(found.groups[0])
    assert fair is not None and fair.updates == {"slow": 0, "fast": 0} and fair.jain == 1
    assert len(devices.staleness(found.groups[0])) == 0 and devices.ends(found.groups[0])["fast"].share("lost") == 100
    found.save(tmp_path / "out")
