"""The tables of benchmarks.studies.worst_group: the worst dialect, personal models, and the choice of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies.worst_group import ARMS, DITTO, FEDAVG, by_dialect, draw, setting_of, table, wers

DIALECTS = {"ann": "en", "bob": "en", "cai": "en-029"}


def run(ann: int, bob: int, cai: int) -> dict[str, Any]:
    """A run whose speakers have so many errors in ten words each."""
    rows = [
        {"speaker": name, "words": 10, "errors": errors} for name, errors in (("ann", ann), ("bob", bob), ("cai", cai))
    ]
    counts = {dialect: study.packed(speakers) for dialect, speakers in by_dialect(rows, DIALECTS).items()}
    return {"seed": 0, "round": 30, "test": counts, "own": counts}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_rates_by_dialect() -> None:
    rows = [{"speaker": name, "words": 10, "errors": 2} for name in DIALECTS] + [
        {"speaker": "ann", "words": 20, "errors": 0}
    ]
    counts = by_dialect(rows, DIALECTS)
    assert counts == {"en": {"ann": (30, 2), "bob": (10, 2)}, "en-029": {"cai": (10, 2)}}
    assert wers(counts) == {"en": 10.0, "en-029": 20.0}


def test_changes_of_all_and_of_fedavgs_worst_dialect() -> None:
    found = {FEDAVG: [run(1, 1, 4)], "AFL": [run(2, 2, 2)], DITTO: [run(1, 1, 1)]}
    head, _, fedavg, afl = map(cells, table(found, "test", 60).splitlines())
    assert head == ["arm", "all", "en", "en-029", "worst - best", "best rounds", "all, change", "en-029, change"]
    assert fedavg == ["FedAvg", "20.0", "10.0", "40.0", "30.0", "30 of 60", "", ""]
    assert afl[:6] == ["AFL", "20.0", "20.0", "20.0", "0.0", "30 of 60"]
    assert [cell.partition(" ")[0] for cell in afl[6:]] == ["+0.0", "-50.0"]


def test_personal_models_are_scored_on_what_clients_hold_out() -> None:
    found = {FEDAVG: [run(1, 1, 4)], DITTO: [run(1, 1, 1)]}
    assert [cells(line)[0] for line in table(found, "test", 60).splitlines()[2:]] == [FEDAVG]
    assert [cells(line)[0] for line in table(found, "own", 60).splitlines()[2:]] == [FEDAVG, DITTO]


def test_the_picture_has_both_panels(tmp_path: Path) -> None:
    draw({FEDAVG: [run(1, 1, 4)], DITTO: [run(1, 1, 1)]}, tmp_path / "worst_group.png")
    assert (tmp_path / "worst_group.png").stat().st_size > 10_000


def test_the_setting_whose_worst_dialect_is_best() -> None:
    assert setting_of("AFL", {"AFL": {"step 0.01": 31.0, "step 0.1": 30.0, "step 1": 33.0}}) == "step 0.1"
    assert (
        setting_of("AFL, fast phones", {"AFL": {"step 0.01, server 1": 31.0, "step 0.1, server 2": 30.0}})
        in ARMS["AFL"]
    )
    assert setting_of("FedMem", {}) == ""
    assert len(ARMS) == len(set(map(study.folder_name, ARMS)))
