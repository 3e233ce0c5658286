"""`fedray report` names a damaged file of a run folder and ends with status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedray import cli
from tests.report.folders import write

pytestmark = pytest.mark.usefixtures("unrendered")


def damaged(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("name", "cut", "words"),
    [
        ("predictions.tsv", -7, "predictions.tsv: the last row is incomplete"),
        ("predictions.tsv", -31, "predictions.tsv"),
        ("results.json", 40, "is not JSON"),
        ("config.yaml", 0, "config.yaml: holds no configuration"),
        ("results.json", 0, "results.json:1: is not JSON"),
        ("metrics.jsonl", 0, ""),
    ],
)
def test_a_damaged_file_is_named(
    tmp_path: Path, name: str, cut: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "run")
    text = (folder / name).read_text()
    damaged(folder, name, text[:cut])
    status = cli.main(["report", str(folder)])
    assert status == (2 if words else 0)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("results.json", '{"seed": {"round": 0}}', "results.json: lacks the scores"),
        ("results.json", "[]", "results.json: is not a JSON object"),
        ("metrics.jsonl", '{"round": 1}\n7\n', "metrics.jsonl:2: is not a row of a round"),
        ("clients.parquet", "PAR1", "clients.parquet: is damaged"),
        ("failures.jsonl", '{"round": 1}\n', "failures.jsonl:1: is not a row of a round"),
        ("run.json", '{"changes": [{}]}', "run.json: changes must be a list of differences and rounds"),
        ("run.json", '{"mixed": {"processors": 2}}', "run.json: mixed must be a list of texts"),
        ("audit.tsv", "client\tinside\nann\t1\n", "audit.tsv: has no column score"),
    ],
)
def test_a_file_that_holds_something_else_is_named(
    tmp_path: Path, name: str, content: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(damaged(write(tmp_path / "run"), name, content))]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("personal", "words"),
    [([1], "personal must be an object of scores"), ({"test/wer": "x"}, "personal: test/wer")],
)
def test_personal_scores_that_are_none(
    tmp_path: Path, personal: object, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "run")
    results = json.loads((folder / "results.json").read_text())
    damaged(folder, "results.json", json.dumps(results | {"personal": personal}))
    assert cli.main(["report", str(folder)]) == 2
    assert words in capsys.readouterr().err


def test_rows_that_lack_cells_or_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "run")
    lines = (folder / "predictions.tsv").read_text().splitlines()
    damaged(folder, "predictions.tsv", "\n".join([*lines[:5], lines[5].rpartition("\t")[0], *lines[6:]]) + "\n")
    assert cli.main(["report", str(folder)]) == 2 and "predictions.tsv" in capsys.readouterr().err
    damaged(folder, "predictions.tsv", "\n".join(line.rpartition("\t")[0] for line in lines) + "\n")
    assert cli.main(["report", str(folder)]) == 2 and "has no column errors" in capsys.readouterr().err
    damaged(folder, "predictions.tsv", "\n".join(lines[:-1]) + "\n")
    assert cli.main(["report", str(folder)]) == 2 and "have not scored the same utterances" in capsys.readouterr().err
    damaged(folder, "predictions.tsv", "\n".join([*lines[:5], lines[5].rpartition("\t")[0] + "\t", *lines[6:]]) + "\n")
    assert cli.main(["report", str(folder)]) == 2 and "a row has no words or errors" in capsys.readouterr().err
    damaged(folder, "predictions.tsv", "\n".join(lines).replace("\t4\t", "\tfour\t") + "\n")
    assert cli.main(["report", str(folder)]) == 2 and "predictions.tsv" in capsys.readouterr().err
