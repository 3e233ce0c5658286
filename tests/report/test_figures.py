"""Figures of each kind, from JSON to SVG, and their values where they can be computed by hand."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray import report
from fedray.report import (
    KINDS,
    Audits,
    Bars,
    Curves,
    Fairness,
    Figure,
    Inversions,
    Labels,
    Participation,
    Personal,
    Phases,
    Retrievals,
    Scatter,
    Speakers,
    Staleness,
    Trend,
    Trips,
)
from fedray.report.canvas import INK
from fedray.report.drawing.draw import draw
from fedray.report.drawing.results import trend
from fedray.report.drawing.retrievals import settings_scores
from fedray.report.drawing.rounds import over_effort, over_rounds, smoothed
from fedray.report.figures import from_description
from fedray.runs.folder import ClientRecord, write_clients
from tests.report.folders import add_devices, config, sentences, trip, write

FIGURES: list[Figure] = [
    Curves(("dev/wer", "train/loss"), smooth=0.8, last=2, log=True, baseline="seed"),
    Curves(("dev/wer",), baseline=40.0, band="sd"),
    Curves(("dev/wer",), baseline="alpha=0.1, lr=0.1"),
    Curves(("dev/wer",), over="bytes"),
    Trend("algorithm.alpha", by="algorithm.client.lr", percent=True, baseline="seed"),
    Trend("algorithm.client.lr", metric="time/round_s", log=True),
    Bars("time/round_s"),
    Bars(title="Costs $5 & <more>"),
    Scatter(("algorithm.alpha", "algorithm.client.lr", "name"), metric="test/wer"),
    Speakers(),
    Phases(),
    Participation(),
    Retrievals(),
    Labels(),
    Trips(),
    Staleness(),
    Fairness(),
    Curves(("dev/wer",), over="hours"),
    Personal("personal/dev/wer"),
    Audits(),
    Inversions(),
]


def remember(run: Path, best: float) -> None:
    """Add an audit, personal scores, and scores of a memory's settings, of which k=8 lambda=0.3 T=10 is best."""
    results = json.loads((run / "results.json").read_text())
    grid = [(k, share, t) for k in (4, 8) for share in (0.1, 0.3) for t in (1, 10)]
    costs = {
        f"dev/k={k} lambda={share:g} T={t:g}": best + (k, share, t).__ne__((8, 0.3, 10)) * 5.0 for k, share, t in grid
    }
    (run / "results.json").write_text(json.dumps(results | {"personal": costs}))
    (run / "audit.tsv").write_text(f"client\tinside\tscore\nann\t1\t{best}\nbob\t0\t1.5\n")
    (run / "personal.tsv").write_text(f"client\tsplit\twer\nann\tdev\t{best}\nbob\tdev\t{best + 1}\n")


def invert(run: Path) -> None:
    """Add an audit by inversion."""
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"audit": {"kind": "inversion"}}))
    pairs = {name: {kind: torch.rand(9, 4) for kind in ("true", "made")} for name in ("u0", "u1")}
    torch.save({"first": pairs}, run / "audit.pt")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    folder = tmp_path_factory.mktemp("study")
    for alpha in (0.1, 0.9):
        for lr in (0.1, 10.0):
            for seed in (0, 1):
                settings = config(algorithm__alpha=alpha, algorithm__client__lr=lr, seed=seed)
                run = write(folder / f"{alpha}-{lr}-{seed}", settings, played=3 if seed == 0 or lr == 0.1 else 2)
                add_devices(run, [trip(1, "ann", "fast"), trip(2, "bob", "slow", model=0)], {"fast": 1, "slow": 2})
                if lr == 0.1:
                    remember(run, 10 * alpha + seed)
                elif seed == 0:
                    invert(run)
    return report.read(folder)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_every_kind_survives_json_and_is_drawn(figure: Figure, found: report.Report) -> None:
    again = from_description(json.loads(json.dumps(figure.described())), "sweep.json")
    assert again == figure
    drawn = draw(again, found)
    assert drawn.png[:4] == b"\x89PNG" and ElementTree.fromstring(drawn.svg).tag.endswith("svg")
    assert "mathdefault" not in drawn.svg
    inline = drawn.inline("name")
    assert "http" not in inline and INK not in inline and 'id="name-' in inline and "<metadata" not in inline


