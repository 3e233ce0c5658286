"""`fedray run --debug` and `fedray model`, in this process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from fedray import cli
from tests import keywords

pytestmark = pytest.mark.usefixtures("workbench")
BAD = """
from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedavg import FedAvg


class Bad(FedAvg):
    def client_train(self, client, received):
        assert client.id != "s02", "no luck"
        return super().client_train(client, received)


ALGORITHMS["bad"] = Bad
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    keywords.write_corpus(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(keywords.settings(tmp_path, cohort={"size": 6}, rounds=2)))
    monkeypatch.chdir(tmp_path)
    return "config.yaml"


def test_rounds_are_printed_and_nothing_is_saved(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--debug", config]) == 0
    first, second, end = capsys.readouterr().out.splitlines()
    assert first.startswith("round 1/2  train/loss ") and "dev/accuracy" in first and first.endswith("  6 clients")
    assert second.startswith("round 2/2") and end.startswith("No client failed.")
    assert not Path("runs").exists()


def test_it_stops_where_a_client_fails(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bad_client.py").write_text(BAD)
    asked = ["run", "--debug", config, "imports=[bad_client]", "algorithm.kind=bad", "algorithm.pretrain.steps=0"]
    assert cli.main(asked) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.endswith("AssertionError: no luck\nclient s02 in round 1\n")
    assert 'bad_client.py", line 8, in client_train' in err
    stopped = []
    monkeypatch.setattr("pdb.post_mortem", lambda trace: stopped.append(trace))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert cli.main(asked) == 1 and len(stopped) == 1


def test_it_is_a_run_without_a_folder(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--out", "run"], ["--detach"], ["--dry-run"]):
        with pytest.raises(SystemExit):
            cli.main(["run", "--debug", config, *option])
        assert "--debug writes no run folder" in capsys.readouterr().err
    assert cli.main(["run", "--debug", config, "rounds=0"]) == 2


def test_the_model_is_shown_with_what_travels(no_ray: None, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", config, "algorithm.kind=scaffold"]) == 0
    lines = [line.strip("│ ").split("│") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert ["out.weight", "4 x 32", "128", "trained", "every round", "head"] in cells
    assert ["out.*", "2", "132", "trained", "every round"] in cells
    assert ["head", "2", "132", "trained", "every round"] in cells
    assert cells[-1] == ["Bytes to a client: 0 once, 23,632 every round, beside them c: 23,632."]
    personal = ["algorithm.personal=[head]", "evaluation.personal_final=true"]
    assert cli.main(["model", config, *personal]) == 0
    out = capsys.readouterr().out
    assert re.search(r"out.weight .*trained │ stays with the client", out)
    assert "Bytes to a client: 528 once, 23,104 every round." in out
