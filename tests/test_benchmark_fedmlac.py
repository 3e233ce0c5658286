"""The tables of benchmarks.studies.fedmlac_own: means over clients, and differences to FedAvg."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.fedmlac_own import METHODS, packed, table


def result(own: float, seed: int = 0) -> dict[str, Any]:
    """A run of two clients, whose accuracies are 10 points apart."""
    scores = {"ann": own - 5, "bob": own + 5}
    return {
        "seed": seed,
        "personal": {"own": packed(scores), "test": packed(dict.fromkeys(scores, 40.0))},
        "shared": {"test/accuracy": 60.0, "own/accuracy": 55.0},
        "rounds": [(10, own - 20), (20, own - 10), (30, own)],
    }


def test_personal_accuracy_stands_beside_that_of_fedavg() -> None:
    found = {method: [result(80.0 - 10 * place), result(82.0 - 10 * place, 1)] for place, method in enumerate(METHODS)}
    lines = table(found).splitlines()
    fedavg, ditto = (next(line for line in lines if line.startswith(f"| {name} ")) for name in ("FedAvg", "Ditto"))
    assert fedavg.startswith("| FedAvg | 81.0 ± 1.4 |  | 40.0 ± 0.0 |  |  |  | 55.0 ± 0.0 | 60.0")
    assert "71.0 ± 1.4 | -10.0 points [-10.0, -10.0] | 40.0 ± 0.0 | +0.0 points" in ditto
    found["FedMLAC"][0]["personal"] |= {"plugin": packed({"ann": 70.0, "bob": 80.0}), "both": packed({"ann": 90.0})}
    assert "| 75.0 | 90.0 | 55.0 |" in table({"FedMLAC": found["FedMLAC"][:1]})
    assert "61.0 ± 1.4, 71.0 ± 1.4" in ditto  # after two of three scored rounds, and at the end
