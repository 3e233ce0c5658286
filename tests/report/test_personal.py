"""Personal scores in a report, next to those of the shared model alone, and under their former names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray import report
from fedray.report.canvas import GREY
from fedray.report.drawing.clients import client_means
from fedray.report.drawing.draw import draw
from tests.report.folders import config, write

SCORES = {"007": (20.0, 50.0), "bob": (30.0, 40.0)}  # personal, and of the shared model alone


def remembering(folder: Path, seed: int = 0, worse: float = 0.0, rank: int = 2) -> Path:
    """Write a run with personal scores of two clients."""
    run = write(folder, config(seed=seed, algorithm__lora__rank=rank))
    rows = [f"{client}\ttest\t{personal + worse}\t{alone}" for client, (personal, alone) in SCORES.items()]
    (run / "personal.tsv").write_text("\n".join(["client\tsplit\twer\twer_alone", *rows]) + "\n")
    results = json.loads((run / "results.json").read_text())
    told = {"test/wer": 25.0 + worse, "test/wer_sd": 5.0, "test/wer_alone": 45.0, "test/wer_alone_sd": 5.0}
    (run / "results.json").write_text(json.dumps(results | {"personal": {"clients": 2, **told}}))
    return run


def test_personal_scores_are_compared_with_those_of_the_shared_model_alone(tmp_path: Path) -> None:
    for seed in (0, 1):
        remembering(tmp_path / str(seed), seed, worse=2.0 * seed)
    found = report.read(tmp_path)
    assert found.metric == "personal/test/wer"
    group = found.groups[0]
    assert group.score("personal/test/wer", "seed") == 45.0 and group.score("personal/test/wer") == 26.0
    assert client_means(group.finished, "personal/test/wer") == {
        "007": 21.0,
        "bob": 31.0,
    }  # a name made of digits stays text
    page = Path(found.save(tmp_path / "out"))
    text = page.with_suffix(".md").read_text()
    assert "lowers the personal test WER from 45.0 to 26.0 % (−42.2 % [" in text
    assert "45.0 → 26.0" in text and "alone → with" in text
    assert "wer_alone" not in text and "personal-personal-test-wer.png" in text
    assert "007" in (tmp_path / "out" / "figures" / "personal-personal-test-wer.svg").read_text()


def test_intervals_of_personal_scores_are_over_clients(tmp_path: Path) -> None:
    """Rank 4 is 3 points worse on both clients; a memory gains 30 of 50 points on one and 10 of 40 on the other."""
    for rank, worse in ((2, 0.0), (4, 3.0)):
        remembering(tmp_path / str(rank), rank=rank, worse=worse)
    found = report.read(tmp_path, baseline="first")
    first, second = found.groups
    change, against = found.changes[first], found.against[second]
    assert change is not None and (change.mean, change.low, change.high) == (100 * -20 / 45, -60.0, -25.0)
    assert against is not None and (against.mean, against.units, against.unit) == (100 * 3 / 25, 2, "%")
    assert (against.low, against.high) == (10.0, 15.0)  # 3 points of 30 % and of 20 %
    assert first.interval(found.metric) == report.bootstrap.Interval(25.0, 20.0, 30.0)
    text = Path(found.save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "bootstrap over clients" in text and "With only 2 clients, the interval is too narrow." in text


def test_personal_models_without_a_shared_one_are_compared_with_the_baseline(tmp_path: Path) -> None:
    """Without a score to change from, "change" stays empty, and the sentence gives the difference from the baseline."""
    for rank, worse in ((2, 0.0), (4, 3.0)):
        run = remembering(tmp_path / str(rank), rank=rank, worse=worse)
        for file, name in (("personal.tsv", "wer_alone"), ("results.json", "test/wer_alone")):
            (run / file).write_text((run / file).read_text().replace(name, "other"))
    found = report.read(tmp_path, metric="personal/test/wer", baseline="first")
    assert not any(found.changes.values()) and found.against[found.groups[1]] is not None
    text = Path(found.save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "rank=4: personal test WER 28.0 %. Against rank=2: +12.0 % [+10.0, +15.0] over clients." in text


def test_a_client_that_one_run_did_not_score_leaves_no_pair(tmp_path: Path) -> None:
    for rank in (2, 4):
        run = remembering(tmp_path / str(rank), rank=rank)
    table = run / "personal.tsv"
    table.write_text(table.read_text().replace("bob\ttest\t30.0", "bob\ttest\t"))
    found = report.read(tmp_path, baseline="first")
    assert found.against[found.groups[1]] is None


@pytest.mark.usefixtures("unrendered")
def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    run = remembering(tmp_path / "run")
    (run / "personal.tsv").write_text("client\tsplit\twer\nann\ttest\n")
    with pytest.raises(ValueError, match=r"personal\.tsv: is damaged .*remove it to continue without it"):
        report.read(run).save(tmp_path / "out")
    (run / "personal.tsv").unlink()
    report.read(run).save(tmp_path / "out")


def test_each_shared_model_is_drawn_once(tmp_path: Path) -> None:
    """Two memories of one model share its grey points; a memory of another model adds one point for each client."""
    grey = []
    for place, (rank, worse) in enumerate([(2, 0.0), (4, 0.0), (8, 1.0)]):
        run = remembering(tmp_path / str(rank), rank=rank, worse=worse)
        if worse:
            (run / "personal.tsv").write_text((run / "personal.tsv").read_text().replace("\t40.0", "\t41.0"))
        if place:
            grey.append(draw(report.Personal(), report.read(tmp_path)).svg.count(f"fill: {GREY}"))
    assert grey[1] == grey[0] + len(SCORES)


def test_a_figure_of_clients_draws_personal_scores_only() -> None:
    with pytest.raises(ValueError, match="such as personal/test/wer, not 'test/wer'"):
        report.Personal("test/wer")
