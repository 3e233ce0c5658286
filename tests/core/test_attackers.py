"""What attackers send, by hand: each attack on two or three updates of two weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from fedray.core.attackers import (
    Attack,
    Backdoor,
    Colluding,
    InnerProduct,
    LabelFlips,
    LittleIsEnough,
    MinMax,
    Noise,
    SignFlip,
    most_hidden,
)

CLIENTS = [f"client-{number}" for number in range(20)]
UPDATES = [np.array(update, np.float32) for update in ([1, 3], [3, 3], [2, 6])]  # mean (2, 4), variances 2/3 and 2
DEVIATION = np.sqrt([2 / 3, 2])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_share_is_rounded_and_a_larger_one_includes_a_smaller_one() -> None:
    drawn = {share: SignFlip(share=share).chosen(CLIENTS, 7) for share in (0.1, 0.12, 0.3, 1.0)}
    assert {share: len(names) for share, names in drawn.items()} == {0.1: 2, 0.12: 2, 0.3: 6, 1.0: 20}
    assert drawn[0.1] == drawn[0.3][:2] and drawn[0.3] != SignFlip(share=0.3).chosen(CLIENTS, 8)
    assert drawn[0.3] == SignFlip(share=0.3).chosen(CLIENTS[::-1], 7)
    with pytest.raises(ValueError, match=r"attack\.share=0\.02 of 20 clients is no client"):
        SignFlip(share=0.02).chosen(CLIENTS, 7)


def test_rounds_count_from_one_and_both_ends_attack() -> None:
    assert [SignFlip(rounds=[2, 3]).active(round) for round in range(4)] == [False, True, True, False]
    assert SignFlip().active(99)
    for rounds in ([2], [3, 2], [0, 2]):
        with pytest.raises(ValueError, match=r"first and the last round"):
            SignFlip(rounds=rounds)


def test_attacks_of_one() -> None:
    assert SignFlip(scale=2).sent(UPDATES[0], generator()).tolist() == [-2, -6]
    assert LabelFlips(scale=10).sent(UPDATES[0], generator()).tolist() == [10, 30]
    assert LabelFlips().sent(UPDATES[0], generator()) is UPDATES[0]
    sent = Noise(scale=3).sent(UPDATES[0], generator())
    assert np.linalg.norm(sent) == pytest.approx(3 * math.sqrt(10), rel=1e-6)
    assert not Noise().sent(np.zeros(2, np.float32), generator()).any()


def test_attacks_of_several() -> None:
    assert LittleIsEnough(z=1.5).together(UPDATES, 10) == pytest.approx([2, 4] - 1.5 * DEVIATION)
    assert InnerProduct(scale=0.5).together(UPDATES, 10).tolist() == [-1, -2]
    # A single attacker knows no spread: it sends what it trained.
    assert all(attack.together(UPDATES[:1], 10).tolist() == [1, 3] for attack in (LittleIsEnough(), MinMax()))


@pytest.mark.parametrize("direction", ["deviation", "unit", "sign"])
def test_min_max_goes_as_far_as_two_updates_are_apart(direction: str) -> None:
    """The squared distances are 4, 10 and 10: no update is farther than sqrt(10), and one is as far."""
    sent = MinMax(direction=direction).together(UPDATES, 10)
    against = {"deviation": DEVIATION, "unit": np.array([2, 4]), "sign": np.ones(2)}[direction]
    gamma = (np.array([2, 4]) - sent) / against
    assert gamma[0] == pytest.approx(gamma[1]) and gamma[0] > 0
    assert max(np.linalg.norm(sent - update) for update in UPDATES) == pytest.approx(math.sqrt(10), rel=1e-6)


def test_z_of_the_paper() -> None:
    """Of 50 clients 24 attack: 2 of the 26 honest ones make a majority with them, 24 of 26 are nearer to the mean."""
    assert most_hidden(50, 24) == pytest.approx(norm.ppf(24 / 26))
    assert most_hidden(10, 1) == 0  # norm.ppf(4 / 9) is negative: too few to be a majority with honest clients
    assert LittleIsEnough().together(UPDATES, 6) == pytest.approx([2, 4] - norm.ppf(2 / 3) * DEVIATION)  # 1 of 3 honest


@pytest.mark.parametrize("attack", [LittleIsEnough(), InnerProduct(), MinMax()])
def test_what_attackers_send_does_not_depend_on_their_order(attack: Colluding) -> None:
    assert attack.together(UPDATES, 6) == pytest.approx(attack.together(UPDATES[::-1], 6))


def test_a_backdoor_needs_its_target() -> None:
    with pytest.raises(ValueError, match=r"attack\.target is missing"):
        Backdoor()
    assert isinstance(Backdoor(target="yes"), Attack)
