"""End-to-end runs of translation with FedAvg, FedLoRA and FedMem: bits, scores of the tables, and the report.

The bits are the same for any number of actors and after a resume.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import sacrebleu

import fedray
from fedray import report
from fedray.runs.folder import RunFolder
from tests import speech
from tests.engine.runs import same_on_more_actors_and_resumed
from tests.training.test_translation import settings

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.long]
ROUNDS = 2
PRETRAIN = {"steps": 120, "warmup": 10, "batch": 8, "lr": 5e-3}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "fedavg": {"client": {"lr": 0.02, "batch": 4}, "pretrain": PRETRAIN},
    "fedlora": {
        "client": {"lr": 0.005, "batch": 4, "warmup": 2},
        "lora": {"rank": 2, "targets": ["self_att", "ffn"]},
        "pretrain": PRETRAIN,
    },
}
MEMORY = {
    "kind": "fedmem",
    "k": [1, 4],
    "share": [0.0, 0.5],
    "temperature": [1.0, 10.0],
    "memory": {"keys": "states"},
    "pretrain": {"steps": 0},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones"), utterances=8).parent


@pytest.fixture(scope="module", params=ALGORITHMS)
def straight(
    request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory, in_process: None
) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "run"
    return request.param, fedray.run(wanted(corpus, request.param), out=out).folder


def wanted(corpus: Path, kind: str, **more: Any) -> dict[str, Any]:
    return settings(corpus, algorithm={**ALGORITHMS[kind], "kind": kind}, rounds=ROUNDS, **more)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_any_number_of_actors_and_a_resume_give_the_same_bits(
    straight: tuple[str, Path], corpus: Path, tmp_path: Path
) -> None:
    kind, one = straight
    two = tmp_path / "two"
    same_on_more_actors_and_resumed(wanted(corpus, kind, evaluation={"shards": 3}), one, two)
    assert (two / "predictions.tsv").read_bytes().count(b"\n") == (one / "predictions.tsv").read_bytes().count(b"\n")
    scores, others = (json.loads((folder / "results.json").read_text()) for folder in (one, two))
    assert (scores["seed"], scores["best"]) == (others["seed"], others["best"])


def test_scores_are_sacrebleus_of_all_predictions(straight: tuple[str, Path]) -> None:
    _, folder = straight
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert "tok:zh|smooth:exp" in results["signatures"]["bleu"] and "nc:6" in results["signatures"]["chrf"]
    table = rows(folder, "predictions.tsv")
    for model in ("seed", "best"):
        for split in ("dev", "test"):
            of_part = [row for row in table if (row["model"], row["split"]) == (model, split)]
            references = [[row["reference"] for row in of_part]]
            for suffix in ("", "_beam"):
                found = [row[f"hypothesis{suffix}"] for row in of_part]
                expected = sacrebleu.corpus_bleu(found, references, tokenize="zh").score
                assert results[model][f"{split}/bleu{suffix}"] == expected
                expected = sacrebleu.corpus_chrf(found, references).score
                assert results[model][f"{split}/chrf{suffix}"] == expected
    by_round = {row["round"]: row["dev/bleu"] for row in RunFolder(folder).rows("metrics.jsonl")}
    assert by_round[results["best"]["round"]] == max(by_round.values()), "the largest is the best"


def test_the_report_shows_sources_and_signatures(straight: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = straight
    found = report.read(folder)
    assert found.metric == "test/bleu" and "smooth:exp" in found.caption
    page = Path(found.save(tmp_path / "page")).read_text(encoding="utf-8")
    worst = found.worst(3).utterances
    assert worst[0].source and worst[0].bleu == min(one.bleu for one in worst)
    for shown in (worst[0].source, worst[0].reference, "BLEU, greedy search", "By speaker", "test BLEU"):
        assert shown in page


def test_each_client_translates_with_its_own_memory(straight: tuple[str, Path], corpus: Path, tmp_path: Path) -> None:
    kind, before = straight
    sections = {"cohort": {"fraction": 1.0}, "evaluation": {"shards": 2, "personal_final": True}}
    chosen = settings(corpus, algorithm=MEMORY, **sections)
    chosen["model"] = {**chosen["model"], "init": str(before / "model" / "model.pt")}
    folder = fedray.run(chosen, out=tmp_path / "memory").folder
    own = json.loads((folder / "results.json").read_text())["personal"]
    table = rows(folder, "personal.tsv")
    for name in ("bleu", "bleu_alone", "bleu_beam", "bleu_beam_alone", "chrf"):
        of_test = [float(row[name]) for row in table if row["split"] == "test"]
        assert own[f"test/{name}"] == pytest.approx(fmean(of_test)), "the plain mean over clients"
    alone = json.loads((before / "results.json").read_text())["best"]["test/bleu"]
    assert {float(row["bleu_alone"]) for row in table if row["split"] == "test"} == {alone} or kind == "fedlora"
    kept = (folder / "personal.tsv").read_bytes()
    for name in ("results.json", "personal.tsv"):
        (folder / name).unlink()
    shutil.rmtree(folder / "model")
    fedray.resume(folder, ["engine.actors=2"])
    assert (folder / "personal.tsv").read_bytes() == kept
    assert report.read(folder).metric == "personal/test/bleu"
