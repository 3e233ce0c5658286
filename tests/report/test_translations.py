"""Translation in a report: metrics in words, BLEU by speaker, the worst with their sources, and signatures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from fedray import report
from fedray.data.text.translation_scores import sentence_bleu, signatures, translation_scores
from fedray.experiment.result import Result
from fedray.report import words
from fedray.runs.folder import RunFolder
from tests.report.folders import config, write

SOURCES = ["the cat sleeps", "we go home", "it rains today", "<b>good</b>"]
REFERENCES = ["猫在睡觉呢", "我们现在回家", "今天又下雨了", "好的好的"]
SEED = ["猫猫", "我们回", "今天", "好的"]
BEST = ["猫在睡觉", "我们现在回家", "今天下雨了", "坏"]
SPEAKERS = ["ann", "ann", "bob", "bob"]


def rows(hypotheses: list[str]) -> list[dict[str, Any]]:
    scores = [round(score, 2) for score in sentence_bleu(REFERENCES, hypotheses, "zh")]
    columns = {
        "utterance": [f"u{number}" for number in range(4)],
        "speaker": SPEAKERS,
        "label": ["us", "us", "uk", "uk"],
        "source": SOURCES,
        "reference": REFERENCES,
        "hypothesis": hypotheses,
        "bleu": scores,
        "errors": [0] * 4,  # for `write`, which computes a rate
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write(tmp_path / "run", config(task__kind="translation"), rows(SEED), rows(BEST))
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for model, found in (("seed", SEED), ("best", BEST)):
        scores = dict(translation_scores(REFERENCES, found, "zh").prefixed("test"))
        results[model] = {"round": results[model]["round"], **scores}
    results["signatures"] = signatures("zh")
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    played = [{"round": n, "dev/bleu": 10.0 * n, "time/round_s": 1.0} for n in (1, 2, 3)]
    RunFolder(folder).rewrite("metrics.jsonl", played)
    return folder


@pytest.mark.usefixtures("unrendered")
def test_the_report_is_of_bleu(folder: Path, tmp_path: Path) -> None:
    found = report.read(folder)
    assert found.metric == "test/bleu" and signatures("zh")["bleu"] in found.caption
    (row,) = report.tables.rows(found)
    before, after = (sacrebleu.corpus_bleu(texts, [REFERENCES], tokenize="zh").score for texts in (SEED, BEST))
    assert row["test BLEU"] == f"{before:.1f} → {after:.1f}" and row["change"].startswith(
        f"+{after - before:.1f} points ["
    )
    assert "test chrF" in row
    page = Path(found.save(tmp_path / "page")).read_text(encoding="utf-8")
    assert "BLEU, greedy search" in page and "By speaker" in page and "By label" in page
    assert "&lt;b&gt;good" in page and "<b>good" not in page, "the source is escaped"
    assert (tmp_path / "page" / "figures" / "curves-dev-bleu.svg").is_file()


def test_parts_and_the_worst_translations(folder: Path) -> None:
    run = report.read(folder).runs[0]
    found = report.page.errors_of(run, "test")
    ann, bob = (
        sacrebleu.corpus_bleu(BEST[part], [REFERENCES[part]], tokenize="zh").score
        for part in (slice(0, 2), slice(2, 4))
    )
    assert [(part.name, part.utterances, part.best) for part in found.speakers] == [("bob", 2, bob), ("ann", 2, ann)]
    assert [part.name for part in found.labels] == ["uk", "us"]
    worst = found.worst
    assert [one.id for one in worst] == ["u3", "u2", "u0"], "the worst first, and no perfect one"
    assert (worst[1].source, worst[1].reference) == (SOURCES[2], REFERENCES[2])
    assert [edit.hypothesis for edit in (*worst[1].edits, *worst[1].before)] == [BEST[2], SEED[2]]
    assert Result.read(folder).predictions()["bleu"].dtype == float


def test_signatures_that_are_no_texts_are_named(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (folder / "results.json").write_text(json.dumps(results | {"signatures": {"bleu": 7}}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"results.json: signatures must be an object of texts"):
        report.read(folder)


def test_metrics_in_words() -> None:
    assert words.with_unit("test/bleu_beam") == "test BLEU, beam search" and words.rising("test/bleu_beam")
    assert words.with_unit("personal/dev/chrf") == "personal dev chrF" and words.rising("train/label_bleu")
    assert words.with_unit("test/accuracy") == "test accuracy (%)" and not words.rising("test/wer_lm")
    assert words.number(23.456, "test/bleu") == "23.5" and words.unit("dev/chrf_beam") == ""
