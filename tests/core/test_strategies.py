from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from fedray.core.strategies import STRATEGIES, ByExamples, ByLoss, ByWer, OnePass, Uniform
from fedray.core.sums import WeightedSum


def weights(strategy: OnePass, reports: list[dict[str, float]]) -> np.ndarray:
    """The share of each client in the engine's mean: client i sends the i-th unit vector, so the mean is the shares."""
    total = WeightedSum()
    for place, report in enumerate(reports):
        delta = np.zeros(len(reports), np.float32)
        delta[place] = 1
        total.add(delta, strategy.log_weight(report))
    found = total.mean()
    assert found is not None
    return found


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def test_by_examples() -> None:
    counts = np.array([1, 10, 0, 389])
    found = weights(ByExamples(), [{"examples": float(n)} for n in counts])
    assert np.allclose(found, counts / 400, rtol=1e-6) and found[2] == 0


def test_uniform() -> None:
    """Every client with examples weighs the same."""
    assert (
        weights(Uniform(), [{"examples": float(n)} for n in (1, 10, 0, 389, 2)]).tolist()
        == [0.25] * 2 + [0] + [0.25] * 2
    )
    assert np.allclose(Uniform(clip_norm=1.0).clip(np.array([3, 4], np.float32)), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 20.0])
def test_by_loss(temperature: float) -> None:
    losses = np.array([2.0, 1.5, 3.25, 1e4, 1.4999])
    found = weights(ByLoss(temperature), [{"loss": loss} for loss in losses])
    assert np.allclose(found, softmax(-losses / temperature), rtol=1e-6, atol=1e-30)
    assert found.argmax() == 4


def test_a_client_without_examples_has_no_loss() -> None:
    reports = [{"examples": 0, "loss": math.nan}, {"examples": 3, "loss": 2.0}]
    assert weights(ByLoss(), reports).tolist() == [0.0, 1.0]


def test_by_loss_where_all_are_huge() -> None:
    losses = np.array([9999.0, 1e4, 9998.5])
    assert np.allclose(weights(ByLoss(), [{"loss": loss} for loss in losses]), softmax(-losses), rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_by_wer(temperature: float) -> None:
    wers = np.array([0.0, 0.05, 0.5, 1.0, 3.0])
    found = weights(ByWer(temperature), [{"wer": wer} for wer in wers])
    assert np.allclose(found, softmax((1 - wers) / temperature), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("temperature", [1.0, 0.05, 0.01])
@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_the_whole_range_of_reports_equals_a_float64_softmax(order: str, temperature: float) -> None:
    """WERs are 0 to 300 %, losses 0.001 to 10,000, and clients come in any order."""
    places = {
        "rising": np.arange(400),
        "falling": np.arange(400)[::-1],
        "shuffled": np.random.default_rng(0).permutation(400),
    }[order]
    wers, losses = np.linspace(0, 3, 400)[places], np.geomspace(1e-3, 1e4, 400)[places]
    found = weights(ByWer(temperature), [{"wer": wer} for wer in wers])
    assert np.allclose(found, softmax((1 - wers) / temperature), rtol=1e-6, atol=1e-9)
    found = weights(ByLoss(temperature), [{"loss": loss} for loss in losses])
    assert np.allclose(found, softmax(-losses / temperature), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_has_no_weight(value: float) -> None:
    """The log weight is NaN, which fails the client; -inf would leave it out silently."""
    assert math.isnan(ByLoss().log_weight({"loss": value})) and math.isnan(ByWer().log_weight({"wer": value}))


def test_percent_is_a_temperature_of_a_hundredth() -> None:
    """A client with 5 points less WER then weighs e^5 = 148 times as much."""
    found = weights(ByWer(0.01), [{"wer": 0.30}, {"wer": 0.35}])
    assert found[0] / found[1] == pytest.approx(math.exp(5), rel=1e-5)


def test_clipping_bounds_the_norm() -> None:
    delta = np.array([3, 4], np.float32)  # norm 5
    assert ByExamples().clip(delta) is delta and ByExamples(clip_norm=5.0).clip(delta) is delta
    assert np.allclose(ByLoss(clip_norm=1.0).clip(delta), [0.6, 0.8], rtol=1e-6)
    large = np.full(4, 1e30, np.float32)  # its squares overflow float32
    assert np.allclose(ByExamples(clip_norm=2.0).clip(large), 1, rtol=1e-6)
    assert not ByExamples(clip_norm=1.0).clip(np.zeros(2, np.float32)).any()
    assert delta.tolist() == [3, 4]


def test_running_statistics_are_not_clipped() -> None:
    """Running statistics follow the parameters in the delta, and may be much larger."""
    delta = np.array([3, 4, 1000], np.float32)
    assert np.allclose(ByExamples(clip_norm=1.0).clip(delta, 2), [0.6, 0.8, 1000], rtol=1e-6)
    assert ByExamples(clip_norm=5.0).clip(delta, 2) is delta


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.0}, {"temperature": -1.0}, {"clip_norm": 0.0}, {"temperature": math.nan}]
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be above 0, not"):
        ByLoss(**wrong)


def test_registry() -> None:
    for strategy in STRATEGIES.values():
        assert pickle.loads(pickle.dumps(strategy())) == strategy()
