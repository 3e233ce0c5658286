"""Audits and bounds of layers in a report: a table of each, and an attacker's true over false positives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedray import report
from fedray.report import privacy
from fedray.report.drawing import inversions
from fedray.report.drawing.audits import rates
from fedray.runs.folder import RunFolder
from tests.report.folders import config, write

FOUND = {"kind": "canaries", "inside": 2, "outside": 3, "auroc": 5 / 6, "true_positives": 0.5}
FOUND |= {"true_positives_low": 0.013, "true_positives_high": 0.987, "epsilon_low": 0.25, "epsilon_claimed": None}
SCORES = [(1, 3.0), (1, 1.0), (0, 2.0), (0, 0.5), (0, 0.0)]


def audited(folder: Path, seed: int = 0) -> Path:
    run = write(folder, config(seed=seed))
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"audit": FOUND}))
    lines = [f"canary-{number}\t{inside}\t{score}" for number, (inside, score) in enumerate(SCORES)]
    (run / "audit.tsv").write_text("\n".join(["client\tinside\tscore", *lines]) + "\n")
    return run


@pytest.mark.usefixtures("unrendered")
def test_a_report_shows_what_an_attacker_finds(tmp_path: Path) -> None:
    for seed in (0, 1):
        audited(tmp_path / str(seed), seed)
    found = report.read(tmp_path)
    false, true = rates(found.runs[0]) or ([], [])
    assert list(true) == [0, 50, 50, 100, 100, 100]
    assert list(false) == pytest.approx([0, 0, 100 / 3, 100 / 3, 200 / 3, 100])
    page = Path(found.save(tmp_path / "out"))
    text = page.with_suffix(".md").read_text()
    assert "## Audit" in text and text.count("| 0.833 | 50 (1 to 99) | 0.25 | none | no |") == 2
    assert (tmp_path / "out" / "figures" / "audits.png").exists()
    assert "<h2>Audit</h2>" in page.read_text()


@pytest.mark.usefixtures("unrendered")
def test_a_report_shows_what_updates_give_away(tmp_path: Path) -> None:
    run = write(tmp_path / "run", config(seed=3))
    one = {"clients": 20, "accuracy": 0.62, "chance": 0.4, "auroc": 0.75, "auroc_low": 0.61, "auroc_high": 0.88}
    same = {"clients": 19, "first": 0.26, "chance": 0.05, "auroc": 0.9, "auroc_low": 0.8, "auroc_high": 1.0}
    found = {"kind": "updates", "sums": {"5": {"attributes": {"gender": one}, "same_client": same}}}
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"audit": found}))
    (run / "audit.tsv").write_text("client\tattribute\tvalue\tguess\tscore\nann\tgender\tf\tm\t-0.5\n")
    read = report.read(run)
    assert read.runs[0].audit is None and privacy.audits(read.groups) == []
    text = Path(read.save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "## What updates give away" in text and "## Audit" not in text
    assert "| 3 | 5 | gender | 20 | 62 | 40 | 0.75 (0.61 to 0.88) |" in text
    assert "| 3 | 5 | same client | 19 | 26 | 5 | 0.90 (0.80 to 1.00) |" in text
    found["sums"]["5"]["same_client"] = None
    (run / "results.json").write_text(json.dumps(results | {"audit": found}))
    assert len(privacy.updates(report.read(run).groups)) == 1


def test_a_report_shows_what_an_inversion_reconstructs(tmp_path: Path) -> None:
    run = write(tmp_path / "run", config(seed=3))
    one = {"utterances": 5, "likeness": 0.71, "likeness_low": 0.6}
    one |= {"likeness_high": 0.8, "others": 0.2, "first": 0.6, "chance": 0.2, "match": 0.97}
    found = {"kind": "inversion", "clients": 5, "first": one, "last": one | {"likeness": 0.66}}
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"audit": found}))
    (run / "audit.tsv").write_text("client\tutterance\ttarget\tmatch\tlikeness\tothers\tfirst\n")
    drawn = [torch.randn(2, 30, 8, generator=torch.Generator().manual_seed(number)) for number in range(5)]
    pairs = {f"u{number}": {"true": one[0], "made": one[1]} for number, one in enumerate(drawn)}
    torch.save({"first": pairs, "last": pairs}, run / "audit.pt")
    read = report.read(run)
    text = Path(read.save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "## What updates give away of speech" in text and "## Audit" not in text
    assert "0.71 (0.60 to 0.80) | 0.20 | 60 | 20 |" in text and "0.66 (0.60 to 0.80)" in text
    assert (tmp_path / "out" / "figures" / "inversions.png").exists()
    for spoiled in ({"true": drawn[0][0]}, {"true": drawn[0][0], "made": 1}, {"true": drawn[0][0], "made": drawn[0]}):
        torch.save({"first": {"u0": spoiled}}, run / "audit.pt")
        with pytest.raises(ValueError, match=r"audit.pt: is damaged \(u0: true and made must be log-mels"):
            inversions.first(report.read(run).runs)
    for content in ({"last": pairs}, {"first": 1}):
        torch.save(content, run / "audit.pt")
        with pytest.raises(ValueError, match=r"audit.pt: is damaged \(it has no reconstructions"):
            inversions.first(report.read(run).runs)
    (run / "audit.pt").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"audit.pt: is damaged"):
        report.read(run).save(tmp_path / "out")


@pytest.mark.usefixtures("unrendered")
def test_a_run_that_is_resumed_may_have_the_table_of_another_audit(tmp_path: Path) -> None:
    """results.json is not there yet and says nothing about audit.tsv, which holds no candidates."""
    run = write(tmp_path / "run", played=2)
    (run / "audit.tsv").write_text("client\tattribute\tvalue\tguess\tscore\nann\tgender\tf\tm\t-0.5\n")
    read = report.read(run)
    assert read.runs[0].audit is None and Path(read.save()).exists()


@pytest.mark.usefixtures("unrendered")
def test_layers_have_a_table(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    rows = RunFolder(run).rows("metrics.jsonl")
    for row in rows:
        row |= {"privacy/bound|encoder": 0.1 * row["round"], "privacy/clipped|encoder": 0.5}
    RunFolder(run).rewrite("metrics.jsonl", rows)
    text = Path(report.read(run).save(tmp_path / "out")).with_suffix(".md").read_text()
    assert "## Bounds by layer" in text and "| encoder | 0.2000 | 50 |" in text
    assert "## Audit" not in text


def private(folder: Path, seed: int, **spent: object) -> Path:
    run = write(folder, config(seed=seed))
    rows = RunFolder(run).rows("metrics.jsonl")
    for row in rows:
        row |= {"privacy/epsilon": 1.0 + row["round"], "privacy/snr": 0.25 * row["round"], "privacy/clipped": 0.5}
    RunFolder(run).rewrite("metrics.jsonl", rows)
    results = json.loads((run / "results.json").read_text())
    results["privacy"] = {"delta": 1e-7, "noise": 0.61, "rounds": len(rows), "epsilon": 8.0} | spent
    (run / "results.json").write_text(json.dumps(results))
    return run


def test_a_private_run_shows_what_it_spent(tmp_path: Path) -> None:
    private(tmp_path / "0", 0, epsilon_simulated=None)
    private(tmp_path / "1", 1, epsilon_simulated=7_619_943.8)
    found = report.read(tmp_path)
    page = Path(found.save(tmp_path / "out"))
    text = page.with_suffix(".md").read_text()
    assert "## Privacy" in text and "| 8.000 | no guarantee | 1e-07 | 0.610 | 0.50 | 50 |" in text
    assert "| 8.000 | 7,619,944 | 1e-07 |" in text
    figures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert {"curves-privacy-epsilon", "curves-privacy-snr", "curves-privacy-clipped"} <= figures
    table = (tmp_path / "out" / "report.csv").read_text().splitlines()
    assert {"privacy epsilon", "privacy epsilon_simulated", "privacy delta", "privacy noise"} <= set(
        table[0].split(",")
    )


def test_bounds_of_layers_are_one_share_of_clipped_updates(tmp_path: Path) -> None:
    """The share is the mean over the layers, in which 20 and 60 % of the updates exceed their bounds."""
    run = private(tmp_path / "run", 0)
    rows = RunFolder(run).rows("metrics.jsonl")
    for row in rows:
        del row["privacy/clipped"]
        row |= {"privacy/clipped|encoder": 0.2, "privacy/clipped|head": 0.6}
    RunFolder(run).rewrite("metrics.jsonl", rows)
    (row,) = privacy.spent(report.read(run).groups)
    assert (row["clipped (%)"], row["signal to noise"]) == ("40", "0.50")


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    run = audited(tmp_path / "run")
    (run / "audit.tsv").write_text("client\tinside\tscore\nann\n")
    with pytest.raises(ValueError, match=r"audit.tsv: is damaged"):
        report.read(run).save(tmp_path / "out")
