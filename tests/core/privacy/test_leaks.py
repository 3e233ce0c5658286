"""An attacker finds what is planted in updates, and is at chance where nothing is; sums and noise hide it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from fedray.core.privacy import inference, recognition
from fedray.core.privacy.leaks import Leaks, Observed, Sums
from fedray.core.privacy.observations import Observations, companions
from fedray.core.privacy.sketches import Sketch, Sketcher
from fedray.core.types import Layer

LAYERS = (Layer("one", 0, 300), Layer("two", 300, 2000), Layer("three", 2000, 2010))
SKETCHER = Sketcher(LAYERS, 0, buckets=400)
KINDS = ("a", "b", "c")


def normal(*names: int) -> np.ndarray:
    return np.random.default_rng(names).standard_normal(2010)


@functools.cache
def observed(client: int, attribute: float, person: float) -> Observed:
    """A client's updates: noise, what its kind has in common, and what is its own in all updates."""
    kind, own = attribute * normal(0, client % 3), person * normal(1, client)
    parts = [(normal(2, client, turn) + kind + own).astype(np.float32) for turn in range(4)]
    found: list[Sketch] = [SKETCHER.sketch(part) for part in parts]
    return Observed(f"c{client:03d}", (found[0], found[1]), (found[2], found[3]))


def leaks(attribute: float = 0.0, person: float = 0.0, clients: int = 60, sums: Sums | None = None) -> Leaks:
    everybody = [observed(client, attribute, person) for client in range(2 * clients)]
    return Leaks(everybody[:clients], everybody[clients:], SKETCHER.layout, sums or Sums(), 0)


def kinds(clients: int = 120) -> dict[str, str]:
    return {f"c{client:03d}": KINDS[client % 3] for client in range(clients)}


def test_a_planted_attribute_is_found() -> None:
    found, rows = leaks(attribute=0.5).attribute("kind", kinds())
    assert found["values"] == 3 and found["clients"] == 60 and found["chance"] == pytest.approx(1 / 3)
    assert found["accuracy"] > 0.95 and found["auroc"] > 0.98 and found["balanced_accuracy"] > 0.95
    assert found["auroc_low"] <= found["auroc"] <= found["auroc_high"] <= 1
    assert [row["client"] for row in rows] == [f"c{client:03d}" for client in range(60, 120)]
    assert np.mean([row["guess"] == row["value"] for row in rows]) == found["accuracy"]
    assert all((row["score"] > 0) == (row["guess"] == row["value"]) for row in rows)


@pytest.mark.parametrize("models", [(0, 1), (0,), (1,)])
def test_a_trait_of_one_small_layer_is_found(models: tuple[int, ...]) -> None:
    """A shift of three numbers among two thousand noisy ones is found where only a few layers are looked at."""

    def shifted(one: Observed, client: int) -> Observed:
        sketches = []
        for model, sketch in enumerate(one.whole):
            buckets = sketch.buckets.copy()
            start = len(buckets) - 10 + 3 * (client % 3)
            buckets[start : start + 3] += 3 * (model in models)
            sketches.append(Sketch(buckets, sketch.norms))
        return Observed(one.client, (sketches[0], sketches[1]), None)

    plain = leaks()
    sides = ([shifted(one, int(one.client[1:])) for one in side] for side in (plain.known, plain.attacked))
    found, _ = Leaks(*sides, SKETCHER.layout, Sums(), 0).attribute("kind", kinds())
    assert found["auroc"] > 0.9 and "last layers" in found["views"][0]


def test_random_labels_are_guessed_at_chance() -> None:
    found, _ = leaks().attribute("kind", kinds())
    assert found["auroc_low"] < 0.5 < found["auroc_high"] and 0.15 < found["accuracy"] < 0.55
    same, _ = leaks().same_client()
    assert same is not None and same["auroc_low"] < 0.5 < same["auroc_high"]


def test_a_client_is_recognised_by_what_is_its_own() -> None:
    found, rows = leaks(person=0.6).same_client()
    assert found is not None and found["auroc"] > 0.95 and found["first"] > 0.5 and found["chance"] == 1 / 60
    assert np.mean([row["guess"] == row["value"] for row in rows]) == found["first"]


@pytest.mark.long
def test_sums_hide_and_noise_hides() -> None:
    alone, _ = leaks(attribute=0.3).attribute("kind", kinds())
    summed, _ = leaks(attribute=0.3, sums=Sums(20)).attribute("kind", kinds())
    noisy, _ = leaks(attribute=0.3, sums=Sums(2, (100.0, 100.0))).attribute("kind", kinds())
    assert alone["auroc"] > summed["auroc"] + 0.1 and abs(noisy["auroc"] - 0.5) < 0.15
    again, _ = leaks(attribute=0.3, sums=Sums(20)).attribute("kind", kinds())
    assert again == summed


def test_a_sum_of_three_adds_two_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(clients: int, count: int, generator: np.random.Generator) -> np.ndarray:
        asked.append(count)
        return companions(clients, count, generator)

    monkeypatch.setattr("fedray.core.privacy.leaks.companions", counted)
    leaks(sums=Sums(3), clients=12).attribute("kind", kinds(24))
    assert set(asked) == {2}


def test_a_sum_is_weighted_as_the_server_weighs() -> None:
    buckets = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    seen = Observations(buckets, np.zeros((3, 1)), np.log([1.0, 3.0, 1.0]))
    layout = Sketcher((Layer("all", 0, 2),), 0).layout
    found = seen.summed(seen, np.array([[1], [0], [0]]), layout, 0.0, np.random.default_rng(0))
    assert found.buckets == pytest.approx(np.array([[0.25, 0.75], [0.25, 0.75], [2.0, 1.5]]))
    assert found.norms[2] == pytest.approx([2.5])
    chosen = companions(5, 3, np.random.default_rng(0))
    assert all(len({*row, client}) == 4 for client, row in enumerate(chosen.tolist()))


def test_values_that_are_rare_or_unknown_are_left_out() -> None:
    values = kinds() | dict.fromkeys((f"c{client:03d}" for client in range(58, 63)), "rare")
    del values["c119"]
    found, rows = leaks().attribute("kind", values)
    assert found["values"] == 3 and found["clients"] == 56 and "rare" not in {row["value"] for row in rows}
    with pytest.raises(ValueError, match=r"only one value, a, of kind has 4 auxiliary clients"):
        leaks().attribute("kind", dict.fromkeys(kinds(), "a"))


def test_curves_by_hand() -> None:
    scores = np.array([[3.0, 0.0], [1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert inference.auroc(scores, np.array([0, 0, 1, 1])) == 0.75
    assert inference.auroc(scores, np.zeros(4, int)) == 0.5
    likeness = np.array([[5.0, 1.0, 2.0], [4.0, 3.0, 3.0], [0.0, 6.0, 9.0]])
    # Pairs of two clients: 0, 1, 2, 3, 4, 6. 5 is above five of them, 3 above three and ties with one, 9 above all.
    assert recognition.auroc(likeness) == pytest.approx((5 + 3.5 + 6) / 18)
    twice = np.array([2.0, 1.0, 0.0])  # pairs 1 and 4, each twice
    assert recognition.auroc(likeness, twice) == pytest.approx((2 * 1.0 + 0.5) / 3)