@pytest.mark.parametrize("figure", FIGURES[:2], ids=lambda figure: type(figure).__name__)
def test_a_figure_has_the_same_bytes_each_time(figure: Figure, found: report.Report) -> None:
    assert draw(figure, found) == draw(figure, found)


def test_all_kinds_are_tested() -> None:
    assert {type(figure) for figure in FIGURES} == set(KINDS.values())


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"kind": "curve"}, "did you mean curves"),
        ({"metrics": ["dev/wer"]}, "a figure has a kind|kind is missing"),
        ({"kind": "curves"}, "metrics is missing"),
        ({"kind": "curves", "metrics": []}, "name at least one"),
        ({"kind": "curves", "metrics": ["dev/wer"], "smoth": 0.5}, "did you mean figure.smooth"),
        ({"kind": "curves", "metrics": ["dev/wer"], "smooth": 1.5}, "figure.smooth must be at least 0 and below 1"),
        ({"kind": "curves", "metrics": ["dev/wer"], "band": "all"}, "band must be range or sd, not .all."),
        ({"kind": "curves", "metrics": ["dev/wer"], "over": "time"}, "over must be one of round"),
        ({"kind": "trend", "key": ["a"]}, "figure.key"),
        ({"kind": "scatter", "keys": []}, "name at least one"),
    ],
)
def test_a_wrong_description_is_refused(description: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        from_description(description, "runs/x/sweep.json, figure 2")
    assert "runs/x/sweep.json, figure 2" in str(raised.value)


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (Curves(("dev/wre",)), "did you mean dev/wer"),
        (Curves(("dev/wer",), baseline="nobody"), "'nobody' is not a group"),
        (Trend("name"), "a trend needs numbers: name is toy"),
        (Scatter(("algorithm.alhpa",)), "has the key algorithm.alhpa"),
        (Speakers("dev/cer"), "no finished run has scored dev/cer"),
    ],
)
def test_what_cannot_be_drawn(figure: Figure, words: str, found: report.Report) -> None:
    with pytest.raises(ValueError, match=words):
        draw(figure, found)


def test_methods_with_the_same_cohorts_share_a_line(found: report.Report, tmp_path: Path) -> None:
    assert "the same in all 4" in draw(Participation(), found).svg
    for name, rounds in (("a", 1), ("b", 1), ("c", 2)):
        clients = {"ann": ClientRecord(rounds=rounds, last_round=rounds)}
        write_clients(clients, write(tmp_path / name, config(name=name)) / "clients.parquet")
    drawn = draw(Participation(), report.read(tmp_path))
    assert "a and b" in drawn.svg and ">c<" in drawn.svg


def test_what_else_is_swept_tells_a_trends_lines_apart(found: report.Report) -> None:
    sweep = replace(found.sweep, keys=("algorithm.alpha", "algorithm.client.lr", "seed"))
    drawn = draw(Trend("algorithm.alpha"), replace(found, sweep=sweep))
    assert "lr=0.1" in drawn.svg and "lr=10" in drawn.svg


def test_costs_of_retrieval_are_means_over_runs(found: report.Report) -> None:
    group = next(group for group in found.groups if group.label == "alpha=0.1, lr=0.1")
    costs = settings_scores(group)
    assert len(costs) == 8 and costs[8, 0.3, 10] == min(costs.values()) == pytest.approx(1.5)
    drawn = draw(Retrievals(), found)
    assert "alpha=0.9, lr=0.1, k = 8" in drawn.svg and "lr=10" not in drawn.svg


def test_smoothing_is_the_weighted_mean_of_the_past() -> None:
    values, weight = np.array([3.0, 1.0, 4.0, 1.0]), 0.8
    expected = []
    for step in range(1, 5):
        weights = [weight ** (step - past) for past in range(1, step + 1)]
        expected.append(sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights))
    assert smoothed(values, weight) == pytest.approx(expected)
    assert (smoothed(values, 0.0) == values).all()


def test_curves_begin_with_the_seed_model_and_end_where_each_run_does(found: report.Report) -> None:
    group = next(group for group in found.groups if group.label == "alpha=0.1, lr=10")
    rounds, values = over_rounds(group, "dev/wer", Curves(("dev/wer",)))
    assert rounds.tolist() == [0, 1, 2, 3] and values.shape == (2, 4)
    done, half = group.runs
    assert values[0].tolist() == [done.seed_model["dev/wer"], *(row["dev/wer"] for row in done.rows)]
    assert np.isnan(values[1, [0, 3]]).all() and values[1, 1:3].tolist() == [row["dev/wer"] for row in half.rows]
    rounds, values = over_rounds(group, "traffic/total_bytes", Curves(("traffic/total_bytes",), last=2))
    assert rounds.tolist() == [2, 3] and values[0].tolist() == [2, 3]  # GB


