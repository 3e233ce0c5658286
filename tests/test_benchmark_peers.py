"""The comparison with other frameworks: it resumes, refuses numbers that do not fit, and computes what its page says.

The scripts of the other frameworks run only if their environment exists (`make bench-peers` makes it).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.engine import parts, peers, workloads
from benchmarks.engine.workloads import Workload

VERSIONS = {"pfl": "0.6.0", "flwr": "1.41.0", "ray": "2.55.1", "torch": "2.11.0", "speechbrain": "1.1.2"}
SECONDS = {"fedray": [1.0, 3.0], "floor": [2.0, 2.0], "pfl-research": [4.0, 4.0], "Flower": [8.0, 8.0]}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The frameworks that were asked to run, in order; none of them really runs."""
    order: list[str] = []

    def frameworks(bench: object, given: object) -> dict[str, Any]:
        def play(name: str) -> Any:
            return lambda workload, rounds: order.append(name) or SECONDS[name]

        return {name: play(name) for name in SECONDS}

    monkeypatch.setattr(peers, "frameworks", frameworks)
    return order


def measure(out: Path, turns: int, rounds: int = 3, fresh: bool = False) -> dict[str, Any]:
    bench, given = parts.Bench(out, parts.TINY, cores=2), SimpleNamespace(versions=lambda: VERSIONS)
    return peers.measure({"lite": workloads.KEYWORDS["lite"]}, turns, rounds, bench, given, out, fresh)


def test_turns_are_resumed_and_added_to(played: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "Flower", None)  # a run that fails
    with pytest.raises(TypeError):
        measure(tmp_path, 1)
    assert played == ["fedray", "floor", "pfl-research", "Flower"]
    monkeypatch.setitem(SECONDS, "Flower", [8.0, 8.0])
    measure(tmp_path, 1)
    assert played[4:] == ["Flower"]
    numbers = measure(tmp_path, 2)
    assert played[5:] == ["fedray", "floor", "pfl-research", "Flower"]
    assert json.loads((tmp_path / "peers.json").read_text()) == json.loads(json.dumps(numbers))
    measure(tmp_path, 2)
    assert len(played) == 9
    measure(tmp_path, 1, fresh=True)
    assert len(played) == 13


def test_other_rounds_or_workloads_are_refused(
    played: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(tmp_path, 1)
    with pytest.raises(SystemExit, match="was measured with another rounds: --fresh measures everything again"):
        measure(tmp_path, 1, rounds=4)
    monkeypatch.setitem(workloads.KEYWORDS, "lite", replace(workloads.KEYWORDS["lite"], clips=10))
    with pytest.raises(SystemExit, match="holds another workload lite"):
        measure(tmp_path, 1)


def test_the_page_has_medians_and_ratios(played: list[str], tmp_path: Path) -> None:
    text = peers.text(measure(tmp_path, 2))
    row = next(line for line in text.splitlines() if line.startswith("| CRNN-Lite"))
    shown = [cell.strip() for cell in row.strip("|").split("|")]
    assert shown[1:6] == ["28,067", "100", "2000", "200", "2.000"]
    assert shown[6:] == ["2.000 = 1.00 x [1.00, 1.00]", "4.000 = 2.00 x [2.00, 2.00]", "8.000 = 4.00 x [4.00, 4.00]"]
    assert "(turns: 2)" in text and "Flower 1.41.0 with Ray 2.55.1" in text and "`make bench-peers`" in text


def test_an_environment_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no virtual environment: `make bench-peers` makes .venv-peers"):
        peers.Peers(tmp_path, 2)


def test_tiny_numbers_stay_out_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["--tiny"])
    assert "--tiny needs --out" in capsys.readouterr().err


@pytest.fixture
def others() -> peers.Peers:
    if not (peers.ENVIRONMENT / ".installed").exists():
        pytest.skip(f"pfl-research and Flower are not installed: `make bench-peers` makes {peers.ENVIRONMENT.name}")
    return peers.Peers(peers.ENVIRONMENT, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["lite", "conformer", "crdnn"])
def test_the_other_frameworks_train_the_workload(name: str, others: peers.Peers) -> None:
    """`Peers` itself checks the number of examples."""
    workload: Workload = peers.tiny(workloads.WORKLOADS[name])
    for play in (others.pfl, others.flower):
        assert len(play(workload, 2)) == 1


@pytest.mark.long
def test_a_framework_that_fails_says_why(others: peers.Peers) -> None:
    with pytest.raises(RuntimeError, match=r"peer_pfl .* ended with 1(.|\n)*no_such_model"):
        others.pfl(replace(peers.tiny(workloads.WORKLOADS["crdnn"]), model="no_such_model"), 2)
