"""What is reported of clients' own models: each with what is its own beside what all share alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray import report
from fedray.report.own import means
from tests.report.folders import config, write

SCORES = {"007": (20.0, 50.0), "bob": (30.0, 40.0)}  # with what is its own, and alone


def remembering(folder: Path, seed: int = 0, worse: float = 0.0) -> Path:
    """A run of two clients."""
    run = write(folder, config(seed=seed))
    rows = [f"{client}\ttest\t{own + worse}\t{alone}" for client, (own, alone) in SCORES.items()]
    (run / "own.tsv").write_text("\n".join(["client\tsplit\twer\twer_alone", *rows]) + "\n")
    results = json.loads((run / "results.json").read_text())
    told = {"test/wer": 25.0 + worse, "test/wer_sd": 5.0, "test/wer_alone": 45.0, "test/wer_alone_sd": 5.0}
    (run / "results.json").write_text(json.dumps(results | {"own": {"clients": 2, **told}}))
    return run


def test_own_models_are_compared_from_what_all_share_alone(tmp_path: Path) -> None:
    for seed in (0, 1):
        remembering(tmp_path / str(seed), seed, worse=2.0 * seed)
    found = report.read(tmp_path)
    assert found.metric == "own/test/wer"
    group = found.groups[0]
    assert group.score("own/test/wer", "seed") == 45.0 and group.score("own/test/wer") == 26.0
    assert means(group.finished, "own/test/wer") == {"007": 21.0, "bob": 31.0}  # a name of digits stays a name
    page = Path(found.save(tmp_path / "out"))
    text = page.with_suffix(".md").read_text()
    assert "takes the own test WER from 45.0 to 26.0 %" in text and "45.0 → 26.0" in text and "alone → with" in text
    assert "wer_alone" not in text and "own-own-test-wer.png" in text
    assert "007" in (tmp_path / "out" / "figures" / "own-own-test-wer.svg").read_text()


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    run = remembering(tmp_path / "run")
    (run / "own.tsv").write_text("client\tsplit\twer\nann\ttest\n")
    with pytest.raises(ValueError, match=r"own\.tsv: is damaged .*remove it to do without"):
        report.read(run).save(tmp_path / "out")
    (run / "own.tsv").unlink()
    report.read(run).save(tmp_path / "out")


def test_a_picture_of_clients_is_of_their_own_models() -> None:
    with pytest.raises(ValueError, match="such as own/test/wer, not 'test/wer'"):
        report.Own("test/wer")
