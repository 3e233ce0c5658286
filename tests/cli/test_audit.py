"""`fedray data` says what would make a run wrong and what a model cannot learn, with the command that shows it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from fedray import cli
from tests import small_corpus
from tests.cli.test_population import CLIENTS, DEV, SERVER, row, shown
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_corpus.write(tmp_path, server=SERVER, clients=CLIENTS, dev=DEV)


def test_what_makes_a_run_wrong_has_a_status_and_a_command_that_shows_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unrendered: None
) -> None:
    monkeypatch.chdir(folder)
    config = small_corpus.config(folder, "server", "clients", "dev")
    (folder / "my config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "d1.wav").write_bytes((folder / "b1.wav").read_bytes())
    assert cli.main(["data", "my config.yaml", "rounds=3"]) == 2
    text = capsys.readouterr().out
    assert "makes a run wrong: 1 of 2 utterances that are scored have the same audio as one for training" in text
    (line,) = [line for line in text.splitlines() if "look and listen" in line]
    command = line.partition("look and listen: fedray ")[2]
    assert command == "data 'my config.yaml' rounds=3 --show look --only d1.wav b1.wav"
    assert cli.main(shlex.split(command)) == 0
    page = (folder / "look" / "utterances.html").read_text(encoding="utf-8")
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["d1.wav", "b1.wav"] and page.count("<audio") == 2
    assert cli.main(["data", "my config.yaml", "--show", "look", "--only", "bob"]) == 0
    assert (folder / "look" / "utterances.html").read_text(encoding="utf-8").count("<audio") == 2


def test_what_cannot_be_learnt_is_counted_by_part_and_client(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", "dev", model={"kind": "conformer"})
    long = " ".join(["one two"] * 3)
    table = (folder / "clients.tsv").read_text(encoding="utf-8")
    (folder / "clients.tsv").write_text(table.replace("a0.wav\tann\tone two", f"a0.wav\tann\t{long}"), encoding="utf-8")
    text, problems = shown(config, folder)
    assert row(text, "client ann") == ["client ann", "1", "6", f"{100 / 6:.1f} %"]
    counted = text.split("Cannot be learnt")[1]
    assert row(counted, "clients")[1:3] == ["1", "9"] and row(counted, "server")[1:3] == ["0", "4"]
    (problem,) = [problem for problem in problems if "cannot be learnt" in problem.text]
    # 0.4 s are 38 frames, of which the front leaves 10. The text has 23 characters, and no two equal neighbours.
    assert problem.text.startswith("1 of 15 utterances cannot be learnt: 1 of the 13 to train on, in 1 of 3 clients")
    assert "a0.wav: it needs 23 frames, and of its 38 the model leaves 10" in problem.text and not problem.stops
    (folder / "clients.tsv").write_text(table.replace("c0.wav\tcid\tone", f"c0.wav\tcid\t{long}"), encoding="utf-8")
    _, problems = shown(config, folder)
    (problem,) = [problem for problem in problems if "cannot be learnt" in problem.text]
    assert problem.stops and "more than two thirds of the utterances of cid" in problem.text
    _, problems = shown(config, folder, "task.unlearnable=warn")
    assert not any(problem.stops for problem in problems)
