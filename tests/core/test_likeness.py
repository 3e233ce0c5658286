"""How similar reconstructed log-mels are to true ones, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.core.privacy.likeness import Reconstruction, correlation, findings, in_order

UP = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]], np.float32)  # a mean of each bin is no likeness


def test_the_correlation_is_of_changes_over_time() -> None:
    assert correlation(UP, 3 * UP + 7) == pytest.approx(1.0)
    assert correlation(UP, -UP) == pytest.approx(0.5), "up, and then down to a third"
    assert correlation(UP, np.ones_like(UP)) == 0.0
    longer = np.concatenate([UP, [[9.0, -4.0]]]).astype(np.float32)
    assert correlation(UP, longer) == pytest.approx(1.0)
    other = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]], np.float32)
    assert correlation(UP, UP + other) == pytest.approx(1 / np.sqrt(2))


def test_the_same_sound_at_another_time_is_alike() -> None:
    speech = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    for shift in (0, 7, 49):
        assert correlation(np.roll(speech, shift, 0), speech) == pytest.approx(1.0)
    by_hand = max(np.corrcoef(np.roll(speech[:, 0], shift), speech[:, 1])[0, 1] for shift in range(50))
    assert correlation(speech[:, :1], speech[:, 1:2]) == pytest.approx(by_hand)


def test_a_batch_gives_no_order_away() -> None:
    down = -UP
    swapped = in_order([down, UP], [UP, down], ["yes", "yes"])
    assert swapped[0] is UP and swapped[1] is down
    kept = in_order([down, UP], [UP, down], ["yes", "no"])  # the attacker knows which one says what
    assert kept[0] is down and kept[1] is UP
    short = in_order([down, UP[:2]], [UP, down[:2]], ["yes", "yes"])  # and how long each is
    assert len(short[0]) == 3 and len(short[1]) == 2


def test_findings_compare_with_utterances_of_the_same_words() -> None:
    generator = np.random.default_rng(0)
    true = [generator.standard_normal((20, 4)).astype(np.float32) for _ in range(6)]
    made = [one + 0.5 * generator.standard_normal(one.shape).astype(np.float32) for one in true]
    made[5] = true[0]  # a failure
    parts = [
        (f"c{place // 2}", Reconstruction(f"u{place}", "ab"[place % 2], *both, match=0.9))
        for place, both in enumerate(zip(true, made, strict=True))
    ]
    found, rows = findings(parts)
    assert found["utterances"] == 6 and found["chance"] == pytest.approx(1 / 6) and found["match"] == 0.9
    assert found["first"] == pytest.approx(5 / 6) and [row["first"] for row in rows] == [1, 1, 1, 1, 1, 0]
    assert rows[0]["others"] == pytest.approx(np.mean([correlation(made[0], true[place]) for place in (2, 4)]))
    assert found["likeness_low"] <= found["likeness"] <= found["likeness_high"]
    assert found["likeness"] == pytest.approx(np.mean([row["likeness"] for row in rows]))
