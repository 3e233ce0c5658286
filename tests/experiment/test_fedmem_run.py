"""An end-to-end run of FedMem: memories on disk, each client scored on its own part, and the same after a resume."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedray
from tests import speech
from tests.algorithms.test_fedmem import FEDMEM

pytestmark = pytest.mark.usefixtures("in_process")


def settings(folder: Path) -> dict[str, Any]:
    """Settings that make a client of each first letter of the transcripts."""
    wanted = speech.settings(folder, algorithm={**FEDMEM, "k": [1, 4], "share": [0.0, 0.5]}, rounds=1)
    wanted["data"]["options"]["label_column"] = "letter"
    wanted["data"]["clients"] = {"by": "label"}
    return wanted | {
        "cohort": {"fraction": 1.0},
        "evaluation": {"shards": 2, "personal_final": True, "personal_predictions": True},
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    table = speech.write_corpus(folder, utterances=8)
    head, *rows = table.read_text(encoding="utf-8").splitlines()
    table.write_text(
        "\n".join([f"{head}\tletter", *(f"{row}\t{row.split(chr(9))[2][0]}" for row in rows)]) + "\n", encoding="utf-8"
    )
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "personal.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"))


@pytest.mark.long
def test_each_client_decodes_its_own_part_with_its_own_memory(corpus: Path, tmp_path: Path) -> None:
    folder = fedray.run(settings(corpus), out=tmp_path / "run").folder
    own = json.loads((folder / "results.json").read_text())["personal"]
    rows = table(folder)
    assert {row["client"] for row in rows} <= set("abcd") and own["clients"] == len({row["client"] for row in rows})
    scored = [
        (float(row["wer"]), float(row["wer_alone"])) for row in rows if row["split"] == "dev" and row["wer"] != "nan"
    ]
    assert scored and all(wer <= alone for wer, alone in scored), "chosen on dev, and a share of 0 could have been"
    said = (folder / "personal_predictions.tsv").read_text(encoding="utf-8").splitlines()
    for row in rows:
        mine = [
            one
            for one in csv.DictReader(said, delimiter="\t")
            if (one["client"], one["split"]) == (row["client"], row["split"])
        ]
        words = sum(int(one["words"]) for one in mine)
        for wer, errors in (("wer", "errors"), ("wer_alone", "errors_alone")):
            rate = 100 * sum(int(one[errors]) for one in mine) / words if words else math.nan
            assert float(row[wer]) == pytest.approx(rate, nan_ok=True)
    memories = sorted(path.relative_to(folder).as_posix() for path in (folder / "states").rglob("*.pt"))
    assert len(memories) == own["clients"]
    assert json.loads((folder / "results.json").read_text())["traffic/up_bytes"] == 8 * own["clients"], (
        "a number of examples each"
    )
    before = (folder / "personal.tsv").read_bytes()
    for name in ("results.json", "personal.tsv"):
        (folder / name).unlink()
    shutil.rmtree(folder / "model")
    fedray.resume(folder, ["engine.actors=2"])
    assert (folder / "personal.tsv").read_bytes() == before
