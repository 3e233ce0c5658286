"""The tables of benchmarks.studies.fedmlac_own: means over clients, and differences to FedAvg."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.fedmlac_own import ACCURACY, F1, ROWS, curves, of_row, table


def run(f1: float, model: str) -> dict[str, Any]:
    """A run of two clients, whose scores are 10 points apart, scored twice."""
    quarters = [
        {
            "round": done,
            "MB": 2.0 * done,
            "own": {name: {model: {F1: f1 + more + done, ACCURACY: 90.0}} for name, more in (("ann", -5), ("bob", 5))},
        }
        for done in (5, 10)
    ]
    return {"quarters": quarters, "new": {model: {F1: 40.0, ACCURACY: 50.0}} if model != "both" else {}}


def test_each_model_stands_beside_fedavg_before_and_after_the_clients_training() -> None:
    found = {}
    for place, (row, (_, model)) in enumerate(ROWS.items()):
        runs = [of_row(run(70.0 - place + seed, model), model, seed, 0.1, F1) for seed in (0, 2)]
        found[row] = runs
    part = {"found": found, "tuned": {row: {"0.1": 70.0, "1.2": 60.0} for row in ROWS}}
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in table(part, F1).splitlines()}
    assert "| 0.1 | 81.0 ± 1.4 | 90.0 ± 0.0 | +1.0 points [+1.0, +1.0] |  | 80.0, 82.0 |" in lines["FedAvg, broadcast"]
    assert "| 40.0 ± 0.0 | 50.0 ± 0.0 | 20.0 |" in lines["FedAvg, broadcast"]
    assert "-8.0 points [-8.0, -8.0] | -9.0 points [-9.0, -9.0] |" in lines["FedMLAC, both"]
    assert lines["FedMLAC, both"].endswith("|  |  | 20.0 |"), "not scored on new speakers"
    part["tuned"]["Ditto"] = {"0.6": 60.0, "1.2": 70.0}
    assert "| Ditto | 1.2* |" in table(part, F1), "at the edge"
    assert "| FedAvg, broadcast | 76.0 (10 MB) | 81.0 (20 MB) |" in curves(part, F1)
