from __future__ import annotations

import numpy as np
import pytest

from fedray.core.privacy import attacks
from fedray.core.privacy.audits import LENGTH, Canaries, Directions, Speakers, coins, drawn, findings, sent


def test_coins_are_fair_and_do_not_depend_on_who_else_is_there() -> None:
    names = Directions(clients=1_000).names
    found = coins(names, 3)
    assert abs(sum(found.values()) - 500) < 80  # five standard deviations
    assert coins(names[:100], 3) == {name: found[name] for name in names[:100]}
    assert coins(names, 4) != found


def test_coins_that_leave_too_few_on_a_side_are_refused() -> None:
    names = Directions(clients=4).names
    with pytest.raises(ValueError, match=". of 4 candidates take part, but an audit needs at least two"):
        for seed in range(100):
            coins(names, seed)


def test_candidates_are_drawn_by_their_names() -> None:
    clients = [f"client-{index}" for index in range(50)]
    chosen = drawn(clients, Speakers(clients=10), 1)
    assert len(set(chosen)) == 10 and chosen == drawn(clients[::-1], Speakers(clients=10), 1)
    kept = [client for client in clients if client in chosen or client > "client-3"]
    assert set(drawn(kept, Speakers(clients=10), 1)) == set(chosen), "who is not drawn makes no difference"
    assert set(drawn(clients, Speakers(clients=20), 1)) > set(chosen)


def test_a_direction_is_longer_than_its_bound_and_the_same_in_every_round() -> None:
    update = sent("canary-0001", 500, 0.3, 2)
    assert np.linalg.norm(update.delta) == pytest.approx(LENGTH * 0.3, rel=1e-5)
    assert np.array_equal(update.delta, sent("canary-0001", 500, 0.3, 2).delta)
    other = sent("canary-0002", 500, 0.3, 2).delta
    assert abs(update.delta @ other) < 0.3 * np.square(LENGTH * 0.3)


def test_a_bound_above_the_claim_refutes_it() -> None:
    inside, outside = np.linspace(10, 11, 60), np.linspace(0, 1, 60)
    for claimed, refuted in ((None, False), (1.0, True), (100.0, False)):
        found = findings(Canaries(), inside, outside, 1e-6, claimed)
        assert found["refuted"] is refuted and found["epsilon_claimed"] == claimed
    assert (found["auroc"], found["true_positives"], found["inside"]) == (1.0, 1.0, 60)
    assert "mu" not in found, "losses are not normal"
    assert findings(Directions(), inside, outside, 1e-6, None)["mu"] > 10


def test_two_bounds_share_the_error_of_one() -> None:
    inside, outside = np.linspace(0, 3, 60), np.linspace(-2, 1, 60)
    found = findings(Directions(), inside, outside, 1e-6, None)
    bounds = [
        attacks.one_run(inside, outside, 1e-6, 0.975),
        attacks.separation(inside, outside, 0.975).epsilon(1e-6)[1],
    ]
    assert 0 < found["epsilon_low"] == max(bounds)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [(Speakers, {"clients": 3}, "at least 4"), (Canaries, {"speed": 9.0}, "at least 0.5 and at most 4")],
)
def test_settings_out_of_range_are_refused(kind: type, values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**values)
