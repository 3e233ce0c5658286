"""The tables of benchmarks.studies.attacks: the strength that an attacker chooses, and what a defence costs."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.attacks import BACKDOOR, MEAN, NOBODY, tables, worst


def run(right: int, success: float | None = None, dev: float = 50.0) -> dict[str, Any]:
    """A run of two speakers with ten clips each, of which one has `right` right answers and the other all."""
    scores = {"seed": 0, "dev": dev, "test": 5.0 * (right + 10), "round": 60}
    more = {} if success is None else {"success": success}
    return scores | more | {"counts": {"ann": (10, right), "bob": (10, 10)}}


def test_accuracies_and_changes() -> None:
    found = {
        MEAN: {NOBODY: [run(10)], "noise": [run(0)], BACKDOOR: [run(10, 90.0)]},
        "median": {NOBODY: [run(8)], "noise": [run(8)], BACKDOOR: [run(6, 20.0)]},
    }
    lines = tables(found, 60).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-2]] == [
        "mean",
        "100.0",
        "50.0",
        "100.0",
        "90.0",
        "50.0 (noise)",
    ]
    assert [cell.strip() for cell in lines[3].split("|")[1:-2]] == [
        "median",
        "90.0",
        "90.0",
        "80.0",
        "20.0",
        "80.0 (backdoor)",
    ]
    changes = [[cell.strip().partition(" ")[0] for cell in line.split("|")[1:-1]] for line in lines[-2:]]
    assert changes == [["mean", "-50.0", "+0.0", ""], ["median", "+0.0", "-10.0", "-10.0"]]


def test_an_attacker_chooses_by_dev() -> None:
    weak, strong = [run(0, dev=60.0)], [run(9, dev=40.0)]
    assert worst([weak, strong]) is strong
