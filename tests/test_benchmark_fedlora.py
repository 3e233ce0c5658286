"""The tables of FedLoRA's studies: plain means over clients, and the pooled score of all words."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.studies import fedlora_long, fedmem_variants
from benchmarks.studies.fedlora_page import counts_of, packed, page, together

COLUMNS = ["client", "split", "utterance", "speaker", "words", "errors_lm", "errors_lm_alone"]
ROWS = [
    ["north", "test", "u1", "s1", 90, 9, 18],
    ["north", "test", "u2", "s2", 10, 1, 2],
    ["north", "dev", "u3", "s3", 10, 9, 9],
    ["south", "test", "u4", "s4", 10, 5, 5],
]


def found(tmp_path: Path) -> dict[str, list[dict[str, object]]]:
    lines = ["\t".join(COLUMNS), *("\t".join(map(str, row)) for row in ROWS)]
    (tmp_path / "personal_predictions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scores = {"north": {"alone": 20.0, "memory": 10.0}, "south": {"alone": 50.0, "memory": 50.0}}
    one = {"seed": 0, "scores": {"embedded": scores}, "counts": {"embedded": packed(counts_of(tmp_path, "wer_lm"))}}
    sent = {"tuned": 10, "parameters": 100, "clients": 2, "rounds": 3, "best": 2, "sent": 1e6, "a round": 1e5}
    return {"P-S2T": [one], "FedLoRA": [one | sent]}


def test_words_and_errors_by_client_and_speaker(tmp_path: Path) -> None:
    counts = found(tmp_path)["P-S2T"][0]["counts"]["embedded"]  # type: ignore[index]
    assert study.unpacked(counts["north"]["alone"]) == {"s1": (90, 18), "s2": (10, 2)}
    assert study.unpacked(counts["north"]["memory"]) == {"s1": (90, 9), "s2": (10, 1)}
    assert together(counts, "memory") == {"north s1": (90, 9), "north s2": (10, 1), "south s4": (10, 5)}


def test_a_table_has_the_plain_mean_and_the_pooled_rate(tmp_path: Path) -> None:
    text = page(found(tmp_path), {"embedded": "configs/fedmem/embedded.yaml"}, error=True)
    (row,) = [line for line in text.splitlines() if line.startswith("| FedLoRA + FedMem |")]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3] == "30.0", "the plain mean of 10 and 50"
    assert float(cells[4].split()[0]) == pytest.approx(100 * 15 / 110, abs=0.05) and "[" in cells[4]
    assert cells[5] == "5.0", "the mean gain"
    assert "P-S2T -> FedLoRA, both with FedMem" in text and "## Traffic" in text


def long_run(dev: str, sent: float, errors: int, seed: int = 0) -> dict[str, object]:
    """A run of benchmarks.studies.fedlora_long whose second round is the best."""
    counts = {"before": "60 of 100 by s1 | 6 of 10 by s2", "best": f"{errors} of 100 by s1 | 3 of 10 by s2"}
    best, once = min(float(score) for score in dev.split()), 0.0 if sent > 4 else 1.5
    scores = {"seed": seed, "round": 2, "dev of the best": best, "dev": dev}
    return {**scores, "MB once": once, "MB a round": sent, **counts}


def test_to_patience_the_first_seed_chooses_the_rate() -> None:
    found = {
        "FedAvg, 0.001": [long_run("60 40 30 35", 8.0, 20), long_run("60 44 34 35", 8.0, 24, seed=1)],
        "FedLoRA, rank 2, 0.005": [long_run("60 50 48 49", 1.0, 45)],
        "FedLoRA, rank 2, 0.01": [long_run("60 50 44 49", 1.0, 40)],
    }
    assert fedlora_long.by_method(found)["FedLoRA, rank 2"] == ["FedLoRA, rank 2, 0.01", "FedLoRA, rank 2, 0.005"]
    rows = fedlora_long.scores(found).splitlines()
    adapters = [cell.strip() for cell in rows[-1].split("|")[1:-1]]
    assert adapters[:3] == ["FedLoRA, rank 2", "0.01", "0.005: +4.0"]
    assert adapters[5].startswith("+18.2 points"), "against the seed that both have: 43 and 23 of 110 words"
    assert adapters[-2:] == ["2 of 3", "0"] and "0, 1" in rows[-2]


def test_rates_are_added_until_the_best_has_neighbours() -> None:
    rates = [f"{method}, {rate}" for method in ("FedAvg", "FedLoRA, rank 2") for rate in range(8)]
    assert fedlora_long.undecided(rates, {}) == [*rates[3:6], *rates[11:14]]
    found = {arm: [long_run(f"60 {score} 60", 8.0, 20)] for arm, score in zip(rates[3:6], (30, 31, 32), strict=True)}
    assert fedlora_long.undecided(rates, found) == [rates[2], *rates[11:14]], "the lowest rate is the best"
    found[rates[2]] = [long_run("60 33 60", 8.0, 20)]
    assert fedlora_long.undecided(rates[:8], found) == []


def test_bytes_are_compared_by_the_best_model_so_far() -> None:
    found = {
        "FedAvg, 0.001": [long_run("60 40 30 35", 8.0, 20)],
        "FedLoRA, rank 2, 0.01": [long_run("60 50 44 49", 3.0, 40)],
    }
    first = fedlora_long.equal_bytes(found).splitlines()[2]
    assert [cell.strip() for cell in first.split("|")[1:-1]] == ["1", "8.0", "40.0", "44.0 (+4.0)"], "with two rounds"


def test_the_plain_mean_counts_clients_alike() -> None:
    assert fedmem_variants.by_client([{"counts": "40 of 100 by a s1 | 20 of 100 by a s2 | 5 of 10 by b s3"}]) == 40


def test_a_memory_s_variants_are_compared_with_none_and_with_the_paper_s() -> None:
    def run(errors: int, **memory: object) -> dict[str, object]:
        return {"seed": 0, "counts": f"{errors} of 100 by a s1 | {errors} of 100 by b s2", **memory}

    memory = {"pairs": [1000, 3000], "slower": 1.25, "chosen": ["k=4", "k=4", "k=8"]}
    found = {"none": [run(40)], "as in the paper": [run(30, **memory)], "radius": [run(28, **memory)]}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in fedmem_variants.page(found).splitlines()[2:]]
    assert rows[0] == ["none", "40.0 [40.0, 40.0]", "40.0", "", "", "", "", "", "0"]
    assert rows[1][3:5] == ["-10.0 points [-10.0, -10.0]", ""]
    assert rows[2][3:] == [
        "-12.0 points [-12.0, -12.0]", "-2.0 points [-2.0, -2.0]", "2,000", "80.0 %", "k=4; k=8", "0",
    ]  # fmt: skip