def test_curves_over_what_was_spent(tmp_path: Path) -> None:
    """Effort adds up over rounds: steps a client x clients that answered + server steps, as a mean of two runs."""
    for seed, steps in ((0, 2), (1, 3)):
        run = write(tmp_path / str(seed), config(seed=seed))
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        spent = [{"train/steps": steps, "clients/ok": 2, "server/steps": 1}, {"train/steps": None, "clients/ok": 0}, {}]
        lines = [json.dumps(row | more) for row, more in zip(rows, spent, strict=True)]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (group,) = report.read(tmp_path).groups
    rounds = np.arange(4)
    assert over_effort(group, "steps", rounds).tolist() == [0, (5 + 7) / 2, (5 + 7) / 2, (5 + 7) / 2]
    assert over_effort(group, "visits", rounds).tolist() == [0, 2, 2, 4]
    assert over_effort(group, "bytes", rounds).tolist() == [0, 1, 2, 3]


def test_groups_without_a_colour_are_drawn_where_they_alone_have_the_data(tmp_path: Path) -> None:
    """Of nine groups, only the worst has devices; its figures are drawn although no colour is left for it."""
    for place in range(8):
        write(tmp_path / f"{place}", config(algorithm__alpha=place / 10))
    worst = write(tmp_path / "8", config(algorithm__alpha=0.9), best=sentences(1, wrong=0.9))
    add_devices(worst, [trip(1, "ann", "fast")], {"fast": 1})
    found = report.read(tmp_path)
    for figure in (Trips(), Fairness()):
        draw(figure, found)


def test_a_trend_leaves_out_null(tmp_path: Path) -> None:
    for value in (None, 10, 20):
        write(tmp_path / f"{value}", config(data__noise=value))
    found = report.read(tmp_path, group_by=["data.noise"])
    (axes,) = trend(Trend("data.noise"), found).axes
    assert sorted(axes.lines[0].get_xdata()) == [10, 20]
    for value in ("10", "20"):
        shutil.rmtree(tmp_path / value)
    with pytest.raises(ValueError, match="no group has a number of data.noise"):
        draw(Trend("data.noise"), report.read(tmp_path))


def test_the_seed_model_has_a_score_where_all_groups_start_from_one(tmp_path: Path) -> None:
    for place in range(2):
        write(tmp_path / f"{place}", config(algorithm__alpha=place / 10))
    found = report.read(tmp_path)
    assert found.seed_score("dev/wer") == found.groups[1].score("dev/wer", "seed")
    write(tmp_path / "2", config(algorithm__alpha=0.2), seed_model=sentences(3, wrong=0.9))
    assert report.read(tmp_path).seed_score("dev/wer") is None


def test_metrics_of_several_units_take_a_picture_each() -> None:
    figure = Curves(("dev/wer", "train/loss", "train/label_wer"), baseline="seed", last=3)
    one, other = figure.parts()
    assert one == Curves(("dev/wer", "train/label_wer"), baseline="seed", last=3)
    assert other == Curves(("train/loss",), baseline="seed", last=3)
    assert Curves(("dev/wer", "dev/cer")).parts() == [Curves(("dev/wer", "dev/cer"))]


def test_labels_of_long_words_and_of_many_powers_of_ten_do_not_collide(tmp_path: Path) -> None:
    """The fixture `legible` looks at each figure."""
    for number, kind in enumerate(("by_examples", "layerwise_pruning", "trimmed_mean", "uniform", "a-much-longer-one")):
        settings = config(strategy__kind=kind, algorithm__client__lr=100.0**-number, algorithm__alpha=0.1 * number)
        write(tmp_path / kind, settings)
    found = report.read(tmp_path)
    for figure in (
        Trend("algorithm.client.lr", log=True),
        Scatter(("strategy.kind",)),
        Scatter(("algorithm.client.lr", "strategy.kind", "algorithm.alpha")),
    ):
        draw(figure, found)
    titles = [drawing.words for drawing in found.drawings().values()]
    assert len(set(titles)) == len(titles) and "Dev WER over visits of clients" in titles
